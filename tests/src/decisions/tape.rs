//! What is decided, one thing after another: a hash of it, and the text where somebody reads it.

use crate::rig::DEVICE;
use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, Result, VirtualMemory};
use alloc_core::stats::DeviceStats;
use alloc_core::types::{DevicePtr, PhysicalHandle};
use granule_conformance::interpose::{Hook, Interposed};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// What was noted so far.
#[derive(Debug, Default)]
pub(super) struct Tape(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    hash: u64,
    text: Option<String>,
}

impl Tape {
    /// One that keeps the text.
    pub(super) fn written() -> Self {
        Self(Mutex::new(State { text: Some(String::new()), ..State::default() }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note(&self, what: &str, numbers: &[u64]) {
        self.with(|State { hash, text }| {
            for word in what.bytes().map(u64::from).chain(numbers.iter().copied()) {
                *hash = (*hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            }
            if let Some(text) = text {
                let _ = writeln!(text, "{what} {numbers:x?}");
            }
        });
    }

    /// Of all that was noted so far.
    pub(super) fn hash(&self) -> u64 {
        self.with(|state| state.hash)
    }

    /// What was kept.
    pub(super) fn text(&self) -> String {
        self.with(|state| state.text.clone().unwrap_or_default())
    }

    /// Notes those of PyTorch, private pools in the order in which they were made.
    pub(super) fn note_statistics(&self, allocator: &CachingAllocator) -> DeviceStats {
        let mut stats = allocator.stats(DEVICE).expect("there is one device");
        let pools = std::mem::take(&mut stats.reserved_bytes_by_private_pools);
        for (key, value) in stats.flatten() {
            self.note(&key, &[value.cast_unsigned()]);
        }
        for pool in pools.values() {
            let figures = [pool.all.current, pool.all.peak, pool.all.allocated, pool.all.freed];
            self.note("pool", &figures.map(i64::cast_unsigned));
        }
        stats
    }

    /// The device, with calls noted on their way.
    pub(super) fn before(self: &Arc<Self>, device: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Interposed::new(device, Calls(Arc::clone(self))))
    }
}

/// Calls that take, give, map, unmap or wait, whether they are served or not.
#[derive(Debug)]
struct Calls(Arc<Tape>);

const NOTED: [&str; 8] = [
    "Backend::malloc",
    "Backend::free",
    "Backend::wait_event",
    "Backend::synchronize_event",
    "Backend::synchronize_stream",
    "Backend::synchronize_device",
    "VirtualMemory::create_physical",
    "VirtualMemory::release_physical",
];

impl Hook for Calls {
    fn enter(&self, method: &'static str) -> Result<()> {
        if NOTED.contains(&method) {
            self.0.note(method, &[]);
        }
        Ok(())
    }

    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        self.0.note("map", &[at.0, bytes]);
        // SAFETY: passed on as it came.
        unsafe { inner.map(at, bytes, handle) }
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        self.0.note("unmap", &[at.0, bytes]);
        // SAFETY: passed on as it came.
        unsafe { inner.unmap(at, bytes) }
    }
}
