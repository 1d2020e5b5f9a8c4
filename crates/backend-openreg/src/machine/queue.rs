//! Streams and events: what is queued where, and how far each stream has come.

use crate::config::{Clock, OpenRegConfig};
use crate::machine::graph::{GraphBody, Member};
use crate::machine::used::Used;
use crate::machine::work::{Point, Spans, Work};
use crate::os::SharedFlag;
use crate::refusal::{Answer, Refusal};
use crate::slab::Slab;
use crate::space::Span;
use backend_api::EventFlags;
use backend_api::steps::Counted;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar};

/// One queued operation.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its number among all operations of the machine.
    pub(crate) sequence: u64,
    /// The tick from which it may complete (virtual clock).
    due: u64,
    pub(crate) uses: Spans,
    pub(crate) work: Work,
    /// The graph it was launched with, kept alive until it is done.
    pub(crate) graph: Option<Arc<GraphBody>>,
}

#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) device: usize,
    /// 0 is normal, negative is more urgent.
    priority: i32,
    /// Ticks until its work completes, if that is not what the clock says.
    pub(crate) lag: Option<u64>,
    /// The last operation that was queued, and the last that is done.
    queued: u64,
    done: u64,
    operations: VecDeque<Operation>,
    /// What it waits for from an operation on: of each other stream, up to which operation. One for each queued wait, in order.
    after: VecDeque<(u64, HashMap<u64, u64>)>,
    /// Whether the operation that runs now takes a place of the device.
    running: Option<bool>,
    destroyed: bool,
    /// Whether its worker was started.
    pub(crate) has_worker: bool,
    /// Wakes its worker.
    pub(crate) wake: Arc<Condvar>,
    pub(crate) member: Option<Member>,
}

impl StreamState {
    fn new(device: usize, priority: i32) -> Self {
        Self {
            device,
            priority,
            lag: None,
            queued: 0,
            done: 0,
            operations: VecDeque::new(),
            after: VecDeque::new(),
            running: None,
            destroyed: false,
            has_worker: false,
            wake: Arc::new(Condvar::new()),
            member: None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.running.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct EventState {
    pub(crate) device: usize,
    pub(crate) flags: EventFlags,
    /// Its last record's number; a record that was overtaken by another changes nothing.
    version: u64,
    /// Its last record.
    pub(crate) point: Option<Point>,
    pub(crate) complete: bool,
    /// When the last record was passed, in nanoseconds.
    pub(crate) stamp: u64,
    /// The capture it was recorded in, and the nodes it stands for.
    pub(crate) captured: Option<Member>,
    pub(crate) shared: Option<Arc<SharedFlag>>,
}

impl EventState {
    /// Whether its last record was passed.
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.as_ref().map_or(self.complete, |flag| flag.passed(flag.recorded()))
    }
}

/// What the next operation of a stream waits for.
#[derive(Debug)]
pub(crate) enum Front {
    Idle,
    Running,
    Ready,
    Behind(Point),
    /// Another process's event.
    Foreign,
}

#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) streams: Slab<StreamState>,
    pub(crate) events: Slab<EventState>,
    /// Streams with work.
    busy: HashSet<u64>,
    /// The first operations of streams, in the order in which they may be done (virtual clock): from which tick, how urgent the
    /// stream is, their numbers, and the streams.
    fronts: BTreeSet<(u64, i32, u64, u64)>,
    /// Those that wait for another stream are not there: that stream, up to which operation, and who waits.
    behind: BTreeSet<(u64, u64, u64)>,
    /// What queued and running work uses.
    used: Used,
    /// The last operation that was queued anywhere.
    sequence: u64,
    pub(crate) tick: u64,
    lag: u64,
    operations_tick: bool,
    /// Work on an idle stream is done where it is queued.
    at_once: bool,
    concurrency: usize,
}

impl Queues {
    /// With one default stream per device: device `d`'s has the key `d + 1`. The keys 1 and 2, which are names of default
    /// streams on other drivers, are never those of created streams, so that this device can stand in for theirs.
    pub(crate) fn new(config: &OpenRegConfig) -> Self {
        let (devices, clock) = (usize::from(config.devices), config.clock);
        let mut streams = Slab::new(config.reuse_handles);
        for device in 0..devices.max(2) {
            streams.insert(StreamState::new(device.min(devices.saturating_sub(1)), 0));
        }
        Self {
            streams,
            events: Slab::new(config.reuse_handles),
            busy: HashSet::new(),
            fronts: BTreeSet::new(),
            behind: BTreeSet::new(),
            used: Used::default(),
            sequence: 0,
            tick: 0,
            lag: if let Clock::Virtual { lag } = clock { lag } else { 0 },
            operations_tick: config.operations_tick,
            at_once: matches!(clock, Clock::Virtual { lag: 0 } | Clock::AtOnce),
            concurrency: config.concurrency as usize,
        }
    }

    pub(crate) const fn default_stream(device: usize) -> u64 {
        device as u64 + 1
    }

