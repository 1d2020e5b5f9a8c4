//! What a shell is given of this command: completions and manual pages.

pub(super) mod completions;
pub(super) mod man;
