//! Pinned host memory.

pub mod figures;
pub mod stats;

use crate::allocator::{flavour, granule_allocator, read_settings};
use crate::boundary::callback::User;
use crate::boundary::guard::guard;
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, Out, address, given, growing, pointer};
use crate::device::copy_kind;
use crate::error::{Failure, granule_status};
use crate::memory::pools::{self, granule_filter};
use crate::pool_id::granule_pool_id;
use crate::watch::history::{granule_history, options};
use crate::watch::snapshot::granule_snapshot;
use granule::HostAllocator;
use granule::host::{HostBlock, HostBlockId, HostOptions, HostSizing, NumaPolicy};
use granule::types::{BackendId, Stream};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// A caching allocator for pinned host memory. Any thread may use it at any time.
pub struct granule_host_allocator {
    pub(crate) engine: HostAllocator,
    backend: BackendId,
}

handles!(granule_host_allocator);

/// What goes with the allocator's policy.
pub const GRANULE_SIZING_POLICY: i32 = 0;
/// As PyTorch rounds: powers of two.
pub const GRANULE_SIZING_PYTORCH: i32 = 1;
/// Whole pages, and little is held beyond what is in use at once: see the setting pinned_spare.
pub const GRANULE_SIZING_GRANULE: i32 = 2;

/// Memory lies wherever the system puts it.
pub const GRANULE_NUMA_SYSTEM: i32 = 0;
/// Near a device.
pub const GRANULE_NUMA_NEAR_DEVICE: i32 = 1;
/// On a node.
pub const GRANULE_NUMA_NODE: i32 = 2;

/// How a host allocator is made. All zero is the usual way.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_host_options {
    /// sizeof(granule_host_options).
    pub size: u32,
    /// How requests are rounded, where the setting pinned_sizes does not say it: one of GRANULE_SIZING_...
    pub sizing: i32,
    /// Where memory is placed: one of GRANULE_NUMA_...
    pub numa: i32,
    /// The device, or the node.
    pub near: i32,
    /// granule_mark_capture_begin tells of every capture: while there is none, a request does not ask the driver about its stream.
    pub captures_are_told: bool,
}

growing!(granule_host_options);

impl granule_host_allocator {
    fn stream(&self, device: i32, raw: u64) -> Result<Stream, Failure> {
        Ok(Stream { raw, device: pass::device(device)?, backend: self.backend })
    }
}

/// Makes an allocator for pinned memory over the backend of an allocator, with its settings. It outlives the allocator. No memory
/// is taken before it is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_create(
    a: *mut granule_allocator,
    out: *mut *mut granule_host_allocator,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let options = HostOptions::of(a.engine.settings().policy_name());
        create(a, options, out)
    })
}

/// granule_host_create with a say in sizes and places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_create_with(
    a: *mut granule_allocator,
    options: *const granule_host_options,
    out: *mut *mut granule_host_allocator,
) -> granule_status {
    guard(|| {
        let (a, given, out) = (given!(handle a), given!(sized options), given!(out out));
        create(a, chosen(a, given)?, out)
    })
}

fn chosen(a: &granule_allocator, given: granule_host_options) -> Result<HostOptions, Failure> {
    let usual = HostOptions::of(a.engine.settings().policy_name());
    let sizing = match given.sizing {
        GRANULE_SIZING_POLICY => usual.sizing,
        GRANULE_SIZING_PYTORCH => HostSizing::Pytorch,
        GRANULE_SIZING_GRANULE => HostSizing::Granule,
        other => {
            return Err(Failure::argument(format!("sizing is {other}: it is one of GRANULE_SIZING_...")));
        }
    };
    let numa = match (given.numa, u32::try_from(given.near)) {
        (GRANULE_NUMA_SYSTEM, _) => NumaPolicy::System,
        (GRANULE_NUMA_NEAR_DEVICE, _) => NumaPolicy::NearDevice(pass::device(given.near)?),
        (GRANULE_NUMA_NODE, Ok(node)) => NumaPolicy::Node(node),
        (GRANULE_NUMA_NODE, Err(_)) => {
            return Err(Failure::argument("near is negative: it is a node's number"));
        }
        (other, _) => {
            return Err(Failure::argument(format!("numa is {other}: it is one of GRANULE_NUMA_...")));
        }
    };
    Ok(HostOptions { sizing, numa, captures_are_told: given.captures_are_told, ..usual })
}

