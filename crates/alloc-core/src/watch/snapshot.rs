//! The snapshot: what an allocator holds and what it did, as PyTorch's tools expect it.
//!
//! This is the one model of a snapshot in the workspace: the engine fills it, the `snapshot` crate writes
//! it to files and reads it from them. Names and meaning are those of `torch.cuda.memory._snapshot()`.

use crate::sync::Arc;
use crate::types::PoolId;
use std::collections::BTreeMap;

/// One frame of a call stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Function name.
    pub name: Arc<str>,
    /// Source file (for unresolved C++ frames the library).
    pub filename: Arc<str>,
    /// Line (for unresolved C++ frames the offset).
    pub line: u64,
    /// Keys that PyTorch adds when a snapshot is augmented (`fx_node_op`, ...), in file order.
    pub extra: Vec<(Arc<str>, Value)>,
}

/// A call stack, innermost frame first; shared between the entries that have the same one.
pub type Stack = Arc<[Frame]>;

/// A value of a snapshot's open parts (settings, extra keys).
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number that fits 64 signed bits.
    Int(i64),
    /// A whole number from 2^63 to 2^64 - 1.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Str(Arc<str>),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary, in file order.
    Dict(Vec<(Value, Value)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

/// A block's state, with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// `active_allocated`: handed out.
    ActiveAllocated,
    /// `active_pending_free`: given back, waiting for other streams.
    ActivePendingFree,
    /// `inactive`: free.
    Inactive,
}

impl BlockState {
    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }

    /// The state of that name. `active_awaiting_free`, an older name, is understood too.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "active_allocated" => Self::ActiveAllocated,
            "active_pending_free" | "active_awaiting_free" => Self::ActivePendingFree,
            "inactive" => Self::Inactive,
            _ => return None,
        })
    }
}

/// One block of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockInfo {
    /// First address.
    pub address: u64,
    /// Bytes, rounded.
    pub size: u64,
    /// Bytes as last requested; stale for a free block, 0 if it never was handed out.
    pub requested_size: u64,
    /// Allocated, pending or free.
    pub state: BlockState,
    /// Call stack of its allocation; empty where not recorded.
    pub frames: Option<Stack>,
    /// Keys this model does not know, in file order.
    pub extra: Vec<(Arc<str>, Value)>,
}

/// One segment: a driver allocation, or a contiguous mapped range of a growable segment.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentInfo {
    /// Device index; -1 for host memory.
    pub device: i64,
    /// First address.
    pub address: u64,
    /// Bytes of all blocks.
    pub total_size: u64,
    /// Bytes of allocated blocks.
    pub allocated_size: u64,
    /// Bytes of allocated and pending blocks.
    pub active_size: u64,
    /// Requested bytes of allocated and pending blocks.
    pub requested_size: u64,
    /// The stream's handle; 0 is the default stream.
    pub stream: u64,
    /// `large` or `small`.
    pub segment_type: Arc<str>,
    /// The owning pool.
    pub pool_id: PoolId,
    /// Growable (PyTorch: expandable).
    pub is_expandable: bool,
    /// Its place in the order in which segments were taken from the device; `None` where that is not known. Files do
    /// not carry it.
    pub registration: Option<u32>,
    /// Call stack that took it from the device.
    pub frames: Option<Stack>,
    /// Blocks by ascending address.
    pub blocks: Vec<BlockInfo>,
    /// Keys this model does not know, in file order.
    pub extra: Vec<(Arc<str>, Value)>,
}

/// Action that an entry of the history records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// A block was given back by the program.
    FreeRequested,
    /// A block became reusable.
    FreeCompleted,
    /// A segment was taken from the device.
    SegmentAlloc,
    /// A segment was given back.
    SegmentFree,
    /// Memory was mapped into a growable segment.
    SegmentMap,
    /// Memory was unmapped from a growable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    Oom,
    /// The program wrote a note.
    Annotate,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 10] = [
        Self::Alloc,
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentAlloc,
        Self::SegmentFree,
        Self::SegmentMap,
        Self::SegmentUnmap,
        Self::Snapshot,
        Self::Oom,
        Self::Annotate,
    ];

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::Oom => "oom",
            Self::Annotate => "annotate",
        }
    }

    /// The action of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// One entry of a device's history. Files have them by the million, so what most entries have in common is
/// kept once and an entry takes 64 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// The action.
    pub action: Action,
    /// The address; for [`Action::Oom`] the driver's free bytes (`device_free` in files).
    pub addr: u64,
    /// Bytes: see PyTorch's table of actions.
    pub size: u64,
    /// The stream's handle.
    pub stream: u64,
    /// Microseconds since the Unix epoch.
    pub time_us: i64,
    /// Context, metadata and pool, shared between the entries that have the same.
    pub labels: Arc<Labels>,
    /// The call stack; `None` where the file has no such key.
    pub frames: Option<Stack>,
}

impl TraceEntry {
    /// The address of an [`Action::Oom`] whose file does not tell the driver's free bytes.
    pub const NOT_KNOWN: u64 = u64::MAX;

    /// Driver's free bytes when a request failed; `None` for other actions and where they are not known.
    #[must_use]
    pub fn device_free(&self) -> Option<u64> {
        (self.action == Action::Oom && self.addr != Self::NOT_KNOWN).then_some(self.addr)
    }
}

/// The parts of a history entry that mostly repeat those of the entry before.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Labels {
    /// The compiled region, `N/A` outside; `None` where the file has no such key.
    pub compile_context: Option<Arc<str>>,
    /// The program's text; `None` where the file has no such key.
    pub user_metadata: Option<Arc<str>>,
    /// The pool; `None` where the file has no such key.
    pub pool_id: Option<PoolId>,
    /// Keys this model does not know (`forward_frames`, `internal_metadata`, ...), in file order.
    pub extra: Vec<(Arc<str>, Value)>,
}

/// Completeness of a snapshot's history, from the allocator's first operation on (promise 5).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HistoryStatus {
    /// True if anything was recorded at all.
    pub recorded: bool,
    /// True when no entry is missing between the allocator's first operation and the snapshot.
    pub complete: bool,
    /// Entries overwritten because the ring was full.
    pub overwritten: u64,
    /// Operations that had happened before recording began.
    pub before_recording: u64,
}

/// Contents of a file that a reader could not take: counts by name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Unread {
    /// History entries of unknown actions, which were skipped.
    pub actions: BTreeMap<Arc<str>, u64>,
    /// History entries that were skipped, because they lack an address or a size.
    pub incomplete: BTreeMap<Arc<str>, u64>,
    /// Unknown states of blocks, which count as waiting.
    pub states: BTreeMap<Arc<str>, u64>,
    /// Optional values of another kind than expected, which count as missing, by key.
    pub values: BTreeMap<Arc<str>, u64>,
}

/// A whole snapshot.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Snapshot {
    /// By device, then ascending address.
    pub segments: Vec<SegmentInfo>,
    /// History by device, oldest first.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings in force, in file order.
    pub allocator_settings: Vec<(Arc<str>, Value)>,
    /// Ranges the program marked, as dictionaries.
    pub external_annotations: Vec<Value>,
    /// Pinned host memory.
    pub host_segments: Vec<SegmentInfo>,
    /// History of pinned host memory.
    pub host_traces: Vec<TraceEntry>,
    /// Completeness of the history; `None` for files that do not say (PyTorch's own).
    pub history: Option<HistoryStatus>,
    /// Top-level keys this model does not know, in file order.
    pub extra: Vec<(Arc<str>, Value)>,
    /// Contents that were left out when the file was read.
    pub unread: Unread,
}
