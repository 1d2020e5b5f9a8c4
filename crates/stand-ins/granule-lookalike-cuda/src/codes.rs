//! Names and texts of error numbers.

use crate::header::*;
use lookalike::Code;
use std::ffi::{CStr, c_char};

/// Names as the header has them, of the numbers that the driver answers with, and what it alone says of them.
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
                _ => Code(code.cast_signed()).text().or_else(|| name(code)),
            }
        }
    };
}

codes! {
    CUDA_SUCCESS,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_DEINITIALIZED,
    CUDA_ERROR_STUB_LIBRARY => c"CUDA driver is a stub library",
    CUDA_ERROR_DEVICE_UNAVAILABLE => c"CUDA-capable device(s) is/are busy or unavailable",
    CUDA_ERROR_NO_DEVICE => c"no CUDA-capable device is detected",
    CUDA_ERROR_INVALID_DEVICE,
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_UNSUPPORTED_LIMIT,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
    CUDA_ERROR_OPERATING_SYSTEM => c"OS call failed or operation not supported on this OS",
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_ILLEGAL_STATE,
    CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_NOT_PERMITTED,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_MERGE,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUDA_ERROR_CAPTURED_EVENT,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
    CUDA_ERROR_UNKNOWN,
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
