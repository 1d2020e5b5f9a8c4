//! The driver functions that this backend calls, as function pointers.
//!
//! The declarations are cudarc's, with two differences. Enumerations are plain integers here: a newer driver
//! answers with numbers that cudarc's enumerations lack, and a Rust enumeration must never hold those. And a
//! function that the library lacks is `None`, where cudarc's loader panics. Every signature is compared with
//! cudarc's at compile time.

use cudarc::driver::sys::*;
use libloading::Library;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

/// True where the argument is passed as the declared type would be.
trait SameAs<Declared> {}
impl<T> SameAs<T> for T {}

macro_rules! integers_for {
    ($($integer:ty => $enumeration:ty;)*) => { $(impl SameAs<$enumeration> for $integer {})* };
}
integers_for! {
    c_int => CUresult;
    c_uint => CUdevice_attribute;
    c_uint => CUpointer_attribute;
    c_uint => CUmemAllocationGranularity_flags;
    c_uint => CUmemAllocationHandleType;
    c_uint => CUgraphMem_attribute;
    c_uint => CUstreamCaptureMode;
    *mut c_uint => *mut CUstreamCaptureMode;
    *mut c_uint => *mut CUstreamCaptureStatus;
}

/// True where a function pointer of this backend fits cudarc's declaration.
trait Matches<Declared> {}

macro_rules! arities {
    ($(($($ours:ident $theirs:ident),*))*) => {
        $(impl<$($ours: SameAs<$theirs>, $theirs),*> Matches<unsafe fn($($theirs),*) -> CUresult>
            for unsafe extern "C" fn($($ours),*) -> c_int {})*
    };
}
arities! {
    ()
    (A1 B1)
    (A1 B1, A2 B2)
    (A1 B1, A2 B2, A3 B3)
    (A1 B1, A2 B2, A3 B3, A4 B4)
    (A1 B1, A2 B2, A3 B3, A4 B4, A5 B5)
    (A1 B1, A2 B2, A3 B3, A4 B4, A5 B5, A6 B6)
}

const fn check<Ours: Matches<Theirs>, Theirs: Copy>(_declared: Theirs) {}

macro_rules! hole {
    ($type:ty) => {
        _
    };
}

macro_rules! functions {
    (
        required { $(fn $required:ident($($required_type:ty),*);)* }
        optional { $(fn $optional:ident($($optional_type:ty),*);)* }
    ) => {
        /// What was found of the driver's functions.
        #[allow(non_snake_case, reason = "the driver's own names")]
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $required: Option<unsafe extern "C" fn($($required_type),*) -> c_int>,)*
            $(pub(crate) $optional: Option<unsafe extern "C" fn($($optional_type),*) -> c_int>,)*
        }

        impl Functions {
            /// Looks every function up; the library must stay loaded for as long as one is called.
            pub(crate) fn look_up(library: &Library) -> Self {
                Self {
                    $($required: symbol(library, stringify!($required)),)*
                    $($optional: symbol(library, stringify!($optional)),)*
                }
            }

            /// The functions without which there is no backend, where the library lacks them.
            pub(crate) fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if self.$required.is_none() { missing.push(stringify!($required)); })*
                missing
            }
        }

        $(const _: () = check::<
            unsafe extern "C" fn($($required_type),*) -> c_int,
            unsafe fn($(hole!($required_type)),*) -> CUresult,
        >($required);)*
        $(const _: () = check::<
            unsafe extern "C" fn($($optional_type),*) -> c_int,
            unsafe fn($(hole!($optional_type)),*) -> CUresult,
        >($optional);)*
    };
}

fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: `F` is the type that cudarc declares for the function of this name (checked below).
    let found = unsafe { library.get::<F>(name) };
    found.ok().map(|symbol| *symbol)
}

