//! Which declarations are taken: what a Granule backend calls and what its lookalike driver must have.

use super::Api;
use crate::process::{files, root};
use anyhow::Result;
use std::collections::BTreeSet;

/// A choice of declarations; what their signatures mention comes along by itself.
pub(super) struct Selection {
    /// What the header wants defined.
    pub(super) defines: &'static [&'static str],
    /// Exact names. One that a header lacks is simply not declared for it.
    pub(super) functions: Vec<String>,
    /// Patterns of types (here: flag sets) that no signature mentions.
    pub(super) types: &'static [&'static str],
    /// Patterns of macros with a number as their value.
    pub(super) constants: &'static [&'static str],
}

impl Selection {
    pub(super) fn of(api: Api) -> Result<Selection> {
        Ok(match api {
            Api::Hip => Selection {
                defines: &["-D__HIP_PLATFORM_AMD__=1"],
                types: HIP_TYPES,
                constants: HIP_CONSTANTS,
                functions: HIP_FUNCTIONS.iter().map(|name| (*name).to_owned()).collect(),
            },
            Api::Cuda => Selection {
                defines: &[],
                types: &["^CU.*_flags(_enum)?$", "^CUmemorytype(_enum)?$"],
                constants: &["^CU.*"],
                functions: words_of_driver()?
                    .iter()
                    .filter_map(|word| word.strip_suffix("_t").filter(|name| name.starts_with("cu")))
                    .map(str::to_owned)
                    .collect(),
            },
        })
    }
}

/// The words of the simulated CUDA driver and of its tests: what they name of the header is declared.
pub(super) fn words_of_driver() -> Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    for folder in ["crates/stand-ins/granule-lookalike-cuda/src", "tests/lookalike-cuda/tests"] {
        for file in files::below(&root().join(folder))? {
            if !file.ends_with("header.rs") {
                let text = files::read(&file)?;
                let is_part = |letter: char| letter == '_' || letter.is_alphanumeric();
                words.extend(text.split(|letter| !is_part(letter)).map(str::to_owned));
            }
        }
    }
    Ok(words)
}

const HIP_TYPES: &[&str] = &[
    "^hipDeviceArch_t$",
    "^hipMemAccessFlags$",
    "^hipUserObject(Retain)?Flags$",
    "^hipGraphInstantiateFlags$",
];

const HIP_CONSTANTS: &[&str] = &[
    "^HIP_VERSION(_MAJOR|_MINOR|_PATCH)?$",
    "^HIP_IPC_HANDLE_SIZE$",
    "^hip(HostMalloc|HostAlloc|HostRegister|Event|Stream|IpcMem|MemAttach|DeviceMalloc|ExtHost).*",
    "^hipMallocSignalMemory$",
];

const HIP_FUNCTIONS: &[&str] = &[
    // Errors and versions.
    "hipExtGetLastError",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipGetLastError",
    "hipPeekAtLastError",
    "hipDriverGetVersion",
    "hipGetProcAddress",
    "hipInit",
    "hipRuntimeGetVersion",
    // Devices. The header renames hipGetDeviceProperties: the un-suffixed name has the layout of 5 in every library.
    "hipDeviceCanAccessPeer",
    "hipDeviceDisablePeerAccess",
    "hipDeviceEnablePeerAccess",
    "hipDeviceGet",
    "hipDeviceGetAttribute",
    "hipDeviceGetName",
    "hipDeviceGetPCIBusId",
    "hipDeviceGetStreamPriorityRange",
    "hipDeviceGetUuid",
    "hipDevicePrimaryCtxGetState",
    "hipDevicePrimaryCtxRelease",
    "hipDevicePrimaryCtxRetain",
    "hipDeviceSynchronize",
    "hipDeviceTotalMem",
    "hipGetDevice",
    "hipGetDeviceCount",
    "hipGetDevicePropertiesR0600",
    "hipSetDevice",
    // Memory.
    "hipExtMallocWithFlags",
    "hipFree",
    "hipFreeHost",
    "hipHostAlloc",
    "hipHostFree",
    "hipHostGetDevicePointer",
    "hipHostGetFlags",
    "hipHostMalloc",
    "hipHostRegister",
    "hipHostUnregister",
    "hipMalloc",
    "hipMemGetAddressRange",
    "hipMemGetInfo",
    "hipPointerGetAttribute",
    "hipPointerGetAttributes",
    // Copies.
    "hipMemcpy",
    "hipMemcpyAsync",
    "hipMemcpyDtoD",
    "hipMemcpyDtoDAsync",
    "hipMemcpyDtoH",
    "hipMemcpyDtoHAsync",
    "hipMemcpyHtoD",
    "hipMemcpyHtoDAsync",
    "hipMemcpyPeer",
    "hipMemcpyPeerAsync",
    "hipMemset",
    "hipMemsetAsync",
    "hipMemsetD8",
    "hipMemsetD8Async",
    // Virtual memory.
    "hipMemAddressFree",
    "hipMemAddressReserve",
    "hipMemCreate",
    "hipMemExportToShareableHandle",
    "hipMemGetAccess",
    "hipMemGetAllocationGranularity",
    "hipMemGetAllocationPropertiesFromHandle",
    "hipMemImportFromShareableHandle",
    "hipMemMap",
    "hipMemRelease",
    "hipMemRetainAllocationHandle",
    "hipMemSetAccess",
    "hipMemUnmap",
    // Streams.
    "hipGetStreamDeviceId",
    "hipLaunchHostFunc",
    "hipStreamAddCallback",
    "hipStreamCreate",
    "hipStreamCreateWithFlags",
    "hipStreamCreateWithPriority",
    "hipStreamDestroy",
    "hipStreamGetDevice",
    "hipStreamGetFlags",
    "hipStreamGetPriority",
    "hipStreamQuery",
    "hipStreamSynchronize",
    "hipStreamWaitEvent",
    // Events.
    "hipEventCreate",
    "hipEventCreateWithFlags",
    "hipEventDestroy",
    "hipEventElapsedTime",
    "hipEventQuery",
    "hipEventRecord",
    "hipEventRecordWithFlags",
    "hipEventSynchronize",
    // Capture and graphs.
    "hipDeviceGetGraphMemAttribute",
    "hipGraphCreate",
    "hipGraphDestroy",
    "hipGraphExecDestroy",
    "hipGraphGetNodes",
    "hipGraphInstantiate",
    "hipGraphInstantiateWithFlags",
    "hipGraphLaunch",
    "hipGraphNodeGetDependencies",
    "hipGraphReleaseUserObject",
    "hipGraphRetainUserObject",
    "hipGraphUpload",
    "hipStreamBeginCapture",
    "hipStreamEndCapture",
    "hipStreamGetCaptureInfo",
    "hipStreamGetCaptureInfo_v2",
    "hipStreamIsCapturing",
    "hipStreamUpdateCaptureDependencies",
    "hipThreadExchangeStreamCaptureMode",
    "hipUserObjectCreate",
    "hipUserObjectRelease",
    "hipUserObjectRetain",
    // Other processes.
    "hipIpcCloseMemHandle",
    "hipIpcGetMemHandle",
    "hipIpcOpenMemHandle",
];
