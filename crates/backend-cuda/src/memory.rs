//! Device memory, and questions about addresses.

use crate::cuda::Cuda;
use crate::driver::{Site, given_back};
use crate::error;
use crate::physical::Place;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{AddressRange, BackendError, ErrorKind, MemoryInfo, PointerInfo, PointerKind, Result};
use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute};
use std::ffi::{c_int, c_uint};

use CUpointer_attribute as Asked;

/// What memory handed out is aligned to (rule I1).
const ALIGNMENT: u64 = 512;

impl Cuda {
    pub(crate) fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let entered = self.enter(device, "cuMemAlloc")?;
        positive(*entered, "cuMemAlloc", bytes)?;
        let mut ptr = 0;
        // SAFETY: the function writes one address.
        unsafe { call!(entered.cuMemAlloc_v2(&raw mut ptr, bytes as usize)) }?;
        aligned(*entered, ptr, "cuMemAlloc").inspect_err(|_| {
            // SAFETY: nobody knows the address yet.
            let undone = unsafe { call!(entered.cuMemFree_v2(ptr)) };
            log_undo(undone);
        })
    }

    pub(crate) unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.enter(device, "cuMemFree")?;
            // SAFETY: rule 3, which the caller keeps; the driver refuses what it did not hand out.
            unsafe { call!(entered.cuMemFree_v2(ptr.0)) }
        };
        given_back(free())
    }

    pub(crate) fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        let entered = self.enter(device, "cuMemGetInfo")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(entered.cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    pub(crate) fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        const UNMANAGED: PointerInfo =
            PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };
        if ptr.is_null() {
            return Ok(UNMANAGED);
        }
        // Of virtual memory the driver tells where the reservation begins, not the mapping, and it may know reserved
        // addresses of no device; this backend knows what it mapped.
        match self.physical.place(ptr.0) {
            Place::Mapped { base, device } => {
                self.site(device, "cuPointerGetAttribute")?;
                return Ok(PointerInfo {
                    kind: PointerKind::Device,
                    device: Some(device),
                    base: DevicePtr(base),
                });
            }
            Place::Reserved => return Ok(UNMANAGED),
            Place::Elsewhere => {}
        }
        self.with_some_context("cuPointerGetAttribute", |site| {
            let asked: Result<c_uint> = pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);
            let memory_type = match asked {
                Ok(memory_type) => memory_type,
                // The driver's words for an address it does not know, and for a process that has no memory yet.
                Err(error) if matches!(error.code, error::INVALID_VALUE | error::INVALID_CONTEXT) => {
                    return Ok(UNMANAGED);
                }
                Err(error) => return Err(error),
            };
            let managed: Result<c_uint> =
                pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr);
            let kind = if optional(managed)?.is_some_and(|managed| managed != 0) {
                PointerKind::Managed
            } else if memory_type == CUmemorytype::CU_MEMORYTYPE_HOST as c_uint {
                PointerKind::Host
            } else {
                PointerKind::Device
            };
            let device = match kind {
                PointerKind::Host => None,
                _ => Some(self.device_of(site, ptr)?),
            };
            let start: Result<u64> =
                pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr);
            let base = match optional(start)? {
                Some(base) => DevicePtr(base),
                None => address_range(site, ptr)?.base,
            };
            Ok(PointerInfo { kind, device, base })
        })
    }

    pub(crate) fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        self.with_some_context("cuMemGetAddressRange", |site| {
            address_range(site, ptr).map_err(|error| match error.code {
                // It says so where the address lies in nothing it knows.
                error::NOT_FOUND => {
                    site.invalid("cuMemGetAddressRange", format!("nothing is allocated at {ptr}"))
                }
                _ => error,
            })
        })
    }

    /// The device in whose memory an address lies; the thread's current one where it lies in none.
    pub(crate) fn device_at(&self, ptr: DevicePtr) -> Result<DeviceIndex> {
        let found = self.with_some_context("cuPointerGetAttribute", |site| self.device_of(site, ptr));
        match optional(found)? {
            Some(device) => Ok(device),
            None => self.device_of_thread(),
        }
    }

    fn device_of(&self, site: Site<'_>, ptr: DevicePtr) -> Result<DeviceIndex> {
        let ordinal: c_int = pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr)?;
        // The attribute counts devices as `cuDeviceGet` does.
        let index = u16::try_from(ordinal).ok().filter(|&index| usize::from(index) < self.devices.len());
        index.map(DeviceIndex).ok_or_else(|| {
            site.invalid(
                "cuPointerGetAttribute",
                format!("{ptr} belongs to device {ordinal}, which is not known here"),
            )
        })
    }

    /// Asks with a context current where one exists, without creating any: where there is none, there is no
    /// memory to ask about either.
    pub(crate) fn with_some_context<T>(
        &self,
        call: &'static str,
        ask: impl FnOnce(Site<'_>) -> Result<T>,
    ) -> Result<T> {
        match self.any_retained() {
            Some(device) => ask(*self.enter(device, call)?),
            None => ask(self.any_site(call)?),
        }
    }
}

/// One attribute of an address; `T` is the type that the driver writes for it.
pub(crate) fn pointer_attribute<T: Default>(site: Site<'_>, which: Asked, ptr: DevicePtr) -> Result<T> {
    let mut value = T::default();
    // SAFETY: the driver writes a `T` for this attribute, and answers any address that it does not know.
    unsafe { call!(site.cuPointerGetAttribute((&raw mut value).cast(), which as c_uint, ptr.0)) }?;
    Ok(value)
}

/// No answer where the driver says that the address or the question is none it knows.
pub(crate) fn optional<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(error)
            if matches!(error.kind, ErrorKind::InvalidValue | ErrorKind::NotSupported)
                || error.code == error::INVALID_CONTEXT =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn address_range(site: Site<'_>, ptr: DevicePtr) -> Result<AddressRange> {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: the function writes two integers.
    unsafe { call!(site.cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, ptr.0)) }?;
    Ok(AddressRange { base: DevicePtr(base), bytes: bytes as u64 })
}

/// Refuses size 0 (rule 4).
pub(crate) fn positive(site: Site<'_>, call: &'static str, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Err(site.invalid(call, "a size is at least 1 byte"));
    }
    Ok(())
}

/// Refuses memory that is not aligned as the contract promises; the caller gives it back.
pub(crate) fn aligned(site: Site<'_>, ptr: u64, call: &'static str) -> Result<DevicePtr> {
    if ptr != 0 && ptr.is_multiple_of(ALIGNMENT) {
        return Ok(DevicePtr(ptr));
    }
    let detail = format!("the driver handed out {ptr:#x}, which is not aligned to {ALIGNMENT} bytes");
    Err(site.refuse(ErrorKind::Other, call, detail))
}

/// Undoing the first half of something failed; the error of the second half is what the caller gets.
pub(crate) fn log_undo(undone: std::result::Result<(), BackendError>) {
    if let Err(error) = undone {
        tracing::error!(%error, "could not undo a call that failed half way");
    }
}
