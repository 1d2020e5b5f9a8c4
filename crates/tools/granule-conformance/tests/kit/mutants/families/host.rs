//! Wrong registration.

use backend_api::types::DevicePtr;
use backend_api::*;
use granule_conformance::interpose::Hook;

#[derive(Debug, Default)]
pub(super) struct RegisteredIsUnknown;

impl Hook for RegisteredIsUnknown {
    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        let info = inner.pointer_info(ptr)?;
        Ok(match info.kind {
            PointerKind::Host => {
                PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL }
            }
            _ => info,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct RegisterTwice;

impl Hook for RegisterTwice {
    unsafe fn register(
        &self,
        inner: &dyn HostRegistration,
        ptr: DevicePtr,
        bytes: u64,
        flags: HostFlags,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.register(ptr, bytes, flags) };
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct RegisterZero;

impl Hook for RegisterZero {
    unsafe fn register(
        &self,
        inner: &dyn HostRegistration,
        ptr: DevicePtr,
        bytes: u64,
        flags: HostFlags,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.register(ptr, bytes, flags) }
    }
}

#[derive(Debug, Default)]
pub(super) struct UnregisterNull;

impl Hook for UnregisterNull {
    unsafe fn unregister(&self, inner: &dyn HostRegistration, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.unregister(ptr) }
    }
}

#[derive(Debug, Default)]
pub(super) struct UnregisterAll;

impl Hook for UnregisterAll {
    unsafe fn unregister(&self, inner: &dyn HostRegistration, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.unregister(ptr) };
        Ok(())
    }
}
