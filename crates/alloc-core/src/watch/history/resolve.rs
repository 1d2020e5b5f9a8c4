//! From contexts to the stacks of snapshots.

use super::context::{Context, SegmentContexts, SnapshotContexts};
use crate::process::callbacks::{CallbackScope, Kind};
use crate::sync::Arc;
use crate::watch::snapshot::{SegmentInfo, Snapshot, Stack, TraceEntry, Value};
use rustc_hash::FxHashMap;

/// Stacks of a context, as snapshots have them.
#[derive(Clone, Debug)]
struct Resolved {
    frames: Stack,
    forward: Option<Value>,
    /// Kept alive, so that no other context gets its address.
    context: Context,
}

/// Looks every context up once, so that entries with one context share one stack. Foreign code runs: hold no lock.
struct Resolver<'a> {
    calls: &'a CallbackScope<'a>,
    known: FxHashMap<*const (), Resolved>,
}

impl<'a> Resolver<'a> {
    fn new(calls: &'a CallbackScope<'a>) -> Self {
        Self { calls, known: FxHashMap::default() }
    }

    fn resolve(&mut self, context: Context) -> &Resolved {
        let calls = self.calls;
        self.known.entry(Arc::as_ptr(&context).cast()).or_insert_with(|| {
            let look_up = || (context.frames(), context.forward_frames());
            let (frames, forward) = calls.call(Kind::Lookup, look_up).unwrap_or_default();
            let forward = forward.map(|frames| Value::List(frames.into_iter().map(Value::Str).collect()));
            Resolved { frames, forward, context }
        })
    }

    /// Its call stack.
    fn frames(&mut self, context: Context) -> Stack {
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

impl Drop for Resolver<'_> {
    /// Drops contexts that the history has overwritten meanwhile.
    fn drop(&mut self) {
        self.calls.end(self.known.drain().map(|(_, resolved)| resolved.context));
    }
}

/// Puts stacks into a snapshot where it has contexts. Foreign code runs: hold no lock.
pub(crate) fn resolve(snapshot: &mut Snapshot, contexts: SnapshotContexts, calls: &CallbackScope<'_>) {
    let mut resolver = Resolver::new(calls);
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
