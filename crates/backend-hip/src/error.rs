//! The runtime's error codes: their names, and what the engine should make of them.
//!
//! Codes stay integers. Newer runtimes answer with numbers that no table knows.

use backend_api::ErrorKind;
use backend_support::errors::{ErrorRow, ErrorTable};
use std::ffi::c_int;

pub(crate) const INVALID_DEVICE_POINTER: c_int = 17;

use ErrorKind::{
    CaptureViolation, DeviceLost, InvalidValue, NoDevice, NoDriver, NotSupported, Other, OutOfMemory,
    Unusable,
};

pub(crate) const TABLE: ErrorTable = ErrorTable { success: "hipSuccess", prefix: "hipError", rows: ROWS };

/// Ascending by code.
#[rustfmt::skip]
const ROWS: &[ErrorRow] = &[
    (1, "InvalidValue", InvalidValue, ""),
    (2, "OutOfMemory", OutOfMemory, ""),
    (3, "NotInitialized", Unusable, "the runtime is not initialised here; a forked child cannot use its parent's"),
    (4, "Deinitialized", Unusable, "the runtime is unloading"),
    (5, "ProfilerDisabled", Other, ""),
    (6, "ProfilerNotInitialized", Other, ""),
    (7, "ProfilerAlreadyStarted", Other, ""),
    (8, "ProfilerAlreadyStopped", Other, ""),
    (9, "InvalidConfiguration", InvalidValue, ""),
    (12, "InvalidPitchValue", InvalidValue, ""),
    (13, "InvalidSymbol", InvalidValue, ""),
    (17, "InvalidDevicePointer", InvalidValue, ""),
    (21, "InvalidMemcpyDirection", InvalidValue, ""),
    (35, "InsufficientDriver", NoDriver, "update AMD's kernel driver"),
    (52, "MissingConfiguration", InvalidValue, ""),
    (53, "PriorLaunchFailure", Other, "an earlier kernel failed"),
    (98, "InvalidDeviceFunction", NotSupported, ""),
    (100, "NoDevice", NoDevice, "the runtime finds no device; see rocminfo, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"),
    (101, "InvalidDevice", InvalidValue, ""),
    (200, "InvalidImage", InvalidValue, ""),
    (201, "InvalidContext", Unusable, "the context is not usable here; a handle for other processes does not open in its own"),
    (202, "ContextAlreadyCurrent", InvalidValue, ""),
    (205, "MapFailed", Other, ""),
    (206, "UnmapFailed", Other, ""),
    (207, "ArrayIsMapped", InvalidValue, ""),
    (208, "AlreadyMapped", InvalidValue, ""),
    (209, "NoBinaryForGpu", NotSupported, ""),
    (210, "AlreadyAcquired", InvalidValue, ""),
    (211, "NotMapped", InvalidValue, ""),
    (212, "NotMappedAsArray", InvalidValue, ""),
    (213, "NotMappedAsPointer", InvalidValue, ""),
    (214, "ECCNotCorrectable", DeviceLost, "a memory error that could not be corrected"),
    (215, "UnsupportedLimit", NotSupported, ""),
    (216, "ContextAlreadyInUse", InvalidValue, ""),
    (217, "PeerAccessUnsupported", NotSupported, ""),
    (218, "InvalidKernelFile", InvalidValue, ""),
    (219, "InvalidGraphicsContext", InvalidValue, ""),
    (300, "InvalidSource", InvalidValue, ""),
    (301, "FileNotFound", Other, ""),
    (302, "SharedObjectSymbolNotFound", Other, ""),
    (303, "SharedObjectInitFailed", Other, ""),
    (304, "OperatingSystem", Other, "a call of the operating system failed"),
    (400, "InvalidHandle", InvalidValue, ""),
    (401, "IllegalState", InvalidValue, ""),
    (500, "NotFound", Other, ""),
    (600, "NotReady", Other, "work is still under way"),
    (700, "IllegalAddress", DeviceLost, "work on the device touched an address that it may not; restart the process"),
    (701, "LaunchOutOfResources", Other, ""),
    (702, "LaunchTimeOut", DeviceLost, "a kernel ran for too long; restart the process"),
    (704, "PeerAccessAlreadyEnabled", InvalidValue, ""),
    (705, "PeerAccessNotEnabled", InvalidValue, ""),
    (708, "SetOnActiveProcess", InvalidValue, ""),
    (709, "ContextIsDestroyed", Unusable, "the stream or the device's context was destroyed or reset"),
    (710, "Assert", DeviceLost, "an assertion failed on the device; restart the process"),
    (712, "HostMemoryAlreadyRegistered", InvalidValue, ""),
    (713, "HostMemoryNotRegistered", InvalidValue, ""),
    (719, "LaunchFailure", DeviceLost, "restart the process"),
    (720, "CooperativeLaunchTooLarge", InvalidValue, ""),
    (801, "NotSupported", NotSupported, "this runtime or device cannot do that"),
    (900, "StreamCaptureUnsupported", CaptureViolation, "not allowed while a stream is captured"),
    (901, "StreamCaptureInvalidated", CaptureViolation, "an earlier call broke the capture; end it and begin again"),
    (902, "StreamCaptureMerge", CaptureViolation, "two captures cannot depend on each other"),
    (903, "StreamCaptureUnmatched", CaptureViolation, "a capture ends on the stream where it began"),
    (904, "StreamCaptureUnjoined", CaptureViolation, "work of another stream was not joined back before the end"),
    (905, "StreamCaptureIsolation", CaptureViolation, "a captured stream cannot wait for work outside its capture"),
    (906, "StreamCaptureImplicit", CaptureViolation, "the default stream would wait for a captured stream"),
    (907, "CapturedEvent", CaptureViolation, "the event stands for captured work and never happens itself"),
    (908, "StreamCaptureWrongThread", CaptureViolation, "a capture that is not relaxed ends in the thread that began it"),
    (910, "GraphExecUpdateFailure", Other, ""),
    // From here on HIP's numbers are not CUDA's.
    (911, "InvalidChannelDescriptor", InvalidValue, ""),
    (912, "InvalidTexture", InvalidValue, ""),
    (914, "InvalidResourceType", InvalidValue, ""),
    (915, "InvalidResourceConfiguration", InvalidValue, ""),
    (916, "StreamDetached", Other, ""),
    (999, "Unknown", Other, "the runtime cannot say what failed; see the kernel's log"),
    (1052, "RuntimeMemory", OutOfMemory, "a memory call of the layer below (ROCr) failed"),
    (1053, "RuntimeOther", Other, "a call of the layer below (ROCr) failed"),
    // No row for 1055: it is the end of the list in 7, and the end moves. 1054 was the end in 6, which
    // no call answers.
    (1054, "InvalidClusterSize", InvalidValue, ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use granule_hip_sys::{abi6, abi7};

    #[test]
    fn the_table_is_ascending_so_that_every_row_is_found() {
        assert!(ROWS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for row in ROWS {
            assert_eq!(TABLE.name(row.0).unwrap(), format!("hipError{}", row.1));
            assert_eq!(TABLE.kind(row.0), row.2);
        }
    }

    macro_rules! declared {
        ($($module:ident: $($constant:ident),+;)+) => {
            [$($((stringify!($constant), $module::$constant)),+),+]
        };
    }

    #[test]
    fn names_and_numbers_are_those_of_the_declarations() {
        let declared = declared! {
            abi6: hipSuccess, hipErrorInvalidValue, hipErrorOutOfMemory, hipErrorNotInitialized,
                hipErrorDeinitialized, hipErrorNoDevice, hipErrorInvalidDevice, hipErrorInvalidDevicePointer, hipErrorInsufficientDriver, hipErrorPriorLaunchFailure,
                hipErrorInvalidContext, hipErrorECCNotCorrectable, hipErrorInvalidHandle, hipErrorNotFound,
                hipErrorNotReady, hipErrorIllegalAddress, hipErrorLaunchTimeOut,
                hipErrorPeerAccessAlreadyEnabled, hipErrorSetOnActiveProcess, hipErrorContextIsDestroyed,
                hipErrorAssert, hipErrorHostMemoryNotRegistered, hipErrorLaunchFailure,
                hipErrorNotSupported, hipErrorStreamCaptureUnsupported, hipErrorStreamCaptureImplicit,
                hipErrorStreamCaptureWrongThread, hipErrorInvalidChannelDescriptor, hipErrorInvalidTexture,
                hipErrorUnknown, hipErrorRuntimeMemory, hipErrorRuntimeOther;
            abi7: hipErrorInvalidResourceType, hipErrorInvalidResourceConfiguration,
                hipErrorStreamDetached, hipErrorInvalidClusterSize;
        };
        for (text, code) in declared {
            assert_eq!(TABLE.name(code.cast_signed()).as_deref(), Some(text));
        }
        assert_eq!(TABLE.name(abi7::hipErrorTbd.cast_signed()), None, "the end of the list is no error");
    }

    #[test]
    fn the_kinds_on_which_the_engine_acts() {
        assert_eq!(TABLE.kind(2), OutOfMemory);
        assert_eq!(TABLE.kind(1052), OutOfMemory);
        assert_eq!(TABLE.kind(100), NoDevice);
        assert!((900..=908).all(|code| TABLE.kind(code) == CaptureViolation));
        assert!([700, 702, 710, 719].iter().all(|&code| TABLE.kind(code) == DeviceLost));
        // Not sticky: the next launch may work.
        assert_eq!(TABLE.kind(701), Other);
        assert_eq!(TABLE.kind(1053), Other);
        assert_eq!(TABLE.kind(123_456), Other);
        assert_eq!(TABLE.name(123_456), None);
    }

    #[test]
    fn no_other_code_has_such_a_kind() {
        let of = |kind| ROWS.iter().filter(|row| row.2 == kind).map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(of(OutOfMemory), [2, 1052]);
        assert_eq!(of(Unusable), [3, 4, 201, 709]);
        assert_eq!(of(DeviceLost), [214, 700, 702, 710, 719]);
    }
}
