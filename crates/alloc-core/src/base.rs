//! Plain values and small tools that every layer uses.

pub(crate) mod growth;
pub(crate) mod ids;
pub mod round;
pub(crate) use backend_api::steps;
pub(crate) mod tenants;
pub mod types;
