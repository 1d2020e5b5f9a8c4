//! Wrong registration and wrong host access.

use super::lock;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;

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

#[derive(Debug, Default)]
pub(super) struct PageableIsFine;

impl Hook for PageableIsFine {
    fn device_pointer(
        &self,
        inner: &dyn HostRegistration,
        device: DeviceIndex,
        ptr: DevicePtr,
    ) -> Result<DevicePtr> {
        Ok(inner.device_pointer(device, ptr).unwrap_or(ptr))
    }
}

#[derive(Debug, Default)]
pub(super) struct NeverClosed;

impl Hook for NeverClosed {
    unsafe fn protect(&self, _: &dyn HostAccess, _: DevicePtr) -> Result<()> {
        Ok(())
    }
}

/// What is open.
#[derive(Debug, Default)]
pub(super) struct NotCounted(Mutex<u32>);

impl Hook for NotCounted {
    unsafe fn unprotect(&self, inner: &dyn HostAccess, ptr: DevicePtr) -> Result<()> {
        if std::mem::replace(&mut *lock(&self.0), 1) == 1 {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.unprotect(ptr) }
    }

    unsafe fn protect(&self, inner: &dyn HostAccess, ptr: DevicePtr) -> Result<()> {
        *lock(&self.0) = 0;
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.protect(ptr) }
    }
}

#[derive(Debug, Default)]
pub(super) struct ClosedTwice;

impl Hook for ClosedTwice {
    unsafe fn protect(&self, inner: &dyn HostAccess, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.protect(ptr) };
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct HostSeesNothing;

impl Hook for HostSeesNothing {
    unsafe fn unprotect(&self, _: &dyn HostAccess, _: DevicePtr) -> Result<()> {
        Ok(())
    }

    unsafe fn protect(&self, _: &dyn HostAccess, _: DevicePtr) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct NotAccounted(Mutex<Option<MemoryInfo>>);

impl Hook for NotAccounted {
    fn accounted(&self, inner: &dyn HostAccess, device: DeviceIndex) -> Result<MemoryInfo> {
        let now = inner.accounted(device)?;
        Ok(*lock(&self.0).get_or_insert(now))
    }
}
