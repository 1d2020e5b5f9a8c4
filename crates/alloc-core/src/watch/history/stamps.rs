//! Sequence numbers and time.

use super::ring::Record;
use crate::sync::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Source of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TickSource {
    /// There are none, in deterministic mode.
    Numbers,
    /// The processor's counter, which the clock reads, too.
    Counter,
    /// The clock: a call, and maybe one of the system.
    Clock,
}

/// Sequence numbers and time for all rings of a device.
#[derive(Debug)]
pub(crate) struct Stamps {
    next: AtomicU64,
    source: TickSource,
    /// Made only when needed: calibration takes a while.
    clock: Option<quanta::Clock>,
    start_ticks: u64,
    start_us: i64,
}

/// The processor's counter; 0 where there is none that a program can read in one instruction. Miri has none.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn counter() -> u64 {
    0
}

impl Stamps {
    pub(crate) fn new(deterministic: bool) -> Self {
        let clock = (!deterministic && !cfg!(miri)).then(quanta::Clock::new);
        let (before, start_ticks, after) =
            (counter(), clock.as_ref().map_or(0, quanta::Clock::raw), counter());
        let source = match clock {
            None => TickSource::Numbers,
            // The clock took the counter for good, or its reading would not lie between two of ours.
            Some(_) if (before..=after).contains(&start_ticks) => TickSource::Counter,
            Some(_) => TickSource::Clock,
        };
        Self { next: AtomicU64::new(0), source, clock, start_ticks, start_us: now_us() }
    }

    pub(crate) fn is_deterministic(&self) -> bool {
        self.source == TickSource::Numbers
    }

    /// True if [`take_quickly`](Self::take_quickly) may be called.
    pub(super) fn is_quick(&self) -> bool {
        self.source != TickSource::Clock
    }

    /// The first of the next `count` sequence numbers, and the ticks now; without a call.
    #[inline(always)]
    pub(super) fn take_quickly(&self, count: usize) -> (u64, u64) {
        debug_assert!(self.is_quick(), "the clock is asked");
        let ticks = if self.source == TickSource::Counter { counter() } else { 0 };
        (self.next.fetch_add(count as u64, Ordering::Relaxed), ticks)
    }

    /// The next sequence number, and the ticks now.
    pub(super) fn take(&self) -> (u64, u64) {
        let ticks = self.clock.as_ref().map_or(0, quanta::Clock::raw);
        (self.next.fetch_add(1, Ordering::Relaxed), ticks)
    }

    /// Microseconds since the Unix epoch; the sequence number in deterministic mode.
    pub(crate) fn microseconds(&self, record: &Record) -> i64 {
        let Some(clock) = &self.clock else {
            return i64::try_from(record.sequence).unwrap_or(i64::MAX);
        };
        let nanos = clock.delta_as_nanos(self.start_ticks, record.ticks);
        self.start_us.saturating_add(i64::try_from(nanos / 1000).unwrap_or(i64::MAX))
    }

    /// Time that a record made now would have.
    pub(crate) fn now_us(&self) -> i64 {
        if self.is_deterministic() { i64::try_from(self.made()).unwrap_or(i64::MAX) } else { now_us() }
    }

    /// Records made so far.
    pub(crate) fn made(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// Microseconds since the Unix epoch, now.
pub(crate) fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}
