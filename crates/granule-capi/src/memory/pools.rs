//! Private pools: who they serve, and where their memory comes from.

use crate::allocator::granule_allocator;
use crate::boundary::callback::{User, call};
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, address, given, growing, limit, pointer};
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use crate::watch::quantity::granule_stat_array;
use granule::CachingAllocator;
use granule::pool::{Filter, SegmentSource};
use granule::types::{DevicePtr, PoolId, Stream};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Arc, Weak};

/// Where a pool's memory comes from, if not from the driver. The functions are called with no lock held, and may use the
/// allocator; in one of them no source is asked. They must not wait for a thread that may be inside the allocator.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_segment_source {
    /// sizeof(granule_segment_source).
    pub size: u32,
    /// The first argument of the functions.
    pub user: *mut c_void,
    /// A segment of so many bytes, aligned to 512 bytes; null where there is no room. It is asked again after memory was
    /// given back. Memory that this same allocator has handed out is not a segment: it goes back to free, and counts as no room.
    pub alloc: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, bytes: u64, device: i32, stream: u64) -> *mut c_void,
    >,
    /// Takes back what alloc gave.
    pub free: Option<
        unsafe extern "C-unwind" fn(
            user: *mut c_void,
            ptr: *mut c_void,
            bytes: u64,
            device: i32,
            stream: u64,
        ),
    >,
    /// The last use is over. May be null.
    pub drop: Option<unsafe extern "C-unwind" fn(user: *mut c_void)>,
}

growing!(granule_segment_source);

/// All requests.
pub const GRANULE_FILTER_ALWAYS: i32 = 0;
/// Those of the thread that opens the scope.
pub const GRANULE_FILTER_THIS_THREAD: i32 = 1;
/// Those for one stream.
pub const GRANULE_FILTER_STREAM: i32 = 2;
/// Those for streams that are part of the same capture as this one; none while it is not being captured.
pub const GRANULE_FILTER_CAPTURE_OF: i32 = 3;
/// Those that a function accepts. It is called with no lock held, at every request; it may use the allocator.
pub const GRANULE_FILTER_CUSTOM: i32 = 4;

/// Which requests a scope sends to its pool.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_filter {
    /// sizeof(granule_filter).
    pub size: u32,
    /// One of GRANULE_FILTER_...
    pub kind: i32,
    /// The stream, where the kind has one.
    pub stream: u64,
    /// The function's, where the kind has one.
    pub user: *mut c_void,
    /// Whether a request for a stream goes to the pool.
    pub accepts: Option<unsafe extern "C-unwind" fn(user: *mut c_void, stream: u64) -> bool>,
    /// The library lets go of user: the scope is over, or could not be opened, or its kind has no use for it. May be null.
    pub drop: Option<unsafe extern "C-unwind" fn(user: *mut c_void)>,
}

growing!(granule_filter);

/// What a pool holds and who uses it. Bytes, but for counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_pool_stats_t {
    /// sizeof(granule_pool_stats_t).
    pub size: u32,
    /// References to it.
    pub use_count: u32,
    /// Held from the device.
    pub reserved_bytes: granule_stat_array,
    /// Blocks in the program's hands.
    pub allocation: u64,
    /// Their bytes, rounded.
    pub allocated_bytes: u64,
    /// Handed out or pending, rounded.
    pub active_bytes: u64,
    /// Handed out or pending, as requested.
    pub requested_bytes: u64,
    /// Cached: free and backed by memory.
    pub free_bytes: u64,
    /// Segments: fixed ones, and growable ones that have memory.
    pub segments: u64,
}

growing!(granule_pool_stats_t);

/// A source of C's.
struct Source {
    user: User,
    /// Whose pool it serves. The engine owns the source.
    engine: Weak<CachingAllocator>,
    alloc: unsafe extern "C-unwind" fn(*mut c_void, u64, i32, u64) -> *mut c_void,
    free: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, u64, i32, u64),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("user", &self.user.pointer).finish_non_exhaustive()
    }
}

impl Source {
    fn new(source: granule_segment_source, user: User, a: &granule_allocator) -> Result<Self, Failure> {
        let engine = Arc::downgrade(&a.engine);
        match (source.alloc, source.free) {
            (Some(alloc), Some(free)) => Ok(Self { user, engine, alloc, free }),
            _ => Err(Failure::argument("source lacks a function: it needs alloc and free")),
        }
    }
}

// SAFETY: what callers promise of a source, which is the same.
unsafe impl SegmentSource for Source {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        let device = i32::from(stream.device.0);
        // SAFETY: what callers promise: the function is good for this `user`.
        let given = call(|| unsafe { (self.alloc)(self.user.get(), bytes, device, stream.raw) });
        if given.is_null() {
            return None;
        }
        let given = address(given);
        let own = self.engine.upgrade().and_then(|engine| engine.block_device(given));
        if own.is_some() {
            tracing::error!(ptr = %given, "a pool's source gave a block of the pool's own allocator; it is given back");
            // SAFETY: what `alloc` gave just now, given back once; nobody has used it.
            unsafe { self.free(given, bytes, stream) };
            return None;
        }
        Some(given)
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, stream: Stream) {
        let device = i32::from(stream.device.0);
        // SAFETY: as above; what is given back is what `alloc` gave.
        call(|| unsafe { (self.free)(self.user.get(), pointer(ptr), bytes, device, stream.raw) });
    }
}