    pub(crate) fn create_stream(&mut self, device: usize, priority: i32) -> u64 {
        let mut stream = StreamState::new(device, priority);
        // A key that came back must not look as if it still had its predecessor's work before it.
        stream.queued = self.sequence;
        stream.done = self.sequence;
        self.streams.insert(stream)
    }

    /// Ends a stream; one with work ends when that is done.
    pub(crate) fn destroy_stream(&mut self, key: u64) -> Answer<()> {
        let stream = self.stream_mut(key)?;
        stream.destroyed = true;
        stream.wake.notify_all();
        if stream.is_idle() {
            self.streams.remove(key);
        }
        Ok(())
    }

    pub(crate) fn stream(&self, key: u64) -> Answer<&StreamState> {
        self.streams.get(key).filter(|stream| !stream.destroyed).ok_or_else(gone)
    }

    pub(crate) fn stream_mut(&mut self, key: u64) -> Answer<&mut StreamState> {
        self.streams.get_mut(key).filter(|stream| !stream.destroyed).ok_or_else(gone)
    }

    pub(crate) fn create_event(
        &mut self,
        device: usize,
        flags: EventFlags,
        shared: Option<Arc<SharedFlag>>,
    ) -> u64 {
        self.events.insert(EventState {
            device,
            flags,
            version: 0,
            point: None,
            complete: true,
            stamp: 0,
            captured: None,
            shared,
        })
    }

    pub(crate) fn event(&self, key: u64) -> Answer<&EventState> {
        self.events
            .get(key)
            .ok_or_else(|| Refusal::invalid("the event is not, or no longer, one of this machine"))
    }

    /// All streams of a device, destroyed ones that still work included.
    pub(crate) fn streams_of(&self, device: usize) -> Vec<u64> {
        self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(key, _)| key).collect()
    }

    /// Whether any stream has work.
    pub(crate) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// The end of what is queued on the stream.
    pub(crate) fn end_of(&self, key: u64) -> Option<Point> {
        self.streams.get(key).map(|stream| Point { stream: key, sequence: stream.queued })
    }

    pub(crate) fn passed(&self, point: Point) -> bool {
        self.streams.get(point.stream).is_none_or(|stream| stream.done >= point.sequence || stream.is_idle())
    }

    /// The tick from which a point that is not passed yet may be.
    pub(crate) fn due(&self, point: Point) -> Option<u64> {
        let operations = &self.streams.get(point.stream)?.operations;
        let at = operations.partition_point(|operation| operation.sequence < point.sequence);
        operations.get(at).map(|operation| operation.due)
    }

    /// Queues an operation. Gives it back where it can be done at once, without being queued.
    pub(crate) fn push(
        &mut self,
        key: u64,
        work: Work,
        uses: Spans,
        graph: Option<Arc<GraphBody>>,
    ) -> Option<Operation> {
        self.sequence += 1;
        self.tick += u64::from(self.operations_tick);
        let lag = self.streams.get(key).and_then(|stream| stream.lag);
        let due = self.tick.saturating_add(lag.unwrap_or(self.lag));
        let operation = Operation { sequence: self.sequence, due, uses, work, graph };
        let after = match operation.work {
            Work::Wait(point) => Some(self.after(key, point)),
            _ => None,
        };
        let Some(stream) = self.streams.get_mut(key) else { return Some(operation) };
        stream.after.extend(after.map(|after| (operation.sequence, after)));
        stream.queued = operation.sequence;
        if self.at_once
            && lag.unwrap_or(0) == 0
            && stream.is_idle()
            && matches!(operation.work, Work::Touch | Work::Record { .. } | Work::PoolFree(_))
        {
            return Some(operation);
        }
        self.used.begin(&operation.uses, key, operation.sequence);
        let was_idle = stream.is_idle();
        stream.operations.push_back(operation);
        if was_idle {
            self.busy.insert(key);
            self.line_up(key);
        }
        None
    }

    /// The stream's first operation is a new one, or is waited for no more.
    fn line_up(&mut self, key: u64) {
        let Some(stream) = self.streams.get(key) else { return };
        let Some(first) = stream.operations.front() else { return };
        match self.front(key) {
            Front::Behind(point) => self.behind.insert((point.stream, point.sequence, key)),
            _ => self.fronts.insert((first.due, stream.priority, first.sequence, key)),
        };
    }

    /// The next record of an event, on a stream: its version.
    pub(crate) fn begin_record(&mut self, event: u64, stream: u64) -> u64 {
        let sequence = self.sequence + 1;
        let Some(state) = self.events.get_mut(event) else { return 0 };
        state.complete = false;
        state.captured = None;
        state.point = Some(Point { stream, sequence });
        // Its place among all operations: another event of the same handle, recorded before this one was made, has another.
        state.version = state.shared.as_ref().map_or(sequence, |flag| flag.record());
        state.version
    }

