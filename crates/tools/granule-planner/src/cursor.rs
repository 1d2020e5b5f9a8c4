//! Follows a plan while a program runs, seeing nothing but its requests.
//!
//! The cursor finds its place by content: the last few requests, if only one place of the plan has them in that
//! order. From there every request is compared with the next step. One that differs ends it, and the cursor looks
//! for its place again. All of that takes constant time and allocates nothing.

use crate::plan::{Plan, request_hash};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What the plan says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It is this step, and goes there. The caller makes sure that the bytes are free: a block may be held for
    /// longer than when the plan was made.
    Place {
        /// The step.
        step: usize,
        /// From the beginning of the plan's memory.
        offset: u64,
    },
    /// It is this step, which the plan leaves to the allocator.
    Unplanned {
        /// The step.
        step: usize,
    },
    /// Another request was expected: the plan is left.
    Mismatch {
        /// The step that was expected.
        step: usize,
    },
    /// The program is nowhere in the plan, or it is not known yet where.
    Outside,
}

/// What a cursor has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorCounts {
    /// Requests.
    pub requests: u64,
    /// Requests that got a place.
    pub placed: u64,
    /// Requests that were steps left to the allocator.
    pub unplanned: u64,
    /// How often the plan was left because of a request that was not expected.
    pub mismatches: u64,
    /// How often a place in the plan was found.
    pub entries: u64,
}

/// The shortest window worth trying; shorter ones are met by chance.
const MIN_WINDOW: usize = 8;
/// The longest one: after a mismatch, so many requests are made outside the plan.
const MAX_WINDOW: usize = 256;
/// Multiplies the hash of a window with every request; odd, so that nothing is lost.
const BASE: u64 = 0x2545_f491_4f6c_dd1d;

/// A place in a plan.
#[derive(Clone, Debug)]
pub struct PlanCursor {
    plan: Arc<Plan>,
    /// The step expected next; `None` outside the plan.
    expected: Option<usize>,
    /// The longest window, by which it is found nearly everywhere, and the shortest, by which it is found soon in some places.
    doors: Vec<Door>,
    counts: CursorCounts,
}

impl PlanCursor {
    /// A cursor before the program's first request. A plan that does not repeat is expected to begin there.
    #[must_use]
    pub fn new(plan: Arc<Plan>) -> Self {
        let doors = doors(&plan);
        let expected = (!plan.repeats).then_some(0);
        Self { expected, doors, counts: CursorCounts::default(), plan }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counts(&self) -> CursorCounts {
        self.counts
    }

    /// How many requests it needs, at most, to find its place where that can be found.
    #[must_use]
    pub fn window(&self) -> usize {
        self.doors.first().map_or(0, |door| door.window.len())
    }

    /// The next request of the program. Does not block or allocate.
    pub fn next(&mut self, size: u64, stream: u32) -> Advice {
        self.counts.requests += 1;
        for door in &mut self.doors {
            door.window.push(size, stream);
        }
        let Some(step) = self.expected else {
            self.enter();
            return Advice::Outside;
        };
        let expected = &self.plan.steps()[step];
        if (expected.size, expected.stream) != (size, stream) {
            self.counts.mismatches += 1;
            self.enter();
            return Advice::Mismatch { step };
        }
        let offset = expected.offset;
        self.expected = self.after(step);
        match offset {
            Some(offset) => {
                self.counts.placed += 1;
                Advice::Place { step, offset }
            }
            None => {
                self.counts.unplanned += 1;
                Advice::Unplanned { step }
            }
        }
    }

    /// Leaves the plan, without a mismatch; its place is looked for from the next request on, by requests that are
    /// still to come. For a caller that cannot follow an advice and expects no good of the next ones.
    pub fn leave(&mut self) {
        self.expected = None;
        for Door { window, .. } in &mut self.doors {
            *window = Window { seen: 0, next: 0, hash: 0, ..std::mem::take(window) };
        }
    }

    /// The step behind this one.
    fn after(&self, step: usize) -> Option<usize> {
        let next = step + 1;
        if next < self.plan.steps().len() { Some(next) } else { self.plan.repeats.then_some(0) }
    }

    /// Looks whether the last requests are at one place of the plan.
    fn enter(&mut self) {
        self.expected = self.doors.iter().find_map(|door| door.entry(&self.plan));
        self.counts.entries += u64::from(self.expected.is_some());
    }
}

/// A window, and the steps that it leads to.
#[derive(Clone, Debug)]
struct Door {
    window: Window,
    /// By the hash of the requests before it, each step at which the plan can be entered.
    steps: FxHashMap<u64, usize>,
}

impl Door {
    /// The step behind the last requests, if only one place of the plan has them.
    fn entry(&self, plan: &Plan) -> Option<usize> {
        if !self.window.is_full() {
            return None;
        }
        let &entry = self.steps.get(&self.window.hash)?;
        // Hashes can be equal by chance.
        let steps = plan.steps();
        let first = (entry + steps.len() - self.window.len() % steps.len()) % steps.len();
        let mut before = self.window.oldest_first().zip((0..steps.len()).cycle().skip(first));
        let is_it = |((size, stream), step): ((u64, u32), usize)| {
            (steps[step].size, steps[step].stream) == (size, stream)
        };
        before.all(is_it).then_some(entry)
    }
}

/// The last requests and a hash of them that follows by one multiplication each.
#[derive(Clone, Debug, Default)]
struct Window {
    ring: Box<[(u64, u32)]>,
    /// How many requests it has seen, all in all.
    seen: u64,
    /// Where the next one goes.
    next: usize,
    hash: u64,
    /// What the oldest request's hash has been multiplied by when it leaves.
    weight: u64,
}

impl Window {
    fn new(length: usize) -> Self {
        let weight = (0..length).fold(1u64, |weight, _| weight.wrapping_mul(BASE));
        Self { ring: vec![(0, 0); length].into(), seen: 0, next: 0, hash: 0, weight }
    }

