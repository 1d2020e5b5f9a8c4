//! Memory over time, in as many points as a picture has.

use crate::Run;
use crate::run::Moment;

/// What was live and held in a stretch of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The stretch's first moment.
    pub at: Moment,
    /// Most requested bytes live at once.
    pub live: u64,
    /// Most bytes held from the device at once.
    pub reserved: u64,
}

/// The run in at most `points` stretches of the same length. Each has its peaks, so that no peak of the run is lost.
#[must_use]
pub fn curve(run: &Run, points: u32) -> Vec<Point> {
    let moments = u64::from(run.length) + 1;
    let points = u64::from(points.max(1)).min(moments);
    let first = |index: u64| u32::try_from((index * moments).div_ceil(points)).unwrap_or(Moment::MAX);
    let starts: Vec<Moment> = (0..points).map(first).collect();
    let live = most(&starts, live(run));
    let reserved = most(&starts, run.reserved());
    let points = starts.into_iter().zip(live).zip(reserved);
    points.map(|((at, live), reserved)| Point { at, live, reserved }).collect()
}

/// Requested bytes live, at the moments at which that changed.
fn live(run: &Run) -> Vec<(Moment, u64)> {
    let mut live = run.live_before();
    let mut figures = vec![(0, live)];
    for change in run.changes() {
        let size = run.allocations[change.allocation].size;
        live = if change.begins { live.saturating_add(size) } else { live.saturating_sub(size) };
        figures.push((change.at, live));
    }
    figures
}

/// The most in each stretch, what holds when it begins included. `steps` are in order.
fn most(starts: &[Moment], steps: Vec<(Moment, u64)>) -> Vec<u64> {
    let mut steps = steps.into_iter().peekable();
    let mut now = 0;
    let ends = starts.iter().skip(1).copied().map(Some).chain([None]);
    let stretches = starts.iter().zip(ends).map(|(start, end)| {
        // Of several figures of one moment the last holds; those between are not seen.
        while let Some((_, bytes)) = steps.next_if(|(at, _)| at <= start) {
            now = bytes;
        }
        let mut most = now;
        while let Some((at, bytes)) = steps.next_if(|(at, _)| end.is_none_or(|end| *at < end)) {
            now = bytes;
            if steps.peek().is_none_or(|(next, _)| *next != at) {
                most = most.max(now);
            }
        }
        most
    });
    stretches.collect()
}

#[cfg(test)]
mod tests {
    use super::{Point, curve};
    use crate::Run;
    use crate::run::{Allocation, NEVER, Span};

    fn life(begin: u32, end: u32, size: u64) -> Allocation {
        Allocation { begin, end, reusable: end, address: 0, size, stream: 0, pool: 0, site: 0, label: 0 }
    }

    #[test]
    fn every_stretch_has_its_peak() {
        let run = Run {
            length: 9,
            allocations: vec![life(0, 4, 5), life(2, 3, 100), life(7, NEVER, 30)],
            spans: vec![Span {
                begin: 2,
                end: 8,
                address: 0,
                size: 128,
                stream: 0,
                pool: 0,
                growable: false,
            }],
            ..Run::default()
        };
        let point = |at, live, reserved| Point { at, live, reserved };
        assert_eq!(curve(&run, 2), [point(0, 105, 128), point(5, 30, 128)]);
        assert_eq!(curve(&run, 0), [point(0, 105, 128)]);
        let all = curve(&run, 1000);
        assert_eq!(all.len(), 10, "no more than there are moments");
        assert_eq!(all[2], point(2, 105, 128));
        assert_eq!(all[6], point(6, 0, 128));
        assert_eq!(all[8], point(8, 30, 0));
    }

    #[test]
    fn a_run_of_nothing_is_flat() {
        assert_eq!(curve(&Run::default(), 100), [Point::default()]);
    }
}
