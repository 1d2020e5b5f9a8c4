//! The structure of a snapshot file: its words and the order of its keys, once for every output format.

use alloc_core::snapshot::{
    Action, BlockInfo, HistoryStatus, Labels, SegmentInfo, Snapshot, Stack, TraceEntry, Value,
};
use alloc_core::types::PoolId;
use std::io;
use std::sync::Arc;

/// Declares the words that snapshot files are full of; their numbers are small so that both the reader
/// and the writer can use them as table indexes.
macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        /// A word of the format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Word { $($name,)* }

        impl Word {
            /// All words by number.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// How it is written.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

words! {
    // Top level.
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
    Granule = "granule",
    HistoryRecorded = "history_recorded",
    HistoryComplete = "history_complete",
    EntriesOverwritten = "entries_overwritten",
    OperationsBeforeRecording = "operations_before_recording",
    // Segments and blocks.
    Device = "device",
    Address = "address",
    TotalSize = "total_size",
    AllocatedSize = "allocated_size",
    ActiveSize = "active_size",
    RequestedSize = "requested_size",
    Stream = "stream",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Frames = "frames",
    Blocks = "blocks",
    Size = "size",
    State = "state",
    // History entries.
    Action = "action",
    Addr = "addr",
    DeviceFree = "device_free",
    TimeUs = "time_us",
    CompileContext = "compile_context",
    UserMetadata = "user_metadata",
    InternalMetadata = "internal_metadata",
    PoolId = "pool_id",
    // Frames.
    Name = "name",
    Filename = "filename",
    Line = "line",
    // Values.
    Alloc = "alloc",
    FreeRequested = "free_requested",
    FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc",
    SegmentFree = "segment_free",
    SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap",
    Snapshot = "snapshot",
    Oom = "oom",
    Annotate = "annotate",
    NotAvailable = "N/A",
    Nothing = "",
}

impl Word {
    /// The word of that number.
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(id as usize).copied()
    }

    /// The action a word names.
    pub(crate) fn action(self) -> Option<Action> {
        Some(match self {
            Self::Alloc => Action::Alloc,
            Self::FreeRequested => Action::FreeRequested,
            Self::FreeCompleted => Action::FreeCompleted,
            Self::SegmentAlloc => Action::SegmentAlloc,
            Self::SegmentFree => Action::SegmentFree,
            Self::SegmentMap => Action::SegmentMap,
            Self::SegmentUnmap => Action::SegmentUnmap,
            Self::Snapshot => Action::Snapshot,
            Self::Oom => Action::Oom,
            Self::Annotate => Action::Annotate,
            _ => return None,
        })
    }

    /// The word of an action; `None` for one that is newer than this table.
    fn of_action(action: Action) -> Option<Self> {
        Some(match action {
            Action::Alloc => Self::Alloc,
            Action::FreeRequested => Self::FreeRequested,
            Action::FreeCompleted => Self::FreeCompleted,
            Action::SegmentAlloc => Self::SegmentAlloc,
            Action::SegmentFree => Self::SegmentFree,
            Action::SegmentMap => Self::SegmentMap,
            Action::SegmentUnmap => Self::SegmentUnmap,
            Action::Snapshot => Self::Snapshot,
            Action::Oom => Self::Oom,
            Action::Annotate => Self::Annotate,
            _ => return None,
        })
    }
}

