//! Driver calls that show another process's memory here, or make memory that others are shown. They can be undone at
//! any point, and again where the driver refused.

use crate::backend::{Access, Backend, HandleType, IpcMemoryHandle, Result, ShareableHandle, VirtualMemory};
use crate::sync::assert_unlocked;
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle};

/// Driver calls that succeeded and have to be undone.
#[derive(Debug, Default)]
pub(super) struct Undo {
    opened: Option<DevicePtr>,
    reserved: Option<(DevicePtr, u64)>,
    /// Start and bytes of each mapped granule.
    mapped: Vec<(DevicePtr, u64)>,
    handles: Vec<PhysicalHandle>,
}

impl Undo {
    /// Physical memory that is mapped nowhere.
    pub(super) fn of(handle: PhysicalHandle) -> Self {
        Self { handles: vec![handle], ..Self::default() }
    }

    /// Shows a whole fixed segment.
    pub(super) fn open(
        &mut self,
        backend: &dyn Backend,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        assert_unlocked();
        let base = backend.ipc()?.open_memory(device, handle)?;
        self.opened = Some(base);
        Ok(base)
    }

    /// Maps granules, each with its size, one after another, and reserves addresses for just these. The first of
    /// `devices` is the one it is for.
    pub(super) fn map(
        &mut self,
        backend: &dyn Backend,
        devices: &[DeviceIndex],
        shared: Vec<(u64, ShareableHandle)>,
    ) -> Result<DevicePtr> {
        assert_unlocked();
        let device = devices[0];
        let vm = backend.physical_sharing()?;
        let bytes = shared.iter().map(|(granule, _)| granule).sum();
        let base = vm.reserve_address(device, bytes, 0, DevicePtr::NULL)?;
        self.reserved = Some((base, bytes));
        let mut at = base;
        for (granule, one) in &shared {
            let handle = vm.import_physical(device, one)?;
            self.handles.push(handle);
            // SAFETY: rule 1: the handle was just imported; the range is part of the reservation above, in which nothing is
            // mapped yet. A handle of another size is refused.
            unsafe { vm.map(at, *granule, handle) }?;
            self.mapped.push((at, *granule));
            at = at.add(*granule);
        }
        // SAFETY: the whole range was mapped just above.
        unsafe { vm.set_access(base, bytes, devices, Access::ReadWrite) }?;
        // Descriptors have to live until here.
        drop(shared);
        // I4: what is mapped stays. A handle that the driver keeps is tried again at the end.
        self.release_handles(backend);
        Ok(base)
    }

    /// Makes physical memory that others can be given, at addresses that are multiples of `unit`, as `bytes` is. It is
    /// memory of the first of `devices`; all of them reach it. Its handle is kept.
    pub(super) fn create(
        &mut self,
        vm: &dyn VirtualMemory,
        devices: &[DeviceIndex],
        (bytes, unit): (u64, u64),
        handle_type: HandleType,
    ) -> Result<(DevicePtr, PhysicalHandle)> {
        assert_unlocked();
        let handle = vm.create_physical(devices[0], bytes, handle_type)?;
        self.handles.push(handle);
        let base = vm.reserve_address(devices[0], bytes, unit, DevicePtr::NULL)?;
        self.reserved = Some((base, bytes));
        // SAFETY: rule 1: the handle was just made with this size, and so was the reservation, in which nothing is mapped.
        unsafe { vm.map(base, bytes, handle) }?;
        self.mapped.push((base, bytes));
        // SAFETY: mapped just above.
        unsafe { vm.set_access(base, bytes, devices, Access::ReadWrite) }?;
        Ok((base, handle))
    }

    /// Lets `device` reach these mappings.
    pub(super) fn allow(&self, backend: &dyn Backend, device: DeviceIndex) -> Result<()> {
        let Ok(vm) = backend.virtual_memory() else { return Ok(()) };
        // SAFETY: mapped, and somebody holds this, so it stays; access is only added.
        self.mapped
            .iter()
            .try_for_each(|(at, bytes)| unsafe { vm.set_access(*at, *bytes, &[device], Access::ReadWrite) })
    }

    fn release_handles(&mut self, backend: &dyn Backend) {
        let Ok(vm) = backend.virtual_memory() else { return };
        self.handles.retain(|handle| {
            // SAFETY: rule 1: imported by `map`, released once.
            let released = unsafe { vm.release_physical(*handle) };
            if let Err(error) = &released {
                backend.clear_error();
                tracing::warn!(%error, "an imported handle could not be released; it is tried again later");
            }
            released.is_err()
        });
    }

    /// Undoes everything that can be undone; the rest can be tried again. No work uses the memory any more.
    pub(super) fn undo(&mut self, backend: &dyn Backend) -> Result<()> {
        assert_unlocked();
        if let Some(base) = self.opened {
            let ipc = backend.ipc()?;
            // SAFETY: rule 3: opened by `open`, closed once; no work uses it, as the caller sees to.
            unsafe { ipc.close_memory(base) }?;
            self.opened = None;
        }
        if self.reserved.is_none() && self.handles.is_empty() {
            return Ok(());
        }
        let vm = backend.virtual_memory()?;
        while let Some((at, bytes)) = self.mapped.last() {
            // SAFETY: rule 3: mapped by `map` or `create` as one piece, and no work uses it.
            unsafe { vm.unmap(*at, *bytes) }?;
            self.mapped.pop();
        }
        if let Some((base, bytes)) = self.reserved {
            // SAFETY: rule 3: the reservation of `map` or `create`, in which nothing is mapped any more.
            unsafe { vm.release_address(base, bytes) }?;
            self.reserved = None;
        }
        while let Some(handle) = self.handles.last() {
            // SAFETY: rule 1: imported by `map`, made by `create` or given to `of`, released once.
            unsafe { vm.release_physical(*handle) }?;
            self.handles.pop();
        }
        Ok(())
    }
}
