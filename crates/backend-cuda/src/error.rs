//! The driver's error codes: their names, and what the engine should make of them.
//!
//! Codes stay integers. Newer drivers answer with numbers that no table knows.

use backend_api::ErrorKind;
use backend_support::errors::{ErrorRow, ErrorTable};

use ErrorKind::{
    CaptureViolation, DeviceLost, InvalidValue, NoDevice, NoDriver, NotSupported, Other, OutOfMemory,
    ResourceLimit, Timeout, Unusable,
};

pub(crate) const TABLE: ErrorTable =
    ErrorTable { success: "CUDA_SUCCESS", prefix: "CUDA_ERROR_", rows: ROWS };

/// Ascending by code.
#[rustfmt::skip]
const ROWS: &[ErrorRow] = &[
    (1, "INVALID_VALUE", InvalidValue, ""),
    (2, "OUT_OF_MEMORY", OutOfMemory, ""),
    (3, "NOT_INITIALIZED", Unusable, "the driver is not initialised here; a forked child cannot use its parent's"),
    (4, "DEINITIALIZED", Unusable, "the driver is unloading"),
    (5, "PROFILER_DISABLED", Other, ""),
    (6, "PROFILER_NOT_INITIALIZED", Other, ""),
    (7, "PROFILER_ALREADY_STARTED", Other, ""),
    (8, "PROFILER_ALREADY_STOPPED", Other, ""),
    (34, "STUB_LIBRARY", NoDriver, "this is the toolkit's stub, not a driver; install NVIDIA's driver, or take the stub off the library search path"),
    (35, "INSUFFICIENT_DRIVER", NoDriver, "update NVIDIA's driver"),
    (36, "CALL_REQUIRES_NEWER_DRIVER", NotSupported, "update NVIDIA's driver"),
    (46, "DEVICE_UNAVAILABLE", Other, "another process holds the device, or its compute mode forbids use"),
    (47, "MULTICAST_RESOURCE_FULL", ResourceLimit, ""),
    (100, "NO_DEVICE", NoDevice, "the driver finds no device; see nvidia-smi and CUDA_VISIBLE_DEVICES"),
    (101, "INVALID_DEVICE", InvalidValue, ""),
    (102, "DEVICE_NOT_LICENSED", NotSupported, ""),
    (200, "INVALID_IMAGE", InvalidValue, ""),
    (201, "INVALID_CONTEXT", Unusable, "the thread's context is not, or no longer, usable"),
    (202, "CONTEXT_ALREADY_CURRENT", InvalidValue, ""),
    (205, "MAP_FAILED", Other, ""),
    (206, "UNMAP_FAILED", Other, ""),
    (207, "ARRAY_IS_MAPPED", InvalidValue, ""),
    (208, "ALREADY_MAPPED", InvalidValue, ""),
    (209, "NO_BINARY_FOR_GPU", NotSupported, ""),
    (210, "ALREADY_ACQUIRED", InvalidValue, ""),
    (211, "NOT_MAPPED", InvalidValue, ""),
    (212, "NOT_MAPPED_AS_ARRAY", InvalidValue, ""),
    (213, "NOT_MAPPED_AS_POINTER", InvalidValue, ""),
    (214, "ECC_UNCORRECTABLE", DeviceLost, "a memory error that could not be corrected"),
    (215, "UNSUPPORTED_LIMIT", NotSupported, ""),
    (216, "CONTEXT_ALREADY_IN_USE", InvalidValue, ""),
    (217, "PEER_ACCESS_UNSUPPORTED", NotSupported, ""),
    (218, "INVALID_PTX", InvalidValue, ""),
    (219, "INVALID_GRAPHICS_CONTEXT", InvalidValue, ""),
    (220, "NVLINK_UNCORRECTABLE", DeviceLost, ""),
    (221, "JIT_COMPILER_NOT_FOUND", NotSupported, ""),
    (222, "UNSUPPORTED_PTX_VERSION", NotSupported, ""),
    (223, "JIT_COMPILATION_DISABLED", NotSupported, ""),
    (224, "UNSUPPORTED_EXEC_AFFINITY", NotSupported, ""),
    (225, "UNSUPPORTED_DEVSIDE_SYNC", NotSupported, ""),
    (226, "CONTAINED", DeviceLost, ""),
    (227, "INSUFFICIENT_LOADER_VERSION", NoDriver, ""),
    (300, "INVALID_SOURCE", InvalidValue, ""),
    (301, "FILE_NOT_FOUND", Other, ""),
    (302, "SHARED_OBJECT_SYMBOL_NOT_FOUND", Other, ""),
    (303, "SHARED_OBJECT_INIT_FAILED", Other, ""),
    (304, "OPERATING_SYSTEM", Other, "a call of the operating system failed"),
    (400, "INVALID_HANDLE", InvalidValue, ""),
    (401, "ILLEGAL_STATE", InvalidValue, ""),
    (402, "LOSSY_QUERY", Other, ""),
    (500, "NOT_FOUND", Other, ""),
    (600, "NOT_READY", Other, "work is still under way"),
    (700, "ILLEGAL_ADDRESS", DeviceLost, "work on the device touched an address that it may not; restart the process"),
    (701, "LAUNCH_OUT_OF_RESOURCES", Other, ""),
    (702, "LAUNCH_TIMEOUT", DeviceLost, "a kernel ran for too long; restart the process"),
    (703, "LAUNCH_INCOMPATIBLE_TEXTURING", Other, ""),
    (704, "PEER_ACCESS_ALREADY_ENABLED", InvalidValue, ""),
    (705, "PEER_ACCESS_NOT_ENABLED", InvalidValue, ""),
    (708, "PRIMARY_CONTEXT_ACTIVE", InvalidValue, ""),
    (709, "CONTEXT_IS_DESTROYED", Unusable, "the device's context was destroyed or reset"),
    (710, "ASSERT", DeviceLost, "an assertion failed on the device; restart the process"),
    (711, "TOO_MANY_PEERS", ResourceLimit, ""),
    (712, "HOST_MEMORY_ALREADY_REGISTERED", InvalidValue, ""),
    (713, "HOST_MEMORY_NOT_REGISTERED", InvalidValue, ""),
    (714, "HARDWARE_STACK_ERROR", DeviceLost, "restart the process"),
    (715, "ILLEGAL_INSTRUCTION", DeviceLost, "restart the process"),
    (716, "MISALIGNED_ADDRESS", DeviceLost, "restart the process"),
    (717, "INVALID_ADDRESS_SPACE", DeviceLost, "restart the process"),
    (718, "INVALID_PC", DeviceLost, "restart the process"),
    (719, "LAUNCH_FAILED", DeviceLost, "restart the process"),
    (720, "COOPERATIVE_LAUNCH_TOO_LARGE", InvalidValue, ""),
    (721, "TENSOR_MEMORY_LEAK", DeviceLost, "restart the process"),
    (800, "NOT_PERMITTED", NotSupported, "the operation is not permitted here"),
    (801, "NOT_SUPPORTED", NotSupported, "this driver or device cannot do that"),
    (802, "SYSTEM_NOT_READY", Other, "a system service is not running yet (on NVSwitch machines the fabric manager)"),
    (803, "SYSTEM_DRIVER_MISMATCH", NoDriver, "the library and the kernel module are of different versions; reboot, or reinstall the driver"),
    (804, "COMPAT_NOT_SUPPORTED_ON_DEVICE", NoDriver, "the compatibility library does not serve this device; take it off the library search path"),
    (805, "MPS_CONNECTION_FAILED", Other, ""),
    (806, "MPS_RPC_FAILURE", Other, ""),
    (807, "MPS_SERVER_NOT_READY", Other, ""),
    (808, "MPS_MAX_CLIENTS_REACHED", ResourceLimit, ""),
    (809, "MPS_MAX_CONNECTIONS_REACHED", ResourceLimit, ""),
    (810, "MPS_CLIENT_TERMINATED", DeviceLost, ""),
    (811, "CDP_NOT_SUPPORTED", NotSupported, ""),
    (812, "CDP_VERSION_MISMATCH", NotSupported, ""),
    (900, "STREAM_CAPTURE_UNSUPPORTED", CaptureViolation, "not allowed while a stream is captured"),
    (901, "STREAM_CAPTURE_INVALIDATED", CaptureViolation, "an earlier call broke the capture; end it and begin again"),
    (902, "STREAM_CAPTURE_MERGE", CaptureViolation, "two captures cannot depend on each other"),
    (903, "STREAM_CAPTURE_UNMATCHED", CaptureViolation, "a capture ends on the stream where it began"),
    (904, "STREAM_CAPTURE_UNJOINED", CaptureViolation, "work of another stream was not joined back before the end"),
    (905, "STREAM_CAPTURE_ISOLATION", CaptureViolation, "a captured stream cannot wait for work outside its capture"),
    (906, "STREAM_CAPTURE_IMPLICIT", CaptureViolation, "the default stream would wait for a captured stream"),
    (907, "CAPTURED_EVENT", CaptureViolation, "the event stands for captured work and never happens itself"),
    (908, "STREAM_CAPTURE_WRONG_THREAD", CaptureViolation, "a capture that is not relaxed ends in the thread that began it"),
    (909, "TIMEOUT", Timeout, ""),
    (910, "GRAPH_EXEC_UPDATE_FAILURE", Other, ""),
    (911, "EXTERNAL_DEVICE", Other, ""),
    (912, "INVALID_CLUSTER_SIZE", InvalidValue, ""),
    (913, "FUNCTION_NOT_LOADED", InvalidValue, ""),
    (914, "INVALID_RESOURCE_TYPE", InvalidValue, ""),
    (915, "INVALID_RESOURCE_CONFIGURATION", InvalidValue, ""),
    (916, "KEY_ROTATION", Other, ""),
    (917, "STREAM_DETACHED", Other, ""),
    (918, "GRAPH_RECAPTURE_FAILURE", CaptureViolation, ""),
    (919, "FABRIC_NOT_READY", NotSupported, "the fabric service is not ready"),
    (999, "UNKNOWN", Other, "the driver cannot say what failed; see the kernel's log"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUresult;
    use std::ffi::c_int;

    #[test]
    fn the_table_is_ascending_so_that_every_row_is_found() {
        assert!(ROWS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for row in ROWS {
            assert_eq!(TABLE.name(row.0).unwrap(), format!("CUDA_ERROR_{}", row.1));
            assert_eq!(TABLE.kind(row.0), row.2);
        }
    }

    #[test]
    fn names_are_those_of_the_declarations() {
        use CUresult::*;
        let declared = [
            CUDA_SUCCESS,
            CUDA_ERROR_INVALID_VALUE,
            CUDA_ERROR_OUT_OF_MEMORY,
            CUDA_ERROR_NOT_INITIALIZED,
            CUDA_ERROR_DEINITIALIZED,
            CUDA_ERROR_STUB_LIBRARY,
            CUDA_ERROR_DEVICE_UNAVAILABLE,
            CUDA_ERROR_NO_DEVICE,
            CUDA_ERROR_INVALID_CONTEXT,
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
            CUDA_ERROR_INVALID_HANDLE,
            CUDA_ERROR_NOT_READY,
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
            CUDA_ERROR_LAUNCH_FAILED,
            CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
            CUDA_ERROR_TIMEOUT,
            CUDA_ERROR_EXTERNAL_DEVICE,
            CUDA_ERROR_UNKNOWN,
        ];
        for code in declared {
            assert_eq!(TABLE.name(code as c_int).unwrap(), format!("{code:?}"));
        }
    }

    #[test]
    fn the_kinds_on_which_the_engine_acts() {
        assert_eq!(TABLE.kind(2), OutOfMemory);
        assert_eq!(TABLE.kind(100), NoDevice);
        assert!((900..=908).all(|code| TABLE.kind(code) == CaptureViolation));
        assert!(
            [700, 702, 710, 714, 715, 716, 717, 718, 719].iter().all(|&code| TABLE.kind(code) == DeviceLost)
        );
        // Not sticky: the next launch may work.
        assert_eq!(TABLE.kind(701), Other);
        assert_eq!(TABLE.kind(123_456), Other);
        assert_eq!(TABLE.name(123_456), None);
    }

    #[test]
    fn no_other_code_has_such_a_kind() {
        let of = |kind| ROWS.iter().filter(|row| row.2 == kind).map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(of(OutOfMemory), [2]);
        assert_eq!(of(Unusable), [3, 4, 201, 709]);
        assert_eq!(of(DeviceLost), [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810]);
    }
}
