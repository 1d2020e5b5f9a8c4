//! Host registration, and device memory that is opened to the host.

use super::HOST;
use crate::config::MemoryMode;
use crate::driver::Driver;
use crate::gate::call::Call;
use crate::memory::{HostRange, Memory};
use crate::openreg::OpenReg;
use crate::refusal::{Answer, Refusal};
use backend_api::types::DevicePtr;
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
}

/// What PyTorch's openreg library has: device memory that the host may touch for a while.
impl Driver<'_> {
    /// Opens the allocation (or mapping) that holds `ptr` to the host; counted.
    ///
    /// # Errors
    /// `InvalidValue` where nothing is allocated; `NotSupported` for reserved memory, which has no bytes.
    ///
    /// # Safety
    /// The memory stays allocated until [`protect`](Self::protect), and the host touches no byte that queued work uses.
    pub unsafe fn unprotect(&self, ptr: DevicePtr) -> Result<()> {
        self.opened(Call::Unprotect, ptr, |memory| memory.open_to_host(ptr.0, 1))
    }

    /// Closes it again; at count 0 a touch by the host faults.
    ///
    /// # Errors
    /// As [`unprotect`](Self::unprotect); `InvalidValue` where it is closed.
    ///
    /// # Safety
    /// The caller opened it with [`unprotect`](Self::unprotect), and no longer touches it on the strength of that.
    pub unsafe fn protect(&self, ptr: DevicePtr) -> Result<()> {
        self.opened(Call::Protect, ptr, |memory| memory.open_to_host(ptr.0, -1))
    }

    /// What the host may do with the byte at `ptr` now.
    ///
    /// # Errors
    /// As [`unprotect`](Self::unprotect).
    pub fn host_access_of(&self, ptr: DevicePtr) -> Result<Access> {
        self.opened(Call::HostAccessOf, ptr, |memory| {
            Ok(if memory.is_open_to_host(ptr.0)? { Access::ReadWrite } else { Access::None })
        })
    }

    fn opened<T>(
        &self,
        call: Call,
        ptr: DevicePtr,
        body: impl FnOnce(&mut Memory) -> Answer<T>,
    ) -> Result<T> {
        self.0.call(call, self.0.device_at(ptr), |mut state| {
            if self.0.config.memory == MemoryMode::Reserved {
                let reason = "reserved memory has addresses and no bytes; choose MemoryMode::Mapped";
                return Err(Refusal::unsupported(reason));
            }
            body(&mut state.memory)
        })
    }
}
