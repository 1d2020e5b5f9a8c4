//! When a moment was.

use granule_analysis::Run;
use granule_analysis::run::{Moment, NEVER};

/// The times of a run's moments.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Of each entry, never falling; empty where the file has no clock.
    times: Vec<i64>,
}

impl Clock {
    pub(crate) fn new(run: &Run) -> Self {
        let mut latest = i64::MIN;
        let never_back = |time: &i64| {
            latest = latest.max(*time);
            latest
        };
        Self { times: run.clock.iter().map(never_back).collect() }
    }

    /// Microseconds since the Unix epoch; `None` where the file has no clock, and for what did not happen in the run.
    pub(crate) fn time(&self, at: Moment) -> Option<i64> {
        if at == NEVER {
            return None;
        }
        // What entry n did holds from n + 1 on; what was there before the first is as old as that one.
        let entry = (at as usize).saturating_sub(1).min(self.times.len().checked_sub(1)?);
        self.times.get(entry).copied()
    }

    /// The same for a time axis: without a clock, entries are a microsecond apart.
    pub(crate) fn on_axis(&self, at: Moment) -> i64 {
        self.time(at).unwrap_or(i64::from(at))
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use granule_analysis::Run;
    use granule_analysis::run::NEVER;

    #[test]
    fn time_never_runs_backwards() {
        let run = Run { clock: vec![100, 90, 120], ..Run::default() };
        let clock = Clock::new(&run);
        let times: Vec<_> = [0, 1, 2, 3, 9, NEVER].map(|at| clock.time(at)).into();
        assert_eq!(times, [Some(100), Some(100), Some(100), Some(120), Some(120), None]);
    }

    #[test]
    fn without_a_clock_entries_are_a_microsecond_apart() {
        let clock = Clock::new(&Run::default());
        assert_eq!((clock.time(7), clock.on_axis(7)), (None, 7));
    }
}
