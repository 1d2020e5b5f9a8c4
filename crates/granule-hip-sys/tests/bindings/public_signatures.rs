//! Layouts and signatures of HIP 7's overlay, and of what it takes over from 6, against the public 7.14 bindings of
//! `cubecl-hip-sys`.
//!
//! That crate aborts the process when one of its functions is called without a library. None is called here.

use cubecl_hip_sys as public;
use granule_hip_sys::abi7;
use std::any::type_name;
use std::mem::{align_of, offset_of, size_of};

macro_rules! same_layout {
    ($($name:ident { $($field:ident),* })+) => {$(
        assert_eq!(size_of::<abi7::$name>(), size_of::<public::$name>(), stringify!($name));
        assert_eq!(align_of::<abi7::$name>(), align_of::<public::$name>(), stringify!($name));
        $(assert_eq!(
            offset_of!(abi7::$name, $field), offset_of!(public::$name, $field),
            concat!(stringify!($name), ".", stringify!($field))
        );)*
    )+};
}

#[test]
fn layouts_are_those_of_7() {
    same_layout!(
        hipMemLocation { type_, id }
        hipMemAccessDesc { location, flags }
        hipMemAllocationProp { type_, location, win32HandleMetaData, allocFlags }
        hipPointerAttribute_t { type_, device, devicePointer, hostPointer, isManaged, allocationFlags }
        hipIpcMemHandle_st { reserved }
        hipMemFabricHandle_st { data }
        hipUUID_t { bytes }
        hipDeviceProp_tR0600 { name, uuid, totalGlobalMem, warpSize, multiProcessorCount, pciBusID, gcnArchName }
    );
    // 7 put the handle type into a union of two spellings, where it was.
    assert_eq!(
        offset_of!(abi7::hipMemAllocationProp, requestedHandleType),
        offset_of!(public::hipMemAllocationProp, __bindgen_anon_1)
    );
}

/// A function type's name without the modules in which its types live, which differ.
fn without_modules(name: &str) -> String {
    let mut text = String::new();
    for part in name.split_inclusive("::") {
        match part.strip_suffix("::") {
            Some(module) => text.push_str(module.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_')),
            None => text.push_str(part),
        }
    }
    text
}

/// Compares signatures by the names of their types; gives those that differ. One group per number of arguments.
macro_rules! differing_signatures {
    ($functions:ident: $($count:literal ($($argument:ident),*): $($name:ident),+;)+) => {{
        let mut differing = Vec::new();
        let mut compared = Vec::new();
        $({
            fn public_type<$($argument,)* R>(
                _: unsafe extern "C" fn($($argument),*) -> R,
            ) -> &'static str {
                type_name::<unsafe extern "C" fn($($argument),*) -> R>()
            }
            $({
                let ours = without_modules(pointer_type(&$functions.$name));
                let theirs = without_modules(public_type(public::$name));
                compared.push(stringify!($name));
                if ours != theirs {
                    differing.push((stringify!($name), ours, theirs));
                }
            })+
        })+
        (compared, differing)
    }};
}

/// The type of a table's entry.
fn pointer_type<F>(_: &Option<F>) -> &'static str {
    type_name::<F>()
}

