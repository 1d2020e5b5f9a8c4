//! HIP's errors in CUDA's terms.
//!
//! HIP copied most of CUDA's numbers, and gave some of them another meaning: the table has a row for every HIP
//! error, and a number that it does not list becomes "unknown" (999), for CUDA may mean something else by it.
//! Names are those of CUDA's driver; where only CUDA's runtime has the error, the runtime's.
//!
//! Texts are translated word by word: names of errors, functions and types, and `hip:0`. What names a thing
//! outside the program keeps its name: files (`libamdhip64.so`), environment variables (`HIP_VISIBLE_DEVICES`).

use crate::calls::CALLS;
use backend_api::{BackendError, Unsupported};

/// A HIP error and what CUDA has for it.
#[derive(Debug)]
struct Row {
    hip: i32,
    /// HIP's names, the usual one first.
    names: &'static [&'static str],
    cuda: i32,
    name: &'static str,
}

const fn row(hip: i32, names: &'static [&'static str], cuda: i32, name: &'static str) -> Row {
    Row { hip, names, cuda, name }
}

/// What CUDA says when it has no better word.
const UNKNOWN: (i32, &str) = (999, "CUDA_ERROR_UNKNOWN");

// 1055 is missing on purpose: HIP's headers end the list with a marker, and its number moves between versions.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(0, &["hipSuccess"], 0, "CUDA_SUCCESS"),
    row(1, &["hipErrorInvalidValue"], 1, "CUDA_ERROR_INVALID_VALUE"),
    row(2, &["hipErrorOutOfMemory", "hipErrorMemoryAllocation"], 2, "CUDA_ERROR_OUT_OF_MEMORY"),
    row(3, &["hipErrorNotInitialized", "hipErrorInitializationError"], 3, "CUDA_ERROR_NOT_INITIALIZED"),
    row(4, &["hipErrorDeinitialized"], 4, "CUDA_ERROR_DEINITIALIZED"),
    row(5, &["hipErrorProfilerDisabled"], 5, "CUDA_ERROR_PROFILER_DISABLED"),
    row(6, &["hipErrorProfilerNotInitialized"], 6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED"),
    row(7, &["hipErrorProfilerAlreadyStarted"], 7, "CUDA_ERROR_PROFILER_ALREADY_STARTED"),
    row(8, &["hipErrorProfilerAlreadyStopped"], 8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED"),
    row(9, &["hipErrorInvalidConfiguration"], 9, "cudaErrorInvalidConfiguration"),
    row(12, &["hipErrorInvalidPitchValue"], 12, "cudaErrorInvalidPitchValue"),
    row(13, &["hipErrorInvalidSymbol"], 13, "cudaErrorInvalidSymbol"),
    row(17, &["hipErrorInvalidDevicePointer"], 17, "cudaErrorInvalidDevicePointer"),
    row(21, &["hipErrorInvalidMemcpyDirection"], 21, "cudaErrorInvalidMemcpyDirection"),
    row(35, &["hipErrorInsufficientDriver"], 35, "cudaErrorInsufficientDriver"),
    row(52, &["hipErrorMissingConfiguration"], 52, "cudaErrorMissingConfiguration"),
    row(53, &["hipErrorPriorLaunchFailure"], 53, "cudaErrorPriorLaunchFailure"),
    row(98, &["hipErrorInvalidDeviceFunction"], 98, "cudaErrorInvalidDeviceFunction"),
    row(100, &["hipErrorNoDevice"], 100, "CUDA_ERROR_NO_DEVICE"),
    row(101, &["hipErrorInvalidDevice"], 101, "CUDA_ERROR_INVALID_DEVICE"),
    row(200, &["hipErrorInvalidImage"], 200, "CUDA_ERROR_INVALID_IMAGE"),
    row(201, &["hipErrorInvalidContext"], 201, "CUDA_ERROR_INVALID_CONTEXT"),
    row(202, &["hipErrorContextAlreadyCurrent"], 202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT"),
    row(205, &["hipErrorMapFailed", "hipErrorMapBufferObjectFailed"], 205, "CUDA_ERROR_MAP_FAILED"),
    row(206, &["hipErrorUnmapFailed"], 206, "CUDA_ERROR_UNMAP_FAILED"),
    row(207, &["hipErrorArrayIsMapped"], 207, "CUDA_ERROR_ARRAY_IS_MAPPED"),
    row(208, &["hipErrorAlreadyMapped"], 208, "CUDA_ERROR_ALREADY_MAPPED"),
    row(209, &["hipErrorNoBinaryForGpu"], 209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    row(210, &["hipErrorAlreadyAcquired"], 210, "CUDA_ERROR_ALREADY_ACQUIRED"),
    row(211, &["hipErrorNotMapped"], 211, "CUDA_ERROR_NOT_MAPPED"),
    row(212, &["hipErrorNotMappedAsArray"], 212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY"),
    row(213, &["hipErrorNotMappedAsPointer"], 213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER"),
    row(214, &["hipErrorECCNotCorrectable"], 214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    row(215, &["hipErrorUnsupportedLimit"], 215, "CUDA_ERROR_UNSUPPORTED_LIMIT"),
    row(216, &["hipErrorContextAlreadyInUse"], 216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"),
    row(217, &["hipErrorPeerAccessUnsupported"], 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
    row(218, &["hipErrorInvalidKernelFile"], 218, "CUDA_ERROR_INVALID_PTX"),
    row(219, &["hipErrorInvalidGraphicsContext"], 219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT"),
    row(300, &["hipErrorInvalidSource"], 300, "CUDA_ERROR_INVALID_SOURCE"),
    row(301, &["hipErrorFileNotFound"], 301, "CUDA_ERROR_FILE_NOT_FOUND"),
    row(302, &["hipErrorSharedObjectSymbolNotFound"], 302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"),
    row(303, &["hipErrorSharedObjectInitFailed"], 303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"),
    row(304, &["hipErrorOperatingSystem"], 304, "CUDA_ERROR_OPERATING_SYSTEM"),
    row(400, &["hipErrorInvalidHandle", "hipErrorInvalidResourceHandle"], 400, "CUDA_ERROR_INVALID_HANDLE"),
    row(401, &["hipErrorIllegalState"], 401, "CUDA_ERROR_ILLEGAL_STATE"),
    row(500, &["hipErrorNotFound"], 500, "CUDA_ERROR_NOT_FOUND"),
    row(600, &["hipErrorNotReady"], 600, "CUDA_ERROR_NOT_READY"),
    row(700, &["hipErrorIllegalAddress"], 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    row(701, &["hipErrorLaunchOutOfResources"], 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    row(702, &["hipErrorLaunchTimeOut"], 702, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    row(704, &["hipErrorPeerAccessAlreadyEnabled"], 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"),
    row(705, &["hipErrorPeerAccessNotEnabled"], 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"),
    row(708, &["hipErrorSetOnActiveProcess"], 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"),
    row(709, &["hipErrorContextIsDestroyed"], 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    row(710, &["hipErrorAssert"], 710, "CUDA_ERROR_ASSERT"),
    row(712, &["hipErrorHostMemoryAlreadyRegistered"], 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
    row(713, &["hipErrorHostMemoryNotRegistered"], 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"),
    row(719, &["hipErrorLaunchFailure"], 719, "CUDA_ERROR_LAUNCH_FAILED"),
    row(720, &["hipErrorCooperativeLaunchTooLarge"], 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"),
    row(801, &["hipErrorNotSupported"], 801, "CUDA_ERROR_NOT_SUPPORTED"),
    row(900, &["hipErrorStreamCaptureUnsupported"], 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    row(901, &["hipErrorStreamCaptureInvalidated"], 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
    row(902, &["hipErrorStreamCaptureMerge"], 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"),
    row(903, &["hipErrorStreamCaptureUnmatched"], 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"),
    row(904, &["hipErrorStreamCaptureUnjoined"], 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"),
    row(905, &["hipErrorStreamCaptureIsolation"], 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"),
    row(906, &["hipErrorStreamCaptureImplicit"], 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
    row(907, &["hipErrorCapturedEvent"], 907, "CUDA_ERROR_CAPTURED_EVENT"),
    row(908, &["hipErrorStreamCaptureWrongThread"], 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"),
    row(910, &["hipErrorGraphExecUpdateFailure"], 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"),
    row(911, &["hipErrorInvalidChannelDescriptor"], 20, "cudaErrorInvalidChannelDescriptor"),
    row(912, &["hipErrorInvalidTexture"], 18, "cudaErrorInvalidTexture"),
    row(914, &["hipErrorInvalidResourceType"], 914, "CUDA_ERROR_INVALID_RESOURCE_TYPE"),
    row(915, &["hipErrorInvalidResourceConfiguration"], 915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"),
    row(916, &["hipErrorStreamDetached"], 917, "CUDA_ERROR_STREAM_DETACHED"),
    row(999, &["hipErrorUnknown"], 999, "CUDA_ERROR_UNKNOWN"),
    row(1052, &["hipErrorRuntimeMemory"], 999, "CUDA_ERROR_UNKNOWN"),
    row(1053, &["hipErrorRuntimeOther"], 999, "CUDA_ERROR_UNKNOWN"),
    row(1054, &["hipErrorInvalidClusterSize"], 912, "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
];

/// Types that error texts name.
const TYPES: [(&str, &str); 9] = [
    ("hipCtx_t", "CUcontext"),
    ("hipDevice_t", "CUdevice"),
    ("hipDeviceptr_t", "CUdeviceptr"),
    ("hipError_t", "CUresult"),
    ("hipEvent_t", "CUevent"),
    ("hipGraph_t", "CUgraph"),
    ("hipMemGenericAllocationHandle_t", "CUmemGenericAllocationHandle"),
    ("hipMemPool_t", "CUmemoryPool"),
    ("hipStream_t", "CUstream"),
];

/// CUDA's number for HIP's.
pub(crate) fn code(hip: i32) -> i32 {
    ROWS.iter().find(|row| row.hip == hip).map_or(UNKNOWN.0, |row| row.cuda)
}

/// CUDA's name for one of CUDA's numbers that [`code`] can give.
pub(crate) fn name(cuda: i32) -> Option<&'static str> {
    ROWS.iter().find(|row| row.cuda == cuda).map(|row| row.name)
}

/// Whether HIP uses the number: where [`name`] has none for it, HIP's name is not CUDA's of that number.
pub(crate) fn is_hips(code: i32) -> bool {
    ROWS.iter().any(|row| row.hip == code)
}

/// An error of the HIP backend as the CUDA function `call` would report it.
pub(crate) fn translate(error: BackendError, call: &'static str) -> BackendError {
    tracing::debug!(%error, "the error behind the one that is shown");
    // The inner call says more where a method stands for several functions.
    let call = function(error.call).unwrap_or(call);
    BackendError { code: code(error.code), call, detail: text(&error.detail), ..error }
}

/// Why a family is absent, in CUDA's terms.
pub(crate) fn translate_absence(absent: Unsupported) -> Unsupported {
    tracing::debug!(%absent, "the reason behind the one that is shown");
    Unsupported { family: absent.family, reason: text(&absent.reason) }
}

/// CUDA's function for HIP's, where the contract names both.
fn function(hip: &str) -> Option<&'static str> {
    CALLS.iter().find(|(name, _)| *name == hip).map(|(_, cuda)| *cuda)
}

/// A text with HIP's identifiers replaced.
pub(crate) fn text(hip: &str) -> String {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(hip.len() + 16);
    let mut rest = hip;
    while let Some(start) = rest.find(in_word) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (found, after) = rest.split_at(end);
        word(found, after, &mut out);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// One word of a text; `after` is what follows it.
fn word(found: &str, after: &str, out: &mut String) {
    let error = || ROWS.iter().find(|row| row.names.contains(&found)).map(|row| row.name);
    let of_type = || TYPES.iter().find(|(hip, _)| *hip == found).map(|(_, cuda)| *cuda);
    if let Some(known) = error().or_else(of_type).or_else(|| function(found)) {
        out.push_str(known);
        return;
    }
    match found.strip_prefix("hip") {
        Some(rest) if rest.starts_with("Error") => out.push_str(UNKNOWN.1),
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_uppercase()) => {
            out.push_str("cu");
            out.push_str(rest);
        }
        Some("") if is_index(after) => out.push_str("cuda"),
        // A version of HIP is none of CUDA's.
        _ if found == "HIP" && is_version(after) => out.push_str("the runtime"),
        _ if found == "HIP" => out.push_str("CUDA"),
        _ => out.push_str(found),
    }
}

/// Whether a version follows, as in `HIP 6.4`.
fn is_version(after: &str) -> bool {
    after.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a device's index follows, as in `hip:0`.
fn is_index(after: &str) -> bool {
    after.strip_prefix(':').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
