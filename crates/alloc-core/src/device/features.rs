//! What only those programs use that ask for it.

pub(super) mod budgets;
pub(super) mod checkpoint;
pub(super) mod exact;
pub(crate) mod falling_asleep;
pub(super) mod limits;
pub(super) mod peers;
pub(crate) mod rounds;
pub(super) mod sharing;
pub(super) mod sleep;
pub(super) mod statistics;
pub(super) mod wake;
pub(crate) mod waking_up;
