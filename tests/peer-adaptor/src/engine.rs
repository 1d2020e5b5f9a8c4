//! The allocator with the policy that the configuration names.

use alloc_core::backend::Backend;
use alloc_core::config::{Flavour, PolicyName, Settings, pytorch};
use alloc_core::policy::{GranulePolicy, PytorchPolicy};
use alloc_core::stats::DeviceStats;
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use alloc_core::{AllocError, CachingAllocator};
use std::sync::Arc;

/// What `policy=NAME,conf=STRING` says.
pub(crate) fn settings(config: &str) -> Result<Settings, String> {
    let (policy, rest) = match config.strip_prefix("policy=") {
        Some(rest) => rest.split_once(',').map_or((Some(rest), ""), |(policy, rest)| (Some(policy), rest)),
        None => (None, config),
    };
    let conf = rest.strip_prefix("conf=").unwrap_or(rest);
    let parsed =
        pytorch::parse(conf, &Settings::default(), Flavour::Cuda).map_err(|error| error.to_string())?;
    let mut settings = parsed.settings;
    if let Some(name) = policy {
        let found = PolicyName::ALL.iter().find(|policy| policy.name() == name);
        settings.policy = Some(*found.ok_or_else(|| format!("this build has no policy '{name}'"))?);
    }
    Ok(settings)
}

/// One allocator of either policy.
pub(crate) enum Engine {
    Pytorch(CachingAllocator<PytorchPolicy>),
    Granule(CachingAllocator<GranulePolicy>),
}

/// The same call on whichever it is.
macro_rules! on {
    ($engine:expr, $allocator:ident => $call:expr) => {
        match $engine {
            Engine::Pytorch($allocator) => $call,
            Engine::Granule($allocator) => $call,
        }
    };
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Result<Self, AllocError> {
        Ok(match settings.policy_name() {
            PolicyName::Granule => Self::Granule(CachingAllocator::new(backend, settings)?),
            _ => Self::Pytorch(CachingAllocator::new(backend, settings)?),
        })
    }

    #[inline]
    pub(crate) fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr, AllocError> {
        on!(self, allocator => allocator.malloc(bytes, stream))
    }

    #[inline]
    pub(crate) fn free(&self, ptr: DevicePtr) -> Result<(), AllocError> {
        on!(self, allocator => allocator.free(ptr))
    }

    pub(crate) fn stats(&self, device: DeviceIndex) -> Result<DeviceStats, AllocError> {
        on!(self, allocator => allocator.stats(device))
    }

    pub(crate) fn empty_cache(&self) -> Result<(), AllocError> {
        on!(self, allocator => allocator.empty_cache())
    }

    /// Peaks and totals begin again.
    pub(crate) fn reset_stats(&self, device: DeviceIndex) -> Result<(), AllocError> {
        on!(self, allocator => {
            allocator.reset_peak_stats(device)?;
            allocator.reset_accumulated_stats(device)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::settings;
    use alloc_core::config::PolicyName;

    #[test]
    fn the_policy_comes_first_and_the_rest_is_pytorchs() {
        let both = settings("policy=granule,conf=expandable_segments:True,max_split_size_mb:64").unwrap();
        assert_eq!(
            (both.policy, both.expandable_segments, both.max_split_size),
            (Some(PolicyName::Granule), true, 64 << 20)
        );
        assert_eq!(settings("policy=pytorch").unwrap().policy, Some(PolicyName::Pytorch));
        assert_eq!(settings("").unwrap().policy, None);
        assert!(settings("conf=expandable_segments:True").unwrap().expandable_segments);
        assert!(settings("policy=best").unwrap_err().contains("no policy 'best'"));
    }
}
