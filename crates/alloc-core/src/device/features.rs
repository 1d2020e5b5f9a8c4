//! What only those programs use that ask for it.

pub(super) mod budgets;
pub(super) mod checkpoint;
pub(super) mod exact;
pub(super) mod falling_asleep;
pub(super) mod limits;
pub(super) mod peers;
pub(super) mod rounds;
pub(super) mod sharing;
pub(super) mod sleep;
pub(super) mod statistics;
pub(super) mod unified;
pub(super) mod wake;
pub(super) mod waking_up;

pub(crate) use falling_asleep::FallingAsleep;
pub(crate) use rounds::{Pieces, carry};
pub(crate) use statistics::ScopeId;
