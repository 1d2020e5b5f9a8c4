//! How long streams take: a model beside the simulated work, which says what is done and what is not.
//!
//! Kernels run one after the other on their stream, from when the host gave them. What another stream's wait costs is the time
//! by which it makes a kernel begin later than the program's own order would.

use std::collections::HashMap;

/// What waiting for other streams cost: [`Driver::stream_times`](crate::Driver::stream_times).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamTimes {
    /// How long modelled kernels ran, in nanoseconds: those of all streams, added up.
    pub kernel_ns: u64,
    /// By how much waits for events let kernels begin later, in nanoseconds.
    pub stalled_ns: u64,
    /// Waits for events: for each, how many ticks ago the newest kernel was given that it waits for. 0 where there was none.
    pub wait_ages: Vec<u64>,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// When its kernels are done, in nanoseconds of the host's time.
    done: u64,
    /// What the program lets it wait for besides.
    ordered: u64,
    /// What events let it wait for.
    awaited: u64,
    /// When its newest kernel was given, in ticks.
    given: u64,
}

impl Lane {
    fn end(self) -> u64 {
        self.done.max(self.ordered).max(self.awaited)
    }
}

/// What an event stands for.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: u64,
    given: u64,
}

/// All streams, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    lanes: HashMap<u64, Lane>,
    marks: HashMap<u64, Mark>,
    times: StreamTimes,
}

impl Pace {
    /// The host gives a stream a kernel of so many nanoseconds, at a tick of `tick_ns` each.
    pub(crate) fn kernel(&mut self, stream: u64, ns: u64, tick: u64, tick_ns: u64) {
        let lane = self.lanes.entry(stream).or_default();
        let ready = tick.saturating_mul(tick_ns).max(lane.done).max(lane.ordered);
        let start = ready.max(lane.awaited);
        self.times.stalled_ns = self.times.stalled_ns.saturating_add(start - ready);
        self.times.kernel_ns = self.times.kernel_ns.saturating_add(ns);
        *lane = Lane { done: start.saturating_add(ns), given: tick, ..Lane::default() };
    }

    /// The program lets a stream wait for all that another was given.
    pub(crate) fn order(&mut self, earlier: u64, later: u64) {
        let before = self.lanes.get(&earlier).copied().unwrap_or_default();
        let lane = self.lanes.entry(later).or_default();
        lane.ordered = lane.ordered.max(before.end());
    }

    /// An event stands for what a stream was given.
    pub(crate) fn record(&mut self, event: u64, stream: u64) {
        let lane = self.lanes.get(&stream).copied().unwrap_or_default();
        self.marks.insert(event, Mark { end: lane.end(), given: lane.given });
    }

    /// A stream waits for an event, from this tick on.
    pub(crate) fn follow(&mut self, stream: u64, event: u64, tick: u64) {
        let mark = self.marks.get(&event).copied();
        self.times.wait_ages.push(mark.map_or(0, |mark| tick.saturating_sub(mark.given)));
        if let Some(mark) = mark {
            let lane = self.lanes.entry(stream).or_default();
            lane.awaited = lane.awaited.max(mark.end);
        }
    }

    /// An event is gone.
    pub(crate) fn forget(&mut self, event: u64) {
        self.marks.remove(&event);
    }

    pub(crate) fn times(&self) -> StreamTimes {
        self.times.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    const TICK: u64 = 10;

    #[test]
    fn a_wait_costs_what_it_lets_a_kernel_begin_later() {
        let mut pace = Pace::default();
        pace.kernel(1, 100, 1, TICK);
        pace.record(7, 1);
        pace.kernel(1, 500, 2, TICK);
        pace.follow(2, 7, 4);
        assert_eq!(pace.times().stalled_ns, 0, "nothing is late yet");
        pace.kernel(2, 20, 5, TICK);
        let times = pace.times();
        assert_eq!((times.stalled_ns, times.kernel_ns), (60, 620), "it would begin at 50, and begins at 110");
        assert_eq!(times.wait_ages, [3], "the second kernel is not waited for");
        pace.kernel(2, 20, 6, TICK);
        assert_eq!(pace.times().stalled_ns, 60, "a wait holds up one kernel");
    }

    #[test]
    fn what_the_program_waits_for_anyway_costs_nothing() {
        let mut pace = Pace::default();
        pace.kernel(1, 1000, 0, TICK);
        pace.record(7, 1);
        pace.order(1, 2);
        pace.follow(2, 7, 1);
        pace.kernel(2, 20, 1, TICK);
        assert_eq!(pace.times().stalled_ns, 0);
        // That is over by now.
        pace.follow(3, 7, 200);
        pace.kernel(3, 20, 200, TICK);
        assert_eq!(pace.times().stalled_ns, 0);
        pace.forget(7);
        pace.follow(4, 7, 300);
        pace.kernel(4, 1, 0, TICK);
        assert_eq!((pace.times().stalled_ns, pace.times().wait_ages), (0, vec![1, 200, 0]));
    }

    #[test]
    fn waits_are_passed_on() {
        let mut pace = Pace::default();
        pace.kernel(1, 1000, 0, TICK);
        pace.record(7, 1);
        pace.follow(2, 7, 0);
        pace.record(8, 2);
        pace.follow(3, 8, 0);
        pace.kernel(3, 5, 10, TICK);
        assert_eq!(pace.times().stalled_ns, 900);
    }
}
