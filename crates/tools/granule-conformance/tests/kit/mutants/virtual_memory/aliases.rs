//! One handle at several addresses, wrongly.

use crate::mutants::lock;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{HandleType, Result, VirtualMemory};
use granule_conformance::interpose::Hook;
use std::sync::Mutex;

/// What is mapped now: address, bytes, handle.
type Places = Mutex<Vec<(DevicePtr, u64, PhysicalHandle)>>;

fn lies_in(place: DevicePtr, at: DevicePtr, bytes: u64) -> bool {
    (at.0..at.0 + bytes).contains(&place.0)
}

#[derive(Debug, Default)]
pub(super) struct AliasIsFresh(Places);

impl Hook for AliasIsFresh {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let is_mapped = lock(&self.0).iter().any(|place| place.2 == handle);
        if !is_mapped {
            // SAFETY: the caller's promise, passed on.
            unsafe { inner.map(at, bytes, handle)? };
            lock(&self.0).push((at, bytes, handle));
            return Ok(());
        }
        let fresh = inner.create_physical(DeviceIndex(0), bytes, HandleType::None)?;
        // SAFETY: the caller's promise for the place; the handle was just made.
        unsafe { inner.map(at, bytes, fresh)? };
        // SAFETY: rule 1: just made; the mapping keeps the memory.
        unsafe { inner.release_physical(fresh) }
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes)? };
        lock(&self.0).retain(|place| !lies_in(place.0, at, bytes));
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct UnmapTakesAll(Places);

impl Hook for UnmapTakesAll {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle)? };
        lock(&self.0).push((at, bytes, handle));
        Ok(())
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes)? };
        let mut places = lock(&self.0);
        let gone: Vec<_> = places.extract_if(.., |place| lies_in(place.0, at, bytes)).collect();
        let others = places.extract_if(.., |place| gone.iter().any(|one| one.2 == place.2));
        for (at, bytes, _) in others {
            // SAFETY: a simulated device refuses what is not mapped.
            let _ = unsafe { inner.unmap(at, bytes) };
        }
        Ok(())
    }
}
