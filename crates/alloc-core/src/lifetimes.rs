//! Lifetimes of memory in use by streams, captures and other processes.

pub(crate) mod call;
pub(crate) mod epoch;
pub(crate) mod last_work;
pub(crate) mod pending;
pub(crate) mod uses;
