//! Every call of the allocator, over a driver that counts calls and can unload.

use alloc_core::backend::{Backend, BackendError, ErrorKind, Result};
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::types::{DevicePtr, GIB, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::policy::Policy;
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) fn config() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(8 * GIB)
}

/// A driver that counts calls and can unload.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    pub(crate) calls: AtomicU64,
    pub(crate) unloaded: AtomicBool,
    /// Events cannot be recorded: the stream, not the driver, is unusable.
    pub(crate) broken_streams: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Watch(pub(crate) Arc<Driver>);

impl Hook for Watch {
    fn enter(&self, method: &'static str) -> Result<()> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let broken = self.0.broken_streams.load(Ordering::Relaxed) && method == "Backend::record_event";
        if self.0.unloaded.load(Ordering::Relaxed) || broken {
            return Err(BackendError::new(ErrorKind::Unusable, 4, method, DEVICE, "the driver is unloading"));
        }
        Ok(())
    }
}

impl Driver {
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// An allocator over a machine whose driver calls are counted.
pub(crate) fn rig<P: Policy>(config: OpenRegConfig) -> (Arc<OpenReg>, Arc<Driver>, CachingAllocator, Stream) {
    let machine = OpenReg::new(config).unwrap();
    let driver = Arc::new(Driver::default());
    let backend = Arc::new(Interposed::new(machine.clone(), Watch(Arc::clone(&driver))));
    let stream = machine.default_stream(DEVICE);
    (machine, driver, granule_tests::made::<P>(backend, Settings::default()).unwrap(), stream)
}

/// Every call that can fail, and what it said.
pub(crate) fn every_call(
    allocator: &CachingAllocator,
    ptr: DevicePtr,
    stream: Stream,
    saved: &alloc_core::device::PoolCheckpoint,
) -> Vec<(&'static str, std::result::Result<(), AllocError>)> {
    let a = allocator;
    let pool = PoolId::fresh();
    vec![
        ("malloc", a.malloc(512, stream).map(drop)),
        ("malloc_at", a.malloc_at(512, ptr, stream).map(drop)),
        ("record_stream", a.record_stream(ptr, stream)),
        ("poll", a.poll(DEVICE)),
        ("synchronise", a.synchronise(DEVICE)),
        ("cache_info", a.statistics().cache_info(DEVICE).map(drop)),
        ("set_memory_fraction", a.set_memory_fraction(0.5, DEVICE)),
        ("set_memory_limits", a.set_memory_limits(DEVICE, None, None)),
        ("set_reserve_class", a.set_reserve_class(stream, "none")),
        ("annotate", a.history().annotate(ptr, "text")),
        ("create_pool", a.pools().create(DEVICE, pool, None)),
        ("begin_pool", a.pools().begin(DEVICE, pool, Filter::Always)),
        ("set_use_on_oom", a.pools().set_use_on_oom(DEVICE, PoolId::DEFAULT, true)),
        ("set_no_split", a.pools().set_no_split(DEVICE, PoolId::DEFAULT)),
        ("set_pool_limit", a.pools().set_hard_limit(DEVICE, PoolId::DEFAULT, None)),
        ("prime_pool", a.pools().prime(PoolId::DEFAULT, stream, &[512])),
        ("mark_capture_begin", a.pools().mark_capture_begin(DEVICE)),
        ("checkpoint", a.pools().checkpoint(DEVICE, PoolId::DEFAULT).map(drop)),
        ("restore_checkpoint", a.pools().restore(saved, None).map(drop)),
    ]
}

/// Calls that give something back.
pub(crate) fn releases(
    allocator: &CachingAllocator,
    ptr: DevicePtr,
    stream: Stream,
) -> Vec<(&'static str, std::result::Result<(), AllocError>)> {
    let a = allocator;
    vec![
        ("free", a.free(ptr)),
        ("free again", a.free(ptr)),
        ("free of another's", a.free(DevicePtr(0xdead_beef))),
        ("free_on", a.free_on(ptr, DEVICE)),
        ("retire_stream", a.retire(stream)),
        ("empty_cache", a.empty_cache()),
        ("empty_pool", a.pools().empty(PoolId::DEFAULT)),
        ("end_pool", a.pools().end(DEVICE, PoolId::DEFAULT)),
        ("release_pool", a.pools().release(DEVICE, PoolId::DEFAULT)),
        ("mark_capture_end", a.pools().mark_capture_end(DEVICE)),
    ]
}

/// Calls that only look.
pub(crate) fn looks(
    allocator: &CachingAllocator,
    ptr: DevicePtr,
) -> Vec<(&'static str, std::result::Result<(), AllocError>)> {
    let a = allocator;
    vec![
        ("stats", a.stats(DEVICE).map(drop)),
        ("reset_peak_stats", a.statistics().reset_peaks(DEVICE)),
        ("reset_accumulated_stats", a.statistics().reset_accumulated(DEVICE)),
        ("memory_fraction", a.memory_fraction(DEVICE).map(drop)),
        ("base_allocation", a.base_allocation(ptr).map(drop)),
        ("pool_use_count", a.pools().use_count(DEVICE, PoolId::DEFAULT).map(drop)),
        ("pool_stats", a.pools().stats(DEVICE, PoolId::DEFAULT).map(drop)),
        ("pool_has_live", a.pools().has_live(DEVICE, PoolId::DEFAULT, &BTreeSet::new()).map(drop)),
    ]
}

/// What of `calls` did not answer as `expected` says.
pub(crate) fn unexpected(
    calls: Vec<(&'static str, std::result::Result<(), AllocError>)>,
    expected: impl Fn(&std::result::Result<(), AllocError>) -> bool,
) -> Vec<String> {
    let wrong = calls.into_iter().filter(|(_, answer)| !expected(answer));
    wrong.map(|(call, answer)| format!("{call} answered {answer:?}")).collect()
}
