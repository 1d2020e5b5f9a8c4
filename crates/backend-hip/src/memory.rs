//! Device memory, and questions about addresses.

use crate::driver::{Site, given_back, number, pointer};
use crate::error;
use crate::hip::Hip;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{AddressRange, BackendError, ErrorKind, MemoryInfo, PointerInfo, PointerKind, Result};
use hip_sys::abi6::{hipMemoryType, hipPointerAttribute_t};
use hip_sys::{Generation, abi5, abi6};
use std::ptr;

/// What memory handed out is aligned to (rule I1).
const ALIGNMENT: u64 = 512;

const UNMANAGED: PointerInfo =
    PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };

// 5's struct differs from 6's by the name of its first field only.
const _: () = {
    use std::mem::{offset_of, size_of};
    use {abi5::hipPointerAttribute_t as Five, abi6::hipPointerAttribute_t as Six};
    assert!(size_of::<Five>() == size_of::<Six>());
    assert!(offset_of!(Five, memoryType) == offset_of!(Six, type_));
    assert!(offset_of!(Five, device) == offset_of!(Six, device));
    assert!(offset_of!(Five, isManaged) == offset_of!(Six, isManaged));
};

/// What a kind of memory means; the numbers changed with 6. None for memory that the runtime does not know.
fn kind_of(generation: Generation, number: hipMemoryType, managed: bool) -> Option<PointerKind> {
    let kind = match generation {
        Generation::Five => match number {
            abi5::hipMemoryTypeHost => PointerKind::Host,
            abi5::hipMemoryTypeDevice | abi5::hipMemoryTypeArray => PointerKind::Device,
            abi5::hipMemoryTypeUnified => PointerKind::Managed,
            _ => return None,
        },
        Generation::Six | Generation::Seven => match number {
            abi6::hipMemoryTypeHost => PointerKind::Host,
            abi6::hipMemoryTypeDevice | abi6::hipMemoryTypeArray => PointerKind::Device,
            abi6::hipMemoryTypeManaged | abi6::hipMemoryTypeUnified => PointerKind::Managed,
            _ => return None,
        },
    };
    Some(if managed { PointerKind::Managed } else { kind })
}

impl Hip {
    pub(crate) fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let entered = self.enter(device, "hipMalloc")?;
        positive(*entered, "hipMalloc", bytes)?;
        let mut ptr = ptr::null_mut();
        // SAFETY: the function writes one address.
        unsafe { call!(entered.hipMalloc(&raw mut ptr, bytes as usize)) }?;
        aligned(*entered, number(ptr), "hipMalloc").inspect_err(|_| {
            // SAFETY: nobody knows the address yet.
            log_undo(unsafe { call!(entered.hipFree(ptr)) });
        })
    }

    pub(crate) unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.enter(device, "hipFree")?;
            self.live_base(*entered, "hipFree", ptr, &[PointerKind::Device, PointerKind::Managed])?;
            self.pooled.giving_back(ptr, || {
                // SAFETY: rule 3, which the caller keeps.
                unsafe { call!(entered.hipFree(pointer(ptr.0))) }
            })
        };
        given_back(free())
    }

    /// Refuses what a free must not see: how the runtime takes addresses inside an allocation, and memory of another
    /// kind, differs by version.
    pub(crate) fn live_base(
        &self,
        site: Site<'_>,
        call: &'static str,
        ptr: DevicePtr,
        kinds: &[PointerKind],
    ) -> Result<()> {
        let info = self.pointer_info(ptr)?;
        let is_base = kinds.contains(&info.kind) && info.base == ptr;
        if is_base && !self.physical.is_virtual(ptr.0) && !self.imports.contains(ptr) {
            return Ok(());
        }
        Err(site.invalid(call, format!("{ptr} is not where a live allocation of {kinds:?} memory begins")))
    }

    pub(crate) fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        let entered = self.enter(device, "hipMemGetInfo")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(entered.hipMemGetInfo(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    pub(crate) fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        const CALL: &str = "hipPointerGetAttributes";
        if ptr.is_null() {
            return Ok(UNMANAGED);
        }
        let site = self.site(self.device_of_thread()?, CALL)?;
        // What runtimes say about virtual memory differs; this backend knows what it mapped.
        if self.physical.is_virtual(ptr.0) {
            return Ok(self.physical.mapping_at(ptr.0).map_or(UNMANAGED, |mapping| PointerInfo {
                kind: PointerKind::Device,
                device: Some(mapping.memory.device),
                base: DevicePtr(mapping.at),
            }));
        }
        let Some(attributes) = pointer_attributes(site, ptr)? else {
            return Ok(UNMANAGED);
        };
        let managed = attributes.isManaged != 0;
        let Some(kind) = kind_of(self.driver.generation, attributes.type_, managed) else {
            return Ok(UNMANAGED);
        };
        let device = match kind {
            PointerKind::Host => None,
            _ => Some(self.index_of(attributes.device).ok_or_else(|| {
                let detail =
                    format!("{ptr} belongs to device {}, which is not known here", attributes.device);
                site.invalid(CALL, detail)
            })?),
        };
        Ok(PointerInfo { kind, device, base: address_range(site, ptr)?.base })
    }

    pub(crate) fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        const CALL: &str = "hipMemGetAddressRange";
        let site = self.site(self.device_of_thread()?, CALL)?;
        let nothing = || site.invalid(CALL, format!("nothing is allocated at {ptr}"));
        if ptr.is_null() {
            return Err(nothing());
        }
        if self.physical.is_virtual(ptr.0) {
            let mapping = self.physical.mapping_at(ptr.0).ok_or_else(nothing)?;
            return Ok(AddressRange { base: DevicePtr(mapping.at), bytes: mapping.bytes });
        }
        address_range(site, ptr).map_err(|failed| match failed.code {
            error::NOT_FOUND | error::INVALID_DEVICE_POINTER => nothing(),
            _ => failed,
        })
    }

    /// The device in whose memory an address lies; the thread's current one where it lies in none.
    pub(crate) fn device_at(&self, ptr: DevicePtr) -> Result<DeviceIndex> {
        match self.physical.device_at(ptr.0) {
            Some(device) => Ok(device),
            None => self.pointer_info(ptr)?.device.map_or_else(|| self.device_of_thread(), Ok),
        }
    }
}