/// A filter as the engine has it. Whatever keeps no `user` lets go of it here.
pub(crate) fn filter(
    stream: impl Fn(u64) -> Result<Stream, Failure>,
    filter: granule_filter,
    user: User,
) -> Result<Filter, Failure> {
    Ok(match filter.kind {
        GRANULE_FILTER_ALWAYS => Filter::Always,
        GRANULE_FILTER_THIS_THREAD => Filter::this_thread(),
        GRANULE_FILTER_STREAM => Filter::Stream(stream(filter.stream)?),
        GRANULE_FILTER_CAPTURE_OF => Filter::CaptureOf(stream(filter.stream)?),
        GRANULE_FILTER_CUSTOM => {
            let Some(accepts) = filter.accepts else {
                return Err(Failure::argument("filter has no function: accepts is null"));
            };
            Filter::Custom(Arc::new(move |stream| {
                // SAFETY: what callers promise: the function is good for this `user`.
                call(|| unsafe { accepts(user.get(), stream.raw) })
            }))
        }
        kind => return Err(Failure::argument(format!("filter is of the unknown kind {kind}"))),
    })
}

pub(crate) fn begin_pool(
    a: &granule_allocator,
    device: i32,
    pool: granule_pool_id,
    given: granule_filter,
    user: User,
) -> Result<(), Failure> {
    let filter = filter(|raw| a.stream(device, raw), given, user)?;
    Ok(a.engine.pools().begin(pass::device(device)?, pool.into(), filter)?)
}

/// A new id for a pool of the program: {0, n}.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pool_fresh() -> granule_pool_id {
    PoolId::fresh().into()
}

/// A new id for the pool of a capture: {n, 0}.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pool_fresh_for_capture() -> granule_pool_id {
    PoolId::fresh_for_capture().into()
}

/// Makes a pool with one reference, or adds a reference to it. Its memory comes from source, if that is not null, which must be
/// said when the pool is made. Where the call fails, the source's drop has been called, unless the struct itself could not be read
/// (GRANULE_ABI, or not aligned).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_create(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    source: *const granule_segment_source,
) -> granule_status {
    guard(|| {
        let given = match source.is_null() {
            true => None,
            false => {
                let given = given!(sized source);
                Some((given, User::new(given.user, given.drop)))
            }
        };
        let a = given!(handle a);
        let source = match given {
            Some((given, user)) => Some(Arc::new(Source::new(given, user, a)?) as Arc<dyn SegmentSource>),
            None => None,
        };
        Ok(a.engine.pools().create(pass::device(device)?, pool.into(), source)?)
    })
}

/// Sends requests that the filter accepts to the pool, which gets a reference more, and is made if there is none. Of several
/// scopes the newest that accepts counts. Where the call fails, the filter's drop has been called, unless the struct itself could not
/// be read (GRANULE_ABI, null, or not aligned).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_begin(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    filter: *const granule_filter,
) -> granule_status {
    guard(|| {
        let given = given!(sized filter);
        let user = User::new(given.user, given.drop);
        begin_pool(given!(handle a), device, pool, given, user)
    })
}

/// Ends the pool's scope; its references stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_end(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pools().end(pass::device(device)?, pool.into())?))
}

/// Takes a reference away. After the last one the pool serves nobody, and its cached memory goes with the next flush.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_release(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pools().release(pass::device(device)?, pool.into())?))
}

/// References to a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_use_count(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    out: *mut i32,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let count = a.engine.pools().use_count(pass::device(device)?, pool.into())?;
        out.set(i32::try_from(count).unwrap_or(i32::MAX));
        Ok(())
    })
}

/// Whether requests to the default pool that cannot be served otherwise may take what this pool has cached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_set_use_on_oom(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    on: bool,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pools().set_use_on_oom(pass::device(device)?, pool.into(), on)?))
}

/// The pool hands blocks out whole from here on, until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_set_no_split(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pools().set_no_split(pass::device(device)?, pool.into())?))
}

/// Takes memory into a pool for requests of these sizes, all live at a time, for a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_prime(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    stream: u64,
    sizes: *const u64,
    count: u64,
) -> granule_status {
    guard(|| {
        let (a, sizes) = (given!(handle a), given!(array sizes, count));
        Ok(a.engine.pools().prime(pool.into(), a.stream(device, stream)?, sizes)?)
    })
}

/// Whether the live blocks of a pool are exactly these; pending ones do not count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_has_live(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    pointers: *const *mut c_void,
    count: u64,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let expected: BTreeSet<DevicePtr> =
            given!(array pointers, count).iter().map(|ptr| address(*ptr)).collect();
        out.set(a.engine.pools().has_live(pass::device(device)?, pool.into(), &expected)?);
        Ok(())
    })
}

/// What a pool holds and who uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_stats(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    out: *mut granule_pool_stats_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        let stats = a.engine.pools().stats(pass::device(device)?, pool.into())?;
        out.set(granule_pool_stats_t {
            size: 0,
            use_count: stats.use_count,
            reserved_bytes: stats.reserved_bytes.into(),
            allocation: stats.allocation,
            allocated_bytes: stats.allocated_bytes,
            active_bytes: stats.active_bytes,
            requested_bytes: stats.requested_bytes,
            free_bytes: stats.free_bytes,
            segments: stats.segments,
        });
        Ok(())
    })
}

/// Limits what a pool, the default one included, may hold, in bytes; UINT64_MAX lifts a limit. Beyond soft its cached memory
/// goes back before more is taken; beyond hard nothing is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_set_limits(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    hard: u64,
    soft: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.engine.pools().set_limits(pass::device(device)?, pool.into(), limit(hard), limit(soft))?)
    })
}
