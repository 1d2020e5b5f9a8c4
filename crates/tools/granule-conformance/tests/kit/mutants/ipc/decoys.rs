//! Exports of something else than was asked for.

use super::lock;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    Backend, CopyKind, HandleType, Ipc, IpcMemoryHandle, PhysicalSharing, Result, ShareableHandle,
    VirtualMemory,
};
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Every allocation has a second one beside it.
#[derive(Debug, Default)]
struct Twins(Mutex<HashMap<DevicePtr, DevicePtr>>);

impl Twins {
    fn take(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let real = inner.malloc(device, bytes)?;
        lock(&self.0).insert(real, inner.malloc(device, bytes)?);
        Ok(real)
    }

    fn give(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if let Some(twin) = lock(&self.0).remove(&ptr) {
            // SAFETY: rule 3: taken beside `ptr`, given back once with it.
            unsafe { inner.free(device, twin)? };
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.free(device, ptr) }
    }

    fn of(&self, ptr: DevicePtr) -> DevicePtr {
        lock(&self.0).get(&ptr).copied().unwrap_or(ptr)
    }
}

#[derive(Debug, Default)]
pub(super) struct DecoyMemory(Twins);

impl Hook for DecoyMemory {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.0.take(inner, device, bytes)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        self.0.give(inner, device, ptr)
    }

    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        inner.export_memory(self.0.of(base))
    }
}

#[derive(Debug, Default)]
pub(super) struct ExportIsACopy(Twins);

impl Hook for ExportIsACopy {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.0.take(inner, device, bytes)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        self.0.give(inner, device, ptr)
    }

    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        if self.0.of(dst) != dst {
            // SAFETY: the caller's promise, and the second allocation is as large as the first.
            unsafe { inner.copy(self.0.of(dst), src, bytes, kind)? };
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.copy(dst, src, bytes, kind) }
    }

    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        inner.export_memory(self.0.of(base))
    }
}

/// Keeps a descriptor of what was exported, to write over it.
#[derive(Debug, Default)]
pub(super) struct ReleasedMemoryIsReused(Mutex<HashMap<PhysicalHandle, File>>);

impl Hook for ReleasedMemoryIsReused {
    fn export_physical(
        &self,
        inner: &dyn PhysicalSharing,
        handle: PhysicalHandle,
        handle_type: HandleType,
    ) -> Result<ShareableHandle> {
        let shared = inner.export_physical(handle, handle_type)?;
        if let ShareableHandle::PosixFd(descriptor) = &shared
            && let Ok(kept) = descriptor.try_clone()
        {
            lock(&self.0).insert(handle, File::from(kept));
        }
        Ok(shared)
    }

    unsafe fn release_physical(&self, inner: &dyn VirtualMemory, handle: PhysicalHandle) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.release_physical(handle)? };
        if let Some(file) = lock(&self.0).remove(&handle) {
            // A simulated device's memory is a file.
            let _ = file.write_all_at(&[0xee; 4096], 0);
        }
        Ok(())
    }
}
