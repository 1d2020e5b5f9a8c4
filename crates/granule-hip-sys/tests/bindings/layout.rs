//! What differs between HIP 5 and HIP 6 and what does not: each fact was measured with C programs too.

use granule_hip_sys::{abi5, abi6};
use std::mem::{offset_of, size_of};

#[test]
fn physical_memory_properties_have_one_size_and_two_orders() {
    assert_eq!((size_of::<abi5::hipMemAllocationProp>(), size_of::<abi6::hipMemAllocationProp>()), (32, 32));

    assert_eq!(offset_of!(abi5::hipMemAllocationProp, location), 4);
    assert_eq!(offset_of!(abi5::hipMemAllocationProp, type_), 16);

    assert_eq!(offset_of!(abi6::hipMemAllocationProp, type_), 0);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, requestedHandleType), 4);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, location), 8);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, win32HandleMetaData), 16);
    assert_eq!(offset_of!(abi6::hipMemAllocationProp, allocFlags), 24);
}

#[test]
fn kinds_of_memory_were_renumbered() {
    let five = [
        abi5::hipMemoryTypeHost,
        abi5::hipMemoryTypeDevice,
        abi5::hipMemoryTypeArray,
        abi5::hipMemoryTypeUnified,
    ];
    assert_eq!(five, [0, 1, 2, 3]);
    let six = [
        abi6::hipMemoryTypeUnregistered,
        abi6::hipMemoryTypeHost,
        abi6::hipMemoryTypeDevice,
        abi6::hipMemoryTypeManaged,
        abi6::hipMemoryTypeArray,
        abi6::hipMemoryTypeUnified,
    ];
    assert_eq!(six, [0, 1, 2, 3, 10, 11]);
    assert_eq!(
        (size_of::<abi5::hipPointerAttribute_t>(), size_of::<abi6::hipPointerAttribute_t>()),
        (32, 32)
    );
    assert_eq!(offset_of!(abi5::hipPointerAttribute_t, memoryType), 0);
    assert_eq!(offset_of!(abi6::hipPointerAttribute_t, type_), 0);
}

#[test]
fn device_properties_grew() {
    use abi5::hipDeviceProp_t as Five;
    use abi6::hipDeviceProp_tR0600 as Six;
    assert_eq!((size_of::<Five>(), size_of::<Six>()), (792, 1472));
    let five = [
        offset_of!(Five, totalGlobalMem),
        offset_of!(Five, warpSize),
        offset_of!(Five, multiProcessorCount),
        offset_of!(Five, gcnArchName),
        offset_of!(Five, pciBusID),
    ];
    assert_eq!(five, [256, 276, 336, 396, 368]);
    let six = [
        offset_of!(Six, totalGlobalMem),
        offset_of!(Six, warpSize),
        offset_of!(Six, multiProcessorCount),
        offset_of!(Six, gcnArchName),
        offset_of!(Six, pciBusID),
    ];
    assert_eq!(six, [288, 308, 388, 1160, 584]);
}

/// The un-suffixed function fills the old struct in every generation, so only 5 may declare it.
#[test]
fn each_generation_declares_its_own_function_for_device_properties() {
    let declared = |names: &[&str]| {
        (names.contains(&"hipGetDeviceProperties"), names.contains(&"hipGetDevicePropertiesR0600"))
    };
    assert_eq!(declared(abi5::NAMES), (true, false));
    assert_eq!(declared(abi6::NAMES), (false, true));
}

#[test]
fn flag_for_peers_of_shared_memory_changed() {
    assert_eq!(abi5::hipIpcMemLazyEnablePeerAccess, 0);
    assert_eq!(abi6::hipIpcMemLazyEnablePeerAccess, 1);
}

#[test]
fn virtual_memory_has_an_attribute_since_6() {
    assert_eq!(abi6::hipDeviceAttributeVirtualMemoryManagementSupported, 89);
}

macro_rules! same_in_both {
    (sizes: $($name:ident $size:literal),+; values: $($value:ident $number:literal),+ $(,)?) => {
        $(assert_eq!((size_of::<abi5::$name>(), size_of::<abi6::$name>()), ($size, $size), stringify!($name));)+
        $(assert_eq!((abi5::$value, abi6::$value), ($number, $number), stringify!($value));)+
    };
}

#[test]
fn the_rest_is_the_same_in_both() {
    same_in_both!(
        sizes: hipMemAccessDesc 12, hipMemLocation 8, hipMemPoolProps 88, hipIpcMemHandle_t 64,
            hipIpcEventHandle_t 64, hipMemGenericAllocationHandle_t 8, hipDeviceptr_t 8, hipUUID 16;
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