#[test]
fn signatures_of_6_hold_in_7() {
    let functions = abi7::Functions::default().base;
    let (mut compared, differing) = differing_signatures!(functions:
        0 ():
            hipDeviceSynchronize, hipExtGetLastError, hipGetLastError, hipPeekAtLastError;
        1 (A):
            hipDeviceDisablePeerAccess, hipDevicePrimaryCtxRelease, hipDriverGetVersion, hipEventCreate,
            hipEventDestroy, hipEventQuery, hipEventSynchronize, hipFree, hipFreeHost, hipGetDevice,
            hipGetDeviceCount, hipGetErrorName, hipGetErrorString, hipGetStreamDeviceId, hipGraphDestroy,
            hipGraphExecDestroy, hipHostFree, hipHostUnregister, hipInit, hipIpcCloseMemHandle,
            hipMemRelease, hipRuntimeGetVersion, hipSetDevice, hipStreamCreate,
            hipStreamDestroy, hipStreamQuery, hipStreamSynchronize, hipThreadExchangeStreamCaptureMode;
        2 (A, B):
            hipDeviceEnablePeerAccess, hipDeviceGet,             hipDeviceGetStreamPriorityRange, hipDeviceGetUuid, hipDevicePrimaryCtxRetain,
            hipDeviceTotalMem, hipEventCreateWithFlags, hipEventRecord,             hipGetDevicePropertiesR0600, hipGraphCreate, hipGraphLaunch, hipGraphUpload, hipHostGetFlags,
            hipIpcGetMemHandle, hipMalloc, hipMemAddressFree,
            hipMemGetAllocationPropertiesFromHandle, hipMemGetInfo,             hipMemRetainAllocationHandle, hipMemUnmap,
            hipPointerGetAttributes, hipStreamBeginCapture, hipStreamCreateWithFlags, hipStreamEndCapture,
            hipStreamGetDevice, hipStreamGetFlags, hipStreamGetPriority, hipStreamIsCapturing,
            hipUserObjectRelease, hipUserObjectRetain;
        3 (A, B, C):
            hipDeviceCanAccessPeer, hipDeviceGetAttribute, hipDeviceGetGraphMemAttribute, hipDeviceGetName,
            hipDeviceGetPCIBusId, hipDevicePrimaryCtxGetState, hipEventElapsedTime, hipEventRecordWithFlags,
            hipExtMallocWithFlags, hipGraphGetNodes, hipGraphInstantiateWithFlags,
            hipGraphNodeGetDependencies, hipGraphReleaseUserObject, hipHostAlloc, hipHostGetDevicePointer,
            hipHostMalloc, hipHostRegister, hipIpcOpenMemHandle, hipLaunchHostFunc,             hipMemGetAccess, hipMemGetAddressRange, hipMemGetAllocationGranularity,
            hipMemImportFromShareableHandle,             hipMemcpyDtoD,
            hipMemcpyDtoH, hipMemcpyHtoD, hipMemset, hipMemsetD8, hipPointerGetAttribute,
            hipStreamCreateWithPriority, hipStreamGetCaptureInfo, hipStreamWaitEvent;
        4 (A, B, C, D):
            hipGraphRetainUserObject, hipMemCreate,
            hipMemExportToShareableHandle,             hipMemSetAccess, hipMemcpy,
            hipMemcpyDtoDAsync, hipMemcpyDtoHAsync, hipMemcpyHtoDAsync, hipMemsetAsync, hipMemsetD8Async,
            hipStreamAddCallback, hipStreamUpdateCaptureDependencies;
        5 (A, B, C, D, E):
            hipGetProcAddress, hipGraphInstantiate, hipMemAddressReserve, hipMemMap, hipMemcpyAsync,
            hipMemcpyPeer, hipUserObjectCreate;
        6 (A, B, C, D, E, F):
            hipMemcpyPeerAsync, hipStreamGetCaptureInfo_v2;
    );
    // The source of a copy became const, which a call does not see.
    let names: Vec<&str> = differing.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, ["hipMemcpyHtoD", "hipMemcpyHtoDAsync"], "{differing:#?}");
    for (_, ours, theirs) in &differing {
        assert_eq!(ours, &theirs.replace("*const", "*mut"));
    }
    compared.sort_unstable();
    assert_eq!(compared, abi7::NAMES, "every function is compared");
}

#[test]
fn signatures_that_7_added_are_right() {
    let functions = abi7::Functions::default();
    let (mut compared, differing) = differing_signatures!(functions:
        2 (A, B):
            hipStreamGetId;
        5 (A, B, C, D, E):
            hipMemGetHandleForAddressRange;
    );
    assert!(differing.is_empty(), "{differing:#?}");
    compared.sort_unstable();
    assert_eq!(compared, abi7::ADDED, "every function is compared");
}
