//! Sources that follow from others: what would drift if people wrote it by hand.

pub(crate) mod bindgen;
pub(crate) mod codegen;
pub(crate) mod header;
