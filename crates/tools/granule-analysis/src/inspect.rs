//! What took the memory of a run: what was live when, how it lay, what grew, what was refused and why.

mod diff;
mod growth;
mod how_long;
mod live;
mod memory;
mod period;
mod place;
mod refused;
mod summary;
mod waste;

pub use diff::{Comparison, Figure, Function, GroupChange, MomentChange};
pub use growth::{Growth, Marks, Step, Suspect};
pub use how_long::HowLong;
pub use live::{Class, Group, Live, OfLabel, OfPool, OfStream, Size};
pub use memory::{Blocker, HeldBlock, HeldOpen, Memory, PoolMemory};
pub(crate) use place::kind_of_file;
pub use place::{Caller, Place, program_frame};
pub use refused::{Refused, Verdict};
pub use summary::{Help, Summary};
pub use waste::Waste;

use crate::layout::Layout;
use crate::rules::Rules;
use crate::run::Moment;
use crate::{Limit, Run};
use place::Callers;
use serde::Serialize;

/// Which moment is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The first at which most was live.
    Peak,
    /// The end.
    End,
    /// The first refused request.
    Oom,
    /// That moment, or the end if it is later.
    At(Moment),
}

impl When {
    /// A name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::End => "end",
            Self::Oom => "oom",
            Self::At(_) => "moment",
        }
    }

    /// The moment; `None` where nothing was refused.
    #[must_use]
    pub fn moment(self, run: &Run) -> Option<Moment> {
        match self {
            Self::Peak => Some(run.peak().0),
            Self::End => Some(run.length),
            Self::Oom => run.refusals.first().map(|refusal| refusal.at),
            Self::At(moment) => Some(moment.min(run.length)),
        }
    }
}

/// All that is said about a run. Bytes are requested ones unless said otherwise; moments are counted in the history's entries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The figures of the whole run.
    pub run: Figures,
    /// The moments that were asked for.
    pub moments: Vec<View>,
    /// The first refused request.
    pub refused: Option<Refused>,
    /// Growth from iteration to iteration.
    pub growth: Growth,
}

/// Figures of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Entries of the history.
    pub entries: Moment,
    /// Allocations, those from before the history included.
    pub allocations: u64,
    /// Of these, those from before the history.
    pub older: u64,
    /// Most live bytes.
    pub peak_live: u64,
    /// When that was first.
    pub peak_live_at: Moment,
    /// Most reserved bytes.
    pub peak_reserved: u64,
    /// When that was first.
    pub peak_reserved_at: Moment,
    /// Live bytes at the end.
    pub live_at_end: u64,
    /// Bytes held from the device at the end.
    pub reserved_at_end: u64,
    /// Blocks that, once given back, had to wait for other streams.
    pub waited: u64,
    /// Most bytes that waited at once.
    pub peak_waiting: u64,
    /// When that was first.
    pub peak_waiting_at: Moment,
    /// Requests that were refused.
    pub refused: u64,
    /// Iterations that the file has.
    pub iterations: u64,
}

/// A run at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// `peak`, `end`, `oom` or `moment`.
    pub what: &'static str,
    /// The moment.
    pub at: Moment,
    /// The iteration it is in; `None` before the first, or where the file has none.
    pub iteration: Option<u64>,
    /// Microseconds since the Unix epoch; `None` where the file has no clock.
    pub time_us: Option<i64>,
    /// What was live.
    pub live: Live,
    /// How it lay; `None` where the file does not say what was held.
    pub memory: Option<Memory>,
    /// What rounding cost, by requested size; empty where the file does not say what was held.
    pub waste: Vec<Waste>,
}

/// What every part needs.
struct Context<'a> {
    run: &'a Run,
    rules: &'a Rules,
    callers: Callers,
}

impl Inspection {
    /// Looks at a run, whose allocator followed `rules`. A moment that there is not is left out.
    #[must_use]
    pub fn new(run: &Run, rules: &Rules, moments: &[When]) -> Self {
        let context = Context { run, rules, callers: Callers::new(&run.sites) };
        let moments = moments.iter().filter_map(|when| Some((when.name(), when.moment(run)?)));
        Self {
            run: Figures::of(run),
            moments: moments.map(|(what, at)| context.view(what, at)).collect(),
            refused: context.refused(1).next(),
            growth: Growth::new(&context),
        }
    }

    /// What was live at a moment, by how long it is held; empty where nothing says where iterations begin.
    #[must_use]
    pub fn held(&self, run: &Run, at: Moment) -> Vec<Group<HowLong>> {
        how_long::held(run, &self.growth, at)
    }

    /// The limit that refused the first request for which the device had room, if there is one.
    #[must_use]
    pub fn limit(run: &Run, rules: &Rules) -> Option<Limit> {
        const LOOKED_AT: usize = 20;
        Self::refusals(run, rules, LOOKED_AT).iter().find_map(|refused| refused.limit)
    }

    /// Why the first so many refused requests were refused. Each costs a look at all that was live then.
    #[must_use]
    pub fn refusals(run: &Run, rules: &Rules, at_most: usize) -> Vec<Refused> {
        let context = Context { run, rules, callers: Callers::new(&run.sites) };
        context.refused(at_most).collect()
    }
}

impl Figures {
    fn of(run: &Run) -> Self {
        let (peak_live_at, peak_live) = run.peak();
        let (peak_reserved_at, peak_reserved) = run.reserved_peak();
        let (peak_waiting_at, peak_waiting) = run.waiting_peak();
        let ends = run.allocations.iter().filter(|life| life.is_live(run.length));
        // The completion of a free that waits for nothing follows at once.
        let waited = run.allocations.iter().filter(|life| life.reusable.saturating_sub(life.end) > 1);
        Self {
            entries: run.length,
            allocations: run.allocations.len() as u64,
            older: run.allocations.partition_point(|life| life.is_older()) as u64,
            peak_live,
            peak_live_at,
            peak_reserved,
            peak_reserved_at,
            live_at_end: ends.fold(0, |sum: u64, life| sum.saturating_add(life.size)),
            reserved_at_end: run.reserved().last().map_or(0, |(_, bytes)| *bytes),
            waited: waited.count() as u64,
            peak_waiting,
            peak_waiting_at,
            refused: run.refusals.len() as u64,
            iterations: run.iterations.len() as u64,
        }
    }
}

impl Context<'_> {
    fn refused(&self, at_most: usize) -> impl Iterator<Item = Refused> {
        let first = self.run.refusals.iter().take(at_most);
        first.map(|refusal| Refused::new(self, refusal, &Layout::at(self.run, refusal.at, self.rules)))
    }

    fn view(&self, what: &'static str, at: Moment) -> View {
        let run = self.run;
        let layout = run.has_addresses().then(|| Layout::at(run, at, self.rules));
        View {
            what,
            at,
            iteration: run.iteration_at(at),
            time_us: run.time(at),
            live: Live::at(self, at),
            memory: layout.as_ref().map(|layout| Memory::at(self, at, layout)),
            waste: layout.as_ref().map_or(Vec::new(), |layout| waste::waste(run, layout)),
        }
    }

    fn stream(&self, index: u32) -> u64 {
        self.run.streams.get(index as usize).copied().unwrap_or(u64::from(index))
    }

    fn pool(&self, index: u32) -> [u64; 2] {
        self.run.pools.get(index as usize).map_or([0, 0], |pool| [pool.0, pool.1])
    }

    fn label(&self, index: u32) -> String {
        self.run.labels.get(index as usize).map(ToString::to_string).unwrap_or_default()
    }
}
