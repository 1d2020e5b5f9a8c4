//! Places buffers one by one in a given order, each into a gap among those placed before it.
//!
//! For every stream there are two trees over the moments at which its buffers start. In the first, a buffer's life
//! is cut into few nodes, as in a segment tree: those that hold their place at a moment are on the way from its
//! leaf to the root. In the second, a buffer is at its start's leaf and all nodes above: those that start within
//! some time are in few nodes. Both kinds together are exactly those a buffer conflicts with. A node keeps no
//! buffers, only the union of their addresses, which in a dense placement is a few ranges: a step costs time by the
//! logarithm of the number of buffers and by the gaps there are, not by the number of conflicts.

use crate::problem::Problem;
use crate::solve::gaps::{Finder, Taken};
use std::ops::Range;

/// Which gap a buffer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fit {
    /// The lowest.
    First,
    /// The smallest.
    Best,
}

/// Lifetimes in terms of the starts that lie in them; made once for all orders.
#[derive(Debug)]
pub(crate) struct Timeline {
    streams: usize,
    /// For every stream how many different starts it has.
    leaves: Vec<usize>,
    /// For every buffer its stream and which of that stream's starts is its own.
    starts: Vec<(u32, u32)>,
    /// For every buffer and stream: the stream's starts that conflict with it.
    spans: Vec<Span>,
}

/// Starts within a life: one run, or two where the life goes on behind the end of a period.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: (u32, u32),
    second: (u32, u32),
}

impl Span {
    fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let range = |(from, to): (u32, u32)| from as usize..to as usize;
        [range(self.first), range(self.second)].into_iter().filter(|run| !run.is_empty())
    }
}

impl Timeline {
    pub(crate) fn new(problem: &Problem) -> Self {
        let streams = problem.streams();
        let mut times = vec![Vec::new(); streams];
        for (index, buffer) in problem.buffers().iter().enumerate() {
            times[problem.stream(index)].push(buffer.lower);
        }
        for times in &mut times {
            times.sort_unstable();
            times.dedup();
        }
        let rank = |stream: usize, time: u64| times[stream].partition_point(|&start| start < time) as u32;
        let mut starts = Vec::with_capacity(problem.buffers().len());
        let mut spans = Vec::with_capacity(problem.buffers().len() * streams);
        for (index, buffer) in problem.buffers().iter().enumerate() {
            let own = problem.stream(index);
            starts.push((own as u32, rank(own, buffer.lower)));
            for stream in 0..streams {
                let (from, end) = (buffer.lower, problem.end(index, stream));
                let all = rank(stream, u64::MAX);
                spans.push(match problem.period() {
                    Some(period) if end - from >= period => Span { first: (0, all), second: (0, 0) },
                    Some(period) if end > period => {
                        Span { first: (rank(stream, from), all), second: (0, rank(stream, end - period)) }
                    }
                    _ => Span { first: (rank(stream, from), rank(stream, end)), second: (0, 0) },
                });
            }
        }
        Self { streams, leaves: times.iter().map(Vec::len).collect(), starts, spans }
    }

    fn spans(&self, buffer: usize) -> &[Span] {
        &self.spans[buffer * self.streams..][..self.streams]
    }
}

/// One stream's two trees.
struct Trees {
    leaves: usize,
    /// Node 1 is the root; the leaves are the last `leaves` ones.
    alive: Vec<Taken>,
    starting: Vec<Taken>,
}

impl Trees {
    fn new(leaves: usize) -> Self {
        Self {
            leaves,
            alive: vec![Taken::default(); 2 * leaves],
            starting: vec![Taken::default(); 2 * leaves],
        }
    }

    /// From a leaf to the root.
    fn path(&self, leaf: usize) -> impl Iterator<Item = usize> + use<> {
        std::iter::successors(Some(leaf + self.leaves), |node| (*node > 1).then(|| node / 2))
    }
}

/// The nodes that make up a run of leaves.
fn cover(leaves: usize, run: Range<usize>, mut visit: impl FnMut(usize)) {
    let (mut from, mut to) = (run.start + leaves, run.end + leaves);
    while from < to {
        if from % 2 == 1 {
            visit(from);
            from += 1;
        }
        if to % 2 == 1 {
            to -= 1;
            visit(to);
        }
        from /= 2;
        to /= 2;
    }
}

/// Places the buffers in this order; an offset for each, by the problem's order.
pub(crate) fn place(problem: &Problem, timeline: &Timeline, order: &[u32], fit: Fit) -> Vec<u64> {
    let mut trees: Vec<Trees> = timeline.leaves.iter().map(|&leaves| Trees::new(leaves)).collect();
    let mut offsets = vec![0; problem.buffers().len()];
    for &index in order {
        let buffer = index as usize;
        let size = problem.buffers()[buffer].size;
        let (own, leaf) = timeline.starts[buffer];
        let mut finder = Finder::default();
        let own_trees = &trees[own as usize];
        own_trees.path(leaf as usize).for_each(|node| finder.include(&own_trees.alive[node]));
        for (trees, span) in trees.iter().zip(timeline.spans(buffer)) {
            for run in span.runs() {
                cover(trees.leaves, run, |node| finder.include(&trees.starting[node]));
            }
        }
        let offset = match fit {
            Fit::First => finder.first_fit(0, size),
            Fit::Best => finder.best_fit(size),
        };
        offsets[buffer] = offset;
        for (trees, span) in trees.iter_mut().zip(timeline.spans(buffer)) {
            for run in span.runs() {
                let alive = &mut trees.alive;
                cover(trees.leaves, run, |node| alive[node].add(offset, offset + size));
            }
        }
        let own_trees = &mut trees[own as usize];
        for node in own_trees.path(leaf as usize) {
            own_trees.starting[node].add(offset, offset + size);
        }
    }
    offsets
}
