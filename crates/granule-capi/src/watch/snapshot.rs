//! Snapshots: what an allocator holds and what it did.

use crate::allocator::granule_allocator;
use crate::boundary::contexts::object;
use crate::boundary::guard::guard;
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, given};
use crate::boundary::texts::Texts;
use crate::bytes::granule_bytes;
use crate::error::{Failure, GRANULE_DRIVER, granule_status};
use crate::pool_id::granule_pool_id;
use crate::watch::history::granule_trace_entry;
use granule::history::{SegmentContexts, SnapshotContexts};
use granule::snapshot::{BlockState, SegmentInfo, Snapshot, Value};
use granule::types::PoolId;
use std::ffi::{c_char, c_void};

/// Free.
pub const GRANULE_BLOCK_INACTIVE: i32 = 0;
/// In the program's hands.
pub const GRANULE_BLOCK_ALLOCATED: i32 = 1;
/// Given back, waiting for other streams.
pub const GRANULE_BLOCK_PENDING: i32 = 2;

/// One block of a segment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_block_info {
    /// First address.
    pub addr: u64,
    /// Bytes, rounded.
    pub bytes: u64,
    /// Bytes as last requested; 0 where it never was handed out.
    pub requested: u64,
    /// One of GRANULE_BLOCK_...
    pub state: i32,
    /// Where it was allocated; null where nothing was gathered.
    pub context: *mut c_void,
}

/// One segment: a driver allocation, or a contiguous range of a growable segment. Bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_segment_info {
    /// The device; -1 for host memory.
    pub device: i32,
    /// Its place in the order in which segments were taken; -1 where it has none.
    pub registration: i32,
    /// First address.
    pub addr: u64,
    /// Of all its blocks.
    pub total: u64,
    /// Of allocated blocks.
    pub allocated: u64,
    /// Of allocated and pending blocks.
    pub active: u64,
    /// Of allocated and pending blocks, as requested.
    pub requested: u64,
    /// The stream that it serves.
    pub stream: u64,
    /// Of the large tier.
    pub is_large: bool,
    /// Growable (PyTorch: expandable).
    pub is_growable: bool,
    /// The pool.
    pub pool: granule_pool_id,
    /// Where it was taken from the device; null where nothing was gathered.
    pub context: *mut c_void,
    /// Its blocks, by address.
    pub blocks: *const granule_block_info,
    /// How many.
    pub block_count: u64,
}

/// The begin or end of a range of the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_range_mark {
    /// It begins.
    pub start: bool,
    /// The device.
    pub device: i32,
    /// When, in microseconds since the epoch.
    pub time_us: i64,
    /// Its name.
    pub name: *const c_char,
}

/// A snapshot. Everything in it lives as long as it does.
pub struct granule_snapshot {
    segments: Vec<granule_segment_info>,
    traces: Vec<Vec<granule_trace_entry>>,
    ranges: Vec<granule_range_mark>,
    /// What the entries point to.
    _blocks: Vec<Box<[granule_block_info]>>,
    _texts: Texts,
    _contexts: SnapshotContexts,
}

handles!(granule_snapshot);

impl granule_snapshot {
    pub(crate) fn new(snapshot: &Snapshot, contexts: SnapshotContexts) -> Self {
        let mut blocks = Vec::with_capacity(snapshot.segments.len());
        let segments = segments(&snapshot.segments, &contexts.segments, &mut blocks);
        let mut texts = Texts::default();
        let traces = snapshot.device_traces.iter().zip(0..).map(|(entries, device)| {
            let mut gathered = contexts.traces.get(device as usize).into_iter().flatten();
            let entry = |entry| {
                let context = object(gathered.next().and_then(Option::as_ref));
                granule_trace_entry::new(entry, device, context, &mut texts)
            };
            entries.iter().map(entry).collect()
        });
        let traces = traces.collect();
        let ranges =
            snapshot.external_annotations.iter().filter_map(|mark| range(mark, &mut texts)).collect();
        Self { segments, traces, ranges, _blocks: blocks, _texts: texts, _contexts: contexts }
    }

    /// Pinned memory is no device's.
    pub(crate) fn of_host(mut self) -> Self {
        self.traces.iter_mut().flatten().for_each(|entry| entry.device = -1);
        self
    }
}

fn segments(
    segments: &[SegmentInfo],
    contexts: &[SegmentContexts],
    blocks: &mut Vec<Box<[granule_block_info]>>,
) -> Vec<granule_segment_info> {
    let nothing = SegmentContexts::default();
    let info = |(n, segment): (usize, &SegmentInfo)| {
        let contexts = contexts.get(n).unwrap_or(&nothing);
        let mut gathered = contexts.blocks.iter();
        let of_segment = segment.blocks.iter().map(|block| granule_block_info {
            addr: block.address,
            bytes: block.size,
            requested: block.requested_size,
            state: match block.state {
                BlockState::Inactive => GRANULE_BLOCK_INACTIVE,
                BlockState::ActiveAllocated => GRANULE_BLOCK_ALLOCATED,
                BlockState::ActivePendingFree => GRANULE_BLOCK_PENDING,
            },
            context: object(gathered.next().and_then(Option::as_ref)),
        });
        let of_segment: Box<[_]> = of_segment.collect();
        let (first, count) = (of_segment.as_ptr(), of_segment.len() as u64);
        blocks.push(of_segment);
        granule_segment_info {
            device: i32::try_from(segment.device).unwrap_or(-1),
            registration: segment.registration.and_then(|n| i32::try_from(n).ok()).unwrap_or(-1),
            addr: segment.address,
            total: segment.total_size,
            allocated: segment.allocated_size,
            active: segment.active_size,
            requested: segment.requested_size,
            stream: segment.stream,
            is_large: &*segment.segment_type == "large",
            is_growable: segment.is_expandable,
            pool: segment.pool_id.into(),
            context: object(contexts.segment.as_ref()),
            blocks: first,
            block_count: count,
        }
    };
    segments.iter().enumerate().map(info).collect()
}

