//! An `OrtAllocator` of ONNX Runtime.
//!
//! The layout is that of its C API, to which releases only add at the end. The header of ONNX Runtime is not needed: a program that
//! has it casts.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{address, given, growing, pointer};
use crate::error::{Failure, granule_status};
use granule::CachingAllocator;
use granule::types::Stream;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// How an allocator for ONNX Runtime is made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_ort_options {
    /// sizeof(granule_ort_options).
    pub size: u32,
    /// ORT_API_VERSION of the program; 18 or later.
    pub version: u32,
    /// The device.
    pub device: i32,
    /// The stream that sessions compute on (user_compute_stream): memory that is asked for without a stream is for its work.
    pub stream: u64,
    /// The OrtMemoryInfo that says which memory it is. It outlives the allocator.
    pub memory_info: *const c_void,
    /// OrtApi::SyncStream_GetHandle, by which a stream that ONNX Runtime names becomes the driver's. Null: ONNX Runtime is told
    /// that streams make no difference.
    pub stream_handle: Option<unsafe extern "C" fn(stream: *const c_void) -> *mut c_void>,
}

growing!(granule_ort_options);

type Taking = unsafe extern "C" fn(*mut Allocator, usize) -> *mut c_void;
type TakingOnStream = unsafe extern "C" fn(*mut Allocator, usize, *const c_void) -> *mut c_void;

/// `OrtAllocator`, and after it what it needs.
#[repr(C)]
struct Allocator {
    version: u32,
    alloc: Taking,
    free: unsafe extern "C" fn(*mut Self, *mut c_void),
    info: unsafe extern "C" fn(*const Self) -> *const c_void,
    reserve: Taking,
    /// `GetStats`, which is optional.
    stats: *const c_void,
    alloc_on_stream: Option<TakingOnStream>,
    /// What later releases ask for, `Shrink` first, is optional so far.
    later: [*const c_void; 8],
    engine: Arc<CachingAllocator>,
    stream: Stream,
    memory_info: *const c_void,
    stream_handle: Option<unsafe extern "C" fn(*const c_void) -> *mut c_void>,
}

/// The release that brought `Reserve`: before it, the struct is shorter.
const OLDEST: u32 = 18;

impl Allocator {
    /// Null where there is no memory, as ONNX Runtime has it; the log says why.
    fn take(&self, bytes: usize, stream: Stream) -> *mut c_void {
        let mut taken = null_mut();
        guard(|| {
            let got = self.engine.malloc(bytes as u64, stream).map_err(Failure::from);
            taken = pointer(got.inspect_err(|why| tracing::error!("{}", why.pytorch_text()))?);
            Ok(())
        });
        taken
    }
}

unsafe extern "C" fn alloc(this: *mut Allocator, bytes: usize) -> *mut c_void {
    // SAFETY: ONNX Runtime's rule: the allocator that the function is from, which is live.
    let this = unsafe { &*this };
    this.take(bytes, this.stream)
}

unsafe extern "C" fn alloc_on_stream(this: *mut Allocator, bytes: usize, of: *const c_void) -> *mut c_void {
    // SAFETY: as above.
    let this = unsafe { &*this };
    let stream = match this.stream_handle.filter(|_| !of.is_null()) {
        // SAFETY: what callers promise of the function, and a stream of ONNX Runtime's.
        Some(handle) => Stream { raw: unsafe { handle(of) }.addr() as u64, ..this.stream },
        None => this.stream,
    };
    this.take(bytes, stream)
}

unsafe extern "C" fn free(this: *mut Allocator, ptr: *mut c_void) {
    // SAFETY: as above.
    let this = unsafe { &*this };
    guard(|| {
        let freed = this.engine.free(address(ptr)).map_err(Failure::from);
        freed.inspect_err(|why| tracing::error!("{}", why.pytorch_text()))
    });
}

unsafe extern "C" fn info(this: *const Allocator) -> *const c_void {
    // SAFETY: as above.
    unsafe { (*this).memory_info }
}

/// Makes an OrtAllocator, for OrtApi::RegisterAllocator or CreateTensorAsOrtValue. Memory goes back in the order of the stream that it was
/// asked for. Where there is none, ONNX Runtime gets null, and the log has the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_ort_allocator_create(
    a: *mut granule_allocator,
    options: *const granule_ort_options,
    out: *mut *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let options = given!(sized options);
        if options.version < OLDEST {
            return Err(Failure::argument(format!(
                "version is {}: releases of ONNX Runtime before 1.{OLDEST} have another OrtAllocator",
                options.version
            )));
        }
        if options.memory_info.is_null() {
            return Err(Failure::argument("memory_info is null: ONNX Runtime asks every allocator for one"));
        }
        out.set(
            Box::into_raw(Box::new(Allocator {
                version: options.version,
                alloc,
                free,
                info,
                reserve: alloc,
                stats: null(),
                alloc_on_stream: options.stream_handle.map(|_| alloc_on_stream as TakingOnStream),
                later: [null(); 8],
                engine: Arc::clone(&a.engine),
                stream: a.stream(options.device, options.stream)?,
                memory_info: options.memory_info,
                stream_handle: options.stream_handle,
            }))
            .cast(),
        );
        Ok(())
    })
}

/// Ends an allocator that granule_ort_allocator_create made, once ONNX Runtime has let go of it; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_ort_allocator_destroy(o: *mut c_void) -> granule_status {
    guard(|| {
        let o = o.cast::<Allocator>();
        drop(given!(taken o));
        Ok(())
    })
}
