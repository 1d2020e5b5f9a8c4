//! Depth-first search over placements in which every buffer rests on another or on the ground.
//!
//! A node looks at one section at the bottom of a valley and asks which buffer comes next in it: each one that can
//! start at the floor, or none, in which case the floor is raised to the next height that some buffer could have.
//! These cases exclude each other, so no placement is met twice, and any valley is as good as any other: the node
//! takes the section with the fewest cases. Nothing that crosses the valley's walls can lie below them.

use super::partial::{NONE, Partial, Shape, Units};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How a search chooses.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    /// The rank of every buffer: those with low ranks are tried first.
    pub(crate) ranks: Vec<u32>,
    /// Prefer sections that often had too little room.
    pub(crate) learns: bool,
    /// Check every section as a schedule with release times: fewer nodes, each dearer.
    pub(crate) releases: bool,
}

/// When a search gives up.
#[derive(Debug)]
pub(crate) struct Limits<'a> {
    pub(crate) nodes: u64,
    pub(crate) deadline: Option<Instant>,
    /// Another search was quicker.
    pub(crate) stop: &'a AtomicBool,
}

impl Limits<'_> {
    /// Takes one node; `false` if there is none to take.
    fn take(&mut self) -> bool {
        if self.nodes == 0 || self.stop.load(Ordering::Relaxed) {
            return false;
        }
        self.nodes -= 1;
        // Looking at the clock costs as much as a small node.
        !self.nodes.is_multiple_of(64) || self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }
}

/// How deep a search may go; each level takes a few hundred bytes of the stack ([`super::STACK`]).
const MAX_DEPTH: usize = 100_000;

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An offset for every buffer.
    Found(Vec<Units>),
    /// There is no placement.
    Impossible,
    /// The nodes ran out, or another search was quicker.
    Stopped,
}

/// A section to branch on.
struct Branch {
    section: usize,
    floor: Units,
    /// The next floor if nothing starts at this one; [`NONE`] if something must.
    next: Units,
}

/// What could start at a valley's floor.
struct Starter {
    first: usize,
    beyond: usize,
    size: Units,
    supported: bool,
}

/// What is known of a section at the bottom of a valley.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Where the valley ends, at the valley's first section; 0 at all others.
    end: usize,
    /// When this was found out.
    at: u64,
    /// How many cases there are for what comes next, and the next floor if nothing starts at this one.
    cases: (u32, Units),
}

enum End {
    Found,
    Impossible,
    Stopped,
}

struct Search<'a> {
    state: Partial<'a>,
    style: &'a Style,
    limits: Limits<'a>,
    depth: usize,
    scratch: Vec<(Units, Units)>,
    starters: Vec<Starter>,
    known: Vec<Known>,
}

/// Searches until a placement is found, there is none, or a limit is reached.
pub(crate) fn search<'a>(shape: &'a Shape, style: &'a Style, limits: Limits<'a>) -> Verdict {
    let state = Partial::new(shape);
    let sections = state.floor.len();
    let mut search = Search {
        state,
        style,
        limits,
        depth: 0,
        scratch: Vec::new(),
        starters: Vec::new(),
        known: vec![Known { end: 0, at: 0, cases: (0, NONE) }; sections],
    };
    search.state.touch(0..sections);
    if !search.alive() {
        return Verdict::Impossible;
    }
    match search.run(0, sections) {
        End::Found => Verdict::Found(search.state.offset),
        End::Impossible => Verdict::Impossible,
        End::Stopped => Verdict::Stopped,
    }
}

