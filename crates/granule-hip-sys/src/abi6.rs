//! HIP declarations. Do not edit: made from HIP 6.4.43484's header by
//! `cargo xtask bindgen --api hip --headers <include folder>`.

pub type hipUUID = hipUUID_t;
pub type hipMemoryType = core::ffi::c_uint;
pub type hipError_t = core::ffi::c_uint;
pub type hipDeviceAttribute_t = core::ffi::c_uint;
pub type hipDriverProcAddressQueryResult = core::ffi::c_uint;
pub type hipDeviceptr_t = *mut core::ffi::c_void;
pub type hipMemcpyKind = core::ffi::c_uint;
pub type hipPointer_attribute = core::ffi::c_uint;
pub type hipCtx_t = *mut ihipCtx_t;
pub type hipDevice_t = core::ffi::c_int;
pub type hipStream_t = *mut ihipStream_t;
pub type hipIpcMemHandle_t = hipIpcMemHandle_st;
pub type hipEvent_t = *mut ihipEvent_t;
pub type hipMemLocationType = core::ffi::c_uint;
pub type hipMemAccessFlags = core::ffi::c_uint;
pub type hipMemAllocationType = core::ffi::c_uint;
pub type hipMemAllocationHandleType = core::ffi::c_uint;
pub type hipGraph_t = *mut ihipGraph;
pub type hipGraphNode_t = *mut hipGraphNode;
pub type hipGraphExec_t = *mut hipGraphExec;
pub type hipUserObject_t = *mut hipUserObject;
pub type hipHostFn_t = ::core::option::Option<unsafe extern "C" fn(userData: *mut core::ffi::c_void)>;
pub type hipStreamCaptureMode = core::ffi::c_uint;
pub type hipStreamCaptureStatus = core::ffi::c_uint;
pub type hipUserObjectFlags = core::ffi::c_uint;
pub type hipUserObjectRetainFlags = core::ffi::c_uint;
pub type hipGraphMemAttributeType = core::ffi::c_uint;
pub type hipGraphInstantiateFlags = core::ffi::c_uint;
pub type hipMemGenericAllocationHandle_t = *mut ihipMemGenericAllocationHandle;
pub type hipMemAllocationGranularity_flags = core::ffi::c_uint;
pub type hipStreamCallback_t = ::core::option::Option<
    unsafe extern "C" fn(stream: hipStream_t, status: hipError_t, userData: *mut core::ffi::c_void),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipDeviceArch_t {
    pub _bindgen_align: [u32; 0],
    pub _bindgen_opaque_blob: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipUUID_t {
    pub bytes: [core::ffi::c_char; 16usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipDeviceProp_tR0600 {
    pub name: [core::ffi::c_char; 256usize],
    pub uuid: hipUUID,
    pub luid: [core::ffi::c_char; 8usize],
    pub luidDeviceNodeMask: core::ffi::c_uint,
    pub totalGlobalMem: usize,
    pub sharedMemPerBlock: usize,
    pub regsPerBlock: core::ffi::c_int,
    pub warpSize: core::ffi::c_int,
    pub memPitch: usize,
    pub maxThreadsPerBlock: core::ffi::c_int,
    pub maxThreadsDim: [core::ffi::c_int; 3usize],
    pub maxGridSize: [core::ffi::c_int; 3usize],
    pub clockRate: core::ffi::c_int,
    pub totalConstMem: usize,
    pub major: core::ffi::c_int,
    pub minor: core::ffi::c_int,
    pub textureAlignment: usize,
    pub texturePitchAlignment: usize,
    pub deviceOverlap: core::ffi::c_int,
    pub multiProcessorCount: core::ffi::c_int,
    pub kernelExecTimeoutEnabled: core::ffi::c_int,
    pub integrated: core::ffi::c_int,
    pub canMapHostMemory: core::ffi::c_int,
    pub computeMode: core::ffi::c_int,
    pub maxTexture1D: core::ffi::c_int,
    pub maxTexture1DMipmap: core::ffi::c_int,
    pub maxTexture1DLinear: core::ffi::c_int,
    pub maxTexture2D: [core::ffi::c_int; 2usize],
    pub maxTexture2DMipmap: [core::ffi::c_int; 2usize],
    pub maxTexture2DLinear: [core::ffi::c_int; 3usize],
    pub maxTexture2DGather: [core::ffi::c_int; 2usize],
    pub maxTexture3D: [core::ffi::c_int; 3usize],
    pub maxTexture3DAlt: [core::ffi::c_int; 3usize],
    pub maxTextureCubemap: core::ffi::c_int,
    pub maxTexture1DLayered: [core::ffi::c_int; 2usize],
    pub maxTexture2DLayered: [core::ffi::c_int; 3usize],
    pub maxTextureCubemapLayered: [core::ffi::c_int; 2usize],
    pub maxSurface1D: core::ffi::c_int,
    pub maxSurface2D: [core::ffi::c_int; 2usize],
    pub maxSurface3D: [core::ffi::c_int; 3usize],
    pub maxSurface1DLayered: [core::ffi::c_int; 2usize],
    pub maxSurface2DLayered: [core::ffi::c_int; 3usize],
    pub maxSurfaceCubemap: core::ffi::c_int,
    pub maxSurfaceCubemapLayered: [core::ffi::c_int; 2usize],
    pub surfaceAlignment: usize,
    pub concurrentKernels: core::ffi::c_int,
    pub ECCEnabled: core::ffi::c_int,
    pub pciBusID: core::ffi::c_int,
    pub pciDeviceID: core::ffi::c_int,
    pub pciDomainID: core::ffi::c_int,
    pub tccDriver: core::ffi::c_int,
    pub asyncEngineCount: core::ffi::c_int,
    pub unifiedAddressing: core::ffi::c_int,
    pub memoryClockRate: core::ffi::c_int,
    pub memoryBusWidth: core::ffi::c_int,
    pub l2CacheSize: core::ffi::c_int,
    pub persistingL2CacheMaxSize: core::ffi::c_int,
    pub maxThreadsPerMultiProcessor: core::ffi::c_int,
    pub streamPrioritiesSupported: core::ffi::c_int,
    pub globalL1CacheSupported: core::ffi::c_int,
    pub localL1CacheSupported: core::ffi::c_int,
    pub sharedMemPerMultiprocessor: usize,
    pub regsPerMultiprocessor: core::ffi::c_int,
    pub managedMemory: core::ffi::c_int,
    pub isMultiGpuBoard: core::ffi::c_int,
    pub multiGpuBoardGroupID: core::ffi::c_int,
    pub hostNativeAtomicSupported: core::ffi::c_int,
    pub singleToDoublePrecisionPerfRatio: core::ffi::c_int,
    pub pageableMemoryAccess: core::ffi::c_int,
    pub concurrentManagedAccess: core::ffi::c_int,
    pub computePreemptionSupported: core::ffi::c_int,
    pub canUseHostPointerForRegisteredMem: core::ffi::c_int,
    pub cooperativeLaunch: core::ffi::c_int,
    pub cooperativeMultiDeviceLaunch: core::ffi::c_int,
    pub sharedMemPerBlockOptin: usize,
    pub pageableMemoryAccessUsesHostPageTables: core::ffi::c_int,
    pub directManagedMemAccessFromHost: core::ffi::c_int,
    pub maxBlocksPerMultiProcessor: core::ffi::c_int,
    pub accessPolicyMaxWindowSize: core::ffi::c_int,
    pub reservedSharedMemPerBlock: usize,
    pub hostRegisterSupported: core::ffi::c_int,
    pub sparseHipArraySupported: core::ffi::c_int,
    pub hostRegisterReadOnlySupported: core::ffi::c_int,
    pub timelineSemaphoreInteropSupported: core::ffi::c_int,
    pub memoryPoolsSupported: core::ffi::c_int,
    pub gpuDirectRDMASupported: core::ffi::c_int,
    pub gpuDirectRDMAFlushWritesOptions: core::ffi::c_uint,
    pub gpuDirectRDMAWritesOrdering: core::ffi::c_int,
    pub memoryPoolSupportedHandleTypes: core::ffi::c_uint,
    pub deferredMappingHipArraySupported: core::ffi::c_int,
    pub ipcEventSupported: core::ffi::c_int,
    pub clusterLaunch: core::ffi::c_int,
    pub unifiedFunctionPointers: core::ffi::c_int,
    pub reserved: [core::ffi::c_int; 63usize],
    pub hipReserved: [core::ffi::c_int; 32usize],
    pub gcnArchName: [core::ffi::c_char; 256usize],
    pub maxSharedMemoryPerMultiProcessor: usize,
    pub clockInstructionRate: core::ffi::c_int,
    pub arch: hipDeviceArch_t,
    pub hdpMemFlushCntl: *mut core::ffi::c_uint,
    pub hdpRegFlushCntl: *mut core::ffi::c_uint,
    pub cooperativeMultiDeviceUnmatchedFunc: core::ffi::c_int,
    pub cooperativeMultiDeviceUnmatchedGridDim: core::ffi::c_int,
    pub cooperativeMultiDeviceUnmatchedBlockDim: core::ffi::c_int,
    pub cooperativeMultiDeviceUnmatchedSharedMem: core::ffi::c_int,
    pub isLargeBar: core::ffi::c_int,
    pub asicRevision: core::ffi::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipPointerAttribute_t {
    pub type_: hipMemoryType,
    pub device: core::ffi::c_int,
    pub devicePointer: *mut core::ffi::c_void,
    pub hostPointer: *mut core::ffi::c_void,
    pub isManaged: core::ffi::c_int,
    pub allocationFlags: core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug)]
pub struct ihipCtx_t {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct ihipStream_t {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipIpcMemHandle_st {
    pub reserved: [core::ffi::c_char; 64usize],
}
#[repr(C)]
#[derive(Debug)]
pub struct ihipEvent_t {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemLocation {
    pub type_: hipMemLocationType,
    pub id: core::ffi::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemAccessDesc {
    pub location: hipMemLocation,
    pub flags: hipMemAccessFlags,
}
#[repr(C)]
#[derive(Debug)]
pub struct ihipGraph {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct hipGraphNode {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct hipGraphExec {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct hipUserObject {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemAllocationProp {
    pub type_: hipMemAllocationType,
    pub requestedHandleType: hipMemAllocationHandleType,
    pub location: hipMemLocation,
    pub win32HandleMetaData: *mut core::ffi::c_void,
    pub allocFlags: hipMemAllocationProp__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hipMemAllocationProp__bindgen_ty_1 {
    pub compressionType: core::ffi::c_uchar,
    pub gpuDirectRDMACapable: core::ffi::c_uchar,
    pub usage: core::ffi::c_ushort,
}
#[repr(C)]
#[derive(Debug)]
pub struct ihipMemGenericAllocationHandle {
    _unused: [u8; 0],
}
pub const HIP_VERSION_MAJOR: u32 = 6;
pub const HIP_VERSION_MINOR: u32 = 4;
pub const HIP_VERSION_PATCH: u32 = 43484;
pub const HIP_VERSION: u32 = 60443484;
pub const hipIpcMemLazyEnablePeerAccess: u32 = 1;
pub const HIP_IPC_HANDLE_SIZE: u32 = 64;
pub const hipStreamDefault: u32 = 0;
pub const hipStreamNonBlocking: u32 = 1;
pub const hipEventDefault: u32 = 0;
pub const hipEventBlockingSync: u32 = 1;
pub const hipEventDisableTiming: u32 = 2;
pub const hipEventInterprocess: u32 = 4;
pub const hipEventRecordDefault: u32 = 0;
pub const hipEventRecordExternal: u32 = 1;
pub const hipEventWaitDefault: u32 = 0;
pub const hipEventWaitExternal: u32 = 1;
pub const hipEventDisableSystemFence: u32 = 536870912;
pub const hipEventReleaseToDevice: u32 = 1073741824;
pub const hipEventReleaseToSystem: u32 = 2147483648;
pub const hipHostAllocDefault: u32 = 0;
pub const hipHostMallocDefault: u32 = 0;
pub const hipHostAllocPortable: u32 = 1;
pub const hipHostMallocPortable: u32 = 1;
pub const hipHostAllocMapped: u32 = 2;
pub const hipHostMallocMapped: u32 = 2;
pub const hipHostAllocWriteCombined: u32 = 4;
pub const hipHostMallocWriteCombined: u32 = 4;
pub const hipHostMallocNumaUser: u32 = 536870912;
pub const hipHostMallocCoherent: u32 = 1073741824;
pub const hipHostMallocNonCoherent: u32 = 2147483648;
pub const hipMemAttachGlobal: u32 = 1;
pub const hipMemAttachHost: u32 = 2;
pub const hipMemAttachSingle: u32 = 4;
pub const hipDeviceMallocDefault: u32 = 0;
pub const hipDeviceMallocFinegrained: u32 = 1;
pub const hipMallocSignalMemory: u32 = 2;
pub const hipDeviceMallocUncached: u32 = 3;
pub const hipDeviceMallocContiguous: u32 = 4;
pub const hipHostRegisterDefault: u32 = 0;
pub const hipHostRegisterPortable: u32 = 1;
pub const hipHostRegisterMapped: u32 = 2;
pub const hipHostRegisterIoMemory: u32 = 4;
pub const hipHostRegisterReadOnly: u32 = 8;
pub const hipExtHostRegisterCoarseGrained: u32 = 8;
pub const hipStreamWaitValueGte: u32 = 0;
pub const hipStreamWaitValueEq: u32 = 1;
pub const hipStreamWaitValueAnd: u32 = 2;
pub const hipStreamWaitValueNor: u32 = 3;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipDeviceArch_t"][::core::mem::size_of::<hipDeviceArch_t>() - 4usize];
    ["Alignment of hipDeviceArch_t"][::core::mem::align_of::<hipDeviceArch_t>() - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipUUID_t"][::core::mem::size_of::<hipUUID_t>() - 16usize];
    ["Alignment of hipUUID_t"][::core::mem::align_of::<hipUUID_t>() - 1usize];
    ["Offset of field: hipUUID_t::bytes"][::core::mem::offset_of!(hipUUID_t, bytes) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipDeviceProp_tR0600"][::core::mem::size_of::<hipDeviceProp_tR0600>() - 1472usize];
    ["Alignment of hipDeviceProp_tR0600"][::core::mem::align_of::<hipDeviceProp_tR0600>() - 8usize];
    ["Offset of field: hipDeviceProp_tR0600::name"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, name) - 0usize];
    ["Offset of field: hipDeviceProp_tR0600::uuid"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, uuid) - 256usize];
    ["Offset of field: hipDeviceProp_tR0600::luid"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, luid) - 272usize];
    ["Offset of field: hipDeviceProp_tR0600::luidDeviceNodeMask"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, luidDeviceNodeMask) - 280usize];
    ["Offset of field: hipDeviceProp_tR0600::totalGlobalMem"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, totalGlobalMem) - 288usize];
    ["Offset of field: hipDeviceProp_tR0600::sharedMemPerBlock"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, sharedMemPerBlock) - 296usize];
    ["Offset of field: hipDeviceProp_tR0600::regsPerBlock"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, regsPerBlock) - 304usize];
    ["Offset of field: hipDeviceProp_tR0600::warpSize"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, warpSize) - 308usize];
    ["Offset of field: hipDeviceProp_tR0600::memPitch"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, memPitch) - 312usize];
    ["Offset of field: hipDeviceProp_tR0600::maxThreadsPerBlock"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxThreadsPerBlock) - 320usize];
    ["Offset of field: hipDeviceProp_tR0600::maxThreadsDim"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxThreadsDim) - 324usize];
    ["Offset of field: hipDeviceProp_tR0600::maxGridSize"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxGridSize) - 336usize];
    ["Offset of field: hipDeviceProp_tR0600::clockRate"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, clockRate) - 348usize];
    ["Offset of field: hipDeviceProp_tR0600::totalConstMem"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, totalConstMem) - 352usize];
    ["Offset of field: hipDeviceProp_tR0600::major"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, major) - 360usize];
    ["Offset of field: hipDeviceProp_tR0600::minor"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, minor) - 364usize];
    ["Offset of field: hipDeviceProp_tR0600::textureAlignment"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, textureAlignment) - 368usize];
    ["Offset of field: hipDeviceProp_tR0600::texturePitchAlignment"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, texturePitchAlignment) - 376usize];
    ["Offset of field: hipDeviceProp_tR0600::deviceOverlap"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, deviceOverlap) - 384usize];
    ["Offset of field: hipDeviceProp_tR0600::multiProcessorCount"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, multiProcessorCount) - 388usize];
    ["Offset of field: hipDeviceProp_tR0600::kernelExecTimeoutEnabled"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, kernelExecTimeoutEnabled) - 392usize];
    ["Offset of field: hipDeviceProp_tR0600::integrated"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, integrated) - 396usize];
    ["Offset of field: hipDeviceProp_tR0600::canMapHostMemory"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, canMapHostMemory) - 400usize];
    ["Offset of field: hipDeviceProp_tR0600::computeMode"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, computeMode) - 404usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture1D"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1D) - 408usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture1DMipmap"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1DMipmap) - 412usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture1DLinear"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1DLinear) - 416usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture2D"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2D) - 420usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture2DMipmap"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DMipmap) - 428usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture2DLinear"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DLinear) - 436usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture2DGather"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DGather) - 448usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture3D"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture3D) - 456usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture3DAlt"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture3DAlt) - 468usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTextureCubemap"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTextureCubemap) - 480usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture1DLayered"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture1DLayered) - 484usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTexture2DLayered"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTexture2DLayered) - 492usize];
    ["Offset of field: hipDeviceProp_tR0600::maxTextureCubemapLayered"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxTextureCubemapLayered) - 504usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurface1D"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface1D) - 512usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurface2D"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface2D) - 516usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurface3D"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface3D) - 524usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurface1DLayered"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface1DLayered) - 536usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurface2DLayered"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurface2DLayered) - 544usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurfaceCubemap"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurfaceCubemap) - 556usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSurfaceCubemapLayered"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSurfaceCubemapLayered) - 560usize];
    ["Offset of field: hipDeviceProp_tR0600::surfaceAlignment"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, surfaceAlignment) - 568usize];
    ["Offset of field: hipDeviceProp_tR0600::concurrentKernels"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, concurrentKernels) - 576usize];
    ["Offset of field: hipDeviceProp_tR0600::ECCEnabled"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, ECCEnabled) - 580usize];
    ["Offset of field: hipDeviceProp_tR0600::pciBusID"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, pciBusID) - 584usize];
    ["Offset of field: hipDeviceProp_tR0600::pciDeviceID"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, pciDeviceID) - 588usize];
    ["Offset of field: hipDeviceProp_tR0600::pciDomainID"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, pciDomainID) - 592usize];
    ["Offset of field: hipDeviceProp_tR0600::tccDriver"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, tccDriver) - 596usize];
    ["Offset of field: hipDeviceProp_tR0600::asyncEngineCount"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, asyncEngineCount) - 600usize];
    ["Offset of field: hipDeviceProp_tR0600::unifiedAddressing"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, unifiedAddressing) - 604usize];
    ["Offset of field: hipDeviceProp_tR0600::memoryClockRate"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, memoryClockRate) - 608usize];
    ["Offset of field: hipDeviceProp_tR0600::memoryBusWidth"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, memoryBusWidth) - 612usize];
    ["Offset of field: hipDeviceProp_tR0600::l2CacheSize"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, l2CacheSize) - 616usize];
    ["Offset of field: hipDeviceProp_tR0600::persistingL2CacheMaxSize"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, persistingL2CacheMaxSize) - 620usize];
    ["Offset of field: hipDeviceProp_tR0600::maxThreadsPerMultiProcessor"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxThreadsPerMultiProcessor) - 624usize];
    ["Offset of field: hipDeviceProp_tR0600::streamPrioritiesSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, streamPrioritiesSupported) - 628usize];
    ["Offset of field: hipDeviceProp_tR0600::globalL1CacheSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, globalL1CacheSupported) - 632usize];
    ["Offset of field: hipDeviceProp_tR0600::localL1CacheSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, localL1CacheSupported) - 636usize];
    ["Offset of field: hipDeviceProp_tR0600::sharedMemPerMultiprocessor"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, sharedMemPerMultiprocessor) - 640usize];
    ["Offset of field: hipDeviceProp_tR0600::regsPerMultiprocessor"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, regsPerMultiprocessor) - 648usize];
    ["Offset of field: hipDeviceProp_tR0600::managedMemory"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, managedMemory) - 652usize];
    ["Offset of field: hipDeviceProp_tR0600::isMultiGpuBoard"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, isMultiGpuBoard) - 656usize];
    ["Offset of field: hipDeviceProp_tR0600::multiGpuBoardGroupID"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, multiGpuBoardGroupID) - 660usize];
    ["Offset of field: hipDeviceProp_tR0600::hostNativeAtomicSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, hostNativeAtomicSupported) - 664usize];
    ["Offset of field: hipDeviceProp_tR0600::singleToDoublePrecisionPerfRatio"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, singleToDoublePrecisionPerfRatio) - 668usize];
    ["Offset of field: hipDeviceProp_tR0600::pageableMemoryAccess"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, pageableMemoryAccess) - 672usize];
    ["Offset of field: hipDeviceProp_tR0600::concurrentManagedAccess"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, concurrentManagedAccess) - 676usize];
    ["Offset of field: hipDeviceProp_tR0600::computePreemptionSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, computePreemptionSupported) - 680usize];
    ["Offset of field: hipDeviceProp_tR0600::canUseHostPointerForRegisteredMem"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, canUseHostPointerForRegisteredMem) - 684usize];
    ["Offset of field: hipDeviceProp_tR0600::cooperativeLaunch"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeLaunch) - 688usize];
    ["Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceLaunch"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceLaunch) - 692usize];
    ["Offset of field: hipDeviceProp_tR0600::sharedMemPerBlockOptin"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, sharedMemPerBlockOptin) - 696usize];
    ["Offset of field: hipDeviceProp_tR0600::pageableMemoryAccessUsesHostPageTables"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, pageableMemoryAccessUsesHostPageTables) - 704usize];
    ["Offset of field: hipDeviceProp_tR0600::directManagedMemAccessFromHost"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, directManagedMemAccessFromHost) - 708usize];
    ["Offset of field: hipDeviceProp_tR0600::maxBlocksPerMultiProcessor"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxBlocksPerMultiProcessor) - 712usize];
    ["Offset of field: hipDeviceProp_tR0600::accessPolicyMaxWindowSize"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, accessPolicyMaxWindowSize) - 716usize];
    ["Offset of field: hipDeviceProp_tR0600::reservedSharedMemPerBlock"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, reservedSharedMemPerBlock) - 720usize];
    ["Offset of field: hipDeviceProp_tR0600::hostRegisterSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, hostRegisterSupported) - 728usize];
    ["Offset of field: hipDeviceProp_tR0600::sparseHipArraySupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, sparseHipArraySupported) - 732usize];
    ["Offset of field: hipDeviceProp_tR0600::hostRegisterReadOnlySupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, hostRegisterReadOnlySupported) - 736usize];
    ["Offset of field: hipDeviceProp_tR0600::timelineSemaphoreInteropSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, timelineSemaphoreInteropSupported) - 740usize];
    ["Offset of field: hipDeviceProp_tR0600::memoryPoolsSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, memoryPoolsSupported) - 744usize];
    ["Offset of field: hipDeviceProp_tR0600::gpuDirectRDMASupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, gpuDirectRDMASupported) - 748usize];
    ["Offset of field: hipDeviceProp_tR0600::gpuDirectRDMAFlushWritesOptions"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, gpuDirectRDMAFlushWritesOptions) - 752usize];
    ["Offset of field: hipDeviceProp_tR0600::gpuDirectRDMAWritesOrdering"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, gpuDirectRDMAWritesOrdering) - 756usize];
    ["Offset of field: hipDeviceProp_tR0600::memoryPoolSupportedHandleTypes"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, memoryPoolSupportedHandleTypes) - 760usize];
    ["Offset of field: hipDeviceProp_tR0600::deferredMappingHipArraySupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, deferredMappingHipArraySupported) - 764usize];
    ["Offset of field: hipDeviceProp_tR0600::ipcEventSupported"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, ipcEventSupported) - 768usize];
    ["Offset of field: hipDeviceProp_tR0600::clusterLaunch"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, clusterLaunch) - 772usize];
    ["Offset of field: hipDeviceProp_tR0600::unifiedFunctionPointers"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, unifiedFunctionPointers) - 776usize];
    ["Offset of field: hipDeviceProp_tR0600::reserved"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, reserved) - 780usize];
    ["Offset of field: hipDeviceProp_tR0600::hipReserved"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, hipReserved) - 1032usize];
    ["Offset of field: hipDeviceProp_tR0600::gcnArchName"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, gcnArchName) - 1160usize];
    ["Offset of field: hipDeviceProp_tR0600::maxSharedMemoryPerMultiProcessor"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, maxSharedMemoryPerMultiProcessor) - 1416usize];
    ["Offset of field: hipDeviceProp_tR0600::clockInstructionRate"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, clockInstructionRate) - 1424usize];
    ["Offset of field: hipDeviceProp_tR0600::arch"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, arch) - 1428usize];
    ["Offset of field: hipDeviceProp_tR0600::hdpMemFlushCntl"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, hdpMemFlushCntl) - 1432usize];
    ["Offset of field: hipDeviceProp_tR0600::hdpRegFlushCntl"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, hdpRegFlushCntl) - 1440usize];
    ["Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedFunc"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedFunc) - 1448usize];
    ["Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedGridDim"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedGridDim) - 1452usize];
    ["Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedBlockDim"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedBlockDim) - 1456usize];
    ["Offset of field: hipDeviceProp_tR0600::cooperativeMultiDeviceUnmatchedSharedMem"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, cooperativeMultiDeviceUnmatchedSharedMem) - 1460usize];
    ["Offset of field: hipDeviceProp_tR0600::isLargeBar"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, isLargeBar) - 1464usize];
    ["Offset of field: hipDeviceProp_tR0600::asicRevision"]
        [::core::mem::offset_of!(hipDeviceProp_tR0600, asicRevision) - 1468usize];
};
pub const hipMemoryTypeUnregistered: hipMemoryType = 0;
pub const hipMemoryTypeHost: hipMemoryType = 1;
pub const hipMemoryTypeDevice: hipMemoryType = 2;
pub const hipMemoryTypeManaged: hipMemoryType = 3;
pub const hipMemoryTypeArray: hipMemoryType = 10;
pub const hipMemoryTypeUnified: hipMemoryType = 11;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipPointerAttribute_t"][::core::mem::size_of::<hipPointerAttribute_t>() - 32usize];
    ["Alignment of hipPointerAttribute_t"][::core::mem::align_of::<hipPointerAttribute_t>() - 8usize];
    ["Offset of field: hipPointerAttribute_t::type_"]
        [::core::mem::offset_of!(hipPointerAttribute_t, type_) - 0usize];
    ["Offset of field: hipPointerAttribute_t::device"]
        [::core::mem::offset_of!(hipPointerAttribute_t, device) - 4usize];
    ["Offset of field: hipPointerAttribute_t::devicePointer"]
        [::core::mem::offset_of!(hipPointerAttribute_t, devicePointer) - 8usize];
    ["Offset of field: hipPointerAttribute_t::hostPointer"]
        [::core::mem::offset_of!(hipPointerAttribute_t, hostPointer) - 16usize];
    ["Offset of field: hipPointerAttribute_t::isManaged"]
        [::core::mem::offset_of!(hipPointerAttribute_t, isManaged) - 24usize];
    ["Offset of field: hipPointerAttribute_t::allocationFlags"]
        [::core::mem::offset_of!(hipPointerAttribute_t, allocationFlags) - 28usize];
};
pub const hipSuccess: hipError_t = 0;
pub const hipErrorInvalidValue: hipError_t = 1;
pub const hipErrorOutOfMemory: hipError_t = 2;
pub const hipErrorMemoryAllocation: hipError_t = 2;
pub const hipErrorNotInitialized: hipError_t = 3;
pub const hipErrorInitializationError: hipError_t = 3;
pub const hipErrorDeinitialized: hipError_t = 4;
pub const hipErrorProfilerDisabled: hipError_t = 5;
pub const hipErrorProfilerNotInitialized: hipError_t = 6;
pub const hipErrorProfilerAlreadyStarted: hipError_t = 7;
pub const hipErrorProfilerAlreadyStopped: hipError_t = 8;
pub const hipErrorInvalidConfiguration: hipError_t = 9;
pub const hipErrorInvalidPitchValue: hipError_t = 12;
pub const hipErrorInvalidSymbol: hipError_t = 13;
pub const hipErrorInvalidDevicePointer: hipError_t = 17;
pub const hipErrorInvalidMemcpyDirection: hipError_t = 21;
pub const hipErrorInsufficientDriver: hipError_t = 35;
pub const hipErrorMissingConfiguration: hipError_t = 52;
pub const hipErrorPriorLaunchFailure: hipError_t = 53;
pub const hipErrorInvalidDeviceFunction: hipError_t = 98;
pub const hipErrorNoDevice: hipError_t = 100;
pub const hipErrorInvalidDevice: hipError_t = 101;
pub const hipErrorInvalidImage: hipError_t = 200;
pub const hipErrorInvalidContext: hipError_t = 201;
pub const hipErrorContextAlreadyCurrent: hipError_t = 202;
pub const hipErrorMapFailed: hipError_t = 205;
pub const hipErrorMapBufferObjectFailed: hipError_t = 205;
pub const hipErrorUnmapFailed: hipError_t = 206;
pub const hipErrorArrayIsMapped: hipError_t = 207;
pub const hipErrorAlreadyMapped: hipError_t = 208;
pub const hipErrorNoBinaryForGpu: hipError_t = 209;
pub const hipErrorAlreadyAcquired: hipError_t = 210;
pub const hipErrorNotMapped: hipError_t = 211;
pub const hipErrorNotMappedAsArray: hipError_t = 212;
pub const hipErrorNotMappedAsPointer: hipError_t = 213;
pub const hipErrorECCNotCorrectable: hipError_t = 214;
pub const hipErrorUnsupportedLimit: hipError_t = 215;
pub const hipErrorContextAlreadyInUse: hipError_t = 216;
pub const hipErrorPeerAccessUnsupported: hipError_t = 217;
pub const hipErrorInvalidKernelFile: hipError_t = 218;
pub const hipErrorInvalidGraphicsContext: hipError_t = 219;
pub const hipErrorInvalidSource: hipError_t = 300;
pub const hipErrorFileNotFound: hipError_t = 301;
pub const hipErrorSharedObjectSymbolNotFound: hipError_t = 302;
pub const hipErrorSharedObjectInitFailed: hipError_t = 303;
pub const hipErrorOperatingSystem: hipError_t = 304;
pub const hipErrorInvalidHandle: hipError_t = 400;
pub const hipErrorInvalidResourceHandle: hipError_t = 400;
pub const hipErrorIllegalState: hipError_t = 401;
pub const hipErrorNotFound: hipError_t = 500;
pub const hipErrorNotReady: hipError_t = 600;
pub const hipErrorIllegalAddress: hipError_t = 700;
pub const hipErrorLaunchOutOfResources: hipError_t = 701;
pub const hipErrorLaunchTimeOut: hipError_t = 702;
pub const hipErrorPeerAccessAlreadyEnabled: hipError_t = 704;
pub const hipErrorPeerAccessNotEnabled: hipError_t = 705;
pub const hipErrorSetOnActiveProcess: hipError_t = 708;
pub const hipErrorContextIsDestroyed: hipError_t = 709;
pub const hipErrorAssert: hipError_t = 710;
pub const hipErrorHostMemoryAlreadyRegistered: hipError_t = 712;
pub const hipErrorHostMemoryNotRegistered: hipError_t = 713;
pub const hipErrorLaunchFailure: hipError_t = 719;
pub const hipErrorCooperativeLaunchTooLarge: hipError_t = 720;
pub const hipErrorNotSupported: hipError_t = 801;
pub const hipErrorStreamCaptureUnsupported: hipError_t = 900;
pub const hipErrorStreamCaptureInvalidated: hipError_t = 901;
pub const hipErrorStreamCaptureMerge: hipError_t = 902;
pub const hipErrorStreamCaptureUnmatched: hipError_t = 903;
pub const hipErrorStreamCaptureUnjoined: hipError_t = 904;
pub const hipErrorStreamCaptureIsolation: hipError_t = 905;
pub const hipErrorStreamCaptureImplicit: hipError_t = 906;
pub const hipErrorCapturedEvent: hipError_t = 907;
pub const hipErrorStreamCaptureWrongThread: hipError_t = 908;
pub const hipErrorGraphExecUpdateFailure: hipError_t = 910;
pub const hipErrorInvalidChannelDescriptor: hipError_t = 911;
pub const hipErrorInvalidTexture: hipError_t = 912;
pub const hipErrorUnknown: hipError_t = 999;
pub const hipErrorRuntimeMemory: hipError_t = 1052;
pub const hipErrorRuntimeOther: hipError_t = 1053;
pub const hipErrorTbd: hipError_t = 1054;
pub const hipDeviceAttributeCudaCompatibleBegin: hipDeviceAttribute_t = 0;
pub const hipDeviceAttributeEccEnabled: hipDeviceAttribute_t = 0;
pub const hipDeviceAttributeAccessPolicyMaxWindowSize: hipDeviceAttribute_t = 1;
pub const hipDeviceAttributeAsyncEngineCount: hipDeviceAttribute_t = 2;
pub const hipDeviceAttributeCanMapHostMemory: hipDeviceAttribute_t = 3;
pub const hipDeviceAttributeCanUseHostPointerForRegisteredMem: hipDeviceAttribute_t = 4;
pub const hipDeviceAttributeClockRate: hipDeviceAttribute_t = 5;
pub const hipDeviceAttributeComputeMode: hipDeviceAttribute_t = 6;
pub const hipDeviceAttributeComputePreemptionSupported: hipDeviceAttribute_t = 7;
pub const hipDeviceAttributeConcurrentKernels: hipDeviceAttribute_t = 8;
pub const hipDeviceAttributeConcurrentManagedAccess: hipDeviceAttribute_t = 9;
pub const hipDeviceAttributeCooperativeLaunch: hipDeviceAttribute_t = 10;
pub const hipDeviceAttributeCooperativeMultiDeviceLaunch: hipDeviceAttribute_t = 11;
pub const hipDeviceAttributeDeviceOverlap: hipDeviceAttribute_t = 12;
pub const hipDeviceAttributeDirectManagedMemAccessFromHost: hipDeviceAttribute_t = 13;
pub const hipDeviceAttributeGlobalL1CacheSupported: hipDeviceAttribute_t = 14;
pub const hipDeviceAttributeHostNativeAtomicSupported: hipDeviceAttribute_t = 15;
pub const hipDeviceAttributeIntegrated: hipDeviceAttribute_t = 16;
pub const hipDeviceAttributeIsMultiGpuBoard: hipDeviceAttribute_t = 17;
pub const hipDeviceAttributeKernelExecTimeout: hipDeviceAttribute_t = 18;
pub const hipDeviceAttributeL2CacheSize: hipDeviceAttribute_t = 19;
pub const hipDeviceAttributeLocalL1CacheSupported: hipDeviceAttribute_t = 20;
pub const hipDeviceAttributeLuid: hipDeviceAttribute_t = 21;
pub const hipDeviceAttributeLuidDeviceNodeMask: hipDeviceAttribute_t = 22;
pub const hipDeviceAttributeComputeCapabilityMajor: hipDeviceAttribute_t = 23;
pub const hipDeviceAttributeManagedMemory: hipDeviceAttribute_t = 24;
pub const hipDeviceAttributeMaxBlocksPerMultiProcessor: hipDeviceAttribute_t = 25;
pub const hipDeviceAttributeMaxBlockDimX: hipDeviceAttribute_t = 26;
pub const hipDeviceAttributeMaxBlockDimY: hipDeviceAttribute_t = 27;
pub const hipDeviceAttributeMaxBlockDimZ: hipDeviceAttribute_t = 28;
pub const hipDeviceAttributeMaxGridDimX: hipDeviceAttribute_t = 29;
pub const hipDeviceAttributeMaxGridDimY: hipDeviceAttribute_t = 30;
pub const hipDeviceAttributeMaxGridDimZ: hipDeviceAttribute_t = 31;
pub const hipDeviceAttributeMaxSurface1D: hipDeviceAttribute_t = 32;
pub const hipDeviceAttributeMaxSurface1DLayered: hipDeviceAttribute_t = 33;
pub const hipDeviceAttributeMaxSurface2D: hipDeviceAttribute_t = 34;
pub const hipDeviceAttributeMaxSurface2DLayered: hipDeviceAttribute_t = 35;
pub const hipDeviceAttributeMaxSurface3D: hipDeviceAttribute_t = 36;
pub const hipDeviceAttributeMaxSurfaceCubemap: hipDeviceAttribute_t = 37;
pub const hipDeviceAttributeMaxSurfaceCubemapLayered: hipDeviceAttribute_t = 38;
pub const hipDeviceAttributeMaxTexture1DWidth: hipDeviceAttribute_t = 39;
pub const hipDeviceAttributeMaxTexture1DLayered: hipDeviceAttribute_t = 40;
pub const hipDeviceAttributeMaxTexture1DLinear: hipDeviceAttribute_t = 41;
pub const hipDeviceAttributeMaxTexture1DMipmap: hipDeviceAttribute_t = 42;
pub const hipDeviceAttributeMaxTexture2DWidth: hipDeviceAttribute_t = 43;
pub const hipDeviceAttributeMaxTexture2DHeight: hipDeviceAttribute_t = 44;
pub const hipDeviceAttributeMaxTexture2DGather: hipDeviceAttribute_t = 45;
pub const hipDeviceAttributeMaxTexture2DLayered: hipDeviceAttribute_t = 46;
pub const hipDeviceAttributeMaxTexture2DLinear: hipDeviceAttribute_t = 47;
pub const hipDeviceAttributeMaxTexture2DMipmap: hipDeviceAttribute_t = 48;
pub const hipDeviceAttributeMaxTexture3DWidth: hipDeviceAttribute_t = 49;
pub const hipDeviceAttributeMaxTexture3DHeight: hipDeviceAttribute_t = 50;
pub const hipDeviceAttributeMaxTexture3DDepth: hipDeviceAttribute_t = 51;
pub const hipDeviceAttributeMaxTexture3DAlt: hipDeviceAttribute_t = 52;
pub const hipDeviceAttributeMaxTextureCubemap: hipDeviceAttribute_t = 53;
pub const hipDeviceAttributeMaxTextureCubemapLayered: hipDeviceAttribute_t = 54;
pub const hipDeviceAttributeMaxThreadsDim: hipDeviceAttribute_t = 55;
pub const hipDeviceAttributeMaxThreadsPerBlock: hipDeviceAttribute_t = 56;
pub const hipDeviceAttributeMaxThreadsPerMultiProcessor: hipDeviceAttribute_t = 57;
pub const hipDeviceAttributeMaxPitch: hipDeviceAttribute_t = 58;
pub const hipDeviceAttributeMemoryBusWidth: hipDeviceAttribute_t = 59;
pub const hipDeviceAttributeMemoryClockRate: hipDeviceAttribute_t = 60;
pub const hipDeviceAttributeComputeCapabilityMinor: hipDeviceAttribute_t = 61;
pub const hipDeviceAttributeMultiGpuBoardGroupID: hipDeviceAttribute_t = 62;
pub const hipDeviceAttributeMultiprocessorCount: hipDeviceAttribute_t = 63;
pub const hipDeviceAttributeUnused1: hipDeviceAttribute_t = 64;
pub const hipDeviceAttributePageableMemoryAccess: hipDeviceAttribute_t = 65;
pub const hipDeviceAttributePageableMemoryAccessUsesHostPageTables: hipDeviceAttribute_t = 66;
pub const hipDeviceAttributePciBusId: hipDeviceAttribute_t = 67;
pub const hipDeviceAttributePciDeviceId: hipDeviceAttribute_t = 68;
pub const hipDeviceAttributePciDomainID: hipDeviceAttribute_t = 69;
pub const hipDeviceAttributePersistingL2CacheMaxSize: hipDeviceAttribute_t = 70;
pub const hipDeviceAttributeMaxRegistersPerBlock: hipDeviceAttribute_t = 71;
pub const hipDeviceAttributeMaxRegistersPerMultiprocessor: hipDeviceAttribute_t = 72;
pub const hipDeviceAttributeReservedSharedMemPerBlock: hipDeviceAttribute_t = 73;
pub const hipDeviceAttributeMaxSharedMemoryPerBlock: hipDeviceAttribute_t = 74;
pub const hipDeviceAttributeSharedMemPerBlockOptin: hipDeviceAttribute_t = 75;
pub const hipDeviceAttributeSharedMemPerMultiprocessor: hipDeviceAttribute_t = 76;
pub const hipDeviceAttributeSingleToDoublePrecisionPerfRatio: hipDeviceAttribute_t = 77;
pub const hipDeviceAttributeStreamPrioritiesSupported: hipDeviceAttribute_t = 78;
pub const hipDeviceAttributeSurfaceAlignment: hipDeviceAttribute_t = 79;
pub const hipDeviceAttributeTccDriver: hipDeviceAttribute_t = 80;
pub const hipDeviceAttributeTextureAlignment: hipDeviceAttribute_t = 81;
pub const hipDeviceAttributeTexturePitchAlignment: hipDeviceAttribute_t = 82;
pub const hipDeviceAttributeTotalConstantMemory: hipDeviceAttribute_t = 83;
pub const hipDeviceAttributeTotalGlobalMem: hipDeviceAttribute_t = 84;
pub const hipDeviceAttributeUnifiedAddressing: hipDeviceAttribute_t = 85;
pub const hipDeviceAttributeUnused2: hipDeviceAttribute_t = 86;
pub const hipDeviceAttributeWarpSize: hipDeviceAttribute_t = 87;
pub const hipDeviceAttributeMemoryPoolsSupported: hipDeviceAttribute_t = 88;
pub const hipDeviceAttributeVirtualMemoryManagementSupported: hipDeviceAttribute_t = 89;
pub const hipDeviceAttributeHostRegisterSupported: hipDeviceAttribute_t = 90;
pub const hipDeviceAttributeMemoryPoolSupportedHandleTypes: hipDeviceAttribute_t = 91;
pub const hipDeviceAttributeCudaCompatibleEnd: hipDeviceAttribute_t = 9999;
pub const hipDeviceAttributeAmdSpecificBegin: hipDeviceAttribute_t = 10000;
pub const hipDeviceAttributeClockInstructionRate: hipDeviceAttribute_t = 10000;
pub const hipDeviceAttributeUnused3: hipDeviceAttribute_t = 10001;
pub const hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: hipDeviceAttribute_t = 10002;
pub const hipDeviceAttributeUnused4: hipDeviceAttribute_t = 10003;
pub const hipDeviceAttributeUnused5: hipDeviceAttribute_t = 10004;
pub const hipDeviceAttributeHdpMemFlushCntl: hipDeviceAttribute_t = 10005;
pub const hipDeviceAttributeHdpRegFlushCntl: hipDeviceAttribute_t = 10006;
pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedFunc: hipDeviceAttribute_t = 10007;
pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedGridDim: hipDeviceAttribute_t = 10008;
pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedBlockDim: hipDeviceAttribute_t = 10009;
pub const hipDeviceAttributeCooperativeMultiDeviceUnmatchedSharedMem: hipDeviceAttribute_t = 10010;
pub const hipDeviceAttributeIsLargeBar: hipDeviceAttribute_t = 10011;
pub const hipDeviceAttributeAsicRevision: hipDeviceAttribute_t = 10012;
pub const hipDeviceAttributeCanUseStreamWaitValue: hipDeviceAttribute_t = 10013;
pub const hipDeviceAttributeImageSupport: hipDeviceAttribute_t = 10014;
pub const hipDeviceAttributePhysicalMultiProcessorCount: hipDeviceAttribute_t = 10015;
pub const hipDeviceAttributeFineGrainSupport: hipDeviceAttribute_t = 10016;
pub const hipDeviceAttributeWallClockRate: hipDeviceAttribute_t = 10017;
pub const hipDeviceAttributeAmdSpecificEnd: hipDeviceAttribute_t = 19999;
pub const hipDeviceAttributeVendorSpecificBegin: hipDeviceAttribute_t = 20000;
pub const HIP_GET_PROC_ADDRESS_SUCCESS: hipDriverProcAddressQueryResult = 0;
pub const HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: hipDriverProcAddressQueryResult = 1;
pub const HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: hipDriverProcAddressQueryResult = 2;
pub const hipMemcpyHostToHost: hipMemcpyKind = 0;
pub const hipMemcpyHostToDevice: hipMemcpyKind = 1;
pub const hipMemcpyDeviceToHost: hipMemcpyKind = 2;
pub const hipMemcpyDeviceToDevice: hipMemcpyKind = 3;
pub const hipMemcpyDefault: hipMemcpyKind = 4;
pub const hipMemcpyDeviceToDeviceNoCU: hipMemcpyKind = 1024;
pub const HIP_POINTER_ATTRIBUTE_CONTEXT: hipPointer_attribute = 1;
pub const HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: hipPointer_attribute = 2;
pub const HIP_POINTER_ATTRIBUTE_DEVICE_POINTER: hipPointer_attribute = 3;
pub const HIP_POINTER_ATTRIBUTE_HOST_POINTER: hipPointer_attribute = 4;
pub const HIP_POINTER_ATTRIBUTE_P2P_TOKENS: hipPointer_attribute = 5;
pub const HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS: hipPointer_attribute = 6;
pub const HIP_POINTER_ATTRIBUTE_BUFFER_ID: hipPointer_attribute = 7;
pub const HIP_POINTER_ATTRIBUTE_IS_MANAGED: hipPointer_attribute = 8;
pub const HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: hipPointer_attribute = 9;
pub const HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE: hipPointer_attribute = 10;
pub const HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: hipPointer_attribute = 11;
pub const HIP_POINTER_ATTRIBUTE_RANGE_SIZE: hipPointer_attribute = 12;
pub const HIP_POINTER_ATTRIBUTE_MAPPED: hipPointer_attribute = 13;
pub const HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: hipPointer_attribute = 14;
pub const HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: hipPointer_attribute = 15;
pub const HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS: hipPointer_attribute = 16;
pub const HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: hipPointer_attribute = 17;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipIpcMemHandle_st"][::core::mem::size_of::<hipIpcMemHandle_st>() - 64usize];
    ["Alignment of hipIpcMemHandle_st"][::core::mem::align_of::<hipIpcMemHandle_st>() - 1usize];
    ["Offset of field: hipIpcMemHandle_st::reserved"]
        [::core::mem::offset_of!(hipIpcMemHandle_st, reserved) - 0usize];
};
pub const hipMemLocationTypeInvalid: hipMemLocationType = 0;
pub const hipMemLocationTypeDevice: hipMemLocationType = 1;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemLocation"][::core::mem::size_of::<hipMemLocation>() - 8usize];
    ["Alignment of hipMemLocation"][::core::mem::align_of::<hipMemLocation>() - 4usize];
    ["Offset of field: hipMemLocation::type_"][::core::mem::offset_of!(hipMemLocation, type_) - 0usize];
    ["Offset of field: hipMemLocation::id"][::core::mem::offset_of!(hipMemLocation, id) - 4usize];
};
pub const hipMemAccessFlagsProtNone: hipMemAccessFlags = 0;
pub const hipMemAccessFlagsProtRead: hipMemAccessFlags = 1;
pub const hipMemAccessFlagsProtReadWrite: hipMemAccessFlags = 3;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemAccessDesc"][::core::mem::size_of::<hipMemAccessDesc>() - 12usize];
    ["Alignment of hipMemAccessDesc"][::core::mem::align_of::<hipMemAccessDesc>() - 4usize];
    ["Offset of field: hipMemAccessDesc::location"]
        [::core::mem::offset_of!(hipMemAccessDesc, location) - 0usize];
    ["Offset of field: hipMemAccessDesc::flags"][::core::mem::offset_of!(hipMemAccessDesc, flags) - 8usize];
};
pub const hipMemAllocationTypeInvalid: hipMemAllocationType = 0;
pub const hipMemAllocationTypePinned: hipMemAllocationType = 1;
pub const hipMemAllocationTypeMax: hipMemAllocationType = 2147483647;
pub const hipMemHandleTypeNone: hipMemAllocationHandleType = 0;
pub const hipMemHandleTypePosixFileDescriptor: hipMemAllocationHandleType = 1;
pub const hipMemHandleTypeWin32: hipMemAllocationHandleType = 2;
pub const hipMemHandleTypeWin32Kmt: hipMemAllocationHandleType = 4;
pub const hipStreamCaptureModeGlobal: hipStreamCaptureMode = 0;
pub const hipStreamCaptureModeThreadLocal: hipStreamCaptureMode = 1;
pub const hipStreamCaptureModeRelaxed: hipStreamCaptureMode = 2;
pub const hipStreamCaptureStatusNone: hipStreamCaptureStatus = 0;
pub const hipStreamCaptureStatusActive: hipStreamCaptureStatus = 1;
pub const hipStreamCaptureStatusInvalidated: hipStreamCaptureStatus = 2;
pub const hipUserObjectNoDestructorSync: hipUserObjectFlags = 1;
pub const hipGraphUserObjectMove: hipUserObjectRetainFlags = 1;
pub const hipGraphMemAttrUsedMemCurrent: hipGraphMemAttributeType = 0;
pub const hipGraphMemAttrUsedMemHigh: hipGraphMemAttributeType = 1;
pub const hipGraphMemAttrReservedMemCurrent: hipGraphMemAttributeType = 2;
pub const hipGraphMemAttrReservedMemHigh: hipGraphMemAttributeType = 3;
pub const hipGraphInstantiateFlagAutoFreeOnLaunch: hipGraphInstantiateFlags = 1;
pub const hipGraphInstantiateFlagUpload: hipGraphInstantiateFlags = 2;
pub const hipGraphInstantiateFlagDeviceLaunch: hipGraphInstantiateFlags = 4;
pub const hipGraphInstantiateFlagUseNodePriority: hipGraphInstantiateFlags = 8;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemAllocationProp__bindgen_ty_1"]
        [::core::mem::size_of::<hipMemAllocationProp__bindgen_ty_1>() - 4usize];
    ["Alignment of hipMemAllocationProp__bindgen_ty_1"]
        [::core::mem::align_of::<hipMemAllocationProp__bindgen_ty_1>() - 2usize];
    ["Offset of field: hipMemAllocationProp__bindgen_ty_1::compressionType"]
        [::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_1, compressionType) - 0usize];
    ["Offset of field: hipMemAllocationProp__bindgen_ty_1::gpuDirectRDMACapable"]
        [::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_1, gpuDirectRDMACapable) - 1usize];
    ["Offset of field: hipMemAllocationProp__bindgen_ty_1::usage"]
        [::core::mem::offset_of!(hipMemAllocationProp__bindgen_ty_1, usage) - 2usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of hipMemAllocationProp"][::core::mem::size_of::<hipMemAllocationProp>() - 32usize];
    ["Alignment of hipMemAllocationProp"][::core::mem::align_of::<hipMemAllocationProp>() - 8usize];
    ["Offset of field: hipMemAllocationProp::type_"]
        [::core::mem::offset_of!(hipMemAllocationProp, type_) - 0usize];
    ["Offset of field: hipMemAllocationProp::requestedHandleType"]
        [::core::mem::offset_of!(hipMemAllocationProp, requestedHandleType) - 4usize];
    ["Offset of field: hipMemAllocationProp::location"]
        [::core::mem::offset_of!(hipMemAllocationProp, location) - 8usize];
    ["Offset of field: hipMemAllocationProp::win32HandleMetaData"]
        [::core::mem::offset_of!(hipMemAllocationProp, win32HandleMetaData) - 16usize];
    ["Offset of field: hipMemAllocationProp::allocFlags"]
        [::core::mem::offset_of!(hipMemAllocationProp, allocFlags) - 24usize];
};
pub const hipMemAllocationGranularityMinimum: hipMemAllocationGranularity_flags = 0;
pub const hipMemAllocationGranularityRecommended: hipMemAllocationGranularity_flags = 1;
pub type hipInit_t = unsafe extern "C" fn(flags: core::ffi::c_uint) -> hipError_t;
pub type hipDriverGetVersion_t = unsafe extern "C" fn(driverVersion: *mut core::ffi::c_int) -> hipError_t;
pub type hipRuntimeGetVersion_t = unsafe extern "C" fn(runtimeVersion: *mut core::ffi::c_int) -> hipError_t;
pub type hipDeviceGet_t =
    unsafe extern "C" fn(device: *mut hipDevice_t, ordinal: core::ffi::c_int) -> hipError_t;