    fn len(&self) -> usize {
        self.ring.len()
    }

    fn push(&mut self, size: u64, stream: u32) {
        let (old_size, old_stream) = std::mem::replace(&mut self.ring[self.next], (size, stream));
        let left =
            if self.is_full() { request_hash(old_size, old_stream).wrapping_mul(self.weight) } else { 0 };
        let grown = self.hash.wrapping_mul(BASE).wrapping_add(request_hash(size, stream));
        self.hash = grown.wrapping_sub(left);
        self.next = (self.next + 1) % self.ring.len();
        self.seen += 1;
    }

    fn is_full(&self) -> bool {
        self.seen >= self.ring.len() as u64
    }

    fn oldest_first(&self) -> impl Iterator<Item = (u64, u32)> {
        self.ring[self.next..].iter().chain(&self.ring[..self.next]).copied()
    }
}

/// Chooses how long a window must be so that nearly every place of the plan has one of its own, and finds the steps behind
/// those that do; of the shortest windows, too.
fn doors(plan: &Plan) -> Vec<Door> {
    let steps = plan.steps().len();
    let shortest = MIN_WINDOW.min(steps);
    let door = |length| Door { window: Window::new(length), steps: entries_of(plan, length) };
    let short = door(shortest);
    let mut long = short.clone();
    while long.steps.len() * 10 < steps * 9 && long.window.len() < MAX_WINDOW.min(steps) {
        long = door((long.window.len() * 2).min(MAX_WINDOW).min(steps));
    }
    if long.window.len() > shortest { vec![long, short] } else { vec![short] }
}

fn entries_of(plan: &Plan, length: usize) -> FxHashMap<u64, usize> {
    let steps = plan.steps();
    // A plan that repeats has a window that ends at each of its steps; another one none that crosses its end.
    let before = if plan.repeats { length - 1 } else { 0 };
    let mut window = Window::new(length);
    let mut found: FxHashMap<u64, Option<usize>> = FxHashMap::default();
    for index in steps.len() - before..2 * steps.len() {
        let last = index % steps.len();
        if index < steps.len() && !plan.repeats {
            continue;
        }
        window.push(steps[last].size, steps[last].stream);
        let next = if last + 1 < steps.len() {
            last + 1
        } else if plan.repeats {
            0
        } else {
            continue;
        };
        if window.is_full() {
            found.entry(window.hash).and_modify(|entry| *entry = None).or_insert(Some(next));
        }
    }
    found.into_iter().filter_map(|(hash, entry)| entry.map(|entry| (hash, entry))).collect()
}
