//! Loads the built driver as a backend does, in a process of its own for each test.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "every test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::borrow_as_ptr, reason = "as in the tests")]

pub mod processes;

pub use lookalike_cuda::header;
pub use processes::{child, in_process, text};

use header::*;
use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

/// Calls a function of the driver.
#[macro_export]
macro_rules! cu {
    ($driver:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        let called = $driver.$name;
        // SAFETY: the test passes places and sizes as the header asks.
        #[allow(unused_unsafe)]
        unsafe { called($($argument),*) }
    }};
}

/// The same, for a call that must succeed.
#[macro_export]
macro_rules! ok {
    ($driver:ident.$name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::cu!($driver.$name($($argument),*)), 0, stringify!($name))
    };
}

macro_rules! functions {
    ($($name:ident: $type:ty,)*) => {
        /// The driver's functions by name.
        #[allow(non_snake_case)]
        pub struct Driver {
            $(pub $name: $type,)*
            library: libloading::Library,
        }

        impl Driver {
            pub fn load(path: &Path) -> Self {
                // SAFETY: the library's initialisers are Rust's own and do nothing.
                let library = unsafe { libloading::Library::new(path) }.unwrap();
                Self {
                    // SAFETY: the type is the header's for that name; the library lives as long as the struct.
                    $($name: unsafe { *library.get(stringify!($name)).unwrap() },)*
                    library,
                }
            }
        }
    };
}

functions! {
    cuInit: cuInit_t,
    cuDriverGetVersion: cuDriverGetVersion_t,
    cuGetErrorName: cuGetErrorName_t,
    cuGetErrorString: cuGetErrorString_t,
    cuGetProcAddress_v2: cuGetProcAddress_v2_t,
    cuDeviceGetCount: cuDeviceGetCount_t,
    cuDeviceGetAttribute: cuDeviceGetAttribute_t,
    cuDevicePrimaryCtxRetain: cuDevicePrimaryCtxRetain_t,
    cuDevicePrimaryCtxRelease_v2: cuDevicePrimaryCtxRelease_v2_t,
    cuDevicePrimaryCtxGetState: cuDevicePrimaryCtxGetState_t,
    cuCtxSetCurrent: cuCtxSetCurrent_t,
    cuCtxPushCurrent_v2: cuCtxPushCurrent_v2_t,
    cuCtxPopCurrent_v2: cuCtxPopCurrent_v2_t,
    cuCtxGetDevice: cuCtxGetDevice_t,
    cuCtxSynchronize: cuCtxSynchronize_t,
    cuCtxEnablePeerAccess: cuCtxEnablePeerAccess_t,
    cuMemAlloc_v2: cuMemAlloc_v2_t,
    cuMemFree_v2: cuMemFree_v2_t,
    cuMemGetInfo_v2: cuMemGetInfo_v2_t,
    cuPointerGetAttribute: cuPointerGetAttribute_t,
    cuPointerGetAttributes: cuPointerGetAttributes_t,
    cuMemcpyHtoD_v2: cuMemcpyHtoD_v2_t,
    cuMemcpyHtoDAsync_v2: cuMemcpyHtoDAsync_v2_t,
    cuMemcpyDtoH_v2: cuMemcpyDtoH_v2_t,
    cuMemcpyDtoHAsync_v2: cuMemcpyDtoHAsync_v2_t,
    cuMemcpyPeerAsync: cuMemcpyPeerAsync_t,
    cuMemcpy2D_v2: cuMemcpy2D_v2_t,
    cuMemcpy2DAsync_v2: cuMemcpy2DAsync_v2_t,
    cuMemsetD8Async: cuMemsetD8Async_t,
    cuMemsetD16Async: cuMemsetD16Async_t,
    cuMemsetD32_v2: cuMemsetD32_v2_t,
    cuStreamWriteValue32_v2: cuStreamWriteValue32_v2_t,
    cuMemHostAlloc: cuMemHostAlloc_t,
    cuMemFreeHost: cuMemFreeHost_t,
    cuMemHostRegister_v2: cuMemHostRegister_v2_t,
    cuMemHostUnregister: cuMemHostUnregister_t,
    cuStreamCreateWithPriority: cuStreamCreateWithPriority_t,
    cuStreamDestroy_v2: cuStreamDestroy_v2_t,
    cuStreamSynchronize: cuStreamSynchronize_t,
    cuStreamQuery: cuStreamQuery_t,
    cuStreamWaitEvent: cuStreamWaitEvent_t,
    cuLaunchHostFunc: cuLaunchHostFunc_t,
    cuLaunchKernel: cuLaunchKernel_t,
    cuModuleGetFunction: cuModuleGetFunction_t,
    cuModuleLoadData: cuModuleLoadData_t,
    cuModuleUnload: cuModuleUnload_t,
    cuEventCreate: cuEventCreate_t,
    cuEventDestroy_v2: cuEventDestroy_v2_t,
    cuEventRecord: cuEventRecord_t,
    cuEventQuery: cuEventQuery_t,
    cuEventSynchronize: cuEventSynchronize_t,
    cuEventElapsedTime: cuEventElapsedTime_t,
    cuMemGetAllocationGranularity: cuMemGetAllocationGranularity_t,
    cuMemAddressReserve: cuMemAddressReserve_t,
    cuMemAddressFree: cuMemAddressFree_t,
    cuMemCreate: cuMemCreate_t,
    cuMemRelease: cuMemRelease_t,
    cuMemMap: cuMemMap_t,
    cuMemUnmap: cuMemUnmap_t,
    cuMemSetAccess: cuMemSetAccess_t,
    cuMemGetAccess: cuMemGetAccess_t,
    cuMemRetainAllocationHandle: cuMemRetainAllocationHandle_t,
    cuMemGetAllocationPropertiesFromHandle: cuMemGetAllocationPropertiesFromHandle_t,
    cuMemExportToShareableHandle: cuMemExportToShareableHandle_t,
    cuMemImportFromShareableHandle: cuMemImportFromShareableHandle_t,
    cuIpcGetMemHandle: cuIpcGetMemHandle_t,
    cuIpcOpenMemHandle_v2: cuIpcOpenMemHandle_v2_t,
    cuIpcCloseMemHandle: cuIpcCloseMemHandle_t,
    cuIpcGetEventHandle: cuIpcGetEventHandle_t,
    cuIpcOpenEventHandle: cuIpcOpenEventHandle_t,
    cuStreamBeginCapture_v2: cuStreamBeginCapture_v2_t,
    cuStreamEndCapture: cuStreamEndCapture_t,
    cuStreamGetCaptureInfo_v2: cuStreamGetCaptureInfo_v2_t,
    cuThreadExchangeStreamCaptureMode: cuThreadExchangeStreamCaptureMode_t,
    cuStreamUpdateCaptureDependencies: cuStreamUpdateCaptureDependencies_t,
    cuGraphAddEmptyNode: cuGraphAddEmptyNode_t,
    cuGraphGetNodes: cuGraphGetNodes_t,
    cuGraphGetRootNodes: cuGraphGetRootNodes_t,
    cuGraphNodeGetType: cuGraphNodeGetType_t,
    cuGraphNodeGetDependencies: cuGraphNodeGetDependencies_t,
    cuGraphInstantiateWithFlags: cuGraphInstantiateWithFlags_t,
    cuGraphLaunch: cuGraphLaunch_t,
    cuGraphExecDestroy: cuGraphExecDestroy_t,
    cuGraphDestroy: cuGraphDestroy_t,
    cuUserObjectCreate: cuUserObjectCreate_t,
    cuGraphRetainUserObject: cuGraphRetainUserObject_t,
    cuDeviceGetDefaultMemPool: cuDeviceGetDefaultMemPool_t,
    cuMemAllocAsync: cuMemAllocAsync_t,
    cuMemFreeAsync: cuMemFreeAsync_t,
    cuMemPoolGetAttribute: cuMemPoolGetAttribute_t,
    granule_lookalike_calls: extern "C" fn() -> u64,
    granule_lookalike_fail: extern "C" fn(u64, c_int),
    granule_lookalike_fail_function: unsafe extern "C" fn(*const c_char, u64, c_int),
    granule_lookalike_used: extern "C" fn(u16) -> u64,
    granule_lookalike_traps: extern "C" fn() -> u64,
    granule_lookalike_lose_device: extern "C" fn(u16),
}

