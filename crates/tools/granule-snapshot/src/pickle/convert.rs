//! From what a pickle built to a snapshot.
//!
//! Addresses and sizes must make sense. All else is optional: what is missing, `None` or of another kind (forks and
//! newer releases write such) is left out, and counted in [`Unread`].

use super::Limits;
use super::error::PickleError;
use super::heap::{Heap, Node, Val};
use crate::places::Places;
use crate::schema::Word;
use alloc_core::snapshot::{
    Action, BlockInfo, BlockState, Frame, HistoryStatus, Labels, SegmentInfo, Snapshot, Stack, TraceEntry,
    Unread, Value,
};
use alloc_core::types::PoolId;
use std::fmt;
use std::sync::Arc;

/// Where in the structure a value stands; written as Python would index it.
#[derive(Clone, Copy)]
enum Place<'p> {
    Root,
    Key(&'p Place<'p>, &'p str),
    Index(&'p Place<'p>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("snapshot"),
            Self::Key(parent, key) => write!(f, "{parent}[{key:?}]"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

type Result<T> = std::result::Result<T, PickleError>;

fn wrong(place: Place<'_>, what: impl Into<String>) -> PickleError {
    PickleError::Schema { place: place.to_string(), what: what.into() }
}

/// Refuses a range that does not end where addresses do.
fn within(place: Place<'_>, address: u64, size: u64) -> Result<()> {
    let beyond = || wrong(place, format!("{size} bytes at {address:#x} end behind the last address"));
    address.checked_add(size).map(drop).ok_or_else(beyond)
}

/// The same of an entry. Of a refused request it has the device's free memory, and no address.
fn entry_within(place: Place<'_>, entry: &TraceEntry) -> Result<()> {
    match entry.action {
        Action::Oom => Ok(()),
        _ => within(Place::Key(&place, "addr"), entry.addr, entry.size),
    }
}

/// The least that PyTorch takes from a device.
const SEGMENT: u64 = 2 << 20;

/// What a pickle built, on its way to a snapshot.
pub(super) struct Conversion {
    heap: Heap,
    limits: Limits,
    /// Unpacked bytes of the pickle.
    length: u64,
    /// Values made so far by copying parts out of the arena.
    copies: u64,
    unread: Unread,
    /// Entries of unknown actions that are as large as a segment: where they lie, and their actions.
    unknown: Vec<(u64, Arc<str>)>,
}

impl Conversion {
    pub(super) fn new(heap: Heap, limits: Limits, length: u64) -> Self {
        Self { heap, limits, length, copies: 0, unread: Unread::default(), unknown: Vec::new() }
    }

    /// The snapshot that `root` is.
    pub(super) fn into_snapshot(mut self, root: Val) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let place = Place::Root;
        if matches!(root, Val::Node(node) if matches!(self.heap.nodes[node as usize], Node::List(_) | Node::History(..)))
        {
            // What torch.cuda.memory_snapshot() gives.
            snapshot.segments = self.segments(root, place)?;
            snapshot.unread = self.unread;
            return Ok(snapshot);
        }
        let (mut device_traces, mut host_trace) = (Vec::new(), None);
        let mut is_snapshot = false;
        for index in 0..self.pairs(root, place)? {
            let (key, text, value) = self.pair(root, index, place)?;
            let place = Place::Key(&place, &text);
            match key {
                Some(Word::Segments) => {
                    is_snapshot = true;
                    snapshot.segments = self.segments(value, place)?;
                }
                Some(Word::DeviceTraces) => {
                    is_snapshot = true;
                    device_traces = self.items(value, place)?;
                }
                Some(Word::AllocatorSettings) => {
                    snapshot.allocator_settings = self.or_default(value, place, Self::settings)?;
                }
                Some(Word::ExternalAnnotations) => {
                    let read = |this: &mut Self, value, place: Place<'_>| {
                        this.each(value, place, |this, value, place| this.value(value, place, 1))
                    };
                    snapshot.external_annotations = self.or_default(value, place, read)?;
                }
                Some(Word::HostSegments) => snapshot.host_segments = self.segments(value, place)?,
                Some(Word::HostTraces) => host_trace = Some(value),
                Some(Word::Granule) => snapshot.history = self.optional(value, place, Self::history)?,
                _ => snapshot.extra.push((Arc::clone(&text), self.value(value, place, 1)?)),
            }
        }
        let host_lists = usize::from(host_trace.is_some());
        device_traces.extend(host_trace);
        let mut traces = self.traces(&device_traces, host_lists)?;
        if host_lists == 1 {
            snapshot.host_traces = traces.pop().unwrap_or_default();
        }
        snapshot.device_traces = traces;
        // What lies where nothing else tells of memory may hold some.
        let known = Places::known(&snapshot);
        for (_, name) in self.unknown.into_iter().filter(|(address, _)| !known.have(*address)) {
            *self.unread.incomplete.entry(name).or_default() += 1;
        }
        snapshot.unread = self.unread;
        if is_snapshot { Ok(snapshot) } else { Err(PickleError::NotASnapshot) }
    }

    /// An optional value under a key: one of another kind counts as missing.
    fn optional<T>(
        &mut self,
        value: Val,
        place: Place<'_>,
        read: impl FnOnce(&mut Self, Val, Place<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        match value {
            Val::None => Ok(None),
            _ => match read(self, value, place) {
                Err(PickleError::Schema { .. }) => {
                    let key = if let Place::Key(_, key) = place { key } else { "" };
                    *self.unread.values.entry(key.into()).or_default() += 1;
                    Ok(None)
                }
                read => read.map(Some),
            },
        }
    }

    fn or_default<T: Default>(
        &mut self,
        value: Val,
        place: Place<'_>,
        read: impl FnOnce(&mut Self, Val, Place<'_>) -> Result<T>,
    ) -> Result<T> {
        Ok(self.optional(value, place, read)?.unwrap_or_default())
    }

    /// Counts values that are copied out of the arena, so that shared parts cannot multiply without end.
    fn charge(&mut self, values: usize) -> Result<()> {
        const ALWAYS_ALLOWED: u64 = 1 << 16;
        self.copies += values as u64;
        let allowed = self.length.saturating_mul(self.limits.copies_per_byte).saturating_add(ALWAYS_ALLOWED);
        if self.copies <= allowed {
            return Ok(());
        }
        Err(PickleError::Limit {
            offset: self.length,
            what: format!("parts that are referred to several times would become more than {allowed} values"),
        })
    }

    /// What a value is, for messages.
    fn kind(&self, value: Val) -> &'static str {
        match value {
            Val::None => "None",
            Val::Bool(_) => "a truth value",
            Val::Int(..0) => "a negative number",
            Val::Int(_) | Val::Unsigned(_) => "a whole number",
            Val::Float(_) => "a floating-point number",
            Val::Text(_) => "a text",
            Val::Pair(..) => "a tuple",
            Val::Entry(_) => "a dictionary",
            Val::Node(node) => match self.heap.nodes[node as usize] {
                Node::List(_) | Node::History(..) | Node::Stack(_) => "a list",
                Node::Tuple(_) => "a tuple",
                Node::Dict(_) | Node::Entry(_) => "a dictionary",
            },
        }
    }

    fn expected(&self, place: Place<'_>, what: &str, found: Val) -> PickleError {
        wrong(place, format!("expected {what}, found {}", self.kind(found)))
    }

    /// How many keys a dictionary has.
    fn pairs(&mut self, value: Val, place: Place<'_>) -> Result<usize> {
        if let Val::Node(node) = value
            && let Node::Dict(pairs) = &self.heap.nodes[node as usize]
        {
            let count = pairs.len();
            self.charge(count + 1)?;
            return Ok(count);
        }
        Err(self.expected(place, "a dictionary", value))
    }

    /// A key, as a word if it is one and as text, and its value.
    fn pair(&self, dict: Val, index: usize, place: Place<'_>) -> Result<(Option<Word>, Arc<str>, Val)> {
        if let Val::Node(node) = dict
            && let Node::Dict(pairs) = &self.heap.nodes[node as usize]
            && let Some(&(key, value)) = pairs.get(index)
        {
            return Ok(match key {
                Val::Text(id) => (Word::from_id(id), self.heap.shared_text(id), value),
                Val::Int(number) => (None, number.to_string().into(), value),
                _ => (None, format!("({})", self.kind(key)).into(), value),
            });
        }
        Err(self.expected(place, "a dictionary", dict))
    }

    /// The items of a list; `None` is an empty one.
    fn items(&mut self, value: Val, place: Place<'_>) -> Result<Vec<Val>> {
        if value == Val::None {
            return Ok(Vec::new());
        }
        if let Val::Node(node) = value {
            let items = match &self.heap.nodes[node as usize] {
                Node::List(items) => Some(items.clone()),
                &Node::History(first, count) => Some((first..first + count).map(Val::Entry).collect()),
                Node::Tuple(items) => Some(items.to_vec()),
                Node::Stack(stack) if stack.is_empty() => Some(Vec::new()),
                _ => None,
            };
            if let Some(items) = items {
                self.charge(items.len())?;
                return Ok(items);
            }
        }
        Err(self.expected(place, "a list", value))
    }

    /// A list with every item converted.
    fn each<T>(
        &mut self,
        list: Val,
        place: Place<'_>,
        mut convert: impl FnMut(&mut Self, Val, Place<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let items = self.items(list, place)?;
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| convert(self, item, Place::Index(&place, index)))
            .collect()
    }

    fn unsigned(&mut self, value: Val, place: Place<'_>) -> Result<u64> {
        value.unsigned().ok_or_else(|| self.expected(place, "a whole number from 0 to 2^64 - 1", value))
    }

    fn signed(&mut self, value: Val, place: Place<'_>) -> Result<i64> {
        value.signed().ok_or_else(|| self.expected(place, "a whole number of 64 signed bits", value))
    }

    /// A handle, which some writers take for a signed number.
    fn handle(&mut self, value: Val, place: Place<'_>) -> Result<u64> {
        value.signed().map_or_else(|| self.unsigned(value, place), |handle| Ok(handle.cast_unsigned()))
    }

    fn bool(&mut self, value: Val, place: Place<'_>) -> Result<bool> {
        match value {
            Val::Bool(value) => Ok(value),
            Val::Int(number @ 0..=1) => Ok(number == 1),
            _ => Err(self.expected(place, "True or False", value)),
        }
    }

    fn text_of(&mut self, value: Val, place: Place<'_>) -> Result<Arc<str>> {
        match value {
            Val::Text(id) => Ok(self.heap.shared_text(id)),
            _ => Err(self.expected(place, "a text", value)),
        }
    }

    /// A text that the program chose. Anything else it chose becomes one, as JSON.
    fn note(&mut self, value: Val, place: Place<'_>) -> Result<Arc<str>> {
        match value {
            Val::Text(id) => Ok(self.heap.shared_text(id)),
            _ => Ok(crate::json::value(&self.value(value, place, 4)?).to_string().into()),
        }
    }

    fn pool(&mut self, value: Val, place: Place<'_>) -> Result<PoolId> {
        if let Val::Pair(first, second) = value {
            return Ok(PoolId(first.into(), second.into()));
        }
        match self.each(value, place, |this, value, place| this.unsigned(value, place))?[..] {
            [first, second] => Ok(PoolId(first, second)),
            _ => Err(wrong(place, "expected a pair of whole numbers")),
        }
    }

    fn settings(&mut self, value: Val, place: Place<'_>) -> Result<Vec<(Arc<str>, Value)>> {
        (0..self.pairs(value, place)?)
            .map(|index| {
                let (_, text, value) = self.pair(value, index, place)?;
                let value = self.value(value, Place::Key(&place, &text), 2)?;
                Ok((text, value))
            })
            .collect()
    }

    fn history(&mut self, value: Val, place: Place<'_>) -> Result<HistoryStatus> {
        let mut history = HistoryStatus::default();
        for index in 0..self.pairs(value, place)? {
            let (key, text, value) = self.pair(value, index, place)?;
            let place = Place::Key(&place, &text);
            match key {
                Some(Word::HistoryRecorded) => history.recorded = self.bool(value, place)?,
                Some(Word::HistoryComplete) => history.complete = self.bool(value, place)?,
                Some(Word::EntriesOverwritten) => history.overwritten = self.unsigned(value, place)?,
                Some(Word::OperationsBeforeRecording) => {
                    history.before_recording = self.unsigned(value, place)?;
                }
                _ => *self.unread.values.entry(text).or_default() += 1,
            }
        }
        Ok(history)
    }

    fn segments(&mut self, list: Val, place: Place<'_>) -> Result<Vec<SegmentInfo>> {
        self.each(list, place, Self::segment)
    }

    fn segment(&mut self, dict: Val, place: Place<'_>) -> Result<SegmentInfo> {
        let mut segment = SegmentInfo {
            device: 0,
            address: 0,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: 0,
            segment_type: self.heap.shared_text(Word::Nothing as u32),
            pool_id: PoolId::DEFAULT,
            is_expandable: false,
            registration: None,
            frames: None,
            blocks: Vec::new(),
            extra: Vec::new(),
        };
        let (mut address, mut total, mut blocks) = (None, None, None);
        let (mut allocated, mut active, mut requested) = (None, None, None);
        for index in 0..self.pairs(dict, place)? {
            let (key, text, value) = self.pair(dict, index, place)?;
            let place = Place::Key(&place, &text);
            match key {
                Some(Word::Device) => segment.device = self.or_default(value, place, Self::signed)?,
                Some(Word::Address) => address = Some(self.unsigned(value, place)?),
                Some(Word::TotalSize) if value != Val::None => total = Some(self.unsigned(value, place)?),
                Some(Word::TotalSize) => {}
                Some(Word::AllocatedSize) => allocated = self.optional(value, place, Self::unsigned)?,
                Some(Word::ActiveSize) => active = self.optional(value, place, Self::unsigned)?,
                Some(Word::RequestedSize) => requested = self.optional(value, place, Self::unsigned)?,
                Some(Word::Stream) => segment.stream = self.or_default(value, place, Self::handle)?,
                Some(Word::SegmentType) => {
                    segment.segment_type = self.or_default(value, place, Self::text_of)?;
                }
                Some(Word::SegmentPoolId) => {
                    let pool = self.optional(value, place, Self::pool)?;
                    segment.pool_id = pool.unwrap_or(PoolId::DEFAULT);
                }
                Some(Word::IsExpandable) => {
                    segment.is_expandable = self.or_default(value, place, Self::bool)?;
                }
                Some(Word::Frames) => segment.frames = self.some_stack(value, place)?,
                Some(Word::Blocks) => blocks = Some(value),
                _ => segment.extra.push((Arc::clone(&text), self.value(value, place, 3)?)),
            }
        }
        segment.address = address.ok_or_else(|| wrong(place, "the key 'address' is missing"))?;
        if let Some(list) = blocks {
            // Old files give blocks without addresses; they lie one after the other.
            let mut next = segment.address;
            segment.blocks = self.each(list, Place::Key(&place, "blocks"), |this, item, place| {
                let block = this.block(item, next, place)?;
                next = block.address.saturating_add(block.size);
                Ok(block)
            })?;
        }
        let sum = |of: fn(&BlockInfo) -> u64, counts: fn(BlockState) -> bool| {
            let counted = segment.blocks.iter().filter(|block| counts(block.state));
            counted.fold(0u64, |sum, block| sum.saturating_add(of(block)))
        };
        let is_active = |state| state != BlockState::Inactive;
        segment.total_size = total.unwrap_or_else(|| sum(|block| block.size, |_| true));
        segment.allocated_size = allocated
            .unwrap_or_else(|| sum(|block| block.size, |state| state == BlockState::ActiveAllocated));
        segment.active_size = active.unwrap_or_else(|| sum(|block| block.size, is_active));
        segment.requested_size = requested.unwrap_or_else(|| sum(|block| block.requested_size, is_active));
        within(place, segment.address, segment.total_size)?;
        Ok(segment)
    }

    fn block(&mut self, dict: Val, next_address: u64, place: Place<'_>) -> Result<BlockInfo> {
        let (mut address, mut size, mut requested, mut state) = (next_address, None, None, None);
        let (mut frames, mut extra) = (None, Vec::new());
        for index in 0..self.pairs(dict, place)? {
            let (key, text, value) = self.pair(dict, index, place)?;
            let place = Place::Key(&place, &text);
            match key {
                Some(Word::Address) if value != Val::None => address = self.unsigned(value, place)?,
                Some(Word::Address) => {}
                Some(Word::Size) => size = Some(self.unsigned(value, place)?),
                Some(Word::RequestedSize) => requested = self.optional(value, place, Self::unsigned)?,
                Some(Word::State) => state = Some(self.note(value, place)?),
                Some(Word::Frames) => frames = self.some_stack(value, place)?,
                _ => extra.push((Arc::clone(&text), self.value(value, place, 5)?)),
            }
        }
        let size = size.ok_or_else(|| wrong(place, "the key 'size' is missing"))?;
        within(place, address, size)?;
        let state = state.unwrap_or_else(|| "None".into());
        let state = BlockState::from_name(&state).unwrap_or_else(|| {
            // In use, as far as is known; but the program may not hold it any more.
            *self.unread.states.entry(state).or_default() += 1;
            BlockState::ActivePendingFree
        });
        Ok(BlockInfo { address, size, requested_size: requested.unwrap_or(size), state, frames, extra })
    }

    /// The call stack of a block or segment, where an empty list means that none was recorded.
    fn some_stack(&mut self, value: Val, place: Place<'_>) -> Result<Option<Stack>> {
        let stack = self.optional(value, place, Self::stack_at)?;
        Ok(stack.filter(|stack| !stack.is_empty()))
    }

    fn stack_at(&mut self, value: Val, place: Place<'_>) -> Result<Stack> {
        let Val::Node(node) = value else { return Err(self.expected(place, "a list of frames", value)) };
        if let Node::Stack(stack) = &self.heap.nodes[node as usize] {
            return Ok(Arc::clone(stack));
        }
        let frames = self.each(value, place, Self::frame_at)?;
        let stack = if frames.is_empty() { Arc::clone(&self.heap.no_frames) } else { frames.into() };
        self.heap.nodes[node as usize] = Node::Stack(Arc::clone(&stack));
        Ok(stack)
    }

    fn frame_at(&mut self, dict: Val, place: Place<'_>) -> Result<Frame> {
        let nothing = self.heap.shared_text(Word::Nothing as u32);
        let mut frame = Frame { name: Arc::clone(&nothing), filename: nothing, line: 0, extra: Vec::new() };
        for index in 0..self.pairs(dict, place)? {
            let (key, text, value) = self.pair(dict, index, place)?;
            let place = Place::Key(&place, &text);
            match key {
                Some(Word::Name) => frame.name = self.or_default(value, place, Self::text_of)?,
                Some(Word::Filename) => frame.filename = self.or_default(value, place, Self::text_of)?,
                // Below 0 where it is not known.
                Some(Word::Line) if value.signed().is_some_and(|line| line < 0) => {}
                Some(Word::Line) => frame.line = self.or_default(value, place, Self::unsigned)?,
                _ => frame.extra.push((Arc::clone(&text), self.value(value, place, 6)?)),
            }
        }
        Ok(frame)
    }

    /// Histories; the last `host_lists` of them (0 or 1) is the host's.
    fn traces(&mut self, lists: &[Val], host_lists: usize) -> Result<Vec<Vec<TraceEntry>>> {
        if let Some(traces) = self.traces_in_place(lists) {
            return Ok(traces);
        }
        let devices = lists.len() - host_lists;
        let (device_place, host_place) =
            (Place::Key(&Place::Root, "device_traces"), Place::Key(&Place::Root, "host_traces"));
        lists
            .iter()
            .enumerate()
            .map(|(device, &list)| {
                let place = if device < devices { Place::Index(&device_place, device) } else { host_place };
                Ok(self.each(list, place, Self::entry_at)?.into_iter().flatten().collect())
            })
            .collect()
    }

    /// Takes histories as they are, if every list holds a run of the entries in order: then nothing is
    /// copied for the longest (usually only) one.
    fn traces_in_place(&mut self, lists: &[Val]) -> Option<Vec<Vec<TraceEntry>>> {
        let mut starts = Vec::with_capacity(lists.len());
        let mut next = 0;
        for &list in lists {
            let Val::Node(node) = list else { return None };
            starts.push(next as usize);
            let items = match &self.heap.nodes[node as usize] {
                Node::List(items) => items.as_slice(),
                &Node::History(first, count) if first == next => {
                    next += count;
                    continue;
                }
                Node::Stack(stack) if stack.is_empty() => &[],
                _ => return None,
            };
            for &item in items {
                if self.heap.entry_number(item)? != next {
                    return None;
                }
                next += 1;
            }
        }
        let entries = &self.heap.entries;
        if next as usize != entries.len() || entries.iter().any(|one| entry_within(Place::Root, one).is_err())
        {
            return None;
        }
        let mut entries = std::mem::take(&mut self.heap.entries);
        entries.shrink_to_fit();
        let mut traces: Vec<_> = starts
            .iter()
            .rev()
            .map(|&start| if start == 0 { std::mem::take(&mut entries) } else { entries.split_off(start) })
            .collect();
        traces.reverse();
        Some(traces)
    }

    /// A history entry; `None` for one that is skipped.
    fn entry_at(&mut self, value: Val, place: Place<'_>) -> Result<Option<TraceEntry>> {
        if let Some(entry) = self.heap.entry_number(value) {
            self.charge(1)?;
            let entry = self.heap.entries[entry as usize].clone();
            entry_within(place, &entry)?;
            return Ok(Some(entry));
        }
        let (mut action, mut addr, mut device_free, mut size) = (Val::None, Val::None, Val::None, Val::None);
        let mut entry = TraceEntry {
            action: Action::Alloc,
            addr: 0,
            size: 0,
            stream: 0,
            time_us: 0,
            labels: Arc::default(),
            frames: None,
        };
        let mut labels = Labels::default();
        for index in 0..self.pairs(value, place)? {
            let (key, text, value) = self.pair(value, index, place)?;
            let place = Place::Key(&place, &text);
            match key {
                Some(Word::Action) => action = value,
                Some(Word::Addr) => addr = value,
                Some(Word::DeviceFree) => device_free = value,
                Some(Word::Size) => size = value,
                Some(Word::Stream) => entry.stream = self.or_default(value, place, Self::handle)?,
                Some(Word::TimeUs) => entry.time_us = self.or_default(value, place, Self::signed)?,
                Some(Word::CompileContext) => {
                    labels.compile_context = self.optional(value, place, Self::note)?;
                }
                Some(Word::UserMetadata) => {
                    labels.user_metadata = self.optional(value, place, Self::note)?;
                }
                Some(Word::PoolId) => labels.pool_id = self.optional(value, place, Self::pool)?,
                Some(Word::Frames) => entry.frames = self.optional(value, place, Self::stack_at)?,
                _ => labels.extra.push((Arc::clone(&text), self.value(value, place, 4)?)),
            }
        }
        let Some(known) = self.heap.action(action) else {
            let name = self.note(action, place)?;
            *self.unread.actions.entry(Arc::clone(&name)).or_default() += 1;
            if let (Some(address), Some(SEGMENT..)) = (addr.unsigned(), size.unsigned()) {
                self.charge(2)?;
                self.unknown.push((address, name));
            }
            return Ok(None);
        };
        entry.action = known;
        entry.labels = Arc::new(labels);
        if known == Action::Oom && device_free.unsigned().or(addr.unsigned()).is_none() {
            device_free = Val::Unsigned(TraceEntry::NOT_KNOWN);
        }
        let address =
            if known == Action::Oom && device_free.unsigned().is_some() { device_free } else { addr };
        // Only marks need neither; how much was given back, the entry that took it tells, too.
        let is_mark = matches!(known, Action::Snapshot | Action::Annotate);
        let is_free = matches!(known, Action::FreeRequested | Action::FreeCompleted);
        // That a request was refused is told without its size, too.
        let is_refusal = known == Action::Oom;
        let lacks =
            if is_refusal { size.unsigned().unwrap_or(0) == 0 } else { size == Val::None && !is_free };
        if is_refusal && lacks {
            *self.unread.incomplete.entry(known.name().into()).or_default() += 1;
        } else if !is_mark && (address == Val::None || lacks) {
            *self.unread.incomplete.entry(known.name().into()).or_default() += 1;
            return Ok(None);
        }
        let number = |this: &mut Self, key, value| match value {
            Val::None => Ok(0),
            value => this.unsigned(value, Place::Key(&place, key)),
        };
        entry.addr = number(self, "addr", address)?;
        entry.size = number(self, "size", size)?;
        entry_within(place, &entry)?;
        Ok(Some(entry))
    }

    /// An open value, `depth` levels below the root.
    fn value(&mut self, value: Val, place: Place<'_>, depth: usize) -> Result<Value> {
        self.charge(1)?;
        if depth > self.limits.max_depth && matches!(value, Val::Entry(_) | Val::Node(_)) {
            return Err(PickleError::Limit {
                offset: self.length,
                what: format!("lists and dictionaries are nested deeper than {}", self.limits.max_depth),
            });
        }
        if let Some(entry) = self.heap.entry_number(value) {
            let entry = self.heap.entries[entry as usize].clone();
            self.charge(24)?;
            return self.entry_value(&entry);
        }
        let Val::Node(node) = value else {
            return Ok(match value {
                Val::None | Val::Node(_) | Val::Entry(_) => Value::None,
                Val::Bool(value) => Value::Bool(value),
                Val::Int(value) => Value::Int(value),
                Val::Unsigned(value) => Value::Unsigned(value),
                Val::Float(value) => Value::Float(value),
                Val::Text(id) => Value::Str(self.heap.shared_text(id)),
                Val::Pair(first, second) => {
                    Value::Tuple(vec![Value::Int(first.into()), Value::Int(second.into())])
                }
            });
        };
        let item = |this: &mut Self, item, place: Place<'_>| this.value(item, place, depth + 1);
        Ok(match &self.heap.nodes[node as usize] {
            Node::List(_) | Node::History(..) => Value::List(self.each(value, place, item)?),
            Node::Tuple(_) => Value::Tuple(self.each(value, place, item)?),
            Node::Dict(pairs) => {
                let pairs = pairs.clone();
                self.charge(pairs.len())?;
                let convert = |(key, value)| {
                    Ok((item(self, key, Place::Key(&place, "a key"))?, {
                        let name =
                            if let Val::Text(id) = key { self.heap.shared_text(id) } else { "?".into() };
                        item(self, value, Place::Key(&place, &name))?
                    }))
                };
                Value::Dict(pairs.into_iter().map(convert).collect::<Result<_>>()?)
            }
            Node::Entry(_) => Value::None,
            Node::Stack(stack) => {
                let stack = Arc::clone(stack);
                self.stack_value(&stack)?
            }
        })
    }

    /// A dictionary that looks like a history entry and stands elsewhere. Its keys get the usual order.
    fn entry_value(&mut self, entry: &TraceEntry) -> Result<Value> {
        let address = if entry.action == Action::Oom { Word::DeviceFree } else { Word::Addr };
        let mut pairs = vec![
            named(Word::Action, entry.action.name().into()),
            named(address, whole(entry.addr)),
            named(Word::Size, whole(entry.size)),
            named(Word::Stream, whole(entry.stream)),
            named(Word::TimeUs, Value::Int(entry.time_us)),
        ];
        let labels = &entry.labels;
        let texts =
            [(Word::CompileContext, &labels.compile_context), (Word::UserMetadata, &labels.user_metadata)];
        for (word, text) in texts {
            pairs.extend(text.as_ref().map(|text| named(word, Value::Str(Arc::clone(text)))));
        }
        if let Some(pool) = labels.pool_id {
            pairs.push(named(Word::PoolId, Value::Tuple(vec![whole(pool.0), whole(pool.1)])));
        }
        if let Some(stack) = &entry.frames {
            pairs.push(named(Word::Frames, self.stack_value(stack)?));
        }
        Ok(Value::Dict(pairs))
    }

    /// A call stack as the list it was.
    fn stack_value(&mut self, stack: &Stack) -> Result<Value> {
        let frame = |frame: &Frame| {
            self.charge(8 + frame.extra.iter().map(|(_, value)| 2 + weight(value)).sum::<usize>())?;
            let mut pairs = vec![
                named(Word::Name, Value::Str(Arc::clone(&frame.name))),
                named(Word::Filename, Value::Str(Arc::clone(&frame.filename))),
                named(Word::Line, whole(frame.line)),
            ];
            pairs.extend(frame.extra.iter().map(|(key, value)| (Value::Str(Arc::clone(key)), value.clone())));
            Ok(Value::Dict(pairs))
        };
        Ok(Value::List(stack.iter().map(frame).collect::<Result<_>>()?))
    }
}

/// How many values a value holds, itself included.
fn weight(value: &Value) -> usize {
    1 + match value {
        Value::List(items) | Value::Tuple(items) => items.iter().map(weight).sum(),
        Value::Dict(pairs) => pairs.iter().map(|(key, value)| weight(key) + weight(value)).sum(),
        _ => 0,
    }
}

fn named(word: Word, value: Value) -> (Value, Value) {
    (word.text().into(), value)
}

fn whole(value: u64) -> Value {
    i64::try_from(value).map_or(Value::Unsigned(value), Value::Int)
}
