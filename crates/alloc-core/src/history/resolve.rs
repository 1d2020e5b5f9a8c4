//! From contexts to the stacks of snapshots.

use super::context::Context;
use crate::snapshot::{Stack, Value};
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
}
