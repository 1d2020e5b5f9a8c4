//! Statistics of a part of the program: exact peaks while a scope lasts, whatever other scopes and resets there are.
//!
//! The peaks that are kept anyway are cut where a scope begins and where they are reset; what was the most up to there
//! is noted in every scope that is open. Between such boundaries scopes cost nothing.

use super::{DeviceAllocator, DeviceCounters};
use crate::arena::ArenaState;
use crate::sync::Guard;
use crate::watch::counters::{Count, Counters, Peaks, Row};
use crate::watch::stats::{ScopeBytes, ScopeStats};
use rustc_hash::FxHashMap;

/// The number of an open scope, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeId(u64);

/// What is counted and never goes down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events {
    pub(super) alloc_retries: i64,
    pub(super) ooms: i64,
    pub(super) sync_all_streams: i64,
    pub(super) device_alloc: i64,
    pub(super) device_free: i64,
    pub(super) oom_rejections: i64,
}

impl Events {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            alloc_retries: self.alloc_retries - earlier.alloc_retries,
            ooms: self.ooms - earlier.ooms,
            sync_all_streams: self.sync_all_streams - earlier.sync_all_streams,
            device_alloc: self.device_alloc - earlier.device_alloc,
            device_free: self.device_free - earlier.device_free,
            oom_rejections: self.oom_rejections - earlier.oom_rejections,
        }
    }
}

impl DeviceCounters {
    /// All since the allocator was made, whatever was reset.
    pub(super) fn events(&self) -> Events {
        Events {
            alloc_retries: self.alloc_retries,
            ooms: self.ooms,
            sync_all_streams: self.sync_all_streams,
            device_alloc: self.device_alloc,
            device_free: self.device_free,
            oom_rejections: self.oom_rejections,
        }
    }
}

/// The quantities of a scope, in the order of [`ScopeStats`].
#[derive(Clone, Copy, Debug)]
struct Bytes([i64; 4]);

impl Bytes {
    fn new(row: &Row, reserved: i64) -> Self {
        let of = |count: Count| row[count as usize];
        Self([of(Count::AllocatedBytes), of(Count::ActiveBytes), of(Count::RequestedBytes), reserved])
    }

    fn raise(&mut self, other: Self) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = (*mine).max(other);
        }
    }
}

/// All that a scope compares, at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    bytes: Bytes,
    handed_out: u64,
    taken_back: u64,
    events: Events,
}

#[derive(Debug)]
struct OpenScope {
    begin: Moment,
    /// The most from the beginning to the last boundary.
    peak: Bytes,
}

/// The scopes that are open on a device.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    next: u64,
    open: FxHashMap<ScopeId, OpenScope>,
}

impl Scopes {
    fn note(&mut self, peak: Bytes) {
        self.open.values_mut().for_each(|scope| scope.peak.raise(peak));
    }
}

impl OpenScope {
    /// What is to be said at the moment `now`, with the peaks since the last boundary.
    fn stats(&self, now: Moment, since_boundary: Bytes) -> ScopeStats {
        let mut peak = self.peak;
        peak.raise(since_boundary);
        let bytes =
            |n: usize| ScopeBytes { begin: self.begin.bytes.0[n], end: now.bytes.0[n], peak: peak.0[n] };
        let count = |now: u64, begin: u64| i64::try_from(now - begin).unwrap_or(i64::MAX);
        let events = now.events.since(self.begin.events);
        ScopeStats {
            allocated_bytes: bytes(0),
            active_bytes: bytes(1),
            requested_bytes: bytes(2),
            reserved_bytes: bytes(3),
            num_allocations: count(now.handed_out, self.begin.handed_out),
            num_frees: count(now.taken_back, self.begin.taken_back),
            num_alloc_retries: events.alloc_retries,
            num_ooms: events.ooms,
            num_sync_all_streams: events.sync_all_streams,
            num_device_alloc: events.device_alloc,
            num_device_free: events.device_free,
            num_oom_rejections: events.oom_rejections,
        }
    }
}

impl DeviceAllocator {
    /// Opens a scope.
    pub(crate) fn begin_scope(&self) -> ScopeId {
        self.notice_finished();
        self.with_all(|peaks, arenas| {
            self.cut_peaks(peaks, arenas, Peaks::restart);
            let begin = self.moment(arenas);
            let mut scopes = self.scopes.lock();
            let id = ScopeId(scopes.next);
            scopes.next += 1;
            scopes.open.insert(id, OpenScope { begin, peak: begin.bytes });
            id
        })
    }

    /// What happened since a scope began; nothing for one that has ended.
    pub(crate) fn scope_stats(&self, id: ScopeId) -> ScopeStats {
        self.notice_finished();
        self.with_all(|peaks, arenas| {
            let now = self.moment(arenas);
            // Read last: a stream that is new may take memory meanwhile, and a peak is not below what is held.
            let since_boundary = self.since_boundary(peaks);
            let scopes = self.scopes.lock();
            scopes.open.get(&id).map(|scope| scope.stats(now, since_boundary)).unwrap_or_default()
        })
    }

    /// Closes a scope.
    pub(crate) fn end_scope(&self, id: ScopeId) {
        self.with_all(|peaks, arenas| {
            let mut scopes = self.scopes.lock();
            if scopes.open.remove(&id).is_some() && scopes.open.is_empty() {
                // Nobody needs the boundary any more.
                peaks.rejoin(&mut counters(arenas));
            }
        });
    }

    /// Cuts the running peaks by `cut`, and notes in every open scope what they were.
    pub(super) fn cut_peaks(
        &self,
        peaks: &mut Peaks,
        arenas: &mut [Guard<'_, ArenaState>],
        cut: impl FnOnce(&mut Peaks, &mut [&mut Counters]),
    ) {
        let before = self.since_boundary(peaks);
        self.scopes.lock().note(before);
        cut(peaks, &mut counters(arenas));
        self.state.lock().accounts.restart_peak();
    }

    /// The most since the last boundary.
    fn since_boundary(&self, peaks: &Peaks) -> Bytes {
        Bytes::new(peaks.since_boundary(), self.state.lock().accounts.since_boundary())
    }

    fn moment(&self, arenas: &[Guard<'_, ArenaState>]) -> Moment {
        let mut row = Row::default();
        let (mut handed_out, mut taken_back) = (0, 0);
        for arena in arenas {
            for count in [Count::AllocatedBytes, Count::ActiveBytes, Count::RequestedBytes] {
                row[count as usize] += arena.counters.both(count);
            }
            handed_out += arena.counters.handed_out_in_all();
            taken_back += arena.counters.taken_back_in_all();
        }
        let state = self.state.lock();
        Moment {
            bytes: Bytes::new(&row, super::limits::signed(state.accounts.reserved())),
            handed_out,
            taken_back,
            events: state.counters.events(),
        }
    }
}

fn counters<'a>(arenas: &'a mut [Guard<'_, ArenaState>]) -> Vec<&'a mut Counters> {
    arenas.iter_mut().map(|arena| &mut arena.counters).collect()
}
