//! What can be seen of an allocator.

pub mod figures;
pub mod history;
pub mod observers;
pub mod quantity;
pub mod record;
pub mod snapshot;
pub mod stats;
