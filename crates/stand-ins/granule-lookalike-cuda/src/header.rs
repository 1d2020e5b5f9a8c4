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
pub type CUstream_flags_enum = core::ffi::c_uint;
pub type CUevent_flags_enum = core::ffi::c_uint;
pub type CUevent_record_flags_enum = core::ffi::c_uint;
pub type CUstreamWriteValue_flags_enum = core::ffi::c_uint;
pub type CUstreamUpdateCaptureDependencies_flags_enum = core::ffi::c_uint;
pub type CUdevice_attribute_enum = core::ffi::c_uint;
pub type CUpointer_attribute_enum = core::ffi::c_uint;
pub type CUfunction_attribute_enum = core::ffi::c_uint;
pub type CUfunc_cache_enum = core::ffi::c_uint;
pub type CUmemorytype_enum = core::ffi::c_uint;
pub type CUjit_option_enum = core::ffi::c_uint;
pub type CUjitInputType_enum = core::ffi::c_uint;
pub type CUlinkState = *mut CUlinkState_st;
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
pub type CUmemLocation_v1 = CUmemLocation_st;
pub type CUmemLocation = CUmemLocation_v1;
pub type CUmemAllocationProp_v1 = CUmemAllocationProp_st;
pub type CUmemAllocationProp = CUmemAllocationProp_v1;
pub type CUmemAccessDesc_v1 = CUmemAccessDesc_st;
pub type CUmemAccessDesc = CUmemAccessDesc_v1;
pub type CUmemPool_attribute_enum = core::ffi::c_uint;
pub type CUmemPoolProps_v1 = CUmemPoolProps_st;
pub type CUmemPoolProps = CUmemPoolProps_v1;
pub type CUgraphMem_attribute_enum = core::ffi::c_uint;
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
#[derive(Debug)]
pub struct CUlinkState_st {
    _unused: [u8; 0],
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
#[derive(Debug)]
pub struct CUlogsCallbackEntry_st {
    _unused: [u8; 0],
}
pub const CUDA_VERSION: u32 = 12090;
pub const CU_MEMHOSTALLOC_PORTABLE: u32 = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: u32 = 2;
pub const CU_MEMHOSTALLOC_WRITECOMBINED: u32 = 4;
pub const CU_MEMHOSTREGISTER_PORTABLE: u32 = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: u32 = 2;
pub const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: CUipcMem_flags_enum = 1;
pub const CU_MEM_ATTACH_GLOBAL: CUmemAttach_flags_enum = 1;
pub const CU_MEM_ATTACH_HOST: CUmemAttach_flags_enum = 2;
pub const CU_STREAM_DEFAULT: CUstream_flags_enum = 0;
pub const CU_STREAM_NON_BLOCKING: CUstream_flags_enum = 1;
pub const CU_EVENT_BLOCKING_SYNC: CUevent_flags_enum = 1;
pub const CU_EVENT_DISABLE_TIMING: CUevent_flags_enum = 2;
pub const CU_EVENT_INTERPROCESS: CUevent_flags_enum = 4;
pub const CU_EVENT_RECORD_EXTERNAL: CUevent_record_flags_enum = 1;
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
pub const CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: CUdevice_attribute_enum = 9;
pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: CUdevice_attribute_enum = 10;
pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: CUdevice_attribute_enum = 11;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: CUdevice_attribute_enum = 12;
pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: CUdevice_attribute_enum = 13;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: CUdevice_attribute_enum = 14;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute_enum = 16;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: CUdevice_attribute_enum = 18;
pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: CUdevice_attribute_enum = 19;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: CUdevice_attribute_enum = 31;
pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: CUdevice_attribute_enum = 33;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: CUdevice_attribute_enum = 36;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: CUdevice_attribute_enum = 37;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: CUdevice_attribute_enum = 38;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 39;
pub const CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: CUdevice_attribute_enum = 40;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: CUdevice_attribute_enum = 41;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute_enum = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute_enum = 76;
pub const CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: CUdevice_attribute_enum = 78;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: CUdevice_attribute_enum = 79;
pub const CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: CUdevice_attribute_enum = 80;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 81;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 82;
pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: CUdevice_attribute_enum = 83;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: CUdevice_attribute_enum = 89;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: CUdevice_attribute_enum = 91;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: CUdevice_attribute_enum = 92;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: CUdevice_attribute_enum = 95;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: CUdevice_attribute_enum = 97;
pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: CUdevice_attribute_enum = 99;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute_enum = 102;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: CUdevice_attribute_enum = 103;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: CUdevice_attribute_enum = 106;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: CUdevice_attribute_enum = 110;
pub const CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute_enum = 111;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: CUdevice_attribute_enum = 115;
pub const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: CUdevice_attribute_enum = 120;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: CUdevice_attribute_enum = 122;
pub const CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: CUdevice_attribute_enum = 125;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: CUdevice_attribute_enum = 128;
pub const CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: CUdevice_attribute_enum = 130;
pub const CU_DEVICE_ATTRIBUTE_NUMA_ID: CUdevice_attribute_enum = 131;
pub const CU_DEVICE_ATTRIBUTE_MAX: CUdevice_attribute_enum = 144;
pub const CU_POINTER_ATTRIBUTE_CONTEXT: CUpointer_attribute_enum = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute_enum = 2;
pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: CUpointer_attribute_enum = 3;
pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: CUpointer_attribute_enum = 4;
pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUpointer_attribute_enum = 6;
pub const CU_POINTER_ATTRIBUTE_BUFFER_ID: CUpointer_attribute_enum = 7;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute_enum = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute_enum = 9;
pub const CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: CUpointer_attribute_enum = 10;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute_enum = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute_enum = 12;
pub const CU_POINTER_ATTRIBUTE_MAPPED: CUpointer_attribute_enum = 13;
pub const CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: CUpointer_attribute_enum = 14;
pub const CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: CUpointer_attribute_enum = 17;
pub const CU_POINTER_ATTRIBUTE_MAPPING_SIZE: CUpointer_attribute_enum = 18;
pub const CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: CUpointer_attribute_enum = 19;
pub const CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: CUpointer_attribute_enum = 20;
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUfunction_attribute_enum = 0;
pub const CU_FUNC_ATTRIBUTE_NUM_REGS: CUfunction_attribute_enum = 4;
pub const CU_MEMORYTYPE_HOST: CUmemorytype_enum = 1;
pub const CU_MEMORYTYPE_DEVICE: CUmemorytype_enum = 2;
pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype_enum = 4;
pub const CU_LIMIT_MAX: CUlimit_enum = 10;
pub const CU_GRAPH_NODE_TYPE_KERNEL: CUgraphNodeType_enum = 0;
pub const CU_GRAPH_NODE_TYPE_EMPTY: CUgraphNodeType_enum = 5;
pub const CUDA_GRAPH_INSTANTIATE_SUCCESS: CUgraphInstantiateResult_enum = 0;
pub const CUDA_GRAPH_INSTANTIATE_ERROR: CUgraphInstantiateResult_enum = 1;
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus_enum = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: CUstreamCaptureStatus_enum = 1;
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: CUstreamCaptureMode_enum = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: CUstreamCaptureMode_enum = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode_enum = 2;
pub const CU_GET_PROC_ADDRESS_SUCCESS: CUdriverProcAddressQueryResult_enum = 0;
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: CUdriverProcAddressQueryResult_enum = 1;
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: CUdriverProcAddressQueryResult_enum = 2;
pub const CUDA_SUCCESS: cudaError_enum = 0;
pub const CUDA_ERROR_INVALID_VALUE: cudaError_enum = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: cudaError_enum = 2;
pub const CUDA_ERROR_NOT_INITIALIZED: cudaError_enum = 3;
pub const CUDA_ERROR_DEINITIALIZED: cudaError_enum = 4;
pub const CUDA_ERROR_STUB_LIBRARY: cudaError_enum = 34;
pub const CUDA_ERROR_DEVICE_UNAVAILABLE: cudaError_enum = 46;
pub const CUDA_ERROR_NO_DEVICE: cudaError_enum = 100;
pub const CUDA_ERROR_INVALID_DEVICE: cudaError_enum = 101;
pub const CUDA_ERROR_INVALID_CONTEXT: cudaError_enum = 201;
pub const CUDA_ERROR_ECC_UNCORRECTABLE: cudaError_enum = 214;
pub const CUDA_ERROR_UNSUPPORTED_LIMIT: cudaError_enum = 215;
pub const CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: cudaError_enum = 217;
pub const CUDA_ERROR_OPERATING_SYSTEM: cudaError_enum = 304;
pub const CUDA_ERROR_INVALID_HANDLE: cudaError_enum = 400;
pub const CUDA_ERROR_ILLEGAL_STATE: cudaError_enum = 401;
pub const CUDA_ERROR_NOT_FOUND: cudaError_enum = 500;
pub const CUDA_ERROR_NOT_READY: cudaError_enum = 600;
pub const CUDA_ERROR_ILLEGAL_ADDRESS: cudaError_enum = 700;
pub const CUDA_ERROR_LAUNCH_TIMEOUT: cudaError_enum = 702;
pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: cudaError_enum = 704;
pub const CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: cudaError_enum = 705;
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: cudaError_enum = 709;
pub const CUDA_ERROR_ASSERT: cudaError_enum = 710;
pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: cudaError_enum = 712;
pub const CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: cudaError_enum = 713;
pub const CUDA_ERROR_LAUNCH_FAILED: cudaError_enum = 719;
pub const CUDA_ERROR_NOT_PERMITTED: cudaError_enum = 800;
pub const CUDA_ERROR_NOT_SUPPORTED: cudaError_enum = 801;
pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: cudaError_enum = 900;
pub const CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: cudaError_enum = 901;
pub const CUDA_ERROR_STREAM_CAPTURE_MERGE: cudaError_enum = 902;
pub const CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: cudaError_enum = 903;
pub const CUDA_ERROR_STREAM_CAPTURE_UNJOINED: cudaError_enum = 904;
pub const CUDA_ERROR_STREAM_CAPTURE_ISOLATION: cudaError_enum = 905;
pub const CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: cudaError_enum = 906;
pub const CUDA_ERROR_CAPTURED_EVENT: cudaError_enum = 907;
pub const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: cudaError_enum = 908;
pub const CUDA_ERROR_UNKNOWN: cudaError_enum = 999;
pub const CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: CUdevice_P2PAttribute_enum = 2;
pub const CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: CUdevice_P2PAttribute_enum = 3;
pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType_enum = 0;
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: CUmemAllocationHandleType_enum = 1;
pub const CU_MEM_HANDLE_TYPE_WIN32: CUmemAllocationHandleType_enum = 2;
pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: CUmemAllocationHandleType_enum = 4;
pub const CU_MEM_HANDLE_TYPE_FABRIC: CUmemAllocationHandleType_enum = 8;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: CUmemAccess_flags_enum = 3;
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType_enum = 1;
pub const CU_MEM_LOCATION_TYPE_HOST: CUmemLocationType_enum = 2;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: CUmemLocationType_enum = 3;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: CUmemLocationType_enum = 4;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType_enum = 1;
pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: CUmemAllocationGranularity_flags_enum = 0;
pub const CU_MEMPOOL_ATTR_USED_MEM_CURRENT: CUmemPool_attribute_enum = 7;
pub const CU_USER_OBJECT_NO_DESTRUCTOR_SYNC: CUuserObject_flags_enum = 1;
pub const CU_GRAPH_USER_OBJECT_MOVE: CUuserObjectRetain_flags_enum = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH: CUgraphInstantiate_flags_enum = 1;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY: CUgraphInstantiate_flags_enum = 8;
pub const CU_MODULE_LAZY_LOADING: CUmoduleLoadingMode_enum = 2;
pub use self::CUdevice_P2PAttribute_enum as CUdevice_P2PAttribute;
pub use self::CUdevice_attribute_enum as CUdevice_attribute;
pub use self::CUdriverProcAddressQueryResult_enum as CUdriverProcAddressQueryResult;
pub use self::CUfunc_cache_enum as CUfunc_cache;
pub use self::CUfunction_attribute_enum as CUfunction_attribute;
pub use self::CUgraphInstantiateResult_enum as CUgraphInstantiateResult;
pub use self::CUgraphMem_attribute_enum as CUgraphMem_attribute;
pub use self::CUgraphNodeType_enum as CUgraphNodeType;
pub use self::CUjit_option_enum as CUjit_option;
pub use self::CUjitInputType_enum as CUjitInputType;
pub use self::CUlibraryOption_enum as CUlibraryOption;
pub use self::CUlimit_enum as CUlimit;
pub use self::CUlogLevel_enum as CUlogLevel;
pub use self::CUmemAccess_flags_enum as CUmemAccess_flags;
pub use self::CUmemAllocationGranularity_flags_enum as CUmemAllocationGranularity_flags;
pub use self::CUmemAllocationHandleType_enum as CUmemAllocationHandleType;
pub use self::CUmemAllocationType_enum as CUmemAllocationType;
pub use self::CUmemLocationType_enum as CUmemLocationType;
pub use self::CUmemPool_attribute_enum as CUmemPool_attribute;
pub use self::CUmemorytype_enum as CUmemorytype;
pub use self::CUmoduleLoadingMode_enum as CUmoduleLoadingMode;
pub use self::CUpointer_attribute_enum as CUpointer_attribute;
pub use self::CUstreamCaptureMode_enum as CUstreamCaptureMode;
pub use self::CUstreamCaptureStatus_enum as CUstreamCaptureStatus;
pub use self::CUtensorMapDataType_enum as CUtensorMapDataType;
pub use self::CUtensorMapFloatOOBfill_enum as CUtensorMapFloatOOBfill;
pub use self::CUtensorMapInterleave_enum as CUtensorMapInterleave;
pub use self::CUtensorMapL2promotion_enum as CUtensorMapL2promotion;
pub use self::CUtensorMapSwizzle_enum as CUtensorMapSwizzle;
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
pub type cuLinkCreate_v2_t = unsafe extern "C" fn(
    numOptions: core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut core::ffi::c_void,
    stateOut: *mut CUlinkState,
) -> CUresult;
pub type cuLinkAddData_v2_t = unsafe extern "C" fn(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut core::ffi::c_void,
    size: usize,
    name: *const core::ffi::c_char,
    numOptions: core::ffi::c_uint,
    options: *mut CUjit_option,
    optionValues: *mut *mut core::ffi::c_void,
) -> CUresult;
pub type cuLinkComplete_t = unsafe extern "C" fn(
    state: CUlinkState,
    cubinOut: *mut *mut core::ffi::c_void,
    sizeOut: *mut usize,
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
pub type cuMemPoolCreate_t =
    unsafe extern "C" fn(pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) -> CUresult;
pub type cuMemAllocFromPoolAsync_t = unsafe extern "C" fn(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    hStream: CUstream,
) -> CUresult;
pub type cuPointerGetAttribute_t = unsafe extern "C" fn(
    data: *mut core::ffi::c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
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
pub type cuStreamWriteValue32_v2_t = unsafe extern "C" fn(
    stream: CUstream,
    addr: CUdeviceptr,
    value: cuuint32_t,
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
pub type cuDeviceGetGraphMemAttribute_t = unsafe extern "C" fn(
    device: CUdevice,
    attr: CUgraphMem_attribute,
    value: *mut core::ffi::c_void,
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