fn create(
    a: &granule_allocator,
    options: HostOptions,
    out: Out<*mut granule_host_allocator>,
) -> Result<(), Failure> {
    let settings = a.engine.settings();
    if let NumaPolicy::NearDevice(device) = options.numa {
        a.usable_device(i32::from(device.0))?;
    }
    let engine = HostAllocator::new(Arc::clone(a.engine.backend()), &settings, options)?;
    let backend = engine.backend().id();
    out.set(new_handle(granule_host_allocator { engine, backend }));
    Ok(())
}

/// Ends a host allocator; null is fine. Blocks until devices are done with what it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_destroy(h: *mut granule_host_allocator) -> granule_status {
    guard(|| {
        drop(given!(taken h));
        Ok(())
    })
}

fn hand_out(block: HostBlock, ptr: Out<*mut c_void>, id: Out<u64>) {
    ptr.set(pointer(block.ptr));
    id.set(block.id.0);
}

/// Pinned memory of so many bytes, and the id that names it. 0 bytes give null and 0. Blocks where the cache has no fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_malloc(
    h: *mut granule_host_allocator,
    bytes: u64,
    ptr: *mut *mut c_void,
    id: *mut u64,
) -> granule_status {
    guard(|| {
        let (h, ptr, id) = (given!(handle h), given!(out ptr), given!(out id));
        hand_out(h.engine.allocate(bytes)?, ptr, id);
        Ok(())
    })
}

/// granule_host_malloc for a program whose current stream this is: scopes of private pools see it, and captures do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_malloc_for(
    h: *mut granule_host_allocator,
    bytes: u64,
    device: i32,
    stream: u64,
    ptr: *mut *mut c_void,
    id: *mut u64,
) -> granule_status {
    guard(|| {
        let (h, ptr, id) = (given!(handle h), given!(out ptr), given!(out id));
        hand_out(h.engine.allocate_for(bytes, h.stream(device, stream)?)?, ptr, id);
        Ok(())
    })
}

/// Takes a block back; 0 is fine. It is reused once the streams that were recorded are done with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_free(h: *mut granule_host_allocator, id: u64) -> granule_status {
    guard(|| {
        let h = given!(handle h);
        if id == 0 { Ok(()) } else { Ok(h.engine.free(HostBlockId(id))?) }
    })
}

/// Says that work of a stream uses a block: that of id, or the one that begins at ptr. known says whether there is one; it may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_record_event(
    h: *mut granule_host_allocator,
    ptr: *mut c_void,
    id: u64,
    device: i32,
    stream: u64,
    known: *mut bool,
) -> granule_status {
    guard(|| {
        let h = given!(handle h);
        let known = if known.is_null() { None } else { Some(given!(out known)) };
        let found = h.engine.record_event(address(ptr), HostBlockId(id), h.stream(device, stream)?)?;
        if let Some(known) = known {
            known.set(found);
        }
        Ok(())
    })
}

/// Queues a copy (GRANULE_COPY_...), and records it for the pinned blocks that it uses, wherever inside of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_copy_async(
    h: *mut granule_host_allocator,
    dst: *mut c_void,
    src: *const c_void,
    bytes: u64,
    kind: i32,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let (h, kind) = (given!(handle h), copy_kind(kind)?);
        let stream = h.stream(device, stream)?;
        if bytes > 0 {
            // SAFETY: rule 2, by what callers promise.
            unsafe { h.engine.copy_async(address(dst), address(src), bytes, kind, stream) }?;
        }
        Ok(())
    })
}

/// Pins memory of the program's own, in place. It stays valid until it is unregistered. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_register(
    h: *mut granule_host_allocator,
    ptr: *mut c_void,
    bytes: u64,
) -> granule_status {
    guard(|| {
        let h = given!(handle h);
        if ptr.is_null() || bytes == 0 {
            return Err(Failure::argument("there is no memory to be registered"));
        }
        // SAFETY: what callers promise of the range.
        unsafe { h.engine.register(address(ptr), bytes) }?;
        Ok(())
    })
}

/// Undoes granule_host_register. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_unregister(
    h: *mut granule_host_allocator,
    ptr: *mut c_void,
) -> granule_status {
    guard(|| {
        let h = given!(handle h);
        // SAFETY: rule 3, by what callers promise.
        unsafe { h.engine.unregister(address(ptr)) }?;
        Ok(())
    })
}

