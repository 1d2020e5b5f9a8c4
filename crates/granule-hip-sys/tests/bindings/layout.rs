//! Layouts and numbers of HIP 6, each measured with C programs too.

use granule_hip_sys::abi6;
use std::mem::{offset_of, size_of};

#[test]
fn properties_of_physical_memory_are_in_6s_order() {
    assert_eq!(size_of::<abi6::hipMemAllocationProp>(), 32);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, type_), 0);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, requestedHandleType), 4);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, location), 8);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, win32HandleMetaData), 16);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, allocFlags), 24);
}

#[test]
fn kinds_of_memory_have_6s_numbers() {
    let kinds = [
        abi6::hipMemoryTypeUnregistered,
        abi6::hipMemoryTypeHost,
        abi6::hipMemoryTypeDevice,
        abi6::hipMemoryTypeManaged,
        abi6::hipMemoryTypeArray,
        abi6::hipMemoryTypeUnified,
    ];
    assert_eq!(kinds, [0, 1, 2, 3, 10, 11]);
    assert_eq!(size_of::<abi6::hipPointerAttribute_t>(), 32);
    assert_eq!(offset_of!(abi6::hipPointerAttribute_t, type_), 0);
}

#[test]
fn device_properties_are_those_of_6() {
    use abi6::hipDeviceProp_tR0600 as Properties;
    assert_eq!(size_of::<Properties>(), 1472);
    let fields = [
        offset_of!(Properties, totalGlobalMem),
        offset_of!(Properties, warpSize),
        offset_of!(Properties, multiProcessorCount),
        offset_of!(Properties, gcnArchName),
        offset_of!(Properties, pciBusID),
    ];
    assert_eq!(fields, [288, 308, 388, 1160, 584]);
}

/// The un-suffixed function fills 5's struct in every version.
#[test]
fn the_function_for_device_properties_is_the_new_one() {
    assert!(abi6::NAMES.contains(&"hipGetDevicePropertiesR0600"));
    assert!(!abi6::NAMES.contains(&"hipGetDeviceProperties"));
}

#[test]
fn flag_for_peers_of_shared_memory_is_6s() {
    assert_eq!(abi6::hipIpcMemLazyEnablePeerAccess, 1);
}

#[test]
fn virtual_memory_has_an_attribute() {
    assert_eq!(abi6::hipDeviceAttributeVirtualMemoryManagementSupported, 89);
}

macro_rules! these {
    (sizes: $($name:ident $size:literal),+; values: $($value:ident $number:literal),+ $(,)?) => {
        $(assert_eq!(size_of::<abi6::$name>(), $size, stringify!($name));)+
        $(assert_eq!(abi6::$value, $number, stringify!($value));)+
    };
}

#[test]
fn the_rest_is_as_measured() {
    these!(
        sizes: hipMemAccessDesc 12, hipMemLocation 8, hipIpcMemHandle_t 64,
            hipMemGenericAllocationHandle_t 8, hipDeviceptr_t 8, hipUUID 16;
        values: hipSuccess 0, hipErrorInvalidValue 1, hipErrorOutOfMemory 2, hipErrorNoDevice 100,
            hipErrorInvalidDevice 101, hipErrorNotReady 600, hipErrorPeerAccessAlreadyEnabled 704,
            hipErrorNotSupported 801, hipErrorStreamCaptureUnsupported 900, hipErrorStreamCaptureWrongThread 908,
            hipErrorUnknown 999,
            hipDeviceAttributeCanMapHostMemory 3, hipDeviceAttributeComputeCapabilityMajor 23,
            hipDeviceAttributeManagedMemory 24, hipDeviceAttributeMultiprocessorCount 63,
            hipDeviceAttributePciBusId 67, hipDeviceAttributeTotalGlobalMem 84, hipDeviceAttributeWarpSize 87,
            hipDeviceAttributeMemoryPoolsSupported 88, hipDeviceAttributeCanUseStreamWaitValue 10013,
            hipStreamCaptureModeGlobal 0, hipStreamCaptureModeThreadLocal 1, hipStreamCaptureModeRelaxed 2,
            hipStreamCaptureStatusNone 0, hipStreamCaptureStatusActive 1, hipStreamCaptureStatusInvalidated 2,
            hipMemAccessFlagsProtNone 0, hipMemAccessFlagsProtRead 1, hipMemAccessFlagsProtReadWrite 3,
            hipMemAllocationGranularityMinimum 0, hipMemAllocationGranularityRecommended 1,
            hipMemAllocationTypePinned 1, hipMemLocationTypeDevice 1, hipMemHandleTypePosixFileDescriptor 1,
            hipMemcpyHostToHost 0, hipMemcpyHostToDevice 1, hipMemcpyDeviceToHost 2, hipMemcpyDeviceToDevice 3,
            hipMemcpyDefault 4, hipEventBlockingSync 1, hipEventDisableTiming 2, hipEventInterprocess 4,
            hipStreamNonBlocking 1,
    );
}
