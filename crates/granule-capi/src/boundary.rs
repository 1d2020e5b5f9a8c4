//! What is between C and the engine.

pub(crate) mod callback;
pub(crate) mod contexts;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod log;
pub(crate) mod pass;
pub(crate) mod report;
pub(crate) mod texts;