fn range(mark: &Value, texts: &mut Texts) -> Option<granule_range_mark> {
    let Value::Dict(fields) = mark else { return None };
    let field = |name: &str| fields.iter().find(|(key, _)| *key == Value::from(name)).map(|(_, value)| value);
    match (field("stage")?, field("name")?, field("device")?, field("time_us")?) {
        (Value::Str(stage), Value::Str(name), Value::Int(device), Value::Int(time_us)) => {
            Some(granule_range_mark {
                start: &**stage == "START",
                device: i32::try_from(*device).unwrap_or(-1),
                time_us: *time_us,
                name: texts.of(Some(name)),
            })
        }
        _ => None,
    }
}

/// The pool that is meant; `None` for all. PyTorch takes the default pool's id for all pools, too.
fn meant(pool: Option<&granule_pool_id>) -> Option<PoolId> {
    pool.filter(|pool| !pool.is_default()).map(|pool| PoolId::from(*pool))
}

/// Takes a snapshot of the segments of one pool, or of all where pool is null or {0, 0}; with traces also the history of all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_take(
    a: *mut granule_allocator,
    pool: *const granule_pool_id,
    traces: bool,
    out: *mut *mut granule_snapshot,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let pool = meant(given!(optional pool));
        let (snapshot, contexts) = a.engine.history().snapshot_with_contexts(pool, traces);
        out.set(new_handle(granule_snapshot::new(&snapshot, contexts)));
        Ok(())
    })
}

/// Frees a snapshot and what points into it; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_free(s: *mut granule_snapshot) {
    guard(|| {
        drop(given!(taken s));
        Ok(())
    });
}

/// Its segments, by device and address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_segments(
    s: *const granule_snapshot,
    out: *mut *const granule_segment_info,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (s, out, count) = (given!(handle s), given!(out out), given!(out count));
        out.set(s.segments.as_ptr());
        count.set(s.segments.len() as u64);
        Ok(())
    })
}

/// A device's history, oldest first; nothing where the snapshot has none. That of a host allocator's snapshot is device 0's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_trace(
    s: *const granule_snapshot,
    device: i32,
    out: *mut *const granule_trace_entry,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (s, out, count) = (given!(handle s), given!(out out), given!(out count));
        let trace = s.traces.get(usize::from(pass::device(device)?.0)).map_or(&[][..], Vec::as_slice);
        out.set(trace.as_ptr());
        count.set(trace.len() as u64);
        Ok(())
    })
}

/// The ranges that the program marked, oldest first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_ranges(
    s: *const granule_snapshot,
    out: *mut *const granule_range_mark,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (s, out, count) = (given!(handle s), given!(out out), given!(out count));
        out.set(s.ranges.as_ptr());
        count.set(s.ranges.len() as u64);
        Ok(())
    })
}

/// A snapshot as the file that torch.cuda.memory._dump_snapshot writes. Contexts of C's show no frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_pickle(
    a: *mut granule_allocator,
    pool: *const granule_pool_id,
    traces: bool,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, pool, out) = (given!(handle a), meant(given!(optional pool)), given!(out out));
        let mut bytes = Vec::new();
        let protocol = ::granule_snapshot::pickle::Protocol::default();
        ::granule_snapshot::pickle::write(&whole(a, pool, traces), &mut bytes, protocol)
            .map_err(unwritten)?;
        out.set(granule_bytes::new(bytes));
        Ok(())
    })
}

/// The same as JSON, for the web viewer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_snapshot_json(
    a: *mut granule_allocator,
    pool: *const granule_pool_id,
    traces: bool,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, pool, out) = (given!(handle a), meant(given!(optional pool)), given!(out out));
        let mut bytes = Vec::new();
        ::granule_snapshot::json::to_json(&whole(a, pool, traces), &mut bytes).map_err(unwritten)?;
        out.set(granule_bytes::new(bytes));
        Ok(())
    })
}

fn whole(a: &granule_allocator, pool: Option<PoolId>, traces: bool) -> Snapshot {
    pool.map_or_else(|| a.engine.snapshot(traces), |pool| a.engine.pools().snapshot(pool, traces))
}

fn unwritten(error: std::io::Error) -> Failure {
    Failure::own(GRANULE_DRIVER, format!("the snapshot could not be written: {error}"))
}