impl Search<'_> {
    /// Places all that is left in these sections. What it placed stays only if it found places for all of it.
    fn run(&mut self, first: usize, beyond: usize) -> End {
        self.depth += 1;
        let end = if self.depth > MAX_DEPTH { End::Stopped } else { self.node(first, beyond) };
        self.depth -= 1;
        end
    }

    fn node(&mut self, first: usize, beyond: usize) -> End {
        let parts = self.state.parts(first, beyond);
        let (first, beyond) = match parts[..] {
            [] => return End::Found,
            [part] => part,
            // Parts cannot help each other: if one is impossible, so is the whole.
            _ => {
                for (first, beyond) in parts {
                    match self.run(first, beyond) {
                        End::Found => {}
                        end => return end,
                    }
                }
                return End::Found;
            }
        };
        if !self.limits.take() {
            return End::Stopped;
        }
        let Some(branch) = self.choose(first, beyond) else { return End::Impossible };
        let mark = self.state.mark();
        for buffer in self.candidates(&branch) {
            if self.state.place(buffer) && self.alive() {
                match self.run(first, beyond) {
                    End::Impossible => {}
                    end => return end,
                }
            }
            self.state.undo(mark);
        }
        if branch.next != NONE {
            if self.state.waste(branch.section, branch.next) && self.alive() {
                match self.run(first, beyond) {
                    End::Impossible => {}
                    end => return end,
                }
            }
            self.state.undo(mark);
        }
        End::Impossible
    }

    /// Whether what has just been changed leaves room for the rest.
    fn alive(&mut self) -> bool {
        let Some(changed) = self.state.settle() else { return false };
        !self.style.releases || self.state.fits_by_release(changed, &mut self.scratch)
    }

    /// The buffers that can come next, in the order in which to try them.
    fn candidates(&self, branch: &Branch) -> Vec<usize> {
        let state = &self.state;
        let shape = state.shape;
        let mut found: Vec<usize> = state
            .unplaced(branch.section)
            .filter(|&b| state.least[b] == branch.floor && state.supported(b, branch.floor))
            .collect();
        // Of equal buffers only one needs a try.
        found.sort_unstable_by_key(|&b| (shape.sections.ranges[b], shape.sizes[b], b));
        found.dedup_by_key(|b| (shape.sections.ranges[*b], shape.sizes[*b]));
        found.sort_unstable_by_key(|&b| self.style.ranks[b]);
        found
    }

    /// The section with the fewest cases; `None` if one has none.
    fn choose(&mut self, first: usize, beyond: usize) -> Option<Branch> {
        let mut best: Option<(f64, Branch)> = None;
        let mut start = first;
        while start < beyond {
            let floor = self.state.floor[start];
            let end = (start + 1..beyond).find(|&s| self.state.floor[s] != floor).unwrap_or(beyond);
            let walled = |side: Option<usize>| side.is_none_or(|s| self.state.floor[s] > floor);
            let is_valley = floor != NONE
                && walled((start > first).then(|| start - 1))
                && walled((end < beyond).then_some(end));
            if is_valley {
                self.look_at_valley(start, end, floor);
                for section in start..end {
                    let (cases, next) = self.known[section].cases;
                    if cases == 0 {
                        self.state.failures[section] += 1;
                        return None;
                    }
                    let score = self.score(section, floor, cases);
                    if best.as_ref().is_none_or(|(least, _)| score < *least) {
                        best = Some((score, Branch { section, floor, next }));
                    }
                }
            }
            start = end;
        }
        best.map(|(_, branch)| branch)
    }

    /// Fewer cases first; then what has failed most, or what has the least room.
    #[allow(clippy::cast_precision_loss)]
    fn score(&self, section: usize, floor: Units, cases: u32) -> f64 {
        let state = &self.state;
        if self.style.learns {
            f64::from(cases) / (1.0 + f64::from(state.failures[section]))
        } else {
            let room = state.shape.capacity - floor - state.left[section];
            f64::from(cases) + room as f64 / state.shape.capacity as f64
        }
    }

    /// Finds the cases of a valley's sections, unless nothing there has changed since they were found.
    fn look_at_valley(&mut self, start: usize, end: usize, floor: Units) {
        let known = self.known[start];
        if known.end == end && self.state.unchanged(start..end, known.at) {
            return;
        }
        self.find_starters(start, end, floor);
        let at = self.state.clock();
        for section in start..end {
            // Only its first section speaks for a valley.
            let end = if section == start { end } else { 0 };
            self.known[section] = Known { end, at, cases: self.cases(section, floor) };
        }
    }

    /// Buffers that no floor keeps above the valley's. All of them lie inside the valley.
    fn find_starters(&mut self, start: usize, end: usize, floor: Units) {
        self.starters.clear();
        for section in start..end {
            for b in self.state.unplaced(section) {
                let range = self.state.range(b);
                if range.start == section && self.state.least[b] == floor {
                    self.starters.push(Starter {
                        first: range.start,
                        beyond: range.end,
                        size: self.state.shape.sizes[b],
                        supported: self.state.supported(b, floor),
                    });
                }
            }
        }
    }

    /// How many cases there are for what comes next in a section of the valley, and the next floor if nothing
    /// starts at this one.
    fn cases(&self, section: usize, floor: Units) -> (u32, Units) {
        let state = &self.state;
        let (mut cases, mut left, mut right) = (0, usize::MAX, 0);
        for starter in &self.starters {
            if starter.first <= section && section < starter.beyond {
                cases += u32::from(starter.supported);
                left = left.min(starter.first);
                right = right.max(starter.beyond);
            }
        }
        // What could start here may come to rest on something beside the section instead.
        let beside = self
            .starters
            .iter()
            .filter(|s| (section < s.first || s.beyond <= section) && s.first < right && left < s.beyond)
            .map(|starter| floor + starter.size)
            .min()
            .unwrap_or(NONE);
        let above = state.unplaced(section).map(|b| state.least[b]).filter(|&least| least > floor).min();
        let next = beside.min(above.unwrap_or(NONE));
        if next != NONE && next + state.left[section] <= state.shape.capacity {
            (cases + 1, next)
        } else {
            (cases, NONE)
        }
    }
}
