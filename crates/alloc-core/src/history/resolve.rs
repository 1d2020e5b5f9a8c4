//! From contexts to the stacks of snapshots.

use super::context::{Context, SegmentContexts, SnapshotContexts};
use crate::snapshot::{SegmentInfo, Snapshot, Stack, TraceEntry, Value};
use crate::sync::Arc;
use rustc_hash::FxHashMap;

/// Where a context came from, as snapshots have it.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) frames: Stack,
    pub(crate) forward: Option<Value>,
    /// Keeps it alive, so that its address is not another's.
    _context: Context,
}

/// Looks every context up once, so that entries with one context share one stack. Foreign code runs: hold no lock.
#[derive(Debug, Default)]
pub(crate) struct Resolver(FxHashMap<*const (), Resolved>);

impl Resolver {
    pub(crate) fn resolve(&mut self, context: Context) -> &Resolved {
        self.0.entry(Arc::as_ptr(&context).cast()).or_insert_with(|| Resolved {
            frames: context.frames(),
            forward: context
                .forward_frames()
                .map(|frames| Value::List(frames.into_iter().map(Value::Str).collect())),
            _context: context,
        })
    }

    /// Its call stack.
    pub(crate) fn frames(&mut self, context: Context) -> Stack {
        Arc::clone(&self.resolve(context).frames)
    }

    fn segment(&mut self, segment: &mut SegmentInfo, contexts: SegmentContexts) {
        if let Some(context) = contexts.segment {
            segment.frames = Some(self.frames(context));
        }
        for (block, context) in segment.blocks.iter_mut().zip(contexts.blocks) {
            if let Some(context) = context {
                block.frames = Some(self.frames(context));
            }
        }
    }

    fn entry(&mut self, entry: &mut TraceEntry, context: Context) {
        let resolved = self.resolve(context);
        if let Some(forward) = &resolved.forward {
            Arc::make_mut(&mut entry.labels).extra.push(("forward_frames".into(), forward.clone()));
        }
        entry.frames = Some(Arc::clone(&resolved.frames));
    }
}

/// Puts stacks into a snapshot where it has contexts. Foreign code runs: hold no lock.
pub(crate) fn resolve(snapshot: &mut Snapshot, contexts: SnapshotContexts) {
    let mut resolver = Resolver::default();
    for (segment, contexts) in snapshot.segments.iter_mut().zip(contexts.segments) {
        resolver.segment(segment, contexts);
    }
    for (entries, contexts) in snapshot.device_traces.iter_mut().zip(contexts.traces) {
        for (entry, context) in entries.iter_mut().zip(contexts) {
            if let Some(context) = context {
                resolver.entry(entry, context);
            }
        }
    }
}
