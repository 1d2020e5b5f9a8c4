//! How long memory is in use: by streams, by captures, by other processes.

pub(crate) mod call;
pub(crate) mod epoch;
pub(crate) mod last_work;
pub(crate) mod pending;
pub(crate) mod uses;