/// Says that the program has pinned memory of its own by other means: the history shows it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_note_registered(
    h: *mut granule_host_allocator,
    ptr: *mut c_void,
    bytes: u64,
) -> granule_status {
    guard(|| {
        given!(handle h).engine.note_registered(address(ptr), bytes);
        Ok(())
    })
}

/// Says that such memory is not pinned any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_note_unregistered(
    h: *mut granule_host_allocator,
    ptr: *mut c_void,
) -> granule_status {
    guard(|| {
        given!(handle h).engine.note_unregistered(address(ptr));
        Ok(())
    })
}

/// Says that a stream is about to be destroyed: its handle is not named again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_retire_stream(
    h: *mut granule_host_allocator,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let h = given!(handle h);
        let stream = h.stream(device, stream)?;
        // SAFETY: callers promise that the stream is given no more work.
        Ok(unsafe { h.engine.retire_stream(stream) }?)
    })
}

/// Notices completed uses, without waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_poll(h: *mut granule_host_allocator) -> granule_status {
    guard(|| Ok(given!(handle h).engine.poll()?))
}

/// Waits for all uses of blocks that were given back. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_synchronize(h: *mut granule_host_allocator) -> granule_status {
    guard(|| Ok(given!(handle h).engine.synchronise()?))
}

/// Gives cached blocks back to the driver. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_empty_cache(h: *mut granule_host_allocator) -> granule_status {
    guard(|| Ok(given!(handle h).engine.empty_cache()?))
}

/// Changes settings, read as granule_configure reads them on top of an allocator's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_configure(
    h: *mut granule_host_allocator,
    a: *const granule_allocator,
    settings: *const c_char,
) -> granule_status {
    guard(|| {
        let (h, a, text) = (given!(handle h), given!(handle a), given!(text settings));
        let settings = read_settings(text, &a.engine.settings(), flavour(a.backend()))?;
        Ok(h.engine.configure(&settings)?)
    })
}

/// Says that the driver is about to be unloaded: it is never called again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_abandon(h: *mut granule_host_allocator) -> granule_status {
    guard(|| {
        given!(handle h).engine.abandon();
        Ok(())
    })
}

/// Sends requests that the filter accepts to a pool. The device is that of the filter's stream. Where the call fails, the filter's drop
/// has been called, unless the struct itself could not be read (GRANULE_ABI, null, or not aligned).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_pool_begin(
    h: *mut granule_host_allocator,
    device: i32,
    pool: granule_pool_id,
    filter: *const granule_filter,
) -> granule_status {
    guard(|| {
        let given = given!(sized filter);
        let user = User::new(given.user, given.drop);
        let h = given!(handle h);
        let filter = pools::filter(|raw| h.stream(device, raw), given, user)?;
        Ok(h.engine.begin_pool(pool.into(), &filter)?)
    })
}

/// Ends the pool's scope; its references stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_pool_end(
    h: *mut granule_host_allocator,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| Ok(given!(handle h).engine.end_pool(pool.into())?))
}

/// Takes a reference away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_pool_release(
    h: *mut granule_host_allocator,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| Ok(given!(handle h).engine.release_pool(pool.into())?))
}

/// Turns the history of pinned memory on, changes how it is kept, or turns it off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_record_history(
    h: *mut granule_host_allocator,
    history: *const granule_history,
) -> granule_status {
    guard(|| {
        let (h, history) = (given!(handle h), given!(sized history));
        Ok(h.engine.record_history(&options(&history)?)?)
    })
}

/// Whether history is on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_is_history_enabled(
    h: *const granule_host_allocator,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (h, out) = (given!(handle h), given!(out out));
        out.set(h.engine.is_history_enabled());
        Ok(())
    })
}

/// A snapshot of pinned memory: each block is a segment while history is on, and the history is the trace of device 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_host_snapshot_take(
    h: *mut granule_host_allocator,
    traces: bool,
    out: *mut *mut granule_snapshot,
) -> granule_status {
    guard(|| {
        let (h, out): (_, Out<*mut granule_snapshot>) = (given!(handle h), given!(out out));
        let (snapshot, contexts) = h.engine.snapshot_with_contexts(traces);
        let snapshot = granule_snapshot::new(&snapshot, contexts).of_host();
        out.set(new_handle(snapshot));
        Ok(())
    })
}
