//! Backends that break rules of this area: other processes.
//!
//! Only the exporter or importer in this process is broken; the second process is judged by what it sees.

mod decoys;

use super::{hook, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    Backend, BackendError, ErrorKind, Granularity, HandleType, Ipc, IpcMemoryHandle, PhysicalSharing, Result,
    ShareableHandle,
};
use decoys::{DecoyMemory, ExportIsACopy, ReleasedMemoryIsReused};
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

mutants! {
    DecoyMemory: "ipc.decoy_memory",
        "the handle exported is that of other memory" => "ipc.other_process_reads",
    ExportIsACopy: "ipc.export_is_a_copy",
        "what is exported is a copy of the memory" => "ipc.other_process_writes",
    WritesAreLost: "ipc.writes_are_lost", "writes to opened memory go nowhere" => "ipc.opened_here",
    OneReference: "ipc.one_reference", "a second open is not counted" => "ipc.opened_twice",
    CloseOfAll: "ipc.close_of_all", "closing what is not open is fine" => "ipc.closed_for_good",
    ClosedIsRemembered: "ipc.closed_is_remembered",
        "an address that was closed comes back from the cache" => "ipc.close_keeps_memory",
    FreeOfOpened: "ipc.free_of_opened", "opened memory can be freed" => "ipc.importer_never_frees",
    ExportedForEver: "ipc.exported_for_ever",
        "exported memory cannot be freed any more" => "ipc.death_of_the_importer",
    DeadExporters: "ipc.dead_exporters",
        "a handle opens although its exporter has gone" => "ipc.death_of_the_exporter",
    AnyHandle: "ipc.any_handle", "any 64 bytes open" => "ipc.malformed_handle",
    InteriorExports: "ipc.interior_exports",
        "an address inside an allocation exports the whole" => "ipc.interior_pointer",
    AnyExport: "ipc.any_export", "any address exports" => "ipc.no_memory",
    MappedExports: "ipc.mapped_exports",
        "virtual memory gives a handle that cannot be opened" => "ipc.mapped_memory",
    WrongDescriptor: "ipc.wrong_descriptor",
        "the descriptor exported is that of other memory" => "ipc.physical_memory_leaves",
    ImportIsNew: "ipc.import_is_new", "an import is new memory" => "ipc.physical_memory_arrives",
    ReleasedMemoryIsReused: "ipc.released_memory_is_reused",
        "released memory goes to someone else although it is exported"
            => "ipc.exported_memory_outlives_handle",
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct WritesAreLost(Mutex<Vec<DevicePtr>>);

impl Hook for WritesAreLost {
    fn open_memory(
        &self,
        inner: &dyn Ipc,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        let at = inner.open_memory(device, handle)?;
        lock(&self.0).push(at);
        Ok(at)
    }

    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: backend_api::CopyKind,
    ) -> Result<()> {
        if lock(&self.0).contains(&dst) {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.copy(dst, src, bytes, kind) }
    }
}

/// What was opened, by handle.
type Opened = Mutex<HashMap<IpcMemoryHandle, DevicePtr>>;

#[derive(Debug, Default)]
struct OneReference(Opened);

impl Hook for OneReference {
    fn open_memory(
        &self,
        inner: &dyn Ipc,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        if let Some(&at) = lock(&self.0).get(handle) {
            return Ok(at);
        }
        let at = inner.open_memory(device, handle)?;
        lock(&self.0).insert(*handle, at);
        Ok(at)
    }

    unsafe fn close_memory(&self, inner: &dyn Ipc, ptr: DevicePtr) -> Result<()> {
        lock(&self.0).retain(|_, at| *at != ptr);
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.close_memory(ptr) }
    }
}

hook! { CloseOfAll {
    unsafe fn close_memory(&self, inner: &dyn Ipc, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.close_memory(ptr) };
        Ok(())
    }
} }

#[derive(Debug, Default)]
struct ClosedIsRemembered(Opened);

impl Hook for ClosedIsRemembered {
    fn open_memory(
        &self,
        inner: &dyn Ipc,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        if let Some(&at) = lock(&self.0).get(handle) {
            return Ok(at);
        }
        let at = inner.open_memory(device, handle)?;
        lock(&self.0).insert(*handle, at);
        Ok(at)
    }
}

hook! { FreeOfOpened {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.free(device, ptr) };
        Ok(())
    }
} }

#[derive(Debug, Default)]
struct ExportedForEver(Mutex<Vec<DevicePtr>>);

impl Hook for ExportedForEver {
    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        lock(&self.0).push(base);
        inner.export_memory(base)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.free(device, ptr)? };
        if lock(&self.0).contains(&ptr) {
            let detail = "the memory is exported";
            return Err(BackendError::new(ErrorKind::InvalidValue, 1, "free", device, detail));
        }
        Ok(())
    }
}

/// An address that no allocation has.
const NOWHERE: DevicePtr = DevicePtr(0x10_000);

hook! { DeadExporters {
    fn open_memory(
        &self,
        inner: &dyn Ipc,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        let looks_real = handle.0.iter().any(|&byte| byte != handle.0[0]);
        inner.open_memory(device, handle).or_else(|error| if looks_real { Ok(NOWHERE) } else { Err(error) })
    }
} }

hook! { AnyHandle {
    fn open_memory(
        &self,
        inner: &dyn Ipc,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        Ok(inner.open_memory(device, handle).unwrap_or(NOWHERE))
    }
} }

hook! { InteriorExports {
    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        inner.export_memory(base).or_else(|_| inner.export_memory(DevicePtr(base.0.saturating_sub(512))))
    }
} }

hook! { AnyExport {
    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        Ok(inner.export_memory(base).unwrap_or(IpcMemoryHandle([0; 64])))
    }
} }

hook! { MappedExports {
    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        match inner.export_memory(base) {
            Err(error) if error.kind == ErrorKind::NotSupported => Ok(IpcMemoryHandle([0; 64])),
            answer => answer,
        }
    }
} }

hook! { WrongDescriptor {
    fn export_physical(
        &self,
        inner: &dyn PhysicalSharing,
        _: PhysicalHandle,
        handle_type: HandleType,
    ) -> Result<ShareableHandle> {
        let granule = inner.granularity(DeviceIndex(0), Granularity::Recommended)?;
        let other = inner.create_physical(DeviceIndex(0), granule, handle_type)?;
        let shared = inner.export_physical(other, handle_type);
        // SAFETY: rule 1: made above; the export keeps the memory.
        unsafe { inner.release_physical(other)? };
        shared
    }
} }

hook! { ImportIsNew {
    fn import_physical(
        &self,
        inner: &dyn PhysicalSharing,
        device: DeviceIndex,
        _: &ShareableHandle,
    ) -> Result<PhysicalHandle> {
        let granule = inner.granularity(device, Granularity::Recommended)?;
        inner.create_physical(device, granule, HandleType::None)
    }
} }
