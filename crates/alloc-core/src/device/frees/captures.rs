//! Captures of a device, and the order within a graph under capture.

use crate::arena::directory::PoolSlot;
use crate::arena::pool_table::Holder;
use crate::backend::{Capture, CaptureNode, CaptureStatus, Result};
use crate::lifetimes::pending::Waiting;
use crate::lifetimes::uses::BlockUse;
use crate::process::stream_identity::named;
use crate::sync::ThreadId;
use crate::types::Stream;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A block that waits for the end of captures.
#[derive(Debug)]
pub(in crate::device) struct Deferred {
    pub(super) block: Waiting,
    /// Its own stream, unless that is retired.
    pub(super) own: Option<Stream>,
    pub(super) slot: PoolSlot,
    /// Uses that it waits for, each counted once by the block.
    pub(super) uses: SmallVec<[BlockUse; 4]>,
    /// Once all of these precede work of its own stream, the graph itself orders the reuse. Without any: not before the
    /// end.
    pub(super) markers: Vec<CaptureNode>,
}

/// A device's captures.
#[derive(Debug, Default)]
pub(in crate::device) struct Captures {
    /// Threads that began the captures under way, and the holders that end them.
    pub(super) open: Vec<(ThreadId, Holder)>,
    pub(super) deferred: Vec<Deferred>,
    /// Nodes known to precede each stream's next work, by stream and capture.
    pub(super) before: FxHashMap<(u64, u64), FxHashSet<CaptureNode>>,
}

/// Nodes on which the next work of the streams would depend; none unless all are part of one capture.
pub(super) fn frontiers(
    capture: &dyn Capture,
    streams: impl Iterator<Item = Stream>,
) -> Result<Vec<CaptureNode>> {
    let mut common = None;
    let mut nodes = Vec::new();
    for stream in streams {
        let stream = named(stream)?;
        let CaptureStatus::Active(id) = capture.status(stream)? else { return Ok(Vec::new()) };
        if common.replace(id).is_some_and(|other| other != id) {
            return Ok(Vec::new());
        }
        nodes.extend(capture.frontier(stream)?);
    }
    Ok(nodes)
}

/// Adds all nodes that precede the stream's next work.
pub(super) fn look_back(
    capture: &dyn Capture,
    stream: Stream,
    before: &mut FxHashSet<CaptureNode>,
) -> Result<()> {
    let stream = named(stream)?;
    let mut ahead = capture.frontier(stream)?;
    while let Some(node) = ahead.pop() {
        if before.insert(node) {
            ahead.extend(capture.dependencies(stream, node)?);
        }
    }
    Ok(())
}