functions! {
    required {
        fn cuInit(c_uint);
        fn cuDriverGetVersion(*mut c_int);
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut CUdevice, c_int);
        fn cuDeviceGetAttribute(*mut c_int, c_uint, CUdevice);
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
        fn cuDeviceTotalMem_v2(*mut usize, CUdevice);
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        fn cuDevicePrimaryCtxRelease_v2(CUdevice);
        fn cuDevicePrimaryCtxGetState(CUdevice, *mut c_uint, *mut c_int);
        fn cuCtxGetCurrent(*mut CUcontext);
        fn cuCtxSetCurrent(CUcontext);
        fn cuCtxPushCurrent_v2(CUcontext);
        fn cuCtxPopCurrent_v2(*mut CUcontext);
        fn cuCtxGetDevice(*mut CUdevice);
        fn cuCtxSynchronize();
        fn cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
        fn cuMemFree_v2(CUdeviceptr);
        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuPointerGetAttribute(*mut c_void, c_uint, CUdeviceptr);
        fn cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr);
        fn cuMemcpy(CUdeviceptr, CUdeviceptr, usize);
        fn cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
        fn cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
        fn cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, usize);
        fn cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fn cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        fn cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        fn cuStreamDestroy_v2(CUstream);
        fn cuStreamQuery(CUstream);
        fn cuStreamSynchronize(CUstream);
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint);
        fn cuEventCreate(*mut CUevent, c_uint);
        fn cuEventDestroy_v2(CUevent);
        fn cuEventRecord(CUevent, CUstream);
        fn cuEventQuery(CUevent);
        fn cuEventSynchronize(CUevent);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemFreeHost(*mut c_void);
    }
    optional {
        fn cuGetErrorName(c_int, *mut *const c_char);
        fn cuGetErrorString(c_int, *mut *const c_char);
        fn cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
        fn cuEventElapsedTime(*mut f32, CUevent, CUevent);
        fn cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);

        fn cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, c_uint);
        fn cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        fn cuMemAddressFree(CUdeviceptr, usize);
        fn cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        fn cuMemRelease(CUmemGenericAllocationHandle);
        fn cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        fn cuMemUnmap(CUdeviceptr, usize);
        fn cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
        fn cuMemGetAccess(*mut c_ulonglong, *const CUmemLocation, CUdeviceptr);
        fn cuMemExportToShareableHandle(*mut c_void, CUmemGenericAllocationHandle, c_uint, c_ulonglong);
        fn cuMemImportFromShareableHandle(*mut CUmemGenericAllocationHandle, *mut c_void, c_uint);
        fn cuMemRetainAllocationHandle(*mut CUmemGenericAllocationHandle, *mut c_void);
        fn cuMemGetAllocationPropertiesFromHandle(*mut CUmemAllocationProp, CUmemGenericAllocationHandle);

        fn cuIpcGetMemHandle(*mut CUipcMemHandle, CUdeviceptr);
        fn cuIpcOpenMemHandle_v2(*mut CUdeviceptr, CUipcMemHandle, c_uint);
        fn cuIpcCloseMemHandle(CUdeviceptr);

        fn cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        fn cuCtxEnablePeerAccess(CUcontext, c_uint);
        fn cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);

        fn cuStreamGetCaptureInfo_v2(
            CUstream, *mut c_uint, *mut cuuint64_t, *mut CUgraph, *mut *const CUgraphNode, *mut usize
        );
        fn cuStreamBeginCapture_v2(CUstream, c_uint);
        fn cuStreamEndCapture(CUstream, *mut CUgraph);
        fn cuThreadExchangeStreamCaptureMode(*mut c_uint);
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        fn cuGraphLaunch(CUgraphExec, CUstream);
        fn cuGraphExecDestroy(CUgraphExec);
        fn cuDeviceGetGraphMemAttribute(CUdevice, c_uint, *mut c_void);
        fn cuGraphDestroy(CUgraph);
        fn cuGraphNodeGetDependencies(CUgraphNode, *mut CUgraphNode, *mut usize);
        fn cuUserObjectCreate(*mut CUuserObject, *mut c_void, CUhostFn, c_uint, c_uint);
        fn cuUserObjectRelease(CUuserObject, c_uint);
        fn cuGraphRetainUserObject(CUgraph, CUuserObject, c_uint, c_uint);
        fn cuGraphReleaseUserObject(CUgraph, CUuserObject, c_uint);

        fn cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        fn cuMemHostUnregister(*mut c_void);
    }
}

// What the calls pass by pointer or by value has the layout of the driver's header.
const _: () = {
    assert!(size_of::<CUmemLocation>() == 8);
    assert!(size_of::<CUmemAccessDesc>() == 12);
    assert!(size_of::<CUmemAllocationProp>() == 32);
    assert!(std::mem::offset_of!(CUmemAllocationProp, requestedHandleTypes) == 4);
    assert!(std::mem::offset_of!(CUmemAllocationProp, location) == 8);
    assert!(std::mem::offset_of!(CUmemAllocationProp, win32HandleMetaData) == 16);
    assert!(std::mem::offset_of!(CUmemAllocationProp, allocFlags) == 24);
    assert!(size_of::<CUipcMemHandle>() == 64);
    assert!(size_of::<CUuuid>() == 16);
    assert!(size_of::<CUhostFn>() == size_of::<usize>());
};
