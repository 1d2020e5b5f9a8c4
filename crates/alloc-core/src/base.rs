//! Plain values and small tools that every layer uses.

pub(crate) mod big_table;
pub(crate) mod ids;
pub mod round;
pub(crate) use backend_api::steps;
pub(crate) mod tenant_marks;
pub mod types;
