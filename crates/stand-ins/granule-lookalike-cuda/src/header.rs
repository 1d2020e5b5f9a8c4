//! CUDA driver declarations. Do not edit: made from CUDA driver 12.9's header by
//! `cargo xtask bindgen --api cuda --headers <include folder>`.

pub type cuuint32_t = u32;
pub type cuuint64_t = u64;
pub type CUdeviceptr_v2 = core::ffi::c_ulonglong;
pub type CUdeviceptr = CUdeviceptr_v2;
pub type CUdevice_v1 = core::ffi::c_int;
pub type CUdevice = CUdevice_v1;
pub type CUcontext = *mut CUctx_st;
pub type CUmodule = *mut CUmod_st;
pub type CUfunction = *mut CUfunc_st;
pub type CUlibrary = *mut CUlib_st;
pub type CUkernel = *mut CUkern_st;
pub type CUarray = *mut CUarray_st;
pub type CUevent = *mut CUevent_st;
pub type CUstream = *mut CUstream_st;
pub type CUgraph = *mut CUgraph_st;
pub type CUgraphNode = *mut CUgraphNode_st;
pub type CUgraphExec = *mut CUgraphExec_st;
pub type CUmemoryPool = *mut CUmemPoolHandle_st;
pub type CUuserObject = *mut CUuserObject_st;
pub type CUuuid = CUuuid_st;
pub type CUipcEventHandle_v1 = CUipcEventHandle_st;
pub type CUipcEventHandle = CUipcEventHandle_v1;
pub type CUipcMemHandle_v1 = CUipcMemHandle_st;
pub type CUipcMemHandle = CUipcMemHandle_v1;
pub type CUipcMem_flags_enum = core::ffi::c_uint;
pub type CUmemAttach_flags_enum = core::ffi::c_uint;
pub type CUctx_flags_enum = core::ffi::c_uint;
pub type CUstream_flags_enum = core::ffi::c_uint;
pub type CUevent_flags_enum = core::ffi::c_uint;
pub type CUevent_record_flags_enum = core::ffi::c_uint;
pub type CUevent_wait_flags_enum = core::ffi::c_uint;
pub type CUstreamWaitValue_flags_enum = core::ffi::c_uint;
pub type CUstreamWriteValue_flags_enum = core::ffi::c_uint;
pub type CUstreamUpdateCaptureDependencies_flags_enum = core::ffi::c_uint;
pub type CUdevice_attribute_enum = core::ffi::c_uint;
pub type CUpointer_attribute_enum = core::ffi::c_uint;
pub type CUfunction_attribute_enum = core::ffi::c_uint;
pub type CUfunc_cache_enum = core::ffi::c_uint;
pub type CUmemorytype_enum = core::ffi::c_uint;
pub type CUmem_advise_enum = core::ffi::c_uint;
pub type CUjit_option_enum = core::ffi::c_uint;
pub type CUlimit_enum = core::ffi::c_uint;
pub type CUhostFn = ::core::option::Option<unsafe extern "C" fn(userData: *mut core::ffi::c_void)>;
pub type CUgraphNodeType_enum = core::ffi::c_uint;
pub type CUgraphEdgeData = CUgraphEdgeData_st;
pub type CUgraphInstantiateResult_enum = core::ffi::c_uint;
pub type CUDA_GRAPH_INSTANTIATE_PARAMS = CUDA_GRAPH_INSTANTIATE_PARAMS_st;
pub type CUlaunchAttribute = __BindgenOpaqueArray8<[u8; 72usize]>;
pub type CUlaunchConfig = CUlaunchConfig_st;
pub type CUstreamCaptureStatus_enum = core::ffi::c_uint;
pub type CUstreamCaptureMode_enum = core::ffi::c_uint;
pub type CUdriverProcAddressQueryResult_enum = core::ffi::c_uint;
pub type CUlibraryOption_enum = core::ffi::c_uint;
pub type cudaError_enum = core::ffi::c_uint;
pub type CUdevice_P2PAttribute_enum = core::ffi::c_uint;
pub type CUstreamCallback = ::core::option::Option<
    unsafe extern "C" fn(hStream: CUstream, status: CUresult, userData: *mut core::ffi::c_void),
>;
pub type CUDA_MEMCPY2D_v2 = CUDA_MEMCPY2D_st;
pub type CUDA_MEMCPY2D = CUDA_MEMCPY2D_v2;
pub type CUtensorMap = __BindgenOpaqueArray64<[u8; 128usize]>;
pub type CUtensorMapDataType_enum = core::ffi::c_uint;
pub type CUtensorMapInterleave_enum = core::ffi::c_uint;
pub type CUtensorMapSwizzle_enum = core::ffi::c_uint;
pub type CUtensorMapL2promotion_enum = core::ffi::c_uint;
pub type CUtensorMapFloatOOBfill_enum = core::ffi::c_uint;
pub type CUmemGenericAllocationHandle_v1 = core::ffi::c_ulonglong;
pub type CUmemGenericAllocationHandle = CUmemGenericAllocationHandle_v1;
pub type CUmemAllocationHandleType_enum = core::ffi::c_uint;
pub type CUmemAccess_flags_enum = core::ffi::c_uint;
pub type CUmemLocationType_enum = core::ffi::c_uint;
pub type CUmemAllocationType_enum = core::ffi::c_uint;
pub type CUmemAllocationGranularity_flags_enum = core::ffi::c_uint;
pub type CUmemRangeHandleType_enum = core::ffi::c_uint;
pub type CUmemLocation_v1 = CUmemLocation_st;
pub type CUmemLocation = CUmemLocation_v1;
pub type CUmemAllocationProp_v1 = CUmemAllocationProp_st;
pub type CUmemAllocationProp = CUmemAllocationProp_v1;
pub type CUmemAccessDesc_v1 = CUmemAccessDesc_st;
pub type CUmemAccessDesc = CUmemAccessDesc_v1;
pub type CUmemPool_attribute_enum = core::ffi::c_uint;
pub type CUgraphMem_attribute_enum = core::ffi::c_uint;
pub type CUmemPoolProps_v1 = CUmemPoolProps_st;
pub type CUmemPoolProps = CUmemPoolProps_v1;
pub type CUmemPoolPtrExportData_v1 = CUmemPoolPtrExportData_st;
pub type CUmemPoolPtrExportData = CUmemPoolPtrExportData_v1;
pub type CUgraphNodeParams = __BindgenOpaqueArray8<[u8; 256usize]>;
pub type CUuserObject_flags_enum = core::ffi::c_uint;
pub type CUuserObjectRetain_flags_enum = core::ffi::c_uint;
pub type CUgraphInstantiate_flags_enum = core::ffi::c_uint;
pub type CUmoduleLoadingMode_enum = core::ffi::c_uint;
pub type CUlogLevel_enum = core::ffi::c_uint;
pub type CUlogsCallbackHandle = *mut CUlogsCallbackEntry_st;
pub type CUlogsCallback = ::core::option::Option<
    unsafe extern "C" fn(
        data: *mut core::ffi::c_void,
        logLevel: CUlogLevel,
        message: *mut core::ffi::c_char,
        length: usize,
    ),