    /// What the stream's first operation waits for.
    pub(crate) fn front(&self, key: u64) -> Front {
        let Some(stream) = self.streams.get(key) else { return Front::Idle };
        if stream.running.is_some() {
            return Front::Running;
        }
        match stream.operations.front().map(|operation| &operation.work) {
            None => Front::Idle,
            Some(&Work::Wait(point)) if !self.passed(point) => Front::Behind(point),
            Some(Work::WaitShared { flag, record }) if !flag.passed(*record) => Front::Foreign,
            Some(_) => Front::Ready,
        }
    }

    /// The stream whose first operation is due next, if one is (virtual clock).
    pub(crate) fn next_due(&self) -> Option<u64> {
        let mut due = self.fronts.iter().take_while(|(due, ..)| *due <= self.tick).counted();
        due.find(|(.., key)| matches!(self.front(*key), Front::Ready)).map(|(.., key)| *key)
    }

    /// Whether a worker may begin the stream's first operation: the device has a place for it, and no more
    /// urgent stream wants that place.
    pub(crate) fn may_start(&self, key: u64) -> bool {
        let Some(stream) = self.streams.get(key) else { return false };
        if !matches!(self.front(key), Front::Ready) {
            return false;
        }
        let wants_place = |stream: &StreamState| {
            stream.operations.front().is_some_and(|first| first.work.occupies_device())
        };
        if !wants_place(stream) {
            return true;
        }
        let mut running = 0;
        for &other in &self.busy {
            let Some(rival) = self.streams.get(other).filter(|rival| rival.device == stream.device) else {
                continue;
            };
            running += usize::from(rival.running == Some(true));
            if rival.priority < stream.priority
                && wants_place(rival)
                && matches!(self.front(other), Front::Ready)
            {
                return false;
            }
        }
        running < self.concurrency
    }

    /// Takes the stream's first operation out to be done.
    pub(crate) fn start(&mut self, key: u64) -> Option<Operation> {
        let stream = self.streams.get_mut(key)?;
        let operation = stream.operations.pop_front()?;
        stream.running = Some(operation.work.occupies_device());
        self.fronts.remove(&(operation.due, stream.priority, operation.sequence, key));
        Some(operation)
    }

    /// The operation is done; sets the event that it records.
    pub(crate) fn finish(&mut self, key: u64, operation: &Operation, now: u64) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.running = None;
            stream.done = operation.sequence;
            while stream.after.get(1).is_some_and(|(sequence, _)| *sequence <= stream.done) {
                stream.after.pop_front();
            }
            if stream.operations.is_empty() {
                stream.after.clear();
                self.busy.remove(&key);
                if stream.destroyed {
                    self.streams.remove(key);
                }
            }
        }
        self.used.end(&operation.uses, key, operation.sequence);
        self.line_up(key);
        while let Some(&waiter) = self.behind.range((key, 0, 0)..=(key, operation.sequence, u64::MAX)).next()
        {
            self.behind.remove(&waiter);
            self.line_up(waiter.2);
        }
        if let Work::Record { event, version } = operation.work
            && let Some(state) = self.events.get_mut(event)
        {
            if let Some(flag) = &state.shared {
                flag.pass(version);
            }
            if state.version == version {
                state.complete = true;
                state.stamp = now;
            }
        }
    }

    /// Whether queued or running work uses any of the range.
    pub(crate) fn uses(&self, span: Span) -> bool {
        self.used.is_used(span, |_| true, |_, _| true)
    }

    /// Whether another stream's queued work, for which `key` does not wait, uses a range for another user, or any
    /// of its `aliases`.
    pub(crate) fn races(&self, key: u64, span: Span, aliases: &[Span]) -> bool {
        let waits = self.streams.get(key).and_then(|stream| stream.after.back());
        let waited = |other| waits.and_then(|(_, waits)| waits.get(&other).copied()).unwrap_or(0);
        let is_free = |other, last| other != key && last > waited(other);
        let hands_on = |user: Option<NonZeroU64>| user.is_some() && user != span.user;
        (span.user.is_some() && self.used.is_used(span, hands_on, is_free))
            || aliases.iter().any(|alias| self.used.is_used(*alias, |_| true, is_free))
    }

    /// Up to where a stream waits for each other one, through others too, once it waits for `point`.
    fn after(&self, key: u64, point: Point) -> HashMap<u64, u64> {
        let own = self.streams.get(key).and_then(|stream| stream.after.back());
        let mut waits = own.map(|(_, waits)| waits.clone()).unwrap_or_default();
        let through = self.streams.get(point.stream).and_then(|stream| {
            let from = stream.after.partition_point(|(sequence, _)| *sequence <= point.sequence);
            stream.after.get(from.checked_sub(1)?)
        });
        let through = through.into_iter().flat_map(|(_, waits)| waits);
        for (stream, sequence) in
            through.map(|(stream, sequence)| (*stream, *sequence)).chain([(point.stream, point.sequence)])
        {
            let known = waits.entry(stream).or_insert(0);
            *known = sequence.max(*known);
        }
        waits
    }
}

fn gone() -> Refusal {
    Refusal::invalid("the stream is not, or no longer, one of this machine")
}
