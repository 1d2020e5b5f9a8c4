//! What can be seen of an allocator.

pub mod history;
pub mod observers;
pub mod record;
pub mod snapshot;
pub mod stats;
