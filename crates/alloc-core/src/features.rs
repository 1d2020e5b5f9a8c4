//! What only some programs use: each with the values and the state that are its own.

pub mod budget;
pub mod ledger;
pub mod share;
pub mod sleep;
pub(crate) mod uncached;