pub type hipDeviceGetName_t = unsafe extern "C" fn(
    name: *mut core::ffi::c_char,
    len: core::ffi::c_int,
    device: hipDevice_t,
) -> hipError_t;
pub type hipDeviceGetUuid_t = unsafe extern "C" fn(uuid: *mut hipUUID, device: hipDevice_t) -> hipError_t;
pub type hipDeviceGetPCIBusId_t = unsafe extern "C" fn(
    pciBusId: *mut core::ffi::c_char,
    len: core::ffi::c_int,
    device: core::ffi::c_int,
) -> hipError_t;
pub type hipDeviceTotalMem_t = unsafe extern "C" fn(bytes: *mut usize, device: hipDevice_t) -> hipError_t;
pub type hipDeviceSynchronize_t = unsafe extern "C" fn() -> hipError_t;
pub type hipSetDevice_t = unsafe extern "C" fn(deviceId: core::ffi::c_int) -> hipError_t;
pub type hipGetDevice_t = unsafe extern "C" fn(deviceId: *mut core::ffi::c_int) -> hipError_t;
pub type hipGetDeviceCount_t = unsafe extern "C" fn(count: *mut core::ffi::c_int) -> hipError_t;
pub type hipDeviceGetAttribute_t = unsafe extern "C" fn(
    pi: *mut core::ffi::c_int,
    attr: hipDeviceAttribute_t,
    deviceId: core::ffi::c_int,
) -> hipError_t;
pub type hipGetDevicePropertiesR0600_t =
    unsafe extern "C" fn(prop: *mut hipDeviceProp_tR0600, deviceId: core::ffi::c_int) -> hipError_t;