impl Driver {
    /// Whether the library exports a name.
    pub fn exports(&self, name: &str) -> bool {
        // SAFETY: the symbol is looked for and not used.
        unsafe { self.library.get::<*const ()>(name) }.is_ok()
    }

    /// A function that it has beside those of CUDA, or only by name.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the tests give the types with which the driver declares these functions.
        unsafe { *self.library.get::<T>(name).unwrap() }
    }

    /// Initialises it and makes the primary context of a device current.
    pub fn enter(&self, device: CUdevice) -> CUcontext {
        ok!(self.cuInit(0));
        let mut context = std::ptr::null_mut();
        ok!(self.cuDevicePrimaryCtxRetain(&mut context, device));
        ok!(self.cuCtxSetCurrent(context));
        context
    }

    /// A non-blocking stream.
    pub fn stream(&self) -> CUstream {
        let mut stream = std::ptr::null_mut();
        ok!(self.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, 0));
        stream
    }

    /// An event.
    pub fn event(&self, flags: u32) -> CUevent {
        let mut event = std::ptr::null_mut();
        ok!(self.cuEventCreate(&mut event, flags));
        event
    }

    /// Device memory.
    pub fn memory(&self, bytes: usize) -> CUdeviceptr {
        let mut pointer = 0;
        ok!(self.cuMemAlloc_v2(&mut pointer, bytes));
        pointer
    }
}

/// Physical memory of device 0 that can leave the process in this way.
pub fn properties(kind: CUmemAllocationHandleType) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: kind,
        location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// The library that cargo built beside this test.
pub fn library() -> PathBuf {
    processes::beside("liblookalike_cuda.so")
}
