//! Features that only some programs use, each with its own values and state.

pub mod budget;
pub mod ledger;
pub mod share;
pub mod sleep;
pub(crate) mod uncached;
