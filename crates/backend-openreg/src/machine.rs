//! The machine's state under one lock, and the two clocks that move it.

pub(crate) mod graph;
pub(crate) mod memo;
pub(crate) mod queue;
mod used;
pub(crate) mod work;

use crate::config::{Clock, OpenRegConfig};
use crate::gate::Gate;
use crate::gate::call::Call;
use crate::gate::links::Timeline;
use crate::machine::graph::{Captures, GraphBody, Node};
use crate::machine::memo::Memo;
use crate::machine::queue::{Front, Operation, Queues, StreamState};
use crate::machine::work::{Point, Spans, Work};
use crate::memory::Memory;
use crate::refusal::{Answer, Refusal};
use crate::space::Span;
use crate::trap::{Trap, TrapKind};
use backend_api::types::{DeviceIndex, DevicePtr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Traps beyond this many are counted by no one: the first ones tell.
const MOST_TRAPS: usize = 65_536;
/// How often another process's event is looked at.
const FOREIGN_POLL: Duration = Duration::from_micros(50);
/// What one tick of the virtual clock is worth.
const TICK_NS: u64 = 1_000;

/// Everything that calls change.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) memory: Memory,
    pub(crate) queues: Queues,
    pub(crate) captures: Captures,
    pub(crate) traps: Vec<Trap>,
    /// Virtual time beyond the ticks: kernels and delays.
    pub(crate) extra_ns: u64,
    /// Virtual time that callers waited for queued work, and up to which tick.
    pub(crate) waited_ns: u64,
    waited_until: u64,
    /// Copies on links, where there are any.
    pub(crate) timeline: Option<Timeline>,
    /// The machine is being dropped; workers end when their streams are empty.
    closing: bool,
}

impl Simulated {
    pub(crate) fn trap(&mut self, kind: TrapKind, call: Call, device: DeviceIndex, at: u64, bytes: u64) {
        if self.traps.len() < MOST_TRAPS {
            self.traps.push(Trap { kind, call, device, ptr: DevicePtr(at), bytes });
        }
    }

    /// Refuses work of a stream where memory that it uses is in use by another stream's work before which nothing
    /// makes it wait: through another address (one memory mapped twice), or for another user (memory that was
    /// handed on too early).
    fn is_ordered(&self, key: u64, uses: &Spans) -> Answer<()> {
        for span in uses.iter().filter(|span| span.start < span.end) {
            let aliases = self.memory.aliases_of(*span);
            let (at, bytes) = (span.start, span.end - span.start);
            if self.queues.races(key, *span, &aliases) {
                let detail = format!("another stream's work uses [{at:#x}, +{bytes}); wait for it first");
                return Err(Refusal::trap(TrapKind::NotOrdered, at, bytes, detail));
            }
        }
        Ok(())
    }

    /// Notes what a call does on the links, if there are any; it is told how long the calls took so far.
    pub(crate) fn on_links(&mut self, gate: &Gate, note: impl FnOnce(&mut Timeline, u64)) {
        let waited = self.waited_ns;
        if let Some(timeline) = &mut self.timeline {
            note(timeline, gate.usage(waited).modelled_ns());
        }
    }

    /// Counts the time until `point` is passed; what an earlier wait lasted through is not counted again.
    fn note_wait(&mut self, point: Point) {
        let Some(due) = self.queues.due(point) else { return };
        let since = self.waited_until.max(self.queues.tick);
        self.waited_ns = self.waited_ns.saturating_add(due.saturating_sub(since).saturating_mul(TICK_NS));
        self.waited_until = self.waited_until.max(due);
    }

    /// Refuses where queued work uses the range.
    pub(crate) fn not_in_use(&self, at: u64, bytes: u64) -> Answer<()> {
        if self.queues.uses(Span::new(at, bytes)) {
            let detail = format!("queued work still uses [{at:#x}, +{bytes}); wait for it first");
            return Err(Refusal::trap(TrapKind::StillInUse, at, bytes, detail));
        }
        Ok(())
    }
}

/// What the machine's handle and its workers share.
#[derive(Debug)]
pub(crate) struct Machine {
    state: Mutex<Simulated>,
    /// An operation was done somewhere.
    progress: Condvar,
    pub(crate) clock: Clock,
    start: Instant,
    /// What copies of memory without bytes find there.
    pub(crate) memo: Arc<Memo>,
}

pub(crate) type Locked<'m> = MutexGuard<'m, Simulated>;