>;
#[derive(PartialEq, Eq, Copy, Clone, Debug, Hash)]
#[repr(C, align(8))]
pub struct __BindgenOpaqueArray8<T>(pub T);
#[derive(PartialEq, Eq, Copy, Clone, Debug, Hash)]
#[repr(C, align(64))]
pub struct __BindgenOpaqueArray64<T>(pub T);
#[repr(C)]
#[derive(Debug)]
pub struct CUctx_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUmod_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUfunc_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUlib_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUkern_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUarray_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUevent_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUgraph_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUgraphNode_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUgraphExec_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUmemPoolHandle_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUuserObject_st {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUuuid_st {
    pub bytes: [core::ffi::c_char; 16usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUipcEventHandle_st {
    pub reserved: [core::ffi::c_char; 64usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUipcMemHandle_st {
    pub reserved: [core::ffi::c_char; 64usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUgraphEdgeData_st {
    pub from_port: core::ffi::c_uchar,
    pub to_port: core::ffi::c_uchar,
    pub type_: core::ffi::c_uchar,
    pub reserved: [core::ffi::c_uchar; 5usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
    pub flags: cuuint64_t,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: CUgraphInstantiateResult,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUlaunchConfig_st {
    pub gridDimX: core::ffi::c_uint,
    pub gridDimY: core::ffi::c_uint,
    pub gridDimZ: core::ffi::c_uint,
    pub blockDimX: core::ffi::c_uint,
    pub blockDimY: core::ffi::c_uint,
    pub blockDimZ: core::ffi::c_uint,
    pub sharedMemBytes: core::ffi::c_uint,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: core::ffi::c_uint,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUDA_MEMCPY2D_st {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const core::ffi::c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut core::ffi::c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemLocation_st {
    pub type_: CUmemLocationType,
    pub id: core::ffi::c_int,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemAllocationProp_st {
    pub type_: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut core::ffi::c_void,
    pub allocFlags: CUmemAllocationProp_st__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemAllocationProp_st__bindgen_ty_1 {
    pub compressionType: core::ffi::c_uchar,
    pub gpuDirectRDMACapable: core::ffi::c_uchar,
    pub usage: core::ffi::c_ushort,
    pub reserved: [core::ffi::c_uchar; 4usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemAccessDesc_st {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemPoolProps_st {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut core::ffi::c_void,
    pub maxSize: usize,
    pub usage: core::ffi::c_ushort,
    pub reserved: [core::ffi::c_uchar; 54usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUmemPoolPtrExportData_st {
    pub reserved: [core::ffi::c_uchar; 64usize],
}
#[repr(C)]
#[derive(Debug)]
pub struct CUlogsCallbackEntry_st {
    _unused: [u8; 0],
}
pub const CUDA_VERSION: u32 = 12090;
pub const CU_IPC_HANDLE_SIZE: u32 = 64;
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTALLOC_WRITECOMBINED: u32 = 4;
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTREGISTER_IOMEMORY: u32 = 4;
pub const CU_MEMHOSTREGISTER_READ_ONLY: u32 = 8;
pub const CU_MEM_CREATE_USAGE_TILE_POOL: u32 = 1;
pub const CU_MEM_CREATE_USAGE_HW_DECOMPRESS: u32 = 2;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUuuid_st"][::core::mem::size_of::<CUuuid_st>() - 16usize];
    ["Alignment of CUuuid_st"][::core::mem::align_of::<CUuuid_st>() - 1usize];
    ["Offset of field: CUuuid_st::bytes"][::core::mem::offset_of!(CUuuid_st, bytes) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUipcEventHandle_st"][::core::mem::size_of::<CUipcEventHandle_st>() - 64usize];
    ["Alignment of CUipcEventHandle_st"][::core::mem::align_of::<CUipcEventHandle_st>() - 1usize];
    ["Offset of field: CUipcEventHandle_st::reserved"]
        [::core::mem::offset_of!(CUipcEventHandle_st, reserved) - 0usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUipcMemHandle_st"][::core::mem::size_of::<CUipcMemHandle_st>() - 64usize];
    ["Alignment of CUipcMemHandle_st"][::core::mem::align_of::<CUipcMemHandle_st>() - 1usize];
    ["Offset of field: CUipcMemHandle_st::reserved"]
        [::core::mem::offset_of!(CUipcMemHandle_st, reserved) - 0usize];
};
pub const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: CUipcMem_flags_enum = 1;
pub const CU_MEM_ATTACH_GLOBAL: CUmemAttach_flags_enum = 1;
pub const CU_MEM_ATTACH_HOST: CUmemAttach_flags_enum = 2;
pub const CU_MEM_ATTACH_SINGLE: CUmemAttach_flags_enum = 4;
pub const CU_CTX_SCHED_AUTO: CUctx_flags_enum = 0;
pub const CU_CTX_SCHED_SPIN: CUctx_flags_enum = 1;
pub const CU_CTX_SCHED_YIELD: CUctx_flags_enum = 2;
pub const CU_CTX_SCHED_BLOCKING_SYNC: CUctx_flags_enum = 4;
pub const CU_CTX_BLOCKING_SYNC: CUctx_flags_enum = 4;
pub const CU_CTX_SCHED_MASK: CUctx_flags_enum = 7;
pub const CU_CTX_MAP_HOST: CUctx_flags_enum = 8;
pub const CU_CTX_LMEM_RESIZE_TO_MAX: CUctx_flags_enum = 16;
pub const CU_CTX_COREDUMP_ENABLE: CUctx_flags_enum = 32;
pub const CU_CTX_USER_COREDUMP_ENABLE: CUctx_flags_enum = 64;
pub const CU_CTX_SYNC_MEMOPS: CUctx_flags_enum = 128;
pub const CU_CTX_FLAGS_MASK: CUctx_flags_enum = 255;
pub const CU_STREAM_DEFAULT: CUstream_flags_enum = 0;
pub const CU_STREAM_NON_BLOCKING: CUstream_flags_enum = 1;
pub const CU_EVENT_DEFAULT: CUevent_flags_enum = 0;
pub const CU_EVENT_BLOCKING_SYNC: CUevent_flags_enum = 1;
pub const CU_EVENT_DISABLE_TIMING: CUevent_flags_enum = 2;
pub const CU_EVENT_INTERPROCESS: CUevent_flags_enum = 4;
pub const CU_EVENT_RECORD_DEFAULT: CUevent_record_flags_enum = 0;
pub const CU_EVENT_RECORD_EXTERNAL: CUevent_record_flags_enum = 1;
pub const CU_EVENT_WAIT_DEFAULT: CUevent_wait_flags_enum = 0;
pub const CU_EVENT_WAIT_EXTERNAL: CUevent_wait_flags_enum = 1;
pub const CU_STREAM_WAIT_VALUE_GEQ: CUstreamWaitValue_flags_enum = 0;
pub const CU_STREAM_WAIT_VALUE_EQ: CUstreamWaitValue_flags_enum = 1;
pub const CU_STREAM_WAIT_VALUE_AND: CUstreamWaitValue_flags_enum = 2;
pub const CU_STREAM_WAIT_VALUE_NOR: CUstreamWaitValue_flags_enum = 3;
pub const CU_STREAM_WAIT_VALUE_FLUSH: CUstreamWaitValue_flags_enum = 1073741824;
pub const CU_STREAM_WRITE_VALUE_DEFAULT: CUstreamWriteValue_flags_enum = 0;
pub const CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER: CUstreamWriteValue_flags_enum = 1;
pub const CU_STREAM_ADD_CAPTURE_DEPENDENCIES: CUstreamUpdateCaptureDependencies_flags_enum = 0;
pub const CU_STREAM_SET_CAPTURE_DEPENDENCIES: CUstreamUpdateCaptureDependencies_flags_enum = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUdevice_attribute_enum = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: CUdevice_attribute_enum = 2;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: CUdevice_attribute_enum = 3;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: CUdevice_attribute_enum = 4;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: CUdevice_attribute_enum = 5;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: CUdevice_attribute_enum = 6;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: CUdevice_attribute_enum = 7;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum = 8;
pub const CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum = 8;
pub const CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: CUdevice_attribute_enum = 9;
pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: CUdevice_attribute_enum = 10;
pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: CUdevice_attribute_enum = 11;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: CUdevice_attribute_enum = 12;
pub const CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK: CUdevice_attribute_enum = 12;
pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: CUdevice_attribute_enum = 13;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: CUdevice_attribute_enum = 14;
pub const CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: CUdevice_attribute_enum = 15;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute_enum = 16;
pub const CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: CUdevice_attribute_enum = 17;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: CUdevice_attribute_enum = 18;
pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: CUdevice_attribute_enum = 19;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: CUdevice_attribute_enum = 20;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH: CUdevice_attribute_enum = 21;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH: CUdevice_attribute_enum = 22;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT: CUdevice_attribute_enum = 23;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH: CUdevice_attribute_enum = 24;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT: CUdevice_attribute_enum = 25;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH: CUdevice_attribute_enum = 26;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH: CUdevice_attribute_enum = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT: CUdevice_attribute_enum = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS: CUdevice_attribute_enum = 29;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH: CUdevice_attribute_enum = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT: CUdevice_attribute_enum = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES: CUdevice_attribute_enum = 29;
pub const CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: CUdevice_attribute_enum = 30;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: CUdevice_attribute_enum = 31;
pub const CU_DEVICE_ATTRIBUTE_ECC_ENABLED: CUdevice_attribute_enum = 32;
pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: CUdevice_attribute_enum = 33;
pub const CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: CUdevice_attribute_enum = 34;
pub const CU_DEVICE_ATTRIBUTE_TCC_DRIVER: CUdevice_attribute_enum = 35;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: CUdevice_attribute_enum = 36;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: CUdevice_attribute_enum = 37;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: CUdevice_attribute_enum = 38;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 39;
pub const CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: CUdevice_attribute_enum = 40;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: CUdevice_attribute_enum = 41;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH: CUdevice_attribute_enum = 42;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS: CUdevice_attribute_enum = 43;
pub const CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER: CUdevice_attribute_enum = 44;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH: CUdevice_attribute_enum = 45;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT: CUdevice_attribute_enum = 46;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE: CUdevice_attribute_enum = 47;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE: CUdevice_attribute_enum = 48;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE: CUdevice_attribute_enum = 49;
pub const CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: CUdevice_attribute_enum = 50;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: CUdevice_attribute_enum = 51;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH: CUdevice_attribute_enum = 52;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH: CUdevice_attribute_enum = 53;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS: CUdevice_attribute_enum = 54;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH: CUdevice_attribute_enum = 55;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH: CUdevice_attribute_enum = 56;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT: CUdevice_attribute_enum = 57;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH: CUdevice_attribute_enum = 58;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT: CUdevice_attribute_enum = 59;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH: CUdevice_attribute_enum = 60;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH: CUdevice_attribute_enum = 61;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS: CUdevice_attribute_enum = 62;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH: CUdevice_attribute_enum = 63;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT: CUdevice_attribute_enum = 64;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS: CUdevice_attribute_enum = 65;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH: CUdevice_attribute_enum = 66;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH: CUdevice_attribute_enum = 67;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS: CUdevice_attribute_enum = 68;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH: CUdevice_attribute_enum = 69;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH: CUdevice_attribute_enum = 70;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT: CUdevice_attribute_enum = 71;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH: CUdevice_attribute_enum = 72;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH: CUdevice_attribute_enum = 73;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT: CUdevice_attribute_enum = 74;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute_enum = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute_enum = 76;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH: CUdevice_attribute_enum = 77;
pub const CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: CUdevice_attribute_enum = 78;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: CUdevice_attribute_enum = 79;
pub const CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: CUdevice_attribute_enum = 80;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 81;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 82;
pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: CUdevice_attribute_enum = 83;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD: CUdevice_attribute_enum = 84;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: CUdevice_attribute_enum = 85;
pub const CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute_enum = 86;
pub const CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: CUdevice_attribute_enum = 87;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: CUdevice_attribute_enum = 88;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: CUdevice_attribute_enum = 89;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: CUdevice_attribute_enum = 90;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: CUdevice_attribute_enum = 91;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: CUdevice_attribute_enum = 92;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1: CUdevice_attribute_enum = 93;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1: CUdevice_attribute_enum = 94;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: CUdevice_attribute_enum = 95;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH: CUdevice_attribute_enum = 96;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: CUdevice_attribute_enum = 97;
pub const CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: CUdevice_attribute_enum = 98;
pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: CUdevice_attribute_enum = 99;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: CUdevice_attribute_enum = 100;
pub const CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: CUdevice_attribute_enum = 101;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED: CUdevice_attribute_enum = 102;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute_enum = 102;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: CUdevice_attribute_enum = 103;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED: CUdevice_attribute_enum = 104;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED: CUdevice_attribute_enum = 105;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 106;
pub const CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED: CUdevice_attribute_enum = 107;
pub const CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: CUdevice_attribute_enum = 108;
pub const CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: CUdevice_attribute_enum = 109;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: CUdevice_attribute_enum = 110;
pub const CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum = 111;
pub const CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED: CUdevice_attribute_enum = 112;
pub const CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: CUdevice_attribute_enum = 113;
pub const CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: CUdevice_attribute_enum = 114;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: CUdevice_attribute_enum = 115;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: CUdevice_attribute_enum = 116;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: CUdevice_attribute_enum = 117;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: CUdevice_attribute_enum = 118;
pub const CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: CUdevice_attribute_enum = 119;
pub const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: CUdevice_attribute_enum = 120;
pub const CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED: CUdevice_attribute_enum = 121;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: CUdevice_attribute_enum = 122;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: CUdevice_attribute_enum = 123;
pub const CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: CUdevice_attribute_enum = 124;
pub const CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: CUdevice_attribute_enum = 125;
pub const CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: CUdevice_attribute_enum = 126;
pub const CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: CUdevice_attribute_enum = 127;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: CUdevice_attribute_enum = 128;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS: CUdevice_attribute_enum = 129;
pub const CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: CUdevice_attribute_enum = 130;
pub const CU_DEVICE_ATTRIBUTE_NUMA_ID: CUdevice_attribute_enum = 131;
pub const CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: CUdevice_attribute_enum = 132;
pub const CU_DEVICE_ATTRIBUTE_MPS_ENABLED: CUdevice_attribute_enum = 133;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: CUdevice_attribute_enum = 134;
pub const CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED: CUdevice_attribute_enum = 135;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK: CUdevice_attribute_enum = 136;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH: CUdevice_attribute_enum = 137;
pub const CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED: CUdevice_attribute_enum = 138;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: CUdevice_attribute_enum = 139;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID: CUdevice_attribute_enum = 140;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute_enum = 141;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: CUdevice_attribute_enum = 142;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED: CUdevice_attribute_enum = 143;
pub const CU_DEVICE_ATTRIBUTE_MAX: CUdevice_attribute_enum = 144;
pub const CU_POINTER_ATTRIBUTE_CONTEXT: CUpointer_attribute_enum = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute_enum = 2;
pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: CUpointer_attribute_enum = 3;
pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: CUpointer_attribute_enum = 4;
pub const CU_POINTER_ATTRIBUTE_P2P_TOKENS: CUpointer_attribute_enum = 5;
pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUpointer_attribute_enum = 6;
pub const CU_POINTER_ATTRIBUTE_BUFFER_ID: CUpointer_attribute_enum = 7;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute_enum = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute_enum = 9;
pub const CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: CUpointer_attribute_enum = 10;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute_enum = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute_enum = 12;
pub const CU_POINTER_ATTRIBUTE_MAPPED: CUpointer_attribute_enum = 13;
pub const CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: CUpointer_attribute_enum = 14;
pub const CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: CUpointer_attribute_enum = 15;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: CUpointer_attribute_enum = 16;
pub const CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: CUpointer_attribute_enum = 17;
pub const CU_POINTER_ATTRIBUTE_MAPPING_SIZE: CUpointer_attribute_enum = 18;
pub const CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: CUpointer_attribute_enum = 19;
pub const CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: CUpointer_attribute_enum = 20;
pub const CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: CUpointer_attribute_enum = 21;
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUfunction_attribute_enum = 0;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: CUfunction_attribute_enum = 1;
pub const CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: CUfunction_attribute_enum = 2;
pub const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: CUfunction_attribute_enum = 3;
pub const CU_FUNC_ATTRIBUTE_NUM_REGS: CUfunction_attribute_enum = 4;
pub const CU_FUNC_ATTRIBUTE_PTX_VERSION: CUfunction_attribute_enum = 5;
pub const CU_FUNC_ATTRIBUTE_BINARY_VERSION: CUfunction_attribute_enum = 6;
pub const CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: CUfunction_attribute_enum = 7;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: CUfunction_attribute_enum = 8;
pub const CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: CUfunction_attribute_enum = 9;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: CUfunction_attribute_enum = 10;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: CUfunction_attribute_enum = 11;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: CUfunction_attribute_enum = 12;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: CUfunction_attribute_enum = 13;
pub const CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: CUfunction_attribute_enum = 14;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: CUfunction_attribute_enum = 15;
pub const CU_FUNC_ATTRIBUTE_MAX: CUfunction_attribute_enum = 16;
pub const CU_FUNC_CACHE_PREFER_NONE: CUfunc_cache_enum = 0;
pub const CU_FUNC_CACHE_PREFER_SHARED: CUfunc_cache_enum = 1;
pub const CU_FUNC_CACHE_PREFER_L1: CUfunc_cache_enum = 2;
pub const CU_FUNC_CACHE_PREFER_EQUAL: CUfunc_cache_enum = 3;
pub const CU_MEMORYTYPE_HOST: CUmemorytype_enum = 1;
pub const CU_MEMORYTYPE_DEVICE: CUmemorytype_enum = 2;
pub const CU_MEMORYTYPE_ARRAY: CUmemorytype_enum = 3;
pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype_enum = 4;
pub const CU_MEM_ADVISE_SET_READ_MOSTLY: CUmem_advise_enum = 1;
pub const CU_MEM_ADVISE_UNSET_READ_MOSTLY: CUmem_advise_enum = 2;
pub const CU_MEM_ADVISE_SET_PREFERRED_LOCATION: CUmem_advise_enum = 3;
pub const CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: CUmem_advise_enum = 4;
pub const CU_MEM_ADVISE_SET_ACCESSED_BY: CUmem_advise_enum = 5;
pub const CU_MEM_ADVISE_UNSET_ACCESSED_BY: CUmem_advise_enum = 6;
pub const CU_JIT_MAX_REGISTERS: CUjit_option_enum = 0;
pub const CU_JIT_THREADS_PER_BLOCK: CUjit_option_enum = 1;
pub const CU_JIT_WALL_TIME: CUjit_option_enum = 2;
pub const CU_JIT_INFO_LOG_BUFFER: CUjit_option_enum = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: CUjit_option_enum = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: CUjit_option_enum = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: CUjit_option_enum = 6;
pub const CU_JIT_OPTIMIZATION_LEVEL: CUjit_option_enum = 7;
pub const CU_JIT_TARGET_FROM_CUCONTEXT: CUjit_option_enum = 8;
pub const CU_JIT_TARGET: CUjit_option_enum = 9;
pub const CU_JIT_FALLBACK_STRATEGY: CUjit_option_enum = 10;
pub const CU_JIT_GENERATE_DEBUG_INFO: CUjit_option_enum = 11;
pub const CU_JIT_LOG_VERBOSE: CUjit_option_enum = 12;
pub const CU_JIT_GENERATE_LINE_INFO: CUjit_option_enum = 13;
pub const CU_JIT_CACHE_MODE: CUjit_option_enum = 14;
pub const CU_JIT_NEW_SM3X_OPT: CUjit_option_enum = 15;
pub const CU_JIT_FAST_COMPILE: CUjit_option_enum = 16;
pub const CU_JIT_GLOBAL_SYMBOL_NAMES: CUjit_option_enum = 17;
pub const CU_JIT_GLOBAL_SYMBOL_ADDRESSES: CUjit_option_enum = 18;
pub const CU_JIT_GLOBAL_SYMBOL_COUNT: CUjit_option_enum = 19;
pub const CU_JIT_LTO: CUjit_option_enum = 20;
pub const CU_JIT_FTZ: CUjit_option_enum = 21;
pub const CU_JIT_PREC_DIV: CUjit_option_enum = 22;
pub const CU_JIT_PREC_SQRT: CUjit_option_enum = 23;
pub const CU_JIT_FMA: CUjit_option_enum = 24;
pub const CU_JIT_REFERENCED_KERNEL_NAMES: CUjit_option_enum = 25;
pub const CU_JIT_REFERENCED_KERNEL_COUNT: CUjit_option_enum = 26;
pub const CU_JIT_REFERENCED_VARIABLE_NAMES: CUjit_option_enum = 27;
pub const CU_JIT_REFERENCED_VARIABLE_COUNT: CUjit_option_enum = 28;
pub const CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES: CUjit_option_enum = 29;
pub const CU_JIT_POSITION_INDEPENDENT_CODE: CUjit_option_enum = 30;
pub const CU_JIT_MIN_CTA_PER_SM: CUjit_option_enum = 31;
pub const CU_JIT_MAX_THREADS_PER_BLOCK: CUjit_option_enum = 32;
pub const CU_JIT_OVERRIDE_DIRECTIVE_VALUES: CUjit_option_enum = 33;
pub const CU_JIT_NUM_OPTIONS: CUjit_option_enum = 34;
pub const CU_LIMIT_STACK_SIZE: CUlimit_enum = 0;
pub const CU_LIMIT_PRINTF_FIFO_SIZE: CUlimit_enum = 1;
pub const CU_LIMIT_MALLOC_HEAP_SIZE: CUlimit_enum = 2;
pub const CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: CUlimit_enum = 3;
pub const CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: CUlimit_enum = 4;
pub const CU_LIMIT_MAX_L2_FETCH_GRANULARITY: CUlimit_enum = 5;
pub const CU_LIMIT_PERSISTING_L2_CACHE_SIZE: CUlimit_enum = 6;
pub const CU_LIMIT_SHMEM_SIZE: CUlimit_enum = 7;
pub const CU_LIMIT_CIG_ENABLED: CUlimit_enum = 8;
pub const CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: CUlimit_enum = 9;
pub const CU_LIMIT_MAX: CUlimit_enum = 10;
pub const CU_GRAPH_NODE_TYPE_KERNEL: CUgraphNodeType_enum = 0;
pub const CU_GRAPH_NODE_TYPE_MEMCPY: CUgraphNodeType_enum = 1;
pub const CU_GRAPH_NODE_TYPE_MEMSET: CUgraphNodeType_enum = 2;
pub const CU_GRAPH_NODE_TYPE_HOST: CUgraphNodeType_enum = 3;
pub const CU_GRAPH_NODE_TYPE_GRAPH: CUgraphNodeType_enum = 4;
pub const CU_GRAPH_NODE_TYPE_EMPTY: CUgraphNodeType_enum = 5;
pub const CU_GRAPH_NODE_TYPE_WAIT_EVENT: CUgraphNodeType_enum = 6;
pub const CU_GRAPH_NODE_TYPE_EVENT_RECORD: CUgraphNodeType_enum = 7;
pub const CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: CUgraphNodeType_enum = 8;
pub const CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: CUgraphNodeType_enum = 9;
pub const CU_GRAPH_NODE_TYPE_MEM_ALLOC: CUgraphNodeType_enum = 10;
pub const CU_GRAPH_NODE_TYPE_MEM_FREE: CUgraphNodeType_enum = 11;
pub const CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: CUgraphNodeType_enum = 12;
pub const CU_GRAPH_NODE_TYPE_CONDITIONAL: CUgraphNodeType_enum = 13;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUgraphEdgeData_st"][::core::mem::size_of::<CUgraphEdgeData_st>() - 8usize];
    ["Alignment of CUgraphEdgeData_st"][::core::mem::align_of::<CUgraphEdgeData_st>() - 1usize];
    ["Offset of field: CUgraphEdgeData_st::from_port"]
        [::core::mem::offset_of!(CUgraphEdgeData_st, from_port) - 0usize];
    ["Offset of field: CUgraphEdgeData_st::to_port"]
        [::core::mem::offset_of!(CUgraphEdgeData_st, to_port) - 1usize];
    ["Offset of field: CUgraphEdgeData_st::type_"]
        [::core::mem::offset_of!(CUgraphEdgeData_st, type_) - 2usize];
    ["Offset of field: CUgraphEdgeData_st::reserved"]
        [::core::mem::offset_of!(CUgraphEdgeData_st, reserved) - 3usize];
};
pub const CUDA_GRAPH_INSTANTIATE_SUCCESS: CUgraphInstantiateResult_enum = 0;
pub const CUDA_GRAPH_INSTANTIATE_ERROR: CUgraphInstantiateResult_enum = 1;
pub const CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE: CUgraphInstantiateResult_enum = 2;
pub const CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED: CUgraphInstantiateResult_enum = 3;
pub const CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED: CUgraphInstantiateResult_enum = 4;
pub const CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED: CUgraphInstantiateResult_enum = 5;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUDA_GRAPH_INSTANTIATE_PARAMS_st"]
        [::core::mem::size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS_st>() - 32usize];
    ["Alignment of CUDA_GRAPH_INSTANTIATE_PARAMS_st"]
        [::core::mem::align_of::<CUDA_GRAPH_INSTANTIATE_PARAMS_st>() - 8usize];
    ["Offset of field: CUDA_GRAPH_INSTANTIATE_PARAMS_st::flags"]
        [::core::mem::offset_of!(CUDA_GRAPH_INSTANTIATE_PARAMS_st, flags) - 0usize];
    ["Offset of field: CUDA_GRAPH_INSTANTIATE_PARAMS_st::hUploadStream"]
        [::core::mem::offset_of!(CUDA_GRAPH_INSTANTIATE_PARAMS_st, hUploadStream) - 8usize];
    ["Offset of field: CUDA_GRAPH_INSTANTIATE_PARAMS_st::hErrNode_out"]
        [::core::mem::offset_of!(CUDA_GRAPH_INSTANTIATE_PARAMS_st, hErrNode_out) - 16usize];
    ["Offset of field: CUDA_GRAPH_INSTANTIATE_PARAMS_st::result_out"]
        [::core::mem::offset_of!(CUDA_GRAPH_INSTANTIATE_PARAMS_st, result_out) - 24usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUlaunchConfig_st"][::core::mem::size_of::<CUlaunchConfig_st>() - 56usize];
    ["Alignment of CUlaunchConfig_st"][::core::mem::align_of::<CUlaunchConfig_st>() - 8usize];
    ["Offset of field: CUlaunchConfig_st::gridDimX"]
        [::core::mem::offset_of!(CUlaunchConfig_st, gridDimX) - 0usize];
    ["Offset of field: CUlaunchConfig_st::gridDimY"]
        [::core::mem::offset_of!(CUlaunchConfig_st, gridDimY) - 4usize];
    ["Offset of field: CUlaunchConfig_st::gridDimZ"]
        [::core::mem::offset_of!(CUlaunchConfig_st, gridDimZ) - 8usize];
    ["Offset of field: CUlaunchConfig_st::blockDimX"]
        [::core::mem::offset_of!(CUlaunchConfig_st, blockDimX) - 12usize];
    ["Offset of field: CUlaunchConfig_st::blockDimY"]
        [::core::mem::offset_of!(CUlaunchConfig_st, blockDimY) - 16usize];
    ["Offset of field: CUlaunchConfig_st::blockDimZ"]
        [::core::mem::offset_of!(CUlaunchConfig_st, blockDimZ) - 20usize];
    ["Offset of field: CUlaunchConfig_st::sharedMemBytes"]
        [::core::mem::offset_of!(CUlaunchConfig_st, sharedMemBytes) - 24usize];
    ["Offset of field: CUlaunchConfig_st::hStream"]
        [::core::mem::offset_of!(CUlaunchConfig_st, hStream) - 32usize];
    ["Offset of field: CUlaunchConfig_st::attrs"]
        [::core::mem::offset_of!(CUlaunchConfig_st, attrs) - 40usize];
    ["Offset of field: CUlaunchConfig_st::numAttrs"]
        [::core::mem::offset_of!(CUlaunchConfig_st, numAttrs) - 48usize];
};
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus_enum = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: CUstreamCaptureStatus_enum = 1;
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: CUstreamCaptureStatus_enum = 2;
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: CUstreamCaptureMode_enum = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: CUstreamCaptureMode_enum = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode_enum = 2;
pub const CU_GET_PROC_ADDRESS_SUCCESS: CUdriverProcAddressQueryResult_enum = 0;
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: CUdriverProcAddressQueryResult_enum = 1;
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: CUdriverProcAddressQueryResult_enum = 2;
pub const CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: CUlibraryOption_enum = 0;
pub const CU_LIBRARY_BINARY_IS_PRESERVED: CUlibraryOption_enum = 1;
pub const CU_LIBRARY_NUM_OPTIONS: CUlibraryOption_enum = 2;
pub const CUDA_SUCCESS: cudaError_enum = 0;
pub const CUDA_ERROR_INVALID_VALUE: cudaError_enum = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: cudaError_enum = 2;
pub const CUDA_ERROR_NOT_INITIALIZED: cudaError_enum = 3;
pub const CUDA_ERROR_DEINITIALIZED: cudaError_enum = 4;
pub const CUDA_ERROR_PROFILER_DISABLED: cudaError_enum = 5;
pub const CUDA_ERROR_PROFILER_NOT_INITIALIZED: cudaError_enum = 6;
pub const CUDA_ERROR_PROFILER_ALREADY_STARTED: cudaError_enum = 7;
pub const CUDA_ERROR_PROFILER_ALREADY_STOPPED: cudaError_enum = 8;
pub const CUDA_ERROR_STUB_LIBRARY: cudaError_enum = 34;
pub const CUDA_ERROR_DEVICE_UNAVAILABLE: cudaError_enum = 46;
pub const CUDA_ERROR_NO_DEVICE: cudaError_enum = 100;
pub const CUDA_ERROR_INVALID_DEVICE: cudaError_enum = 101;
pub const CUDA_ERROR_DEVICE_NOT_LICENSED: cudaError_enum = 102;
pub const CUDA_ERROR_INVALID_IMAGE: cudaError_enum = 200;
pub const CUDA_ERROR_INVALID_CONTEXT: cudaError_enum = 201;
pub const CUDA_ERROR_CONTEXT_ALREADY_CURRENT: cudaError_enum = 202;
pub const CUDA_ERROR_MAP_FAILED: cudaError_enum = 205;
pub const CUDA_ERROR_UNMAP_FAILED: cudaError_enum = 206;
pub const CUDA_ERROR_ARRAY_IS_MAPPED: cudaError_enum = 207;
pub const CUDA_ERROR_ALREADY_MAPPED: cudaError_enum = 208;
pub const CUDA_ERROR_NO_BINARY_FOR_GPU: cudaError_enum = 209;
pub const CUDA_ERROR_ALREADY_ACQUIRED: cudaError_enum = 210;
pub const CUDA_ERROR_NOT_MAPPED: cudaError_enum = 211;
pub const CUDA_ERROR_NOT_MAPPED_AS_ARRAY: cudaError_enum = 212;
pub const CUDA_ERROR_NOT_MAPPED_AS_POINTER: cudaError_enum = 213;
pub const CUDA_ERROR_ECC_UNCORRECTABLE: cudaError_enum = 214;
pub const CUDA_ERROR_UNSUPPORTED_LIMIT: cudaError_enum = 215;
pub const CUDA_ERROR_CONTEXT_ALREADY_IN_USE: cudaError_enum = 216;
pub const CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: cudaError_enum = 217;
pub const CUDA_ERROR_INVALID_PTX: cudaError_enum = 218;
pub const CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: cudaError_enum = 219;
pub const CUDA_ERROR_NVLINK_UNCORRECTABLE: cudaError_enum = 220;
pub const CUDA_ERROR_JIT_COMPILER_NOT_FOUND: cudaError_enum = 221;
pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: cudaError_enum = 222;
pub const CUDA_ERROR_JIT_COMPILATION_DISABLED: cudaError_enum = 223;
pub const CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: cudaError_enum = 224;
pub const CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC: cudaError_enum = 225;
pub const CUDA_ERROR_CONTAINED: cudaError_enum = 226;
pub const CUDA_ERROR_INVALID_SOURCE: cudaError_enum = 300;
pub const CUDA_ERROR_FILE_NOT_FOUND: cudaError_enum = 301;
pub const CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: cudaError_enum = 302;
pub const CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: cudaError_enum = 303;
pub const CUDA_ERROR_OPERATING_SYSTEM: cudaError_enum = 304;
pub const CUDA_ERROR_INVALID_HANDLE: cudaError_enum = 400;
pub const CUDA_ERROR_ILLEGAL_STATE: cudaError_enum = 401;
pub const CUDA_ERROR_LOSSY_QUERY: cudaError_enum = 402;
pub const CUDA_ERROR_NOT_FOUND: cudaError_enum = 500;
pub const CUDA_ERROR_NOT_READY: cudaError_enum = 600;
pub const CUDA_ERROR_ILLEGAL_ADDRESS: cudaError_enum = 700;
pub const CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: cudaError_enum = 701;
pub const CUDA_ERROR_LAUNCH_TIMEOUT: cudaError_enum = 702;
pub const CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING: cudaError_enum = 703;
pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: cudaError_enum = 704;
pub const CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: cudaError_enum = 705;
pub const CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: cudaError_enum = 708;
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: cudaError_enum = 709;
pub const CUDA_ERROR_ASSERT: cudaError_enum = 710;
pub const CUDA_ERROR_TOO_MANY_PEERS: cudaError_enum = 711;
pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: cudaError_enum = 712;
pub const CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: cudaError_enum = 713;
pub const CUDA_ERROR_HARDWARE_STACK_ERROR: cudaError_enum = 714;
pub const CUDA_ERROR_ILLEGAL_INSTRUCTION: cudaError_enum = 715;
pub const CUDA_ERROR_MISALIGNED_ADDRESS: cudaError_enum = 716;
pub const CUDA_ERROR_INVALID_ADDRESS_SPACE: cudaError_enum = 717;
pub const CUDA_ERROR_INVALID_PC: cudaError_enum = 718;
pub const CUDA_ERROR_LAUNCH_FAILED: cudaError_enum = 719;
pub const CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: cudaError_enum = 720;
pub const CUDA_ERROR_TENSOR_MEMORY_LEAK: cudaError_enum = 721;
pub const CUDA_ERROR_NOT_PERMITTED: cudaError_enum = 800;
pub const CUDA_ERROR_NOT_SUPPORTED: cudaError_enum = 801;
pub const CUDA_ERROR_SYSTEM_NOT_READY: cudaError_enum = 802;
pub const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: cudaError_enum = 803;
pub const CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: cudaError_enum = 804;
pub const CUDA_ERROR_MPS_CONNECTION_FAILED: cudaError_enum = 805;
pub const CUDA_ERROR_MPS_RPC_FAILURE: cudaError_enum = 806;
pub const CUDA_ERROR_MPS_SERVER_NOT_READY: cudaError_enum = 807;
pub const CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: cudaError_enum = 808;
pub const CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: cudaError_enum = 809;
pub const CUDA_ERROR_MPS_CLIENT_TERMINATED: cudaError_enum = 810;
pub const CUDA_ERROR_CDP_NOT_SUPPORTED: cudaError_enum = 811;
pub const CUDA_ERROR_CDP_VERSION_MISMATCH: cudaError_enum = 812;
pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: cudaError_enum = 900;
pub const CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: cudaError_enum = 901;
pub const CUDA_ERROR_STREAM_CAPTURE_MERGE: cudaError_enum = 902;
pub const CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: cudaError_enum = 903;
pub const CUDA_ERROR_STREAM_CAPTURE_UNJOINED: cudaError_enum = 904;
pub const CUDA_ERROR_STREAM_CAPTURE_ISOLATION: cudaError_enum = 905;
pub const CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: cudaError_enum = 906;
pub const CUDA_ERROR_CAPTURED_EVENT: cudaError_enum = 907;
pub const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: cudaError_enum = 908;
pub const CUDA_ERROR_TIMEOUT: cudaError_enum = 909;
pub const CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: cudaError_enum = 910;
pub const CUDA_ERROR_EXTERNAL_DEVICE: cudaError_enum = 911;
pub const CUDA_ERROR_INVALID_CLUSTER_SIZE: cudaError_enum = 912;
pub const CUDA_ERROR_FUNCTION_NOT_LOADED: cudaError_enum = 913;
pub const CUDA_ERROR_INVALID_RESOURCE_TYPE: cudaError_enum = 914;
pub const CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: cudaError_enum = 915;
pub const CUDA_ERROR_KEY_ROTATION: cudaError_enum = 916;
pub const CUDA_ERROR_UNKNOWN: cudaError_enum = 999;
pub const CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: CUdevice_P2PAttribute_enum = 1;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: CUdevice_P2PAttribute_enum = 2;
pub const CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: CUdevice_P2PAttribute_enum = 3;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED: CUdevice_P2PAttribute_enum = 4;
pub const CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: CUdevice_P2PAttribute_enum = 4;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUDA_MEMCPY2D_st"][::core::mem::size_of::<CUDA_MEMCPY2D_st>() - 128usize];
    ["Alignment of CUDA_MEMCPY2D_st"][::core::mem::align_of::<CUDA_MEMCPY2D_st>() - 8usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcXInBytes"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcXInBytes) - 0usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcY"][::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcY) - 8usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcMemoryType"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcMemoryType) - 16usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcHost"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcHost) - 24usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcDevice"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcDevice) - 32usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcArray"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcArray) - 40usize];
    ["Offset of field: CUDA_MEMCPY2D_st::srcPitch"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, srcPitch) - 48usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstXInBytes"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstXInBytes) - 56usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstY"][::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstY) - 64usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstMemoryType"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstMemoryType) - 72usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstHost"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstHost) - 80usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstDevice"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstDevice) - 88usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstArray"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstArray) - 96usize];
    ["Offset of field: CUDA_MEMCPY2D_st::dstPitch"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, dstPitch) - 104usize];
    ["Offset of field: CUDA_MEMCPY2D_st::WidthInBytes"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, WidthInBytes) - 112usize];
    ["Offset of field: CUDA_MEMCPY2D_st::Height"]
        [::core::mem::offset_of!(CUDA_MEMCPY2D_st, Height) - 120usize];
};
pub const CU_TENSOR_MAP_DATA_TYPE_UINT8: CUtensorMapDataType_enum = 0;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT16: CUtensorMapDataType_enum = 1;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT32: CUtensorMapDataType_enum = 2;
pub const CU_TENSOR_MAP_DATA_TYPE_INT32: CUtensorMapDataType_enum = 3;
pub const CU_TENSOR_MAP_DATA_TYPE_UINT64: CUtensorMapDataType_enum = 4;
pub const CU_TENSOR_MAP_DATA_TYPE_INT64: CUtensorMapDataType_enum = 5;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT16: CUtensorMapDataType_enum = 6;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT32: CUtensorMapDataType_enum = 7;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT64: CUtensorMapDataType_enum = 8;
pub const CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: CUtensorMapDataType_enum = 9;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ: CUtensorMapDataType_enum = 10;
pub const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: CUtensorMapDataType_enum = 11;
pub const CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: CUtensorMapDataType_enum = 12;
pub const CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B: CUtensorMapDataType_enum = 13;
pub const CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B: CUtensorMapDataType_enum = 14;
pub const CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B: CUtensorMapDataType_enum = 15;
pub const CU_TENSOR_MAP_INTERLEAVE_NONE: CUtensorMapInterleave_enum = 0;
pub const CU_TENSOR_MAP_INTERLEAVE_16B: CUtensorMapInterleave_enum = 1;
pub const CU_TENSOR_MAP_INTERLEAVE_32B: CUtensorMapInterleave_enum = 2;
pub const CU_TENSOR_MAP_SWIZZLE_NONE: CUtensorMapSwizzle_enum = 0;
pub const CU_TENSOR_MAP_SWIZZLE_32B: CUtensorMapSwizzle_enum = 1;
pub const CU_TENSOR_MAP_SWIZZLE_64B: CUtensorMapSwizzle_enum = 2;
pub const CU_TENSOR_MAP_SWIZZLE_128B: CUtensorMapSwizzle_enum = 3;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B: CUtensorMapSwizzle_enum = 4;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B: CUtensorMapSwizzle_enum = 5;
pub const CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B: CUtensorMapSwizzle_enum = 6;
pub const CU_TENSOR_MAP_L2_PROMOTION_NONE: CUtensorMapL2promotion_enum = 0;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_64B: CUtensorMapL2promotion_enum = 1;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_128B: CUtensorMapL2promotion_enum = 2;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_256B: CUtensorMapL2promotion_enum = 3;
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: CUtensorMapFloatOOBfill_enum = 0;
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA: CUtensorMapFloatOOBfill_enum = 1;
pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType_enum = 0;
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: CUmemAllocationHandleType_enum = 1;
pub const CU_MEM_HANDLE_TYPE_WIN32: CUmemAllocationHandleType_enum = 2;
pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: CUmemAllocationHandleType_enum = 4;
pub const CU_MEM_HANDLE_TYPE_FABRIC: CUmemAllocationHandleType_enum = 8;
pub const CU_MEM_HANDLE_TYPE_MAX: CUmemAllocationHandleType_enum = 2147483647;
pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: CUmemAccess_flags_enum = 0;
pub const CU_MEM_ACCESS_FLAGS_PROT_READ: CUmemAccess_flags_enum = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: CUmemAccess_flags_enum = 3;
pub const CU_MEM_ACCESS_FLAGS_PROT_MAX: CUmemAccess_flags_enum = 2147483647;
pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType_enum = 0;
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType_enum = 1;
pub const CU_MEM_LOCATION_TYPE_HOST: CUmemLocationType_enum = 2;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: CUmemLocationType_enum = 3;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: CUmemLocationType_enum = 4;
pub const CU_MEM_LOCATION_TYPE_MAX: CUmemLocationType_enum = 2147483647;
pub const CU_MEM_ALLOCATION_TYPE_INVALID: CUmemAllocationType_enum = 0;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType_enum = 1;
pub const CU_MEM_ALLOCATION_TYPE_MAX: CUmemAllocationType_enum = 2147483647;
pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: CUmemAllocationGranularity_flags_enum = 0;
pub const CU_MEM_ALLOC_GRANULARITY_RECOMMENDED: CUmemAllocationGranularity_flags_enum = 1;
pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: CUmemRangeHandleType_enum = 1;
pub const CU_MEM_RANGE_HANDLE_TYPE_MAX: CUmemRangeHandleType_enum = 2147483647;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemLocation_st"][::core::mem::size_of::<CUmemLocation_st>() - 8usize];
    ["Alignment of CUmemLocation_st"][::core::mem::align_of::<CUmemLocation_st>() - 4usize];
    ["Offset of field: CUmemLocation_st::type_"][::core::mem::offset_of!(CUmemLocation_st, type_) - 0usize];
    ["Offset of field: CUmemLocation_st::id"][::core::mem::offset_of!(CUmemLocation_st, id) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemAllocationProp_st__bindgen_ty_1"]
        [::core::mem::size_of::<CUmemAllocationProp_st__bindgen_ty_1>() - 8usize];
    ["Alignment of CUmemAllocationProp_st__bindgen_ty_1"]
        [::core::mem::align_of::<CUmemAllocationProp_st__bindgen_ty_1>() - 2usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::compressionType"]
        [::core::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, compressionType) - 0usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::gpuDirectRDMACapable"]
        [::core::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, gpuDirectRDMACapable) - 1usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::usage"]
        [::core::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, usage) - 2usize];
    ["Offset of field: CUmemAllocationProp_st__bindgen_ty_1::reserved"]
        [::core::mem::offset_of!(CUmemAllocationProp_st__bindgen_ty_1, reserved) - 4usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemAllocationProp_st"][::core::mem::size_of::<CUmemAllocationProp_st>() - 32usize];
    ["Alignment of CUmemAllocationProp_st"][::core::mem::align_of::<CUmemAllocationProp_st>() - 8usize];
    ["Offset of field: CUmemAllocationProp_st::type_"]
        [::core::mem::offset_of!(CUmemAllocationProp_st, type_) - 0usize];
    ["Offset of field: CUmemAllocationProp_st::requestedHandleTypes"]
        [::core::mem::offset_of!(CUmemAllocationProp_st, requestedHandleTypes) - 4usize];
    ["Offset of field: CUmemAllocationProp_st::location"]
        [::core::mem::offset_of!(CUmemAllocationProp_st, location) - 8usize];
    ["Offset of field: CUmemAllocationProp_st::win32HandleMetaData"]
        [::core::mem::offset_of!(CUmemAllocationProp_st, win32HandleMetaData) - 16usize];
    ["Offset of field: CUmemAllocationProp_st::allocFlags"]
        [::core::mem::offset_of!(CUmemAllocationProp_st, allocFlags) - 24usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemAccessDesc_st"][::core::mem::size_of::<CUmemAccessDesc_st>() - 12usize];
    ["Alignment of CUmemAccessDesc_st"][::core::mem::align_of::<CUmemAccessDesc_st>() - 4usize];
    ["Offset of field: CUmemAccessDesc_st::location"]
        [::core::mem::offset_of!(CUmemAccessDesc_st, location) - 0usize];
    ["Offset of field: CUmemAccessDesc_st::flags"]
        [::core::mem::offset_of!(CUmemAccessDesc_st, flags) - 8usize];
};
pub const CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: CUgraphMem_attribute_enum = 0;
pub const CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: CUgraphMem_attribute_enum = 1;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: CUgraphMem_attribute_enum = 2;
pub const CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: CUgraphMem_attribute_enum = 3;
pub const CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: CUmemPool_attribute_enum = 1;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: CUmemPool_attribute_enum = 2;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: CUmemPool_attribute_enum = 3;
pub const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: CUmemPool_attribute_enum = 4;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: CUmemPool_attribute_enum = 5;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: CUmemPool_attribute_enum = 6;
pub const CU_MEMPOOL_ATTR_USED_MEM_CURRENT: CUmemPool_attribute_enum = 7;
pub const CU_MEMPOOL_ATTR_USED_MEM_HIGH: CUmemPool_attribute_enum = 8;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemPoolProps_st"][::core::mem::size_of::<CUmemPoolProps_st>() - 88usize];
    ["Alignment of CUmemPoolProps_st"][::core::mem::align_of::<CUmemPoolProps_st>() - 8usize];
    ["Offset of field: CUmemPoolProps_st::allocType"]
        [::core::mem::offset_of!(CUmemPoolProps_st, allocType) - 0usize];
    ["Offset of field: CUmemPoolProps_st::handleTypes"]
        [::core::mem::offset_of!(CUmemPoolProps_st, handleTypes) - 4usize];
    ["Offset of field: CUmemPoolProps_st::location"]
        [::core::mem::offset_of!(CUmemPoolProps_st, location) - 8usize];
    ["Offset of field: CUmemPoolProps_st::win32SecurityAttributes"]
        [::core::mem::offset_of!(CUmemPoolProps_st, win32SecurityAttributes) - 16usize];
    ["Offset of field: CUmemPoolProps_st::maxSize"]
        [::core::mem::offset_of!(CUmemPoolProps_st, maxSize) - 24usize];
    ["Offset of field: CUmemPoolProps_st::usage"]
        [::core::mem::offset_of!(CUmemPoolProps_st, usage) - 32usize];
    ["Offset of field: CUmemPoolProps_st::reserved"]
        [::core::mem::offset_of!(CUmemPoolProps_st, reserved) - 34usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CUmemPoolPtrExportData_st"][::core::mem::size_of::<CUmemPoolPtrExportData_st>() - 64usize];
    ["Alignment of CUmemPoolPtrExportData_st"][::core::mem::align_of::<CUmemPoolPtrExportData_st>() - 1usize];
    ["Offset of field: CUmemPoolPtrExportData_st::reserved"]
        [::core::mem::offset_of!(CUmemPoolPtrExportData_st, reserved) - 0usize];
};
pub const CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: CUuserObject_flags_enum = 1;
pub const CU_GRAPH_USER_OBJECT_MOVE: CUuserObjectRetain_flags_enum = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: CUgraphInstantiate_flags_enum = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD: CUgraphInstantiate_flags_enum = 2;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: CUgraphInstantiate_flags_enum = 4;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: CUgraphInstantiate_flags_enum = 8;
pub const CU_MODULE_EAGER_LOADING: CUmoduleLoadingMode_enum = 1;
pub const CU_MODULE_LAZY_LOADING: CUmoduleLoadingMode_enum = 2;
pub const CU_LOG_LEVEL_ERROR: CUlogLevel_enum = 0;
pub const CU_LOG_LEVEL_WARNING: CUlogLevel_enum = 1;
impl<T: Copy + Default, const N: usize> Default for __BindgenOpaqueArray8<[T; N]> {
    fn default() -> Self {
        Self([<T as Default>::default(); N])
    }
}
impl<T: Copy + Default, const N: usize> Default for __BindgenOpaqueArray64<[T; N]> {
    fn default() -> Self {
        Self([<T as Default>::default(); N])
    }
}
pub use self::CUctx_flags_enum as CUctx_flags;
pub use self::CUdevice_P2PAttribute_enum as CUdevice_P2PAttribute;
pub use self::CUdevice_attribute_enum as CUdevice_attribute;
pub use self::CUdriverProcAddressQueryResult_enum as CUdriverProcAddressQueryResult;
pub use self::CUevent_flags_enum as CUevent_flags;
pub use self::CUevent_record_flags_enum as CUevent_record_flags;
pub use self::CUevent_wait_flags_enum as CUevent_wait_flags;
pub use self::CUfunc_cache_enum as CUfunc_cache;
pub use self::CUfunction_attribute_enum as CUfunction_attribute;
pub use self::CUgraphInstantiate_flags_enum as CUgraphInstantiate_flags;
pub use self::CUgraphInstantiateResult_enum as CUgraphInstantiateResult;
pub use self::CUgraphMem_attribute_enum as CUgraphMem_attribute;
pub use self::CUgraphNodeType_enum as CUgraphNodeType;
pub use self::CUipcMem_flags_enum as CUipcMem_flags;
pub use self::CUjit_option_enum as CUjit_option;
pub use self::CUlibraryOption_enum as CUlibraryOption;
pub use self::CUlimit_enum as CUlimit;
pub use self::CUlogLevel_enum as CUlogLevel;
pub use self::CUmem_advise_enum as CUmem_advise;
pub use self::CUmemAccess_flags_enum as CUmemAccess_flags;
pub use self::CUmemAllocationGranularity_flags_enum as CUmemAllocationGranularity_flags;
pub use self::CUmemAllocationHandleType_enum as CUmemAllocationHandleType;
pub use self::CUmemAllocationType_enum as CUmemAllocationType;
pub use self::CUmemAttach_flags_enum as CUmemAttach_flags;
pub use self::CUmemLocationType_enum as CUmemLocationType;
pub use self::CUmemPool_attribute_enum as CUmemPool_attribute;
pub use self::CUmemRangeHandleType_enum as CUmemRangeHandleType;
pub use self::CUmemorytype_enum as CUmemorytype;
pub use self::CUmoduleLoadingMode_enum as CUmoduleLoadingMode;
pub use self::CUpointer_attribute_enum as CUpointer_attribute;
pub use self::CUstream_flags_enum as CUstream_flags;
pub use self::CUstreamCaptureMode_enum as CUstreamCaptureMode;
pub use self::CUstreamCaptureStatus_enum as CUstreamCaptureStatus;
pub use self::CUstreamUpdateCaptureDependencies_flags_enum as CUstreamUpdateCaptureDependencies_flags;
pub use self::CUstreamWaitValue_flags_enum as CUstreamWaitValue_flags;
pub use self::CUstreamWriteValue_flags_enum as CUstreamWriteValue_flags;
pub use self::CUtensorMapDataType_enum as CUtensorMapDataType;
pub use self::CUtensorMapFloatOOBfill_enum as CUtensorMapFloatOOBfill;
pub use self::CUtensorMapInterleave_enum as CUtensorMapInterleave;
pub use self::CUtensorMapL2promotion_enum as CUtensorMapL2promotion;
pub use self::CUtensorMapSwizzle_enum as CUtensorMapSwizzle;
pub use self::CUuserObject_flags_enum as CUuserObject_flags;
pub use self::CUuserObjectRetain_flags_enum as CUuserObjectRetain_flags;
pub use self::cudaError_enum as CUresult;
pub type cuGetErrorString_t =
    unsafe extern "C" fn(error: CUresult, pStr: *mut *const core::ffi::c_char) -> CUresult;
pub type cuGetErrorName_t =
    unsafe extern "C" fn(error: CUresult, pStr: *mut *const core::ffi::c_char) -> CUresult;
pub type cuInit_t = unsafe extern "C" fn(Flags: core::ffi::c_uint) -> CUresult;
pub type cuDriverGetVersion_t = unsafe extern "C" fn(driverVersion: *mut core::ffi::c_int) -> CUresult;
pub type cuDeviceGet_t = unsafe extern "C" fn(device: *mut CUdevice, ordinal: core::ffi::c_int) -> CUresult;
pub type cuDeviceGetCount_t = unsafe extern "C" fn(count: *mut core::ffi::c_int) -> CUresult;
pub type cuDeviceGetName_t =
    unsafe extern "C" fn(name: *mut core::ffi::c_char, len: core::ffi::c_int, dev: CUdevice) -> CUresult;
pub type cuDeviceGetUuid_t = unsafe extern "C" fn(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
pub type cuDeviceGetUuid_v2_t = unsafe extern "C" fn(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
pub type cuDeviceTotalMem_v2_t = unsafe extern "C" fn(bytes: *mut usize, dev: CUdevice) -> CUresult;
pub type cuDeviceGetAttribute_t =
    unsafe extern "C" fn(pi: *mut core::ffi::c_int, attrib: CUdevice_attribute, dev: CUdevice) -> CUresult;
pub type cuDeviceSetMemPool_t = unsafe extern "C" fn(dev: CUdevice, pool: CUmemoryPool) -> CUresult;
pub type cuDeviceGetMemPool_t = unsafe extern "C" fn(pool: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
pub type cuDeviceGetDefaultMemPool_t =
    unsafe extern "C" fn(pool_out: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
pub type cuDeviceComputeCapability_t = unsafe extern "C" fn(
    major: *mut core::ffi::c_int,
    minor: *mut core::ffi::c_int,
    dev: CUdevice,
) -> CUresult;
pub type cuDevicePrimaryCtxRetain_t = unsafe extern "C" fn(pctx: *mut CUcontext, dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxRelease_v2_t = unsafe extern "C" fn(dev: CUdevice) -> CUresult;
pub type cuDevicePrimaryCtxSetFlags_v2_t =
    unsafe extern "C" fn(dev: CUdevice, flags: core::ffi::c_uint) -> CUresult;
pub type cuDevicePrimaryCtxGetState_t = unsafe extern "C" fn(
    dev: CUdevice,
    flags: *mut core::ffi::c_uint,
    active: *mut core::ffi::c_int,
) -> CUresult;
pub type cuCtxPushCurrent_v2_t = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxPopCurrent_v2_t = unsafe extern "C" fn(pctx: *mut CUcontext) -> CUresult;
pub type cuCtxSetCurrent_t = unsafe extern "C" fn(ctx: CUcontext) -> CUresult;
pub type cuCtxGetCurrent_t = unsafe extern "C" fn(pctx: *mut CUcontext) -> CUresult;
pub type cuCtxGetDevice_t = unsafe extern "C" fn(device: *mut CUdevice) -> CUresult;
pub type cuCtxGetFlags_t = unsafe extern "C" fn(flags: *mut core::ffi::c_uint) -> CUresult;
pub type cuCtxSynchronize_t = unsafe extern "C" fn() -> CUresult;
pub type cuCtxSetLimit_t = unsafe extern "C" fn(limit: CUlimit, value: usize) -> CUresult;
pub type cuCtxGetLimit_t = unsafe extern "C" fn(pvalue: *mut usize, limit: CUlimit) -> CUresult;
pub type cuCtxGetApiVersion_t =
    unsafe extern "C" fn(ctx: CUcontext, version: *mut core::ffi::c_uint) -> CUresult;
pub type cuCtxGetStreamPriorityRange_t = unsafe extern "C" fn(
    leastPriority: *mut core::ffi::c_int,
    greatestPriority: *mut core::ffi::c_int,
) -> CUresult;
pub type cuModuleLoad_t =
    unsafe extern "C" fn(module: *mut CUmodule, fname: *const core::ffi::c_char) -> CUresult;
pub type cuModuleLoadData_t =
    unsafe extern "C" fn(module: *mut CUmodule, image: *const core::ffi::c_void) -> CUresult;
pub type cuModuleLoadDataEx_t = unsafe extern "C" fn(
    module: *mut CUmodule,
    image: *const core::ffi::c_void,
    numOptions: core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut core::ffi::c_void,
) -> CUresult;
pub type cuModuleLoadFatBinary_t =
    unsafe extern "C" fn(module: *mut CUmodule, fatCubin: *const core::ffi::c_void) -> CUresult;
pub type cuModuleUnload_t = unsafe extern "C" fn(hmod: CUmodule) -> CUresult;
pub type cuModuleGetLoadingMode_t = unsafe extern "C" fn(mode: *mut CUmoduleLoadingMode) -> CUresult;
pub type cuModuleGetFunction_t =
    unsafe extern "C" fn(hfunc: *mut CUfunction, hmod: CUmodule, name: *const core::ffi::c_char) -> CUresult;
pub type cuModuleGetGlobal_v2_t = unsafe extern "C" fn(
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
    hmod: CUmodule,
    name: *const core::ffi::c_char,
) -> CUresult;
pub type cuLibraryLoadData_t = unsafe extern "C" fn(
    library: *mut CUlibrary,
    code: *const core::ffi::c_void,
    jitOptions: *mut CUjit_option,
    jitOptionsValues: *mut *mut core::ffi::c_void,
    numJitOptions: core::ffi::c_uint,
    libraryOptions: *mut CUlibraryOption,
    libraryOptionValues: *mut *mut core::ffi::c_void,
    numLibraryOptions: core::ffi::c_uint,
) -> CUresult;
pub type cuLibraryUnload_t = unsafe extern "C" fn(library: CUlibrary) -> CUresult;
pub type cuLibraryGetKernel_t = unsafe extern "C" fn(
    pKernel: *mut CUkernel,
    library: CUlibrary,
    name: *const core::ffi::c_char,
) -> CUresult;
pub type cuLibraryGetModule_t = unsafe extern "C" fn(pMod: *mut CUmodule, library: CUlibrary) -> CUresult;
pub type cuKernelGetFunction_t = unsafe extern "C" fn(pFunc: *mut CUfunction, kernel: CUkernel) -> CUresult;
pub type cuKernelGetAttribute_t = unsafe extern "C" fn(
    pi: *mut core::ffi::c_int,
    attrib: CUfunction_attribute,
    kernel: CUkernel,
    dev: CUdevice,
) -> CUresult;
pub type cuKernelSetAttribute_t = unsafe extern "C" fn(
    attrib: CUfunction_attribute,
    val: core::ffi::c_int,
    kernel: CUkernel,
    dev: CUdevice,
) -> CUresult;
pub type cuMemGetInfo_v2_t = unsafe extern "C" fn(free: *mut usize, total: *mut usize) -> CUresult;
pub type cuMemAlloc_v2_t = unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;
pub type cuMemFree_v2_t = unsafe extern "C" fn(dptr: CUdeviceptr) -> CUresult;
pub type cuMemGetAddressRange_v2_t =
    unsafe extern "C" fn(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) -> CUresult;
pub type cuMemAllocHost_v2_t =
    unsafe extern "C" fn(pp: *mut *mut core::ffi::c_void, bytesize: usize) -> CUresult;
pub type cuMemFreeHost_t = unsafe extern "C" fn(p: *mut core::ffi::c_void) -> CUresult;
pub type cuMemHostAlloc_t = unsafe extern "C" fn(
    pp: *mut *mut core::ffi::c_void,
    bytesize: usize,
    Flags: core::ffi::c_uint,
) -> CUresult;
pub type cuMemHostGetDevicePointer_v2_t = unsafe extern "C" fn(
    pdptr: *mut CUdeviceptr,
    p: *mut core::ffi::c_void,
    Flags: core::ffi::c_uint,
) -> CUresult;
pub type cuMemHostGetFlags_t =
    unsafe extern "C" fn(pFlags: *mut core::ffi::c_uint, p: *mut core::ffi::c_void) -> CUresult;
pub type cuMemAllocManaged_t =
    unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, flags: core::ffi::c_uint) -> CUresult;
pub type cuDeviceGetByPCIBusId_t =
    unsafe extern "C" fn(dev: *mut CUdevice, pciBusId: *const core::ffi::c_char) -> CUresult;
pub type cuDeviceGetPCIBusId_t =
    unsafe extern "C" fn(pciBusId: *mut core::ffi::c_char, len: core::ffi::c_int, dev: CUdevice) -> CUresult;
pub type cuIpcGetEventHandle_t =
    unsafe extern "C" fn(pHandle: *mut CUipcEventHandle, event: CUevent) -> CUresult;
pub type cuIpcOpenEventHandle_t =
    unsafe extern "C" fn(phEvent: *mut CUevent, handle: CUipcEventHandle) -> CUresult;
pub type cuIpcGetMemHandle_t =
    unsafe extern "C" fn(pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) -> CUresult;
pub type cuIpcOpenMemHandle_v2_t = unsafe extern "C" fn(
    pdptr: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    Flags: core::ffi::c_uint,
) -> CUresult;
pub type cuIpcCloseMemHandle_t = unsafe extern "C" fn(dptr: CUdeviceptr) -> CUresult;
pub type cuMemHostRegister_v2_t =
    unsafe extern "C" fn(p: *mut core::ffi::c_void, bytesize: usize, Flags: core::ffi::c_uint) -> CUresult;
pub type cuMemHostUnregister_t = unsafe extern "C" fn(p: *mut core::ffi::c_void) -> CUresult;
pub type cuMemcpy_t = unsafe extern "C" fn(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpyPeer_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    dstContext: CUcontext,
    srcDevice: CUdeviceptr,
    srcContext: CUcontext,
    ByteCount: usize,
) -> CUresult;
pub type cuMemcpyHtoD_v2_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    srcHost: *const core::ffi::c_void,
    ByteCount: usize,
) -> CUresult;
pub type cuMemcpyDtoH_v2_t = unsafe extern "C" fn(
    dstHost: *mut core::ffi::c_void,
    srcDevice: CUdeviceptr,
    ByteCount: usize,
) -> CUresult;
pub type cuMemcpyDtoD_v2_t =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) -> CUresult;
pub type cuMemcpy2D_v2_t = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
pub type cuMemcpy2DUnaligned_v2_t = unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
pub type cuMemcpyAsync_t =
    unsafe extern "C" fn(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) -> CUresult;
pub type cuMemcpyPeerAsync_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    dstContext: CUcontext,
    srcDevice: CUdeviceptr,
    srcContext: CUcontext,
    ByteCount: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyHtoDAsync_v2_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    srcHost: *const core::ffi::c_void,
    ByteCount: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyDtoHAsync_v2_t = unsafe extern "C" fn(
    dstHost: *mut core::ffi::c_void,
    srcDevice: CUdeviceptr,
    ByteCount: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpyDtoDAsync_v2_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    srcDevice: CUdeviceptr,
    ByteCount: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemcpy2DAsync_v2_t =
    unsafe extern "C" fn(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream) -> CUresult;
pub type cuMemsetD8_v2_t =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, uc: core::ffi::c_uchar, N: usize) -> CUresult;
pub type cuMemsetD16_v2_t =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, us: core::ffi::c_ushort, N: usize) -> CUresult;
pub type cuMemsetD32_v2_t =
    unsafe extern "C" fn(dstDevice: CUdeviceptr, ui: core::ffi::c_uint, N: usize) -> CUresult;
pub type cuMemsetD8Async_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    uc: core::ffi::c_uchar,
    N: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemsetD16Async_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    us: core::ffi::c_ushort,
    N: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemsetD32Async_t = unsafe extern "C" fn(
    dstDevice: CUdeviceptr,
    ui: core::ffi::c_uint,
    N: usize,
    hStream: CUstream,
) -> CUresult;
pub type cuMemGetHandleForAddressRange_t = unsafe extern "C" fn(
    handle: *mut core::ffi::c_void,
    dptr: CUdeviceptr,
    size: usize,
    handleType: CUmemRangeHandleType,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemAddressReserve_t = unsafe extern "C" fn(
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    addr: CUdeviceptr,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemAddressFree_t = unsafe extern "C" fn(ptr: CUdeviceptr, size: usize) -> CUresult;
pub type cuMemCreate_t = unsafe extern "C" fn(
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemRelease_t = unsafe extern "C" fn(handle: CUmemGenericAllocationHandle) -> CUresult;
pub type cuMemMap_t = unsafe extern "C" fn(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemUnmap_t = unsafe extern "C" fn(ptr: CUdeviceptr, size: usize) -> CUresult;
pub type cuMemSetAccess_t = unsafe extern "C" fn(
    ptr: CUdeviceptr,
    size: usize,
    desc: *const CUmemAccessDesc,
    count: usize,
) -> CUresult;
pub type cuMemGetAccess_t = unsafe extern "C" fn(
    flags: *mut core::ffi::c_ulonglong,
    location: *const CUmemLocation,
    ptr: CUdeviceptr,
) -> CUresult;
pub type cuMemExportToShareableHandle_t = unsafe extern "C" fn(
    shareableHandle: *mut core::ffi::c_void,
    handle: CUmemGenericAllocationHandle,
    handleType: CUmemAllocationHandleType,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemImportFromShareableHandle_t = unsafe extern "C" fn(
    handle: *mut CUmemGenericAllocationHandle,
    osHandle: *mut core::ffi::c_void,
    shHandleType: CUmemAllocationHandleType,
) -> CUresult;
pub type cuMemGetAllocationGranularity_t = unsafe extern "C" fn(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> CUresult;
pub type cuMemGetAllocationPropertiesFromHandle_t =
    unsafe extern "C" fn(prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle) -> CUresult;
pub type cuMemRetainAllocationHandle_t =
    unsafe extern "C" fn(handle: *mut CUmemGenericAllocationHandle, addr: *mut core::ffi::c_void) -> CUresult;
pub type cuMemFreeAsync_t = unsafe extern "C" fn(dptr: CUdeviceptr, hStream: CUstream) -> CUresult;
pub type cuMemAllocAsync_t =
    unsafe extern "C" fn(dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream) -> CUresult;
pub type cuMemPoolTrimTo_t = unsafe extern "C" fn(pool: CUmemoryPool, minBytesToKeep: usize) -> CUresult;
pub type cuMemPoolSetAttribute_t = unsafe extern "C" fn(
    pool: CUmemoryPool,
    attr: CUmemPool_attribute,
    value: *mut core::ffi::c_void,
) -> CUresult;
pub type cuMemPoolGetAttribute_t = unsafe extern "C" fn(
    pool: CUmemoryPool,
    attr: CUmemPool_attribute,
    value: *mut core::ffi::c_void,
) -> CUresult;
pub type cuMemPoolSetAccess_t =
    unsafe extern "C" fn(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> CUresult;
pub type cuMemPoolGetAccess_t = unsafe extern "C" fn(
    flags: *mut CUmemAccess_flags,
    memPool: CUmemoryPool,
    location: *mut CUmemLocation,
) -> CUresult;
pub type cuMemPoolCreate_t =
    unsafe extern "C" fn(pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) -> CUresult;
pub type cuMemPoolDestroy_t = unsafe extern "C" fn(pool: CUmemoryPool) -> CUresult;
pub type cuMemAllocFromPoolAsync_t = unsafe extern "C" fn(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    hStream: CUstream,
) -> CUresult;
pub type cuMemPoolExportToShareableHandle_t = unsafe extern "C" fn(
    handle_out: *mut core::ffi::c_void,
    pool: CUmemoryPool,
    handleType: CUmemAllocationHandleType,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemPoolImportFromShareableHandle_t = unsafe extern "C" fn(
    pool_out: *mut CUmemoryPool,
    handle: *mut core::ffi::c_void,
    handleType: CUmemAllocationHandleType,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuMemPoolExportPointer_t =
    unsafe extern "C" fn(shareData_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr) -> CUresult;
pub type cuMemPoolImportPointer_t = unsafe extern "C" fn(
    ptr_out: *mut CUdeviceptr,
    pool: CUmemoryPool,
    shareData: *mut CUmemPoolPtrExportData,
) -> CUresult;
pub type cuPointerGetAttribute_t = unsafe extern "C" fn(
    data: *mut core::ffi::c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> CUresult;
pub type cuMemPrefetchAsync_t = unsafe extern "C" fn(
    devPtr: CUdeviceptr,
    count: usize,
    dstDevice: CUdevice,
    hStream: CUstream,
) -> CUresult;
pub type cuMemPrefetchAsync_v2_t = unsafe extern "C" fn(
    devPtr: CUdeviceptr,
    count: usize,
    location: CUmemLocation,
    flags: core::ffi::c_uint,
    hStream: CUstream,
) -> CUresult;
pub type cuMemAdvise_t = unsafe extern "C" fn(
    devPtr: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> CUresult;
pub type cuPointerSetAttribute_t = unsafe extern "C" fn(
    value: *const core::ffi::c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> CUresult;
pub type cuPointerGetAttributes_t = unsafe extern "C" fn(
    numAttributes: core::ffi::c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut core::ffi::c_void,
    ptr: CUdeviceptr,
) -> CUresult;
pub type cuStreamCreate_t =
    unsafe extern "C" fn(phStream: *mut CUstream, Flags: core::ffi::c_uint) -> CUresult;
pub type cuStreamCreateWithPriority_t = unsafe extern "C" fn(
    phStream: *mut CUstream,
    flags: core::ffi::c_uint,
    priority: core::ffi::c_int,
) -> CUresult;
pub type cuStreamGetPriority_t =
    unsafe extern "C" fn(hStream: CUstream, priority: *mut core::ffi::c_int) -> CUresult;
pub type cuStreamGetDevice_t = unsafe extern "C" fn(hStream: CUstream, device: *mut CUdevice) -> CUresult;
pub type cuStreamGetFlags_t =
    unsafe extern "C" fn(hStream: CUstream, flags: *mut core::ffi::c_uint) -> CUresult;
pub type cuStreamGetId_t =
    unsafe extern "C" fn(hStream: CUstream, streamId: *mut core::ffi::c_ulonglong) -> CUresult;
pub type cuStreamGetCtx_t = unsafe extern "C" fn(hStream: CUstream, pctx: *mut CUcontext) -> CUresult;
pub type cuStreamWaitEvent_t =
    unsafe extern "C" fn(hStream: CUstream, hEvent: CUevent, Flags: core::ffi::c_uint) -> CUresult;
pub type cuStreamAddCallback_t = unsafe extern "C" fn(
    hStream: CUstream,
    callback: CUstreamCallback,
    userData: *mut core::ffi::c_void,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuStreamBeginCapture_v2_t =
    unsafe extern "C" fn(hStream: CUstream, mode: CUstreamCaptureMode) -> CUresult;
pub type cuStreamBeginCaptureToGraph_t = unsafe extern "C" fn(
    hStream: CUstream,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    mode: CUstreamCaptureMode,
) -> CUresult;
pub type cuThreadExchangeStreamCaptureMode_t =
    unsafe extern "C" fn(mode: *mut CUstreamCaptureMode) -> CUresult;
pub type cuStreamEndCapture_t = unsafe extern "C" fn(hStream: CUstream, phGraph: *mut CUgraph) -> CUresult;
pub type cuStreamIsCapturing_t =
    unsafe extern "C" fn(hStream: CUstream, captureStatus: *mut CUstreamCaptureStatus) -> CUresult;
pub type cuStreamGetCaptureInfo_v2_t = unsafe extern "C" fn(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut cuuint64_t,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    numDependencies_out: *mut usize,
) -> CUresult;
pub type cuStreamGetCaptureInfo_v3_t = unsafe extern "C" fn(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut cuuint64_t,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    edgeData_out: *mut *const CUgraphEdgeData,
    numDependencies_out: *mut usize,
) -> CUresult;
pub type cuStreamUpdateCaptureDependencies_t = unsafe extern "C" fn(
    hStream: CUstream,
    dependencies: *mut CUgraphNode,
    numDependencies: usize,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuStreamUpdateCaptureDependencies_v2_t = unsafe extern "C" fn(
    hStream: CUstream,
    dependencies: *mut CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuStreamQuery_t = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamSynchronize_t = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuStreamDestroy_v2_t = unsafe extern "C" fn(hStream: CUstream) -> CUresult;
pub type cuEventCreate_t = unsafe extern "C" fn(phEvent: *mut CUevent, Flags: core::ffi::c_uint) -> CUresult;
pub type cuEventRecord_t = unsafe extern "C" fn(hEvent: CUevent, hStream: CUstream) -> CUresult;
pub type cuEventRecordWithFlags_t =
    unsafe extern "C" fn(hEvent: CUevent, hStream: CUstream, flags: core::ffi::c_uint) -> CUresult;
pub type cuEventQuery_t = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuEventSynchronize_t = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuEventDestroy_v2_t = unsafe extern "C" fn(hEvent: CUevent) -> CUresult;
pub type cuEventElapsedTime_t =
    unsafe extern "C" fn(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) -> CUresult;
pub type cuEventElapsedTime_v2_t =
    unsafe extern "C" fn(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) -> CUresult;
pub type cuStreamWaitValue32_v2_t = unsafe extern "C" fn(
    stream: CUstream,
    addr: CUdeviceptr,
    value: cuuint32_t,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuStreamWriteValue32_v2_t = unsafe extern "C" fn(
    stream: CUstream,
    addr: CUdeviceptr,
    value: cuuint32_t,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuStreamWriteValue64_v2_t = unsafe extern "C" fn(
    stream: CUstream,
    addr: CUdeviceptr,
    value: cuuint64_t,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuFuncGetAttribute_t = unsafe extern "C" fn(
    pi: *mut core::ffi::c_int,
    attrib: CUfunction_attribute,
    hfunc: CUfunction,
) -> CUresult;
pub type cuFuncSetAttribute_t = unsafe extern "C" fn(
    hfunc: CUfunction,
    attrib: CUfunction_attribute,
    value: core::ffi::c_int,
) -> CUresult;
pub type cuFuncSetCacheConfig_t = unsafe extern "C" fn(hfunc: CUfunction, config: CUfunc_cache) -> CUresult;
pub type cuFuncLoad_t = unsafe extern "C" fn(function: CUfunction) -> CUresult;
pub type cuLaunchKernel_t = unsafe extern "C" fn(
    f: CUfunction,
    gridDimX: core::ffi::c_uint,
    gridDimY: core::ffi::c_uint,
    gridDimZ: core::ffi::c_uint,
    blockDimX: core::ffi::c_uint,
    blockDimY: core::ffi::c_uint,
    blockDimZ: core::ffi::c_uint,
    sharedMemBytes: core::ffi::c_uint,
    hStream: CUstream,
    kernelParams: *mut *mut core::ffi::c_void,
    extra: *mut *mut core::ffi::c_void,
) -> CUresult;
pub type cuLaunchKernelEx_t = unsafe extern "C" fn(
    config: *const CUlaunchConfig,
    f: CUfunction,
    kernelParams: *mut *mut core::ffi::c_void,
    extra: *mut *mut core::ffi::c_void,
) -> CUresult;
pub type cuLaunchCooperativeKernel_t = unsafe extern "C" fn(
    f: CUfunction,
    gridDimX: core::ffi::c_uint,
    gridDimY: core::ffi::c_uint,
    gridDimZ: core::ffi::c_uint,
    blockDimX: core::ffi::c_uint,
    blockDimY: core::ffi::c_uint,
    blockDimZ: core::ffi::c_uint,
    sharedMemBytes: core::ffi::c_uint,
    hStream: CUstream,
    kernelParams: *mut *mut core::ffi::c_void,
) -> CUresult;
pub type cuLaunchHostFunc_t =
    unsafe extern "C" fn(hStream: CUstream, fn_: CUhostFn, userData: *mut core::ffi::c_void) -> CUresult;
pub type cuGraphCreate_t = unsafe extern "C" fn(phGraph: *mut CUgraph, flags: core::ffi::c_uint) -> CUresult;
pub type cuGraphAddEmptyNode_t = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
) -> CUresult;
pub type cuGraphNodeGetType_t =
    unsafe extern "C" fn(hNode: CUgraphNode, type_: *mut CUgraphNodeType) -> CUresult;
pub type cuGraphGetNodes_t =
    unsafe extern "C" fn(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) -> CUresult;
pub type cuGraphGetRootNodes_t =
    unsafe extern "C" fn(hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize) -> CUresult;
pub type cuGraphNodeGetDependencies_t = unsafe extern "C" fn(
    hNode: CUgraphNode,
    dependencies: *mut CUgraphNode,
    numDependencies: *mut usize,
) -> CUresult;
pub type cuGraphNodeGetDependencies_v2_t = unsafe extern "C" fn(
    hNode: CUgraphNode,
    dependencies: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numDependencies: *mut usize,
) -> CUresult;
pub type cuGraphInstantiateWithFlags_t = unsafe extern "C" fn(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    flags: core::ffi::c_ulonglong,
) -> CUresult;
pub type cuGraphInstantiateWithParams_t = unsafe extern "C" fn(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult;
pub type cuGraphUpload_t = unsafe extern "C" fn(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;
pub type cuGraphLaunch_t = unsafe extern "C" fn(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;
pub type cuGraphExecDestroy_t = unsafe extern "C" fn(hGraphExec: CUgraphExec) -> CUresult;
pub type cuGraphDestroy_t = unsafe extern "C" fn(hGraph: CUgraph) -> CUresult;
pub type cuDeviceGraphMemTrim_t = unsafe extern "C" fn(device: CUdevice) -> CUresult;
pub type cuDeviceGetGraphMemAttribute_t = unsafe extern "C" fn(
    device: CUdevice,
    attr: CUgraphMem_attribute,
    value: *mut core::ffi::c_void,
) -> CUresult;
pub type cuUserObjectCreate_t = unsafe extern "C" fn(
    object_out: *mut CUuserObject,
    ptr: *mut core::ffi::c_void,
    destroy: CUhostFn,
    initialRefcount: core::ffi::c_uint,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuUserObjectRetain_t =
    unsafe extern "C" fn(object: CUuserObject, count: core::ffi::c_uint) -> CUresult;
pub type cuUserObjectRelease_t =
    unsafe extern "C" fn(object: CUuserObject, count: core::ffi::c_uint) -> CUresult;
pub type cuGraphRetainUserObject_t = unsafe extern "C" fn(
    graph: CUgraph,
    object: CUuserObject,
    count: core::ffi::c_uint,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuGraphReleaseUserObject_t =
    unsafe extern "C" fn(graph: CUgraph, object: CUuserObject, count: core::ffi::c_uint) -> CUresult;
pub type cuGraphAddNode_v2_t = unsafe extern "C" fn(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> CUresult;
pub type cuOccupancyMaxActiveBlocksPerMultiprocessor_t = unsafe extern "C" fn(
    numBlocks: *mut core::ffi::c_int,
    func: CUfunction,
    blockSize: core::ffi::c_int,
    dynamicSMemSize: usize,
) -> CUresult;
pub type cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_t = unsafe extern "C" fn(
    numBlocks: *mut core::ffi::c_int,
    func: CUfunction,
    blockSize: core::ffi::c_int,
    dynamicSMemSize: usize,
    flags: core::ffi::c_uint,
) -> CUresult;
pub type cuOccupancyMaxActiveClusters_t = unsafe extern "C" fn(
    numClusters: *mut core::ffi::c_int,
    func: CUfunction,
    config: *const CUlaunchConfig,
) -> CUresult;
pub type cuTensorMapEncodeTiled_t = unsafe extern "C" fn(
    tensorMap: *mut CUtensorMap,
    tensorDataType: CUtensorMapDataType,
    tensorRank: cuuint32_t,
    globalAddress: *mut core::ffi::c_void,
    globalDim: *const cuuint64_t,
    globalStrides: *const cuuint64_t,
    boxDim: *const cuuint32_t,
    elementStrides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    l2Promotion: CUtensorMapL2promotion,
    oobFill: CUtensorMapFloatOOBfill,
) -> CUresult;
pub type cuDeviceCanAccessPeer_t =
    unsafe extern "C" fn(canAccessPeer: *mut core::ffi::c_int, dev: CUdevice, peerDev: CUdevice) -> CUresult;
pub type cuCtxEnablePeerAccess_t =
    unsafe extern "C" fn(peerContext: CUcontext, Flags: core::ffi::c_uint) -> CUresult;
pub type cuCtxDisablePeerAccess_t = unsafe extern "C" fn(peerContext: CUcontext) -> CUresult;
pub type cuDeviceGetP2PAttribute_t = unsafe extern "C" fn(
    value: *mut core::ffi::c_int,
    attrib: CUdevice_P2PAttribute,
    srcDevice: CUdevice,
    dstDevice: CUdevice,
) -> CUresult;
pub type cuGetProcAddress_v2_t = unsafe extern "C" fn(
    symbol: *const core::ffi::c_char,
    pfn: *mut *mut core::ffi::c_void,
    cudaVersion: core::ffi::c_int,
    flags: cuuint64_t,
    symbolStatus: *mut CUdriverProcAddressQueryResult,
) -> CUresult;
pub type cuLogsRegisterCallback_t = unsafe extern "C" fn(
    callbackFunc: CUlogsCallback,
    userData: *mut core::ffi::c_void,
    callback_out: *mut CUlogsCallbackHandle,
) -> CUresult;
pub type cuLogsUnregisterCallback_t = unsafe extern "C" fn(callback: CUlogsCallbackHandle) -> CUresult;
/// The functions that are declared here.
pub const NAMES: &[&str] = &[
    "cuCtxDisablePeerAccess",
    "cuCtxEnablePeerAccess",
    "cuCtxGetApiVersion",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetFlags",
    "cuCtxGetLimit",
    "cuCtxGetStreamPriorityRange",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceComputeCapability",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetByPCIBusId",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetGraphMemAttribute",
    "cuDeviceGetMemPool",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDeviceGraphMemTrim",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxSetFlags_v2",
    "cuDeviceSetMemPool",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncLoad",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress_v2",
    "cuGraphAddEmptyNode",
    "cuGraphAddNode_v2",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphGetRootNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphLaunch",
    "cuGraphNodeGetDependencies",
    "cuGraphNodeGetDependencies_v2",
    "cuGraphNodeGetType",
    "cuGraphReleaseUserObject",
    "cuGraphRetainUserObject",
    "cuGraphUpload",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetEventHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenEventHandle",
    "cuIpcOpenMemHandle_v2",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuKernelSetAttribute",
    "cuLaunchCooperativeKernel",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLibraryGetKernel",
    "cuLibraryGetModule",
    "cuLibraryLoadData",
    "cuLibraryUnload",
    "cuLogsRegisterCallback",
    "cuLogsUnregisterCallback",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAdvise",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAccess",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostGetFlags",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolExportPointer",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolGetAccess",
    "cuMemPoolGetAttribute",
    "cuMemPoolImportFromShareableHandle",
    "cuMemPoolImportPointer",
    "cuMemPoolSetAccess",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemPrefetchAsync",
    "cuMemPrefetchAsync_v2",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpy",
    "cuMemcpy2DAsync_v2",
    "cuMemcpy2DUnaligned_v2",
    "cuMemcpy2D_v2",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyPeer",
    "cuMemcpyPeerAsync",
    "cuMemsetD16Async",
    "cuMemsetD16_v2",
    "cuMemsetD32Async",
    "cuMemsetD32_v2",
    "cuMemsetD8Async",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuModuleGetLoadingMode",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cuOccupancyMaxActiveClusters",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuPointerSetAttribute",
    "cuStreamAddCallback",
    "cuStreamBeginCaptureToGraph",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamGetCtx",
    "cuStreamGetDevice",
    "cuStreamGetFlags",
    "cuStreamGetId",
    "cuStreamGetPriority",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamUpdateCaptureDependencies",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
    "cuStreamWriteValue64_v2",
    "cuTensorMapEncodeTiled",
    "cuThreadExchangeStreamCaptureMode",
    "cuUserObjectCreate",
    "cuUserObjectRelease",
    "cuUserObjectRetain",
];
