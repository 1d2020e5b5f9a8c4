//! Wrong maps and unmaps.

use super::{Busy, queue_host_function};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use backend_api::{Access, Backend, ErrorKind, HandleType, HostFunction, Result, VirtualMemory};
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is mapped where: address, bytes, handle.
type Places = Mutex<Vec<(DevicePtr, u64, PhysicalHandle)>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
pub(super) struct MapOpens;

impl Hook for MapOpens {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle)? };
        // SAFETY: the range was mapped just now.
        unsafe { inner.set_access(at, bytes, &[DeviceIndex(0)], Access::ReadWrite) }
    }
}

#[derive(Debug, Default)]
pub(super) struct AliasedMaps(Mutex<HashMap<u64, PhysicalHandle>>);

impl Hook for AliasedMaps {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let first = *lock(&self.0).entry(bytes).or_insert(handle);
        // SAFETY: the caller's promise; the first handle is alive and of the same size.
        unsafe { inner.map(at, bytes, first) }
    }

    /// Once the first is gone, another one is the first.
    unsafe fn release_physical(&self, inner: &dyn VirtualMemory, handle: PhysicalHandle) -> Result<()> {
        lock(&self.0).retain(|_, first| *first != handle);
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.release_physical(handle) }
    }
}

#[derive(Debug, Default)]
pub(super) struct AdjacentUnmapStops(Places);

impl Hook for AdjacentUnmapStops {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        lock(&self.0).push((at, bytes, handle));
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle) }
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        let first = lock(&self.0).iter().rev().find(|place| place.0 == at).map_or(bytes, |place| place.1);
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.unmap(at, first) }
    }
}

#[derive(Debug, Default)]
pub(super) struct UnmapLies;

impl Hook for UnmapLies {
    unsafe fn unmap(&self, _: &dyn VirtualMemory, _: DevicePtr, _: u64) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct MapMovesNothing(Places);

impl Hook for MapMovesNothing {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let known = lock(&self.0).iter().any(|place| place.2 == handle);
        lock(&self.0).push((at, bytes, handle));
        if !known {
            // SAFETY: the caller's promise, passed on.
            return unsafe { inner.map(at, bytes, handle) };
        }
        let fresh = inner.create_physical(DeviceIndex(0), bytes, HandleType::None)?;
        // SAFETY: the caller's promise for the place; the handle was just made.
        unsafe { inner.map(at, bytes, fresh)? };
        // SAFETY: rule 1: just made; the mapping keeps the memory.
        unsafe { inner.release_physical(fresh) }
    }
}

#[derive(Debug, Default)]
pub(super) struct MapReplaces;

impl Hook for MapReplaces {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let mapped = unsafe { inner.map(at, bytes, handle) };
        if !matches!(&mapped, Err(error) if error.kind == ErrorKind::InvalidValue) {
            return mapped;
        }
        // SAFETY: a simulated device refuses what is not mapped.
        unsafe { inner.unmap(at, bytes)? };
        // SAFETY: the caller's promise, passed on; the place is empty now.
        unsafe { inner.map(at, bytes, handle) }
    }
}

#[derive(Debug, Default)]
pub(super) struct ReleaseUnmaps(Places);

impl Hook for ReleaseUnmaps {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        lock(&self.0).push((at, bytes, handle));
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle) }
    }

    unsafe fn release_physical(&self, inner: &dyn VirtualMemory, handle: PhysicalHandle) -> Result<()> {
        let mut places = lock(&self.0);
        for &(at, bytes, _) in places.iter().filter(|place| place.2 == handle) {
            // SAFETY: a simulated device refuses what is in use or not mapped.
            let _ = unsafe { inner.unmap(at, bytes) };
        }
        places.retain(|place| place.2 != handle);
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.release_physical(handle) }
    }
}

/// Knows its own id only from the handles it makes.
#[derive(Debug, Default)]
pub(super) struct ForeignHandles(Mutex<Option<BackendId>>);

impl ForeignHandles {
    fn own(&self, handle: PhysicalHandle) -> PhysicalHandle {
        PhysicalHandle { backend: lock(&self.0).unwrap_or(handle.backend), ..handle }
    }
}

impl Hook for ForeignHandles {
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let handle = inner.create_physical(device, bytes, handle_type)?;
        *lock(&self.0) = Some(handle.backend);
        Ok(handle)
    }

    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        // SAFETY: the caller's promise; a simulated device checks the handle.
        unsafe { inner.map(at, bytes, self.own(handle)) }
    }
}

#[derive(Debug, Default)]
pub(super) struct UnmapWaits(Busy);

impl Hook for UnmapWaits {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        queue_host_function(&self.0, inner, stream, function)
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        if *lock(&self.0) {
            // As long as a check needs to see it, instead of until the stream is done.
            std::thread::sleep(Duration::from_millis(150));
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes) }
    }
}
