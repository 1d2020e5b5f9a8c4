//! Virtual memory in the runtime's terms, where those changed between versions.

use crate::library::ordinal;
use backend_api::types::DeviceIndex;
use granule_hip_sys::Version;
use granule_hip_sys::abi7 as abi;
use std::ptr;

/// What physical memory is to be, in the layout of 6 and 7.
pub(crate) fn properties_of(
    device: DeviceIndex,
    handle_type: abi::hipMemAllocationHandleType,
    rdma: bool,
) -> abi::hipMemAllocationProp {
    abi::hipMemAllocationProp {
        type_: abi::hipMemAllocationTypePinned,
        requestedHandleType: handle_type,
        location: location(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: abi::hipMemAllocationProp__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(rdma),
            usage: 0,
        },
    }
}

pub(crate) fn location(device: DeviceIndex) -> abi::hipMemLocation {
    abi::hipMemLocation { type_: abi::hipMemLocationTypeDevice, id: ordinal(device) }
}

/// Up to 7.0 the import reads the descriptor through a pointer; from 7.1 on its value stands in the pointer's
/// place. The wrong one is a crash.
pub(crate) fn takes_descriptor_by_value(version: Version) -> bool {
    (version.major, version.minor) >= (7, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    fn bytes_of(properties: &abi::hipMemAllocationProp) -> [u8; 32] {
        let mut bytes = [0; 32];
        assert_eq!(size_of::<abi::hipMemAllocationProp>(), bytes.len());
        // The fields leave no gap below 28; what is above is padding and not compared.
        let from = ptr::from_ref(properties).cast::<u8>();
        // SAFETY: both have 28 bytes and more, all of which were written.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), 28) };
        bytes
    }

    fn word(bytes: &[u8; 32], at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
    }

    #[test]
    fn properties_are_laid_out_as_6_and_7_read_them() {
        let bytes = bytes_of(&properties_of(DeviceIndex(3), abi::hipMemHandleTypePosixFileDescriptor, true));
        assert_eq!(word(&bytes, 0), 1, "pinned memory");
        assert_eq!(word(&bytes, 4), 1, "a file descriptor");
        assert_eq!((word(&bytes, 8), word(&bytes, 12)), (1, 3), "on device 3");
        assert_eq!(bytes[16..24], [0; 8], "nothing for Windows");
        assert_eq!(bytes[24..28], [0, 1, 0, 0], "remote direct memory access");
    }

    #[test]
    fn descriptors_go_by_value_from_7_1_on() {
        let of = |major, minor| takes_descriptor_by_value(Version { major, minor, patch: 0 });
        assert!(!of(6, 0) && !of(6, 4) && !of(7, 0));
        assert!(of(7, 1) && of(7, 14) && of(8, 0));
    }
}
