//! Host registration, managed memory, words written by streams, and host access.

use super::HOST;
use super::device::memory_info;
use crate::gate::call::Call;
use crate::machine::work::{Pattern, Work};
use crate::memory::{HostRange, RangeKind, index};
use crate::openreg::OpenReg;
use crate::refusal::Refusal;
use crate::space::Span;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::*;

impl HostRegistration for OpenReg {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, _flags: HostFlags) -> Result<()> {
        self.unsafe_call(Call::RegisterHost, HOST, |mut state| {
            let end = ptr.0.checked_add(bytes).filter(|_| bytes > 0 && !ptr.is_null());
            let end = end.ok_or_else(|| Refusal::invalid("a range needs an address and a size"))?;
            let before = state.memory.host.range(..end).next_back();
            if before.is_some_and(|(base, range)| base + range.bytes > ptr.0) {
                return Err(Refusal::invalid(format!("part of [{ptr}, +{bytes}) is page-locked already")));
            }
            if state.memory.owner_of(ptr.0).is_some() {
                return Err(Refusal::invalid(format!("{ptr} is device memory")));
            }
            state.memory.host.insert(ptr.0, HostRange { bytes, pages: None });
            self.gate.charge(Call::RegisterHost, bytes);
            Ok(())
        })
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        self.unsafe_call(Call::UnregisterHost, HOST, |mut state| {
            let bytes = match state.memory.host.get(&ptr.0) {
                Some(range) if range.pages.is_none() => range.bytes,
                _ => return Err(Refusal::invalid(format!("{ptr} is not the base of registered memory"))),
            };
            state.not_in_use(ptr.0, bytes)?;
            state.memory.host.remove(&ptr.0);
            Ok(())
        })
    }

    fn device_pointer(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<DevicePtr> {
        self.call(Call::HostDevicePointer, device, |state| {
            // Host and devices share one address space here, as with unified addressing.
            state
                .memory
                .host_of(ptr.0)
                .map(|_| ptr)
                .ok_or_else(|| Refusal::invalid(format!("{ptr} is not page-locked host memory")))
        })
    }
}

impl ManagedMemory for OpenReg {
    fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let taken = self.unsafe_call(Call::MallocManaged, device, |mut state| {
            state.memory.take(index(device), bytes, RangeKind::Managed).map(DevicePtr)
        });
        if taken.is_ok() {
            self.gate.charge(Call::MallocManaged, bytes);
        }
        taken
    }

    unsafe fn prefetch_async(
        &self,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        self.enqueue(Call::PrefetchAsync, stream, |state, device| {
            if let Some(device) = to.filter(|device| device.0 >= self.config.devices) {
                return Err(Refusal::invalid(format!("there is no device {device}")));
            }
            if bytes == 0 || !state.memory.is_managed(ptr.0) {
                return Err(Refusal::invalid(format!("[{ptr}, +{bytes}) is not managed memory")));
            }
            state.memory.check(device, ptr.0, bytes, false, false)?;
            self.gate.charge(Call::PrefetchAsync, bytes);
            Ok((Work::Touch, [Span::new(ptr.0, bytes), Span::default()]))
        })
    }
}

impl StreamMemory for OpenReg {
    unsafe fn write_value32(&self, stream: Stream, at: DevicePtr, value: u32) -> Result<()> {
        self.enqueue(Call::WriteValue32, stream, |state, device| {
            if !at.0.is_multiple_of(4) {
                return Err(Refusal::invalid(format!("{at} is not aligned to 4")));
            }
            state.memory.check(device, at.0, 4, true, false)?;
            let to = state.memory.extents(at.0, 4);
            let pattern = Pattern::new(&value.to_ne_bytes());
            let work = if to.is_empty() { Work::Touch } else { Work::Fill { to, pattern } };
            Ok((work, [Span::new(at.0, 4), Span::default()]))
        })
    }
}

impl HostAccess for OpenReg {
    unsafe fn unprotect(&self, ptr: DevicePtr) -> Result<()> {
        self.call(Call::Unprotect, self.device_at(ptr), |mut state| state.memory.open_to_host(ptr.0, 1))
    }

    unsafe fn protect(&self, ptr: DevicePtr) -> Result<()> {
        self.call(Call::Protect, self.device_at(ptr), |mut state| state.memory.open_to_host(ptr.0, -1))
    }

    fn host_access_of(&self, ptr: DevicePtr) -> Result<Access> {
        self.call(Call::HostAccessOf, self.device_at(ptr), |state| {
            Ok(if state.memory.is_open_to_host(ptr.0)? { Access::ReadWrite } else { Access::None })
        })
    }

    fn accounted(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        self.call(Call::Accounted, device, |state| Ok(memory_info(&state.memory.devices[index(device)])))
    }
}
