//! Call contexts: the place in the program that an operation came from.

use crate::sync::Arc;
use crate::watch::snapshot::Stack;
use std::any::Any;
use std::fmt::Debug;

/// A place in the program, gathered when an operation begins and looked up only when somebody looks at it.
/// PyTorch: `GatheredContext`. Looked up or dropped, it may panic and use the allocator: see
/// [code of the program](crate#code-of-the-program). (It is [`Any`], so that whoever made one knows it again.)
pub trait CallContext: Any + Debug + Send + Sync {
    /// The call stack, innermost frame first. May be slow; called with no lock held.
    fn frames(&self) -> Stack;

    /// Call stack of the forward pass, for work of a backward pass, if the program knows it.
    fn forward_frames(&self) -> Option<Vec<Arc<str>>> {
        None
    }
}

/// A shared call context.
pub type Context = Arc<dyn CallContext>;

/// Gathers the calling thread's context; `None` where there is none. It may take the interpreter's lock.
/// PyTorch: `CreateContextFn`. It may panic and use the allocator: see
/// [code of the program](crate#code-of-the-program).
pub type ContextRecorder = Arc<dyn Fn() -> Option<Context> + Send + Sync>;

/// Operations that gather contexts, and the places that keep them. PyTorch: `RecordContext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RecordContext {
    /// Never.
    #[default]
    Never,
    /// At requests; kept with live blocks and segments only.
    State,
    /// At requests and notes; kept in entries, too. A free shows where its block was allocated.
    Alloc,
    /// At frees and flushes, too.
    All,
}

/// The contexts of a [snapshot](crate::snapshot::Snapshot) as they were gathered, place by place: for programs that
/// look them up themselves.
#[derive(Clone, Debug, Default)]
pub struct SnapshotContexts {
    /// Those of the snapshot's segments, in their order.
    pub segments: Vec<SegmentContexts>,
    /// Those of the history's entries, by device and in their order.
    pub traces: Vec<Vec<Option<Context>>>,
}

/// The contexts of a segment of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct SegmentContexts {
    /// Context in which the segment was taken from the device.
    pub segment: Option<Context>,
    /// Contexts in which its blocks were allocated, in their order.
    pub blocks: Vec<Option<Context>>,
}