/// An output format. `'a` is the snapshot being written: a sink may remember parts of it to share them.
///
/// The many small steps cannot fail: a sink buffers what one list item takes and reports errors with the next.
pub(crate) trait Sink<'a>: Sized {
    fn begin_dict(&mut self);
    /// The next key of the open dictionary; its value follows.
    fn key(&mut self, key: Word);
    /// As [`Sink::key`] for keys that are data.
    fn text_key(&mut self, key: &'a str);
    /// As [`Sink::key`] for keys that need not be text.
    fn value_key(&mut self, key: &'a Value) -> io::Result<()>;
    fn end_dict(&mut self);

    fn begin_list(&mut self);
    /// The next item of the open list follows.
    fn item(&mut self) -> io::Result<()>;
    fn end_list(&mut self);

    fn none(&mut self);
    fn bool(&mut self, value: bool);
    fn signed(&mut self, value: i64);
    fn unsigned(&mut self, value: u64);
    fn float(&mut self, value: f64);
    fn word(&mut self, word: Word);
    fn text(&mut self, text: &'a str);
    fn pool(&mut self, pool: PoolId);
    fn tuple(&mut self, items: &'a [Value]) -> io::Result<()>;
    /// The labels of an entry, which come many times: keys and values of the open dictionary.
    fn labels(&mut self, labels: &'a Labels) -> io::Result<()> {
        self::labels(self, labels)
    }
    /// A call stack; the same one may come many times.
    fn stack(&mut self, stack: &'a Stack) -> io::Result<()>;
}

/// Walks a snapshot in the order of PyTorch's keys; `granule` and unknown keys follow.
pub(crate) fn snapshot<'a, S: Sink<'a>>(sink: &mut S, snapshot: &'a Snapshot) -> io::Result<()> {
    sink.begin_dict();
    sink.key(Word::Segments);
    list(sink, &snapshot.segments, segment)?;
    sink.key(Word::DeviceTraces);
    list(sink, &snapshot.device_traces, |sink, trace| list(sink, trace, entry))?;
    sink.key(Word::AllocatorSettings);
    sink.begin_dict();
    extra(sink, &snapshot.allocator_settings)?;
    sink.end_dict();
    sink.key(Word::ExternalAnnotations);
    list(sink, &snapshot.external_annotations, value)?;
    sink.key(Word::HostSegments);
    list(sink, &snapshot.host_segments, segment)?;
    sink.key(Word::HostTraces);
    list(sink, &snapshot.host_traces, entry)?;
    if let Some(history) = &snapshot.history {
        sink.key(Word::Granule);
        history_status(sink, history);
    }
    extra(sink, &snapshot.extra)?;
    sink.end_dict();
    Ok(())
}

fn list<'a, S: Sink<'a>, T>(
    sink: &mut S,
    items: &'a [T],
    each: impl Fn(&mut S, &'a T) -> io::Result<()>,
) -> io::Result<()> {
    sink.begin_list();
    for item in items {
        sink.item()?;
        each(sink, item)?;
    }
    sink.end_list();
    Ok(())
}

fn history_status<'a, S: Sink<'a>>(sink: &mut S, history: &HistoryStatus) {
    sink.begin_dict();
    sink.key(Word::HistoryRecorded);
    sink.bool(history.recorded);
    sink.key(Word::HistoryComplete);
    sink.bool(history.complete);
    sink.key(Word::EntriesOverwritten);
    sink.unsigned(history.overwritten);
    sink.key(Word::OperationsBeforeRecording);
    sink.unsigned(history.before_recording);
    sink.end_dict();
}

fn segment<'a, S: Sink<'a>>(sink: &mut S, segment: &'a SegmentInfo) -> io::Result<()> {
    sink.begin_dict();
    sink.key(Word::Device);
    sink.signed(segment.device);
    sink.key(Word::Address);
    sink.unsigned(segment.address);
    sink.key(Word::TotalSize);
    sink.unsigned(segment.total_size);
    sink.key(Word::AllocatedSize);
    sink.unsigned(segment.allocated_size);
    sink.key(Word::ActiveSize);
    sink.unsigned(segment.active_size);
    sink.key(Word::RequestedSize);
    sink.unsigned(segment.requested_size);
    sink.key(Word::Stream);
    sink.unsigned(segment.stream);
    sink.key(Word::SegmentType);
    sink.text(&segment.segment_type);
    sink.key(Word::SegmentPoolId);
    sink.pool(segment.pool_id);
    sink.key(Word::IsExpandable);
    sink.bool(segment.is_expandable);
    sink.key(Word::Frames);
    stack_or_empty(sink, segment.frames.as_ref())?;
    sink.key(Word::Blocks);
    list(sink, &segment.blocks, block)?;
    extra(sink, &segment.extra)?;
    sink.end_dict();
    Ok(())
}

fn block<'a, S: Sink<'a>>(sink: &mut S, block: &'a BlockInfo) -> io::Result<()> {
    sink.begin_dict();
    sink.key(Word::Address);
    sink.unsigned(block.address);
    sink.key(Word::Size);
    sink.unsigned(block.size);
    sink.key(Word::RequestedSize);
    sink.unsigned(block.requested_size);
    sink.key(Word::State);
    sink.text(block.state.name());
    sink.key(Word::Frames);
    stack_or_empty(sink, block.frames.as_ref())?;
    extra(sink, &block.extra)?;
    sink.end_dict();
    Ok(())
}

/// Blocks and segments always have the key in PyTorch's files, with an empty list for "not recorded".
fn stack_or_empty<'a, S: Sink<'a>>(sink: &mut S, stack: Option<&'a Stack>) -> io::Result<()> {
    match stack {
        Some(stack) => sink.stack(stack),
        None => {
            sink.begin_list();
            sink.end_list();
            Ok(())
        }
    }
}

fn entry<'a, S: Sink<'a>>(sink: &mut S, entry: &'a TraceEntry) -> io::Result<()> {
    sink.begin_dict();
    sink.key(Word::Action);
    match Word::of_action(entry.action) {
        Some(word) => sink.word(word),
        None => sink.text(entry.action.name()),
    }
    sink.key(if entry.action == Action::Oom { Word::DeviceFree } else { Word::Addr });
    sink.unsigned(entry.addr);
    sink.key(Word::Size);
    sink.unsigned(entry.size);
    sink.key(Word::Stream);
    sink.unsigned(entry.stream);
    sink.key(Word::TimeUs);
    sink.signed(entry.time_us);
    sink.labels(&entry.labels)?;
    if let Some(stack) = &entry.frames {
        sink.key(Word::Frames);
        sink.stack(stack)?;
    }
    for (key, other) in entry.labels.extra.iter().filter(|(key, _)| !is_internal(key)) {
        sink.text_key(key);
        value(sink, other)?;
    }
    sink.end_dict();
    Ok(())
}

/// PyTorch puts this optional key in the middle; all others that this model does not know follow the rest.
fn is_internal(key: &Arc<str>) -> bool {
    &**key == Word::InternalMetadata.text()
}

/// The labels of an entry that the sink has opened, but for the unknown keys.
pub(crate) fn labels<'a, S: Sink<'a>>(sink: &mut S, labels: &'a Labels) -> io::Result<()> {
    if let Some(context) = &labels.compile_context {
        sink.key(Word::CompileContext);
        sink.text(context);
    }
    if let Some(metadata) = &labels.user_metadata {
        sink.key(Word::UserMetadata);
        sink.text(metadata);
    }
    for (_, metadata) in labels.extra.iter().filter(|(key, _)| is_internal(key)) {
        sink.key(Word::InternalMetadata);
        value(sink, metadata)?;
    }
    if let Some(pool) = labels.pool_id {
        sink.key(Word::PoolId);
        sink.pool(pool);
    }
    Ok(())
}

/// The frames of a stack, as items of a list the sink has opened.
pub(crate) fn frame<'a, S: Sink<'a>>(sink: &mut S, frame: &'a alloc_core::snapshot::Frame) -> io::Result<()> {
    sink.begin_dict();
    sink.key(Word::Name);
    sink.text(&frame.name);
    sink.key(Word::Filename);
    sink.text(&frame.filename);
    sink.key(Word::Line);
    sink.unsigned(frame.line);
    extra(sink, &frame.extra)?;
    sink.end_dict();
    Ok(())
}

fn extra<'a, S: Sink<'a>>(sink: &mut S, pairs: &'a [(Arc<str>, Value)]) -> io::Result<()> {
    for (key, item) in pairs {
        sink.text_key(key);
        value(sink, item)?;
    }
    Ok(())
}

/// An open value.
pub(crate) fn value<'a, S: Sink<'a>>(sink: &mut S, item: &'a Value) -> io::Result<()> {
    match item {
        Value::None => sink.none(),
        Value::Bool(value) => sink.bool(*value),
        Value::Int(value) => sink.signed(*value),
        Value::Unsigned(value) => sink.unsigned(*value),
        Value::Float(value) => sink.float(*value),
        Value::Str(text) => sink.text(text),
        Value::List(items) => list(sink, items, value)?,
        Value::Tuple(items) => sink.tuple(items)?,
        Value::Dict(pairs) => {
            sink.begin_dict();
            for (key, item) in pairs {
                sink.value_key(key)?;
                value(sink, item)?;
            }
            sink.end_dict();
        }
    }
    Ok(())
}
