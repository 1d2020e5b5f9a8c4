//! The policies as types: what every allocator has to do is tested by functions that are generic over them.

use alloc_core::config::PolicyName;

/// A policy.
pub trait Policy: Send + Sync + 'static {
    /// Its name in a text.
    const NAME: &'static str;
}

/// The `pytorch` policy.
#[derive(Debug)]
pub struct PytorchPolicy;

impl Policy for PytorchPolicy {
    const NAME: &'static str = PolicyName::Pytorch.name();
}

/// The `granule` policy.
#[derive(Debug)]
pub struct GranulePolicy;

impl Policy for GranulePolicy {
    const NAME: &'static str = PolicyName::Granule.name();
}