pub type hipIpcGetMemHandle_t =
    unsafe extern "C" fn(handle: *mut hipIpcMemHandle_t, devPtr: *mut core::ffi::c_void) -> hipError_t;
pub type hipIpcOpenMemHandle_t = unsafe extern "C" fn(
    devPtr: *mut *mut core::ffi::c_void,
    handle: hipIpcMemHandle_t,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipIpcCloseMemHandle_t = unsafe extern "C" fn(devPtr: *mut core::ffi::c_void) -> hipError_t;
pub type hipGetLastError_t = unsafe extern "C" fn() -> hipError_t;
pub type hipExtGetLastError_t = unsafe extern "C" fn() -> hipError_t;
pub type hipPeekAtLastError_t = unsafe extern "C" fn() -> hipError_t;
pub type hipGetErrorName_t = unsafe extern "C" fn(hip_error: hipError_t) -> *const core::ffi::c_char;
pub type hipGetErrorString_t = unsafe extern "C" fn(hipError: hipError_t) -> *const core::ffi::c_char;
pub type hipStreamCreate_t = unsafe extern "C" fn(stream: *mut hipStream_t) -> hipError_t;
pub type hipStreamCreateWithFlags_t =
    unsafe extern "C" fn(stream: *mut hipStream_t, flags: core::ffi::c_uint) -> hipError_t;
pub type hipStreamCreateWithPriority_t = unsafe extern "C" fn(
    stream: *mut hipStream_t,
    flags: core::ffi::c_uint,
    priority: core::ffi::c_int,
) -> hipError_t;
pub type hipDeviceGetStreamPriorityRange_t = unsafe extern "C" fn(
    leastPriority: *mut core::ffi::c_int,
    greatestPriority: *mut core::ffi::c_int,
) -> hipError_t;
pub type hipStreamDestroy_t = unsafe extern "C" fn(stream: hipStream_t) -> hipError_t;
pub type hipStreamQuery_t = unsafe extern "C" fn(stream: hipStream_t) -> hipError_t;
pub type hipStreamSynchronize_t = unsafe extern "C" fn(stream: hipStream_t) -> hipError_t;
pub type hipStreamWaitEvent_t =
    unsafe extern "C" fn(stream: hipStream_t, event: hipEvent_t, flags: core::ffi::c_uint) -> hipError_t;
pub type hipStreamGetFlags_t =
    unsafe extern "C" fn(stream: hipStream_t, flags: *mut core::ffi::c_uint) -> hipError_t;
pub type hipStreamGetPriority_t =
    unsafe extern "C" fn(stream: hipStream_t, priority: *mut core::ffi::c_int) -> hipError_t;
pub type hipStreamGetDevice_t =
    unsafe extern "C" fn(stream: hipStream_t, device: *mut hipDevice_t) -> hipError_t;
pub type hipStreamAddCallback_t = unsafe extern "C" fn(
    stream: hipStream_t,
    callback: hipStreamCallback_t,
    userData: *mut core::ffi::c_void,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipEventCreateWithFlags_t =
    unsafe extern "C" fn(event: *mut hipEvent_t, flags: core::ffi::c_uint) -> hipError_t;
pub type hipEventCreate_t = unsafe extern "C" fn(event: *mut hipEvent_t) -> hipError_t;
pub type hipEventRecordWithFlags_t =
    unsafe extern "C" fn(event: hipEvent_t, stream: hipStream_t, flags: core::ffi::c_uint) -> hipError_t;
pub type hipEventRecord_t = unsafe extern "C" fn(event: hipEvent_t, stream: hipStream_t) -> hipError_t;
pub type hipEventDestroy_t = unsafe extern "C" fn(event: hipEvent_t) -> hipError_t;
pub type hipEventSynchronize_t = unsafe extern "C" fn(event: hipEvent_t) -> hipError_t;
pub type hipEventElapsedTime_t =
    unsafe extern "C" fn(ms: *mut f32, start: hipEvent_t, stop: hipEvent_t) -> hipError_t;
pub type hipEventQuery_t = unsafe extern "C" fn(event: hipEvent_t) -> hipError_t;
pub type hipPointerGetAttributes_t =
    unsafe extern "C" fn(attributes: *mut hipPointerAttribute_t, ptr: *const core::ffi::c_void) -> hipError_t;
pub type hipPointerGetAttribute_t = unsafe extern "C" fn(
    data: *mut core::ffi::c_void,
    attribute: hipPointer_attribute,
    ptr: hipDeviceptr_t,
) -> hipError_t;
pub type hipMalloc_t = unsafe extern "C" fn(ptr: *mut *mut core::ffi::c_void, size: usize) -> hipError_t;
pub type hipExtMallocWithFlags_t = unsafe extern "C" fn(
    ptr: *mut *mut core::ffi::c_void,
    sizeBytes: usize,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipHostMalloc_t = unsafe extern "C" fn(
    ptr: *mut *mut core::ffi::c_void,
    size: usize,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipHostAlloc_t = unsafe extern "C" fn(
    ptr: *mut *mut core::ffi::c_void,
    size: usize,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipHostGetDevicePointer_t = unsafe extern "C" fn(
    devPtr: *mut *mut core::ffi::c_void,
    hstPtr: *mut core::ffi::c_void,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipHostGetFlags_t =
    unsafe extern "C" fn(flagsPtr: *mut core::ffi::c_uint, hostPtr: *mut core::ffi::c_void) -> hipError_t;
pub type hipHostRegister_t = unsafe extern "C" fn(
    hostPtr: *mut core::ffi::c_void,
    sizeBytes: usize,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipHostUnregister_t = unsafe extern "C" fn(hostPtr: *mut core::ffi::c_void) -> hipError_t;
pub type hipFree_t = unsafe extern "C" fn(ptr: *mut core::ffi::c_void) -> hipError_t;
pub type hipFreeHost_t = unsafe extern "C" fn(ptr: *mut core::ffi::c_void) -> hipError_t;
pub type hipHostFree_t = unsafe extern "C" fn(ptr: *mut core::ffi::c_void) -> hipError_t;
pub type hipMemcpy_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    src: *const core::ffi::c_void,
    sizeBytes: usize,
    kind: hipMemcpyKind,
) -> hipError_t;
pub type hipMemcpyHtoD_t =
    unsafe extern "C" fn(dst: hipDeviceptr_t, src: *mut core::ffi::c_void, sizeBytes: usize) -> hipError_t;
pub type hipMemcpyDtoH_t =
    unsafe extern "C" fn(dst: *mut core::ffi::c_void, src: hipDeviceptr_t, sizeBytes: usize) -> hipError_t;
pub type hipMemcpyDtoD_t =
    unsafe extern "C" fn(dst: hipDeviceptr_t, src: hipDeviceptr_t, sizeBytes: usize) -> hipError_t;
pub type hipMemcpyHtoDAsync_t = unsafe extern "C" fn(
    dst: hipDeviceptr_t,
    src: *mut core::ffi::c_void,
    sizeBytes: usize,
    stream: hipStream_t,
) -> hipError_t;
pub type hipMemcpyDtoHAsync_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    src: hipDeviceptr_t,
    sizeBytes: usize,
    stream: hipStream_t,
) -> hipError_t;
pub type hipMemcpyDtoDAsync_t = unsafe extern "C" fn(
    dst: hipDeviceptr_t,
    src: hipDeviceptr_t,
    sizeBytes: usize,
    stream: hipStream_t,
) -> hipError_t;
pub type hipGetProcAddress_t = unsafe extern "C" fn(
    symbol: *const core::ffi::c_char,
    pfn: *mut *mut core::ffi::c_void,
    hipVersion: core::ffi::c_int,
    flags: u64,
    symbolStatus: *mut hipDriverProcAddressQueryResult,
) -> hipError_t;
pub type hipMemcpyAsync_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    src: *const core::ffi::c_void,
    sizeBytes: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> hipError_t;
pub type hipMemset_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    value: core::ffi::c_int,
    sizeBytes: usize,
) -> hipError_t;
pub type hipMemsetD8_t =
    unsafe extern "C" fn(dest: hipDeviceptr_t, value: core::ffi::c_uchar, count: usize) -> hipError_t;
pub type hipMemsetD8Async_t = unsafe extern "C" fn(
    dest: hipDeviceptr_t,
    value: core::ffi::c_uchar,
    count: usize,
    stream: hipStream_t,
) -> hipError_t;
pub type hipMemsetAsync_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    value: core::ffi::c_int,
    sizeBytes: usize,
    stream: hipStream_t,
) -> hipError_t;
pub type hipMemGetInfo_t = unsafe extern "C" fn(free: *mut usize, total: *mut usize) -> hipError_t;
pub type hipDeviceCanAccessPeer_t = unsafe extern "C" fn(
    canAccessPeer: *mut core::ffi::c_int,
    deviceId: core::ffi::c_int,
    peerDeviceId: core::ffi::c_int,
) -> hipError_t;
pub type hipDeviceEnablePeerAccess_t =
    unsafe extern "C" fn(peerDeviceId: core::ffi::c_int, flags: core::ffi::c_uint) -> hipError_t;
pub type hipDeviceDisablePeerAccess_t = unsafe extern "C" fn(peerDeviceId: core::ffi::c_int) -> hipError_t;
pub type hipMemGetAddressRange_t =
    unsafe extern "C" fn(pbase: *mut hipDeviceptr_t, psize: *mut usize, dptr: hipDeviceptr_t) -> hipError_t;
pub type hipMemcpyPeer_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    dstDeviceId: core::ffi::c_int,
    src: *const core::ffi::c_void,
    srcDeviceId: core::ffi::c_int,
    sizeBytes: usize,
) -> hipError_t;
pub type hipMemcpyPeerAsync_t = unsafe extern "C" fn(
    dst: *mut core::ffi::c_void,
    dstDeviceId: core::ffi::c_int,
    src: *const core::ffi::c_void,
    srcDevice: core::ffi::c_int,
    sizeBytes: usize,
    stream: hipStream_t,
) -> hipError_t;
pub type hipDevicePrimaryCtxGetState_t = unsafe extern "C" fn(
    dev: hipDevice_t,
    flags: *mut core::ffi::c_uint,
    active: *mut core::ffi::c_int,
) -> hipError_t;
pub type hipDevicePrimaryCtxRelease_t = unsafe extern "C" fn(dev: hipDevice_t) -> hipError_t;
pub type hipDevicePrimaryCtxRetain_t =
    unsafe extern "C" fn(pctx: *mut hipCtx_t, dev: hipDevice_t) -> hipError_t;
pub type hipLaunchHostFunc_t = unsafe extern "C" fn(
    stream: hipStream_t,
    fn_: hipHostFn_t,
    userData: *mut core::ffi::c_void,
) -> hipError_t;
pub type hipGetStreamDeviceId_t = unsafe extern "C" fn(stream: hipStream_t) -> core::ffi::c_int;
pub type hipStreamBeginCapture_t =
    unsafe extern "C" fn(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t;
pub type hipStreamEndCapture_t =
    unsafe extern "C" fn(stream: hipStream_t, pGraph: *mut hipGraph_t) -> hipError_t;
pub type hipStreamGetCaptureInfo_t = unsafe extern "C" fn(
    stream: hipStream_t,
    pCaptureStatus: *mut hipStreamCaptureStatus,
    pId: *mut core::ffi::c_ulonglong,
) -> hipError_t;
pub type hipStreamGetCaptureInfo_v2_t = unsafe extern "C" fn(
    stream: hipStream_t,
    captureStatus_out: *mut hipStreamCaptureStatus,
    id_out: *mut core::ffi::c_ulonglong,
    graph_out: *mut hipGraph_t,
    dependencies_out: *mut *const hipGraphNode_t,
    numDependencies_out: *mut usize,
) -> hipError_t;
pub type hipStreamIsCapturing_t =
    unsafe extern "C" fn(stream: hipStream_t, pCaptureStatus: *mut hipStreamCaptureStatus) -> hipError_t;
pub type hipStreamUpdateCaptureDependencies_t = unsafe extern "C" fn(
    stream: hipStream_t,
    dependencies: *mut hipGraphNode_t,
    numDependencies: usize,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipThreadExchangeStreamCaptureMode_t =
    unsafe extern "C" fn(mode: *mut hipStreamCaptureMode) -> hipError_t;
pub type hipGraphCreate_t =
    unsafe extern "C" fn(pGraph: *mut hipGraph_t, flags: core::ffi::c_uint) -> hipError_t;
pub type hipGraphDestroy_t = unsafe extern "C" fn(graph: hipGraph_t) -> hipError_t;
pub type hipGraphGetNodes_t =
    unsafe extern "C" fn(graph: hipGraph_t, nodes: *mut hipGraphNode_t, numNodes: *mut usize) -> hipError_t;
pub type hipGraphNodeGetDependencies_t = unsafe extern "C" fn(
    node: hipGraphNode_t,
    pDependencies: *mut hipGraphNode_t,
    pNumDependencies: *mut usize,
) -> hipError_t;
pub type hipGraphInstantiate_t = unsafe extern "C" fn(
    pGraphExec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    pErrorNode: *mut hipGraphNode_t,
    pLogBuffer: *mut core::ffi::c_char,
    bufferSize: usize,
) -> hipError_t;
pub type hipGraphInstantiateWithFlags_t = unsafe extern "C" fn(
    pGraphExec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    flags: core::ffi::c_ulonglong,
) -> hipError_t;
pub type hipGraphLaunch_t =
    unsafe extern "C" fn(graphExec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
pub type hipGraphUpload_t =
    unsafe extern "C" fn(graphExec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
pub type hipGraphExecDestroy_t = unsafe extern "C" fn(graphExec: hipGraphExec_t) -> hipError_t;
pub type hipDeviceGetGraphMemAttribute_t = unsafe extern "C" fn(
    device: core::ffi::c_int,
    attr: hipGraphMemAttributeType,
    value: *mut core::ffi::c_void,
) -> hipError_t;
pub type hipUserObjectCreate_t = unsafe extern "C" fn(
    object_out: *mut hipUserObject_t,
    ptr: *mut core::ffi::c_void,
    destroy: hipHostFn_t,
    initialRefcount: core::ffi::c_uint,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipUserObjectRelease_t =
    unsafe extern "C" fn(object: hipUserObject_t, count: core::ffi::c_uint) -> hipError_t;
pub type hipUserObjectRetain_t =
    unsafe extern "C" fn(object: hipUserObject_t, count: core::ffi::c_uint) -> hipError_t;
pub type hipGraphRetainUserObject_t = unsafe extern "C" fn(
    graph: hipGraph_t,
    object: hipUserObject_t,
    count: core::ffi::c_uint,
    flags: core::ffi::c_uint,
) -> hipError_t;
pub type hipGraphReleaseUserObject_t =
    unsafe extern "C" fn(graph: hipGraph_t, object: hipUserObject_t, count: core::ffi::c_uint) -> hipError_t;
pub type hipMemAddressFree_t =
    unsafe extern "C" fn(devPtr: *mut core::ffi::c_void, size: usize) -> hipError_t;
pub type hipMemAddressReserve_t = unsafe extern "C" fn(
    ptr: *mut *mut core::ffi::c_void,
    size: usize,
    alignment: usize,
    addr: *mut core::ffi::c_void,
    flags: core::ffi::c_ulonglong,
) -> hipError_t;
pub type hipMemCreate_t = unsafe extern "C" fn(
    handle: *mut hipMemGenericAllocationHandle_t,
    size: usize,
    prop: *const hipMemAllocationProp,
    flags: core::ffi::c_ulonglong,
) -> hipError_t;
pub type hipMemExportToShareableHandle_t = unsafe extern "C" fn(
    shareableHandle: *mut core::ffi::c_void,
    handle: hipMemGenericAllocationHandle_t,
    handleType: hipMemAllocationHandleType,
    flags: core::ffi::c_ulonglong,
) -> hipError_t;
pub type hipMemGetAccess_t = unsafe extern "C" fn(
    flags: *mut core::ffi::c_ulonglong,
    location: *const hipMemLocation,
    ptr: *mut core::ffi::c_void,
) -> hipError_t;
pub type hipMemGetAllocationGranularity_t = unsafe extern "C" fn(
    granularity: *mut usize,
    prop: *const hipMemAllocationProp,
    option: hipMemAllocationGranularity_flags,
) -> hipError_t;
pub type hipMemGetAllocationPropertiesFromHandle_t = unsafe extern "C" fn(
    prop: *mut hipMemAllocationProp,
    handle: hipMemGenericAllocationHandle_t,
) -> hipError_t;
pub type hipMemImportFromShareableHandle_t = unsafe extern "C" fn(
    handle: *mut hipMemGenericAllocationHandle_t,
    osHandle: *mut core::ffi::c_void,
    shHandleType: hipMemAllocationHandleType,
) -> hipError_t;
pub type hipMemMap_t = unsafe extern "C" fn(
    ptr: *mut core::ffi::c_void,
    size: usize,
    offset: usize,
    handle: hipMemGenericAllocationHandle_t,
    flags: core::ffi::c_ulonglong,
) -> hipError_t;
pub type hipMemRelease_t = unsafe extern "C" fn(handle: hipMemGenericAllocationHandle_t) -> hipError_t;
pub type hipMemRetainAllocationHandle_t = unsafe extern "C" fn(
    handle: *mut hipMemGenericAllocationHandle_t,
    addr: *mut core::ffi::c_void,
) -> hipError_t;
pub type hipMemSetAccess_t = unsafe extern "C" fn(
    ptr: *mut core::ffi::c_void,
    size: usize,
    desc: *const hipMemAccessDesc,
    count: usize,
) -> hipError_t;
pub type hipMemUnmap_t = unsafe extern "C" fn(ptr: *mut core::ffi::c_void, size: usize) -> hipError_t;
/// The functions that are declared here.
pub const NAMES: &[&str] = &[
    "hipDeviceCanAccessPeer",
    "hipDeviceDisablePeerAccess",
    "hipDeviceEnablePeerAccess",
    "hipDeviceGet",
    "hipDeviceGetAttribute",
    "hipDeviceGetGraphMemAttribute",
    "hipDeviceGetName",
    "hipDeviceGetPCIBusId",
    "hipDeviceGetStreamPriorityRange",
    "hipDeviceGetUuid",
    "hipDevicePrimaryCtxGetState",
    "hipDevicePrimaryCtxRelease",
    "hipDevicePrimaryCtxRetain",
    "hipDeviceSynchronize",
    "hipDeviceTotalMem",
    "hipDriverGetVersion",
    "hipEventCreate",
    "hipEventCreateWithFlags",
    "hipEventDestroy",
    "hipEventElapsedTime",
    "hipEventQuery",
    "hipEventRecord",
    "hipEventRecordWithFlags",
    "hipEventSynchronize",
    "hipExtGetLastError",
    "hipExtMallocWithFlags",
    "hipFree",
    "hipFreeHost",
    "hipGetDevice",
    "hipGetDeviceCount",
    "hipGetDevicePropertiesR0600",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipGetLastError",
    "hipGetProcAddress",
    "hipGetStreamDeviceId",
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
    "hipHostAlloc",
    "hipHostFree",
    "hipHostGetDevicePointer",
    "hipHostGetFlags",
    "hipHostMalloc",
    "hipHostRegister",
    "hipHostUnregister",
    "hipInit",
    "hipIpcCloseMemHandle",
    "hipIpcGetMemHandle",
    "hipIpcOpenMemHandle",
    "hipLaunchHostFunc",
    "hipMalloc",
    "hipMemAddressFree",
    "hipMemAddressReserve",
    "hipMemCreate",
    "hipMemExportToShareableHandle",
    "hipMemGetAccess",
    "hipMemGetAddressRange",
    "hipMemGetAllocationGranularity",
    "hipMemGetAllocationPropertiesFromHandle",
    "hipMemGetInfo",
    "hipMemImportFromShareableHandle",
    "hipMemMap",
    "hipMemRelease",
    "hipMemRetainAllocationHandle",
    "hipMemSetAccess",
    "hipMemUnmap",
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
    "hipPeekAtLastError",
    "hipPointerGetAttribute",
    "hipPointerGetAttributes",
    "hipRuntimeGetVersion",
    "hipSetDevice",
    "hipStreamAddCallback",
    "hipStreamBeginCapture",
    "hipStreamCreate",
    "hipStreamCreateWithFlags",
    "hipStreamCreateWithPriority",
    "hipStreamDestroy",
    "hipStreamEndCapture",
    "hipStreamGetCaptureInfo",
    "hipStreamGetCaptureInfo_v2",
    "hipStreamGetDevice",
    "hipStreamGetFlags",
    "hipStreamGetPriority",
    "hipStreamIsCapturing",
    "hipStreamQuery",
    "hipStreamSynchronize",
    "hipStreamUpdateCaptureDependencies",
    "hipStreamWaitEvent",
    "hipThreadExchangeStreamCaptureMode",
    "hipUserObjectCreate",
    "hipUserObjectRelease",
    "hipUserObjectRetain",
];
/// The library's functions; `None` where it has none of that name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Functions {
    pub hipDeviceCanAccessPeer: Option<hipDeviceCanAccessPeer_t>,
    pub hipDeviceDisablePeerAccess: Option<hipDeviceDisablePeerAccess_t>,
    pub hipDeviceEnablePeerAccess: Option<hipDeviceEnablePeerAccess_t>,
    pub hipDeviceGet: Option<hipDeviceGet_t>,
    pub hipDeviceGetAttribute: Option<hipDeviceGetAttribute_t>,
    pub hipDeviceGetGraphMemAttribute: Option<hipDeviceGetGraphMemAttribute_t>,
    pub hipDeviceGetName: Option<hipDeviceGetName_t>,
    pub hipDeviceGetPCIBusId: Option<hipDeviceGetPCIBusId_t>,
    pub hipDeviceGetStreamPriorityRange: Option<hipDeviceGetStreamPriorityRange_t>,
    pub hipDeviceGetUuid: Option<hipDeviceGetUuid_t>,
    pub hipDevicePrimaryCtxGetState: Option<hipDevicePrimaryCtxGetState_t>,
    pub hipDevicePrimaryCtxRelease: Option<hipDevicePrimaryCtxRelease_t>,
    pub hipDevicePrimaryCtxRetain: Option<hipDevicePrimaryCtxRetain_t>,
    pub hipDeviceSynchronize: Option<hipDeviceSynchronize_t>,
    pub hipDeviceTotalMem: Option<hipDeviceTotalMem_t>,
    pub hipDriverGetVersion: Option<hipDriverGetVersion_t>,
    pub hipEventCreate: Option<hipEventCreate_t>,
    pub hipEventCreateWithFlags: Option<hipEventCreateWithFlags_t>,
    pub hipEventDestroy: Option<hipEventDestroy_t>,
    pub hipEventElapsedTime: Option<hipEventElapsedTime_t>,
    pub hipEventQuery: Option<hipEventQuery_t>,
    pub hipEventRecord: Option<hipEventRecord_t>,
    pub hipEventRecordWithFlags: Option<hipEventRecordWithFlags_t>,
    pub hipEventSynchronize: Option<hipEventSynchronize_t>,
    pub hipExtGetLastError: Option<hipExtGetLastError_t>,
    pub hipExtMallocWithFlags: Option<hipExtMallocWithFlags_t>,
    pub hipFree: Option<hipFree_t>,
    pub hipFreeHost: Option<hipFreeHost_t>,
    pub hipGetDevice: Option<hipGetDevice_t>,
    pub hipGetDeviceCount: Option<hipGetDeviceCount_t>,
    pub hipGetDevicePropertiesR0600: Option<hipGetDevicePropertiesR0600_t>,
    pub hipGetErrorName: Option<hipGetErrorName_t>,
    pub hipGetErrorString: Option<hipGetErrorString_t>,
    pub hipGetLastError: Option<hipGetLastError_t>,
    pub hipGetProcAddress: Option<hipGetProcAddress_t>,
    pub hipGetStreamDeviceId: Option<hipGetStreamDeviceId_t>,
    pub hipGraphCreate: Option<hipGraphCreate_t>,
    pub hipGraphDestroy: Option<hipGraphDestroy_t>,
    pub hipGraphExecDestroy: Option<hipGraphExecDestroy_t>,
    pub hipGraphGetNodes: Option<hipGraphGetNodes_t>,
    pub hipGraphInstantiate: Option<hipGraphInstantiate_t>,
    pub hipGraphInstantiateWithFlags: Option<hipGraphInstantiateWithFlags_t>,
    pub hipGraphLaunch: Option<hipGraphLaunch_t>,
    pub hipGraphNodeGetDependencies: Option<hipGraphNodeGetDependencies_t>,
    pub hipGraphReleaseUserObject: Option<hipGraphReleaseUserObject_t>,
    pub hipGraphRetainUserObject: Option<hipGraphRetainUserObject_t>,
    pub hipGraphUpload: Option<hipGraphUpload_t>,
    pub hipHostAlloc: Option<hipHostAlloc_t>,
    pub hipHostFree: Option<hipHostFree_t>,
    pub hipHostGetDevicePointer: Option<hipHostGetDevicePointer_t>,
    pub hipHostGetFlags: Option<hipHostGetFlags_t>,
    pub hipHostMalloc: Option<hipHostMalloc_t>,
    pub hipHostRegister: Option<hipHostRegister_t>,
    pub hipHostUnregister: Option<hipHostUnregister_t>,
    pub hipInit: Option<hipInit_t>,
    pub hipIpcCloseMemHandle: Option<hipIpcCloseMemHandle_t>,
    pub hipIpcGetMemHandle: Option<hipIpcGetMemHandle_t>,
    pub hipIpcOpenMemHandle: Option<hipIpcOpenMemHandle_t>,
    pub hipLaunchHostFunc: Option<hipLaunchHostFunc_t>,
    pub hipMalloc: Option<hipMalloc_t>,
    pub hipMemAddressFree: Option<hipMemAddressFree_t>,
    pub hipMemAddressReserve: Option<hipMemAddressReserve_t>,
    pub hipMemCreate: Option<hipMemCreate_t>,
    pub hipMemExportToShareableHandle: Option<hipMemExportToShareableHandle_t>,
    pub hipMemGetAccess: Option<hipMemGetAccess_t>,
    pub hipMemGetAddressRange: Option<hipMemGetAddressRange_t>,
    pub hipMemGetAllocationGranularity: Option<hipMemGetAllocationGranularity_t>,
    pub hipMemGetAllocationPropertiesFromHandle: Option<hipMemGetAllocationPropertiesFromHandle_t>,
    pub hipMemGetInfo: Option<hipMemGetInfo_t>,
    pub hipMemImportFromShareableHandle: Option<hipMemImportFromShareableHandle_t>,
    pub hipMemMap: Option<hipMemMap_t>,
    pub hipMemRelease: Option<hipMemRelease_t>,
    pub hipMemRetainAllocationHandle: Option<hipMemRetainAllocationHandle_t>,
    pub hipMemSetAccess: Option<hipMemSetAccess_t>,
    pub hipMemUnmap: Option<hipMemUnmap_t>,
    pub hipMemcpy: Option<hipMemcpy_t>,
    pub hipMemcpyAsync: Option<hipMemcpyAsync_t>,
    pub hipMemcpyDtoD: Option<hipMemcpyDtoD_t>,
    pub hipMemcpyDtoDAsync: Option<hipMemcpyDtoDAsync_t>,
    pub hipMemcpyDtoH: Option<hipMemcpyDtoH_t>,
    pub hipMemcpyDtoHAsync: Option<hipMemcpyDtoHAsync_t>,
    pub hipMemcpyHtoD: Option<hipMemcpyHtoD_t>,
    pub hipMemcpyHtoDAsync: Option<hipMemcpyHtoDAsync_t>,
    pub hipMemcpyPeer: Option<hipMemcpyPeer_t>,
    pub hipMemcpyPeerAsync: Option<hipMemcpyPeerAsync_t>,
    pub hipMemset: Option<hipMemset_t>,
    pub hipMemsetAsync: Option<hipMemsetAsync_t>,
    pub hipMemsetD8: Option<hipMemsetD8_t>,
    pub hipMemsetD8Async: Option<hipMemsetD8Async_t>,
    pub hipPeekAtLastError: Option<hipPeekAtLastError_t>,
    pub hipPointerGetAttribute: Option<hipPointerGetAttribute_t>,
    pub hipPointerGetAttributes: Option<hipPointerGetAttributes_t>,
    pub hipRuntimeGetVersion: Option<hipRuntimeGetVersion_t>,
    pub hipSetDevice: Option<hipSetDevice_t>,
    pub hipStreamAddCallback: Option<hipStreamAddCallback_t>,
    pub hipStreamBeginCapture: Option<hipStreamBeginCapture_t>,
    pub hipStreamCreate: Option<hipStreamCreate_t>,
    pub hipStreamCreateWithFlags: Option<hipStreamCreateWithFlags_t>,
    pub hipStreamCreateWithPriority: Option<hipStreamCreateWithPriority_t>,
    pub hipStreamDestroy: Option<hipStreamDestroy_t>,
    pub hipStreamEndCapture: Option<hipStreamEndCapture_t>,
    pub hipStreamGetCaptureInfo: Option<hipStreamGetCaptureInfo_t>,
    pub hipStreamGetCaptureInfo_v2: Option<hipStreamGetCaptureInfo_v2_t>,
    pub hipStreamGetDevice: Option<hipStreamGetDevice_t>,
    pub hipStreamGetFlags: Option<hipStreamGetFlags_t>,
    pub hipStreamGetPriority: Option<hipStreamGetPriority_t>,
    pub hipStreamIsCapturing: Option<hipStreamIsCapturing_t>,
    pub hipStreamQuery: Option<hipStreamQuery_t>,
    pub hipStreamSynchronize: Option<hipStreamSynchronize_t>,
    pub hipStreamUpdateCaptureDependencies: Option<hipStreamUpdateCaptureDependencies_t>,
    pub hipStreamWaitEvent: Option<hipStreamWaitEvent_t>,
    pub hipThreadExchangeStreamCaptureMode: Option<hipThreadExchangeStreamCaptureMode_t>,
    pub hipUserObjectCreate: Option<hipUserObjectCreate_t>,
    pub hipUserObjectRelease: Option<hipUserObjectRelease_t>,
    pub hipUserObjectRetain: Option<hipUserObjectRetain_t>,
}
impl Functions {
    /// Asks `symbol` for the address of every function.
    ///
    /// # Safety
    ///
    /// Each address is that of a C function of this generation's signature, and stays one for as long as
    /// any copy of the table is used.
    pub unsafe fn load(mut symbol: impl FnMut(&core::ffi::CStr) -> Option<*mut core::ffi::c_void>) -> Self {
        let addresses = [
            c"hipDeviceCanAccessPeer",
            c"hipDeviceDisablePeerAccess",
            c"hipDeviceEnablePeerAccess",
            c"hipDeviceGet",
            c"hipDeviceGetAttribute",
            c"hipDeviceGetGraphMemAttribute",
            c"hipDeviceGetName",
            c"hipDeviceGetPCIBusId",
            c"hipDeviceGetStreamPriorityRange",
            c"hipDeviceGetUuid",
            c"hipDevicePrimaryCtxGetState",
            c"hipDevicePrimaryCtxRelease",
            c"hipDevicePrimaryCtxRetain",
            c"hipDeviceSynchronize",
            c"hipDeviceTotalMem",
            c"hipDriverGetVersion",
            c"hipEventCreate",
            c"hipEventCreateWithFlags",
            c"hipEventDestroy",
            c"hipEventElapsedTime",
            c"hipEventQuery",
            c"hipEventRecord",
            c"hipEventRecordWithFlags",
            c"hipEventSynchronize",
            c"hipExtGetLastError",
            c"hipExtMallocWithFlags",
            c"hipFree",
            c"hipFreeHost",
            c"hipGetDevice",
            c"hipGetDeviceCount",
            c"hipGetDevicePropertiesR0600",
            c"hipGetErrorName",
            c"hipGetErrorString",
            c"hipGetLastError",
            c"hipGetProcAddress",
            c"hipGetStreamDeviceId",
            c"hipGraphCreate",
            c"hipGraphDestroy",
            c"hipGraphExecDestroy",
            c"hipGraphGetNodes",
            c"hipGraphInstantiate",
            c"hipGraphInstantiateWithFlags",
            c"hipGraphLaunch",
            c"hipGraphNodeGetDependencies",
            c"hipGraphReleaseUserObject",
            c"hipGraphRetainUserObject",
            c"hipGraphUpload",
            c"hipHostAlloc",
            c"hipHostFree",
            c"hipHostGetDevicePointer",
            c"hipHostGetFlags",
            c"hipHostMalloc",
            c"hipHostRegister",
            c"hipHostUnregister",
            c"hipInit",
            c"hipIpcCloseMemHandle",
            c"hipIpcGetMemHandle",
            c"hipIpcOpenMemHandle",
            c"hipLaunchHostFunc",
            c"hipMalloc",
            c"hipMemAddressFree",
            c"hipMemAddressReserve",
            c"hipMemCreate",
            c"hipMemExportToShareableHandle",
            c"hipMemGetAccess",
            c"hipMemGetAddressRange",
            c"hipMemGetAllocationGranularity",
            c"hipMemGetAllocationPropertiesFromHandle",
            c"hipMemGetInfo",
            c"hipMemImportFromShareableHandle",
            c"hipMemMap",
            c"hipMemRelease",
            c"hipMemRetainAllocationHandle",
            c"hipMemSetAccess",
            c"hipMemUnmap",
            c"hipMemcpy",
            c"hipMemcpyAsync",
            c"hipMemcpyDtoD",
            c"hipMemcpyDtoDAsync",
            c"hipMemcpyDtoH",
            c"hipMemcpyDtoHAsync",
            c"hipMemcpyHtoD",
            c"hipMemcpyHtoDAsync",
            c"hipMemcpyPeer",
            c"hipMemcpyPeerAsync",
            c"hipMemset",
            c"hipMemsetAsync",
            c"hipMemsetD8",
            c"hipMemsetD8Async",
            c"hipPeekAtLastError",
            c"hipPointerGetAttribute",
            c"hipPointerGetAttributes",
            c"hipRuntimeGetVersion",
            c"hipSetDevice",
            c"hipStreamAddCallback",
            c"hipStreamBeginCapture",
            c"hipStreamCreate",
            c"hipStreamCreateWithFlags",
            c"hipStreamCreateWithPriority",
            c"hipStreamDestroy",
            c"hipStreamEndCapture",
            c"hipStreamGetCaptureInfo",
            c"hipStreamGetCaptureInfo_v2",
            c"hipStreamGetDevice",
            c"hipStreamGetFlags",
            c"hipStreamGetPriority",
            c"hipStreamIsCapturing",
            c"hipStreamQuery",
            c"hipStreamSynchronize",
            c"hipStreamUpdateCaptureDependencies",
            c"hipStreamWaitEvent",
            c"hipThreadExchangeStreamCaptureMode",
            c"hipUserObjectCreate",
            c"hipUserObjectRelease",
            c"hipUserObjectRetain",
        ]
        .map(|name| symbol(name).unwrap_or(core::ptr::null_mut()));
        // SAFETY: the fields are in the order of the names above, with nothing between them (repr C). Each is an
        // optional function pointer, which is as large as an address and `None` where that is null. That there is
        // a function of the field's type at any other address is the caller's promise.
        unsafe { core::mem::transmute::<[*mut core::ffi::c_void; 115], Self>(addresses) }
    }
}
