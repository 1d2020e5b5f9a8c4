//! Plain values and small tools that every layer uses.

pub(crate) mod growth;
pub(crate) mod ids;
pub mod round;
pub mod steps;
pub(crate) mod tenants;
pub mod types;