impl Machine {
    pub(crate) fn new(config: &OpenRegConfig) -> std::io::Result<Arc<Self>> {
        let state = Simulated {
            memory: Memory::new(config)?,
            queues: Queues::new(config),
            captures: Captures::new(),
            traps: Vec::new(),
            extra_ns: 0,
            waited_ns: 0,
            waited_until: 0,
            timeline: config.links.map(Timeline::new),
            closing: false,
        };
        Ok(Arc::new(Self {
            state: Mutex::new(state),
            progress: Condvar::new(),
            clock: config.clock,
            start: Instant::now(),
            memo: Arc::default(),
        }))
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        // Nothing panics while it holds the lock; if something did, its state is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the machine was made, on its own clock.
    pub(crate) fn now(&self, state: &Simulated) -> u64 {
        match self.clock {
            Clock::Virtual { .. } => {
                (state.queues.tick.saturating_mul(TICK_NS)).saturating_add(state.extra_ns)
            }
            Clock::Workers | Clock::AtOnce => {
                u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
        }
    }

    /// Lets time pass for the calling thread.
    pub(crate) fn pause(&self, time: Duration) {
        match self.clock {
            Clock::Virtual { .. } => self.lock().extra_ns += nanoseconds(time),
            Clock::Workers | Clock::AtOnce => std::thread::sleep(time),
        }
    }

    /// Queues work on a stream, or adds it to the capture that the stream takes part in.
    pub(crate) fn queue(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        key: u64,
        work: Work,
        uses: Spans,
    ) -> Answer<()> {
        let Simulated { queues, captures, .. } = &mut *state;
        if let Some(member) = &mut queues.stream_mut(key)?.member {
            let capture = captures.active.get_mut(&member.capture).filter(|capture| !capture.invalidated);
            let capture = capture.ok_or_else(|| Refusal::capture("the capture was invalidated; end it"))?;
            let node = capture.add(Node { after: std::mem::take(&mut member.frontier), work, uses });
            member.frontier.push(node);
            return Ok(());
        }
        state.is_ordered(key, &uses)?;
        self.submit(state, key, work, uses, None)
    }

    /// Makes sure that [`submit`](Self::submit) on this stream cannot fail.
    pub(crate) fn prepare(self: &Arc<Self>, state: &mut Simulated, key: u64) -> Answer<()> {
        if self.clock == Clock::Workers { self.worker_for(state, key) } else { Ok(()) }
    }

    /// Queues work on a stream.
    pub(crate) fn submit(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        key: u64,
        work: Work,
        uses: Spans,
        graph: Option<Arc<GraphBody>>,
    ) -> Answer<()> {
        self.prepare(&mut state, key)?;
        // Behind other work, and for what may take as long as it likes, a stream has a thread under `AtOnce`, too.
        let is_next = state.queues.streams.get(key).is_some_and(StreamState::is_idle);
        let takes_time = matches!(work, Work::Host(_) | Work::Wait(_) | Work::WaitShared { .. });
        let has_thread = self.clock == Clock::Workers || !is_next || takes_time;
        if self.clock == Clock::AtOnce && has_thread {
            self.worker_for(&mut state, key)?;
        }
        match state.queues.push(key, work, uses, graph) {
            Some(operation) => self.finish(&mut state, key, &operation),
            None if !self.clock.is_real() => self.run_due(state),
            None if has_thread => {
                if let Ok(stream) = state.queues.stream(key) {
                    stream.wake.notify_all();
                }
            }
            None => {
                let mut done = Vec::new();
                drop(self.run_first(state, key, &mut done));
                // Dropped last: a graph that ends with its last launch calls foreign code.
                drop(done);
            }
        }
        Ok(())
    }

    /// Moves the virtual clock; nothing happens under another.
    pub(crate) fn advance(&self, ticks: u64) {
        if let Clock::Virtual { .. } = self.clock {
            let mut state = self.lock();
            state.queues.tick = state.queues.tick.saturating_add(ticks);
            self.run_due(state);
        }
    }

    /// Does all work that is due.
    fn run_due<'m>(&'m self, mut state: Locked<'m>) {
        let mut done = Vec::new();
        while let Some(key) = state.queues.next_due() {
            state = self.run_first(state, key, &mut done);
        }
        drop(state);
        // Dropped last: a graph that ends with its last launch calls foreign code.
        drop(done);
    }

    /// Does the stream's first operation.
    fn run_first<'m>(
        &'m self,
        mut state: Locked<'m>,
        key: u64,
        done: &mut Vec<Arc<GraphBody>>,
    ) -> Locked<'m> {
        let Some(mut operation) = state.queues.start(key) else { return state };
        let mut completed = true;
        match (&operation.work, self.clock) {
            (Work::Kernel(time), Clock::Virtual { .. }) => state.extra_ns += nanoseconds(*time),
            (Work::Kernel(time), Clock::Workers | Clock::AtOnce) => {
                drop(state);
                std::thread::sleep(*time);
                state = self.lock();
            }
            (work, _) if work.runs_unlocked() => {
                drop(state);
                completed = work.run();
                state = self.lock();
            }
            _ => {}
        }
        if !completed {
            let device = state.queues.streams.get(key).map_or(0, |stream| stream.device);
            state.trap(
                TrapKind::HostFunctionPanicked,
                Call::LaunchHostFunction,
                DeviceIndex(device as u16),
                0,
                0,
            );
        }
        self.finish(&mut state, key, &operation);
        done.extend(operation.graph.take());
        state
    }

    fn finish(&self, state: &mut Simulated, key: u64, operation: &Operation) {
        if let Work::PoolFree(at) = operation.work {
            state.memory.pool_give(at);
        }
        let now = if matches!(operation.work, Work::Record { .. }) { self.now(state) } else { 0 };
        state.queues.finish(key, operation, now);
        if self.clock.is_real() {
            self.progress.notify_all();
        }
    }

    /// Waits until a stream has passed `point`; on the virtual clock, by doing what that needs.
    pub(crate) fn wait_for<'m>(&'m self, mut state: Locked<'m>, point: Point) -> Locked<'m> {
        if self.clock.is_real() {
            while !state.queues.passed(point) {
                state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            return state;
        }
        state.note_wait(point);
        let mut done = Vec::new();
        // A wait points to work that was queued before it, so that this chain ends.
        let mut chain = vec![point];
        while let Some(&next) = chain.last() {
            if state.queues.passed(next) {
                chain.pop();
                continue;
            }
            match state.queues.front(next.stream) {
                Front::Ready => state = self.run_first(state, next.stream, &mut done),
                Front::Behind(before) => chain.push(before),
                // Another thread does it, or another process.
                Front::Running | Front::Foreign => state = self.look_again(state),
                Front::Idle => {
                    chain.pop();
                }
            }
        }
        if !done.is_empty() {
            drop(state);
            drop(done);
            state = self.lock();
        }
        state
    }

    /// Refuses where queued work uses the range, or waits for all of the machine.
    pub(crate) fn not_in_use<'m>(
        &'m self,
        mut state: Locked<'m>,
        span: Span,
        waits: bool,
    ) -> Answer<Locked<'m>> {
        if !waits {
            return state.not_in_use(span.start, span.end - span.start).map(|()| state);
        }
        while state.queues.uses(span) {
            let keys: Vec<u64> = state.queues.streams.iter().map(|(key, _)| key).collect();
            for end in keys.into_iter().filter_map(|key| state.queues.end_of(key)).collect::<Vec<_>>() {
                state = self.wait_for(state, end);
            }
        }
        Ok(state)
    }

    /// Gives others a moment to move something.
    pub(crate) fn look_again<'m>(&'m self, state: Locked<'m>) -> Locked<'m> {
        self.progress.wait_timeout(state, FOREIGN_POLL).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Starts the stream's worker if it has none.
    fn worker_for(self: &Arc<Self>, state: &mut Simulated, key: u64) -> Answer<()> {
        let stream = state.queues.stream_mut(key)?;
        if !stream.has_worker {
            let machine = Arc::clone(self);
            std::thread::Builder::new().name(format!("openreg-{key:x}")).spawn(move || machine.work(key))?;
            stream.has_worker = true;
        }
        Ok(())
    }

    /// A worker's life.
    fn work(&self, key: u64) {
        let mut done = Vec::new();
        let mut state = self.lock();
        loop {
            if !done.is_empty() {
                drop(state);
                done.clear();
                state = self.lock();
            }
            match state.queues.front(key) {
                Front::Ready if state.queues.may_start(key) => state = self.run_first(state, key, &mut done),
                Front::Ready | Front::Running | Front::Behind(_) => {
                    state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Front::Foreign => state = self.look_again(state),
                Front::Idle => match state.queues.stream(key).map(|stream| Arc::clone(&stream.wake)) {
                    Ok(wake) if !state.closing => {
                        state = wake.wait(state).unwrap_or_else(PoisonError::into_inner)
                    }
                    _ => return,
                },
            }
        }
    }

    /// Lets workers end once their streams are empty.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        for (_, stream) in state.queues.streams.iter() {
            stream.wake.notify_all();
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
