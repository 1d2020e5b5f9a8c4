//! Names and texts of error numbers.

use crate::personality::{Release, personality};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::hipErrorInvalidResourceType;
use lookalike::entry::Entry;
use lookalike::{Answer, Code};
use std::ffi::{CStr, c_char};

/// Names as the header has them, of the numbers that the runtime answers with, and what it alone says of them. The second list
/// is 7's.
macro_rules! codes {
    ($($name:ident $(=> $text:literal)?,)* ; $($new:ident,)*) => {
        fn name(code: hipError_t, release: Release) -> Option<&'static CStr> {
            let text = match code {
                $($name => concat!(stringify!($name), "\0"),)*
                $($new if release >= Release::V7_0 => concat!(stringify!($new), "\0"),)*
                _ => return None,
            };
            CStr::from_bytes_with_nul(text.as_bytes()).ok()
        }

        fn text(code: hipError_t) -> Option<&'static CStr> {
            match code {
                $($($name => Some($text),)?)*
                _ => Code(code.cast_signed()).text(),
            }
        }
    };
}

codes! {
    hipSuccess,
    hipErrorInvalidValue,
    hipErrorOutOfMemory,
    hipErrorNotInitialized,
    hipErrorDeinitialized,
    hipErrorInvalidConfiguration => c"invalid configuration argument",
    hipErrorInvalidDevicePointer => c"invalid device pointer",
    hipErrorInvalidMemcpyDirection,
    hipErrorNoDevice => c"no ROCm-capable device is detected",
    hipErrorInvalidDevice,
    hipErrorInvalidContext,
    hipErrorECCNotCorrectable,
    hipErrorUnsupportedLimit,
    hipErrorPeerAccessUnsupported,
    hipErrorInvalidHandle,
    hipErrorIllegalState,
    hipErrorNotFound,
    hipErrorNotReady,
    hipErrorIllegalAddress,
    hipErrorLaunchTimeOut,
    hipErrorPeerAccessAlreadyEnabled,
    hipErrorPeerAccessNotEnabled,
    hipErrorContextIsDestroyed,
    hipErrorAssert,
    hipErrorHostMemoryAlreadyRegistered,
    hipErrorHostMemoryNotRegistered,
    hipErrorLaunchFailure,
    hipErrorNotSupported,
    hipErrorStreamCaptureUnsupported,
    hipErrorStreamCaptureInvalidated,
    hipErrorStreamCaptureMerge,
    hipErrorStreamCaptureUnmatched,
    hipErrorStreamCaptureUnjoined,
    hipErrorStreamCaptureIsolation,
    hipErrorStreamCaptureImplicit,
    hipErrorCapturedEvent,
    hipErrorStreamCaptureWrongThread,
    hipErrorUnknown,
    ;
    hipErrorInvalidResourceType,
}

/// Runs a question for a text, which needs no device and leaves no error. Never null.
fn answer(entry: &'static Entry, find: impl FnOnce(Release) -> Option<&'static CStr>) -> *const c_char {
    let find = || -> Answer<_> { Ok(find(personality()?.release)) };
    lookalike::entry::enter(entry, find).ok().flatten().unwrap_or(c"hipErrorUnknown").as_ptr()
}

/// An error's name.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(code: hipError_t) -> *const c_char {
    static ENTRY: Entry = Entry::new("hipGetErrorName");
    answer(&ENTRY, |release| name(code, release))
}
const _: hipGetErrorName_t = hipGetErrorName;

/// An error's text; 5 repeats the name.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(code: hipError_t) -> *const c_char {
    static ENTRY: Entry = Entry::new("hipGetErrorString");
    answer(&ENTRY, |release| text(code).filter(|_| release >= Release::V6_4).or_else(|| name(code, release)))
}
const _: hipGetErrorString_t = hipGetErrorString;
