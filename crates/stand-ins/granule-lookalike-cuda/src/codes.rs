//! Names and texts of error numbers.

use crate::header::*;
use lookalike::Code;
use std::ffi::{CStr, c_char};

/// Numbers, names as the header has them, and what the driver says; numbers without a text of their own
/// repeat their name.
macro_rules! codes {
    ($($name:ident $(=> $text:literal)?,)*) => {
        fn name(code: CUresult) -> Option<&'static CStr> {
            match code {
                $($name => CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).ok(),)*
                _ => None,
            }
        }

        fn text(code: CUresult) -> Option<&'static CStr> {
            match code {
                $($($name => Some($text),)?)*
                _ => name(code),
            }
        }
    };
}

codes! {
    CUDA_SUCCESS => c"no error",
    CUDA_ERROR_INVALID_VALUE => c"invalid argument",
    CUDA_ERROR_OUT_OF_MEMORY => c"out of memory",
    CUDA_ERROR_NOT_INITIALIZED => c"initialization error",
    CUDA_ERROR_DEINITIALIZED => c"driver shutting down",
    CUDA_ERROR_PROFILER_DISABLED,
    CUDA_ERROR_PROFILER_NOT_INITIALIZED,
    CUDA_ERROR_PROFILER_ALREADY_STARTED,
    CUDA_ERROR_PROFILER_ALREADY_STOPPED,
    CUDA_ERROR_STUB_LIBRARY => c"CUDA driver is a stub library",
    CUDA_ERROR_DEVICE_UNAVAILABLE => c"CUDA-capable device(s) is/are busy or unavailable",
    CUDA_ERROR_NO_DEVICE => c"no CUDA-capable device is detected",
    CUDA_ERROR_INVALID_DEVICE => c"invalid device ordinal",
    CUDA_ERROR_DEVICE_NOT_LICENSED,
    CUDA_ERROR_INVALID_IMAGE,
    CUDA_ERROR_INVALID_CONTEXT => c"invalid device context",
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT,
    CUDA_ERROR_MAP_FAILED,
    CUDA_ERROR_UNMAP_FAILED,
    CUDA_ERROR_ARRAY_IS_MAPPED,
    CUDA_ERROR_ALREADY_MAPPED,
    CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_ALREADY_ACQUIRED,
    CUDA_ERROR_NOT_MAPPED,
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
    CUDA_ERROR_NOT_MAPPED_AS_POINTER,
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_UNSUPPORTED_LIMIT,
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => c"peer access is not supported between these two devices",
    CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    CUDA_ERROR_JIT_COMPILATION_DISABLED,
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_INVALID_SOURCE,
    CUDA_ERROR_FILE_NOT_FOUND,
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
    CUDA_ERROR_OPERATING_SYSTEM => c"OS call failed or operation not supported on this OS",
    CUDA_ERROR_INVALID_HANDLE => c"invalid resource handle",
    CUDA_ERROR_ILLEGAL_STATE => c"the operation cannot be performed in the present state",
    CUDA_ERROR_LOSSY_QUERY,
    CUDA_ERROR_NOT_FOUND => c"named symbol not found",
    CUDA_ERROR_NOT_READY => c"device not ready",
    CUDA_ERROR_ILLEGAL_ADDRESS => c"an illegal memory access was encountered",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUDA_ERROR_LAUNCH_TIMEOUT => c"the launch timed out and was terminated",
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => c"peer access is already enabled",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED => c"peer access has not been enabled",
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
    CUDA_ERROR_CONTEXT_IS_DESTROYED => c"context is destroyed",
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_TOO_MANY_PEERS,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED => c"part or all of the requested memory range is already mapped",
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED => c"pointer does not correspond to a registered memory region",
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED => c"unspecified launch failure",
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    CUDA_ERROR_TENSOR_MEMORY_LEAK,
    CUDA_ERROR_NOT_PERMITTED,
    CUDA_ERROR_NOT_SUPPORTED => c"operation not supported",
    CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
    CUDA_ERROR_MPS_CONNECTION_FAILED,
    CUDA_ERROR_MPS_RPC_FAILURE,
    CUDA_ERROR_MPS_SERVER_NOT_READY,
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
    CUDA_ERROR_MPS_CLIENT_TERMINATED,
    CUDA_ERROR_CDP_NOT_SUPPORTED,
    CUDA_ERROR_CDP_VERSION_MISMATCH,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED => c"operation not permitted when stream is capturing",
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => c"operation failed due to a previous error during capture",
    CUDA_ERROR_STREAM_CAPTURE_MERGE => c"operation would result in a merge of separate capture sequences",
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED => c"capture was not ended in the same stream as it began",
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED => c"capturing stream has unjoined work",
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION => c"dependency created on uncaptured work in another stream",
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => c"operation would make the legacy stream depend on a capturing blocking stream",
    CUDA_ERROR_CAPTURED_EVENT => c"operation not permitted on an event last recorded in a capturing stream",
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => c"attempt to terminate a thread-local capture sequence from another thread",
    CUDA_ERROR_TIMEOUT,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    CUDA_ERROR_EXTERNAL_DEVICE,
    CUDA_ERROR_INVALID_CLUSTER_SIZE,
    CUDA_ERROR_FUNCTION_NOT_LOADED,
    CUDA_ERROR_INVALID_RESOURCE_TYPE,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
    CUDA_ERROR_KEY_ROTATION,
    CUDA_ERROR_UNKNOWN => c"unknown error",
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// An error's name; works before initialisation.
    fn cuGetErrorName as cuGetErrorName_t(val error: CUresult, out text: *mut *const c_char) {
        text.put(name(error).map_or(std::ptr::null(), CStr::as_ptr))?;
        name(error).map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// An error's text; works before initialisation.
    fn cuGetErrorString as cuGetErrorString_t(val error: CUresult, out message: *mut *const c_char) {
        message.put(text(error).map_or(std::ptr::null(), CStr::as_ptr))?;
        text(error).map(drop).ok_or(Code::INVALID_VALUE)
    }
}