/// None where the runtime does not know the address: 5 answers an error, later ones a kind of their own or an
/// error.
fn pointer_attributes(site: Site<'_>, ptr: DevicePtr) -> Result<Option<hipPointerAttribute_t>> {
    let mut found = hipPointerAttribute_t {
        type_: 0,
        device: 0,
        devicePointer: ptr::null_mut(),
        hostPointer: ptr::null_mut(),
        isManaged: 0,
        allocationFlags: 0,
    };
    // SAFETY: the function fills the struct, whose fields are where they are in every generation; it takes any
    // address.
    match unsafe { call!(site.hipPointerGetAttributes(&raw mut found, pointer(ptr.0))) } {
        Ok(()) => Ok(Some(found)),
        Err(failed) if matches!(failed.code, error::INVALID_VALUE | error::INVALID_DEVICE_POINTER) => {
            Ok(None)
        }
        Err(failed) => Err(failed),
    }
}

fn address_range(site: Site<'_>, ptr: DevicePtr) -> Result<AddressRange> {
    // The function writes both answers, wanted or not.
    let (mut base, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the function writes an address and an integer; it takes any address.
    unsafe { call!(site.hipMemGetAddressRange(&raw mut base, &raw mut bytes, pointer(ptr.0))) }?;
    Ok(AddressRange { base: DevicePtr(number(base)), bytes: bytes as u64 })
}

/// Refuses size 0 (rule 4), for which the runtime answers success and null.
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
    let detail = format!("the runtime handed out {ptr:#x}, which is not aligned to {ALIGNMENT} bytes");
    Err(site.refuse(ErrorKind::Other, call, detail))
}

/// Undoing the first half of something failed; the error of the second half is what the caller gets.
pub(crate) fn log_undo(undone: std::result::Result<(), BackendError>) {
    if let Err(error) = undone {
        tracing::error!(%error, "could not undo a call that failed half way");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_memory_follow_the_generation() {
        use PointerKind::{Device, Host, Managed};
        let five = [Some(Host), Some(Device), Some(Device), Some(Managed), None];
        for (number, kind) in (0..).zip(five) {
            assert_eq!(kind_of(Generation::Five, number, false), kind, "{number}");
        }
        let later = [None, Some(Host), Some(Device), Some(Managed), None];
        for generation in [Generation::Six, Generation::Seven] {
            for (number, kind) in (0..).zip(later) {
                assert_eq!(kind_of(generation, number, false), kind, "{number}");
            }
            assert_eq!(kind_of(generation, 10, false), Some(Device));
            assert_eq!(kind_of(generation, 11, false), Some(Managed));
        }
    }

    #[test]
    fn managed_memory_is_told_by_its_flag_too() {
        assert_eq!(kind_of(Generation::Five, 1, true), Some(PointerKind::Managed));
        assert_eq!(kind_of(Generation::Six, 2, true), Some(PointerKind::Managed));
        assert_eq!(kind_of(Generation::Six, 0, true), None, "unregistered memory has no kind");
    }
}
