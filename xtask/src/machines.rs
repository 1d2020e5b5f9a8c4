//! Tests on machines other than this one: real devices, drivers of other machines, another processor.

pub(crate) mod aarch64;
pub(crate) mod gpu;
pub(crate) mod personalities;
