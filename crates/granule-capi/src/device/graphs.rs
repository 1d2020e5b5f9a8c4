//! Graphs that own their memory, for programs that capture through the library.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{Out, given};
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::backend::CaptureMode;
use granule::graph::{CapturedGraph, GraphCapture};
use granule::types::{BackendId, PoolId, Stream};
use std::sync::{Mutex, PoisonError};

/// A stream that is being captured. It stays on the thread that began it.
pub struct granule_capture {
    capture: GraphCapture,
    backend: BackendId,
}

handles!(granule_capture);

/// A graph, and the memory that its work knows by address.
pub struct granule_graph {
    graph: Mutex<CapturedGraph>,
    backend: BackendId,
}

handles!(granule_graph);

/// Unsafe calls are refused in every thread.
pub const GRANULE_CAPTURE_GLOBAL: i32 = 0;
/// Unsafe calls are refused in the capturing thread.
pub const GRANULE_CAPTURE_THREAD_LOCAL: i32 = 1;
/// Unsafe calls are allowed.
pub const GRANULE_CAPTURE_RELAXED: i32 = 2;

/// Begins to capture a stream, with memory from pool, or from a pool of its own where that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_capture_begin(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
    mode: i32,
    pool: *const granule_pool_id,
    out: *mut *mut granule_capture,
) -> granule_status {
    guard(|| {
        let (a, pool) = (given!(handle a), given!(optional pool));
        let out: Out<*mut granule_capture> = given!(out out);
        let mode = match mode {
            GRANULE_CAPTURE_GLOBAL => CaptureMode::Global,
            GRANULE_CAPTURE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            GRANULE_CAPTURE_RELAXED => CaptureMode::Relaxed,
            other => {
                return Err(Failure::argument(format!(
                    "mode is {other}: it is one of GRANULE_CAPTURE_GLOBAL ..."
                )));
            }
        };
        let stream = a.usable_stream(device, stream)?;
        let pool = pool.map(|pool| PoolId::from(*pool));
        let capture = GraphCapture::begin(&a.engine, stream, mode, pool)?;
        out.set(new_handle(granule_capture { capture, backend: stream.backend }));
        Ok(())
    })
}

/// The pool that serves a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_capture_pool(
    c: *const granule_capture,
    out: *mut granule_pool_id,
) -> granule_status {
    guard(|| {
        let (c, out) = (given!(handle c), given!(out out));
        out.set(c.capture.pool().into());
        Ok(())
    })
}

/// Keeps another pool of the device, whose memory the capture uses, for as long as the graph lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_capture_retain_pool(
    c: *mut granule_capture,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| {
        given!(handle c);
        // SAFETY: what callers promise: it is there, as was just seen, and nobody else uses it.
        let c = unsafe { &mut *c };
        Ok(c.capture.retain_pool(pool.into())?)
    })
}

/// Ends a capture, and makes a graph of it. The capture is over in any case, unless the call says that an argument is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_capture_end(
    c: *mut granule_capture,
    out: *mut *mut granule_graph,
) -> granule_status {
    guard(|| {
        let out: Out<*mut granule_graph> = given!(out out);
        let ended = given!(taken c).ok_or_else(|| Failure::argument("c is null"))?;
        let granule_capture { capture, backend } = ended;
        let graph = Mutex::new(capture.end()?);
        out.set(new_handle(granule_graph { graph, backend }));
        Ok(())
    })
}

/// Ends a capture and throws its work away; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_capture_abort(c: *mut granule_capture) -> granule_status {
    guard(|| {
        drop(given!(taken c));
        Ok(())
    })
}

/// Queues a graph's work on a stream. Memory that it uses beside its pools' is still allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_graph_launch(
    g: *mut granule_graph,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let g = given!(handle g);
        let stream =
            Stream { raw: stream, device: crate::boundary::pass::device(device)?, backend: g.backend };
        let mut graph = g.graph.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: what callers promise of memory that is not of the graph's pools.
        Ok(unsafe { graph.launch(stream) }?)
    })
}

/// The pool that served a graph's capture, then those that it retains: at most capacity entries are written, and count says how
/// many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_graph_pools(
    g: *const granule_graph,
    out: *mut granule_pool_id,
    capacity: u64,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (g, room, count) = (given!(handle g), given!(room out, capacity), given!(out count));
        let graph = g.graph.lock().unwrap_or_else(PoisonError::into_inner);
        count.set(room.fill(graph.pools().map(granule_pool_id::from)));
        Ok(())
    })
}

/// Ends a graph; null is fine. Its pool gives memory back once the launches are done and the cache is emptied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_graph_destroy(g: *mut granule_graph) -> granule_status {
    guard(|| {
        drop(given!(taken g));
        Ok(())
    })
}
