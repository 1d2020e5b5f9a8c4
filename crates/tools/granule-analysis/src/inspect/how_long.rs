//! How long what is live is held, counted in iterations.

use super::live::{Group, by, live_at};
use super::{Growth, Marks};
use crate::Run;
use crate::run::{Allocation, Moment, NEVER};
use serde::Serialize;

/// How long an allocation is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum HowLong {
    /// From before the second iteration on to the end of the recording.
    Whole,
    /// Beyond the ends of several iterations.
    Several,
    /// Beyond the end of one iteration.
    One,
    /// Within an iteration.
    Less,
}

impl HowLong {
    /// In words, behind "held".
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Whole => "for the whole recording",
            Self::Several => "for several iterations",
            Self::One => "for one iteration",
            Self::Less => "for less than one iteration",
        }
    }

    fn of(life: &Allocation, marks: &[Moment]) -> Self {
        let from = marks.partition_point(|mark| *mark < life.begin);
        let to = marks.partition_point(|mark| *mark < life.end);
        match to.saturating_sub(from) {
            _ if from <= 1 && life.end == NEVER => Self::Whole,
            0 => Self::Less,
            1 => Self::One,
            _ => Self::Several,
        }
    }
}

/// What was live at a moment, by how long it is held; empty where nothing says where iterations begin.
pub(super) fn held(run: &Run, growth: &Growth, at: Moment) -> Vec<Group<HowLong>> {
    if growth.marks == Marks::Slices {
        return Vec::new();
    }
    let marks: Vec<Moment> = growth.steps.iter().map(|step| step.at).collect();
    let mut groups = by(live_at(run, at), |life: &Allocation| HowLong::of(life, &marks), |held| held);
    groups.sort_by_key(|group| group.key);
    groups
}

#[cfg(test)]
mod tests {
    use super::HowLong;
    use crate::Run;
    use crate::inspect::{Inspection, When};
    use crate::rules::Rules;
    use alloc_core::config::Settings;
    use granule_snapshot::trace::{Event, Trace};

    #[test]
    fn what_is_held_is_told_by_the_iterations_that_it_outlives() {
        let alloc = |id, size| Event::Alloc { id, size, stream: 0 };
        let events = vec![
            alloc(0, 1),
            Event::Iteration { n: 0 },
            alloc(1, 10),
            alloc(2, 100),
            Event::Iteration { n: 1 },
            Event::Free { id: 2 },
            alloc(3, 1000),
            Event::Iteration { n: 2 },
            alloc(4, 10_000),
            Event::Free { id: 3 },
        ];
        let held = |events: Vec<Event>| {
            let run = Run::of_trace(&Trace { events, ..Trace::default() });
            let inspection = Inspection::new(&run, &Rules::new(&Settings::default()), &[]);
            let peak = inspection.held(&run, When::Peak.moment(&run).unwrap());
            peak.iter().map(|group| (group.key, group.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(
            held(events.clone()),
            [(HowLong::Whole, 11), (HowLong::One, 1000), (HowLong::Less, 10_000)]
        );
        assert_eq!(held(vec![alloc(0, 1)]), [], "without iterations nothing is said");
    }
}
