//! Names and texts of error numbers.

use crate::personality::{Release, personality};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::{
    hipErrorInvalidClusterSize, hipErrorInvalidResourceConfiguration, hipErrorInvalidResourceType,
    hipErrorStreamDetached,
};
use lookalike::Answer;
use lookalike::entry::Entry;
use std::ffi::{CStr, c_char};

/// Numbers, names as the header has them, and what the runtime says; numbers without a text of their own
/// repeat their name. The second list is 7's.
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
                _ => None,
            }
        }
    };
}

codes! {
    hipSuccess => c"no error",
    hipErrorInvalidValue => c"invalid argument",
    hipErrorOutOfMemory => c"out of memory",
    hipErrorNotInitialized => c"initialization error",
    hipErrorDeinitialized => c"driver shutting down",
    hipErrorProfilerDisabled,
    hipErrorProfilerNotInitialized,
    hipErrorProfilerAlreadyStarted,
    hipErrorProfilerAlreadyStopped,
    hipErrorInvalidConfiguration => c"invalid configuration argument",
    hipErrorInvalidPitchValue,
    hipErrorInvalidSymbol,
    hipErrorInvalidDevicePointer => c"invalid device pointer",
    hipErrorInvalidMemcpyDirection,
    hipErrorInsufficientDriver,
    hipErrorMissingConfiguration,
    hipErrorPriorLaunchFailure,
    hipErrorInvalidDeviceFunction,
    hipErrorNoDevice => c"no ROCm-capable device is detected",
    hipErrorInvalidDevice => c"invalid device ordinal",
    hipErrorInvalidImage,
    hipErrorInvalidContext => c"invalid device context",
    hipErrorContextAlreadyCurrent,
    hipErrorMapFailed,
    hipErrorUnmapFailed,
    hipErrorArrayIsMapped,
    hipErrorAlreadyMapped,
    hipErrorNoBinaryForGpu,
    hipErrorAlreadyAcquired,
    hipErrorNotMapped,
    hipErrorNotMappedAsArray,
    hipErrorNotMappedAsPointer,
    hipErrorECCNotCorrectable,
    hipErrorUnsupportedLimit,
    hipErrorContextAlreadyInUse,
    hipErrorPeerAccessUnsupported => c"peer access is not supported between these two devices",
    hipErrorInvalidKernelFile,
    hipErrorInvalidGraphicsContext,
    hipErrorInvalidSource,
    hipErrorFileNotFound,
    hipErrorSharedObjectSymbolNotFound,
    hipErrorSharedObjectInitFailed,
    hipErrorOperatingSystem,
    hipErrorInvalidHandle => c"invalid resource handle",
    hipErrorIllegalState => c"the operation cannot be performed in the present state",
    hipErrorNotFound => c"named symbol not found",
    hipErrorNotReady => c"device not ready",
    hipErrorIllegalAddress => c"an illegal memory access was encountered",
    hipErrorLaunchOutOfResources,
    hipErrorLaunchTimeOut => c"the launch timed out and was terminated",
    hipErrorPeerAccessAlreadyEnabled => c"peer access is already enabled",
    hipErrorPeerAccessNotEnabled => c"peer access has not been enabled",
    hipErrorSetOnActiveProcess,
    hipErrorContextIsDestroyed => c"context is destroyed",
    hipErrorAssert,
    hipErrorHostMemoryAlreadyRegistered => c"part or all of the requested memory range is already mapped",
    hipErrorHostMemoryNotRegistered => c"pointer does not correspond to a registered memory region",
    hipErrorLaunchFailure => c"unspecified launch failure",
    hipErrorCooperativeLaunchTooLarge,
    hipErrorNotSupported => c"operation not supported",
    hipErrorStreamCaptureUnsupported => c"operation not permitted when stream is capturing",
    hipErrorStreamCaptureInvalidated => c"operation failed due to a previous error during capture",
    hipErrorStreamCaptureMerge => c"operation would result in a merge of separate capture sequences",
    hipErrorStreamCaptureUnmatched => c"capture was not ended in the same stream as it began",
    hipErrorStreamCaptureUnjoined => c"capturing stream has unjoined work",
    hipErrorStreamCaptureIsolation => c"dependency created on uncaptured work in another stream",
    hipErrorStreamCaptureImplicit => c"operation would make the legacy stream depend on a capturing blocking stream",
    hipErrorCapturedEvent => c"operation not permitted on an event last recorded in a capturing stream",
    hipErrorStreamCaptureWrongThread => c"attempt to terminate a thread-local capture sequence from another thread",
    hipErrorGraphExecUpdateFailure,
    hipErrorInvalidChannelDescriptor,
    hipErrorInvalidTexture,
    hipErrorUnknown => c"unknown error",
    hipErrorRuntimeMemory,
    hipErrorRuntimeOther,
    ;
    hipErrorInvalidResourceType,
    hipErrorInvalidResourceConfiguration,
    hipErrorStreamDetached,
    hipErrorInvalidClusterSize,
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
