//! Checks a placement. It shares no code with the solvers: it knows nothing of sections, gaps or orders, only of
//! what a conflict is, and counts address ranges that meet while time goes by.

use crate::problem::{Placement, Problem};

/// What is wrong with a placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Not one offset per buffer.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// Offsets there are.
        offsets: usize,
        /// Buffers there are.
        buffers: usize,
    },
    /// A buffer reaches beyond the height, or beyond 64 bits.
    #[error("buffer {buffer} at {offset} reaches beyond the height of {height}")]
    Height {
        /// Its index.
        buffer: usize,
        /// Its offset.
        offset: u64,
        /// The placement's height.
        height: u64,
    },
    /// A buffer starts on bytes that another one holds.
    #[error("buffer {buffer} at {offset} starts on bytes that {others} other buffer(s) hold")]
    Overlap {
        /// The one that starts.
        buffer: usize,
        /// Its offset.
        offset: u64,
        /// How many hold some of its bytes.
        others: usize,
    },
    /// A buffer of a repeating problem is still live when it is requested again.
    #[error("buffer {buffer} lies on its own next instance")]
    Itself {
        /// Its index.
        buffer: usize,
    },
}

/// Checks that every buffer has a place below the height and that no two that conflict share a byte.
///
/// # Errors
/// The first [`Flaw`] found.
pub fn verify(problem: &Problem, placement: &Placement) -> Result<(), Flaw> {
    let buffers = problem.buffers();
    if placement.offsets.len() != buffers.len() {
        return Err(Flaw::Count { offsets: placement.offsets.len(), buffers: buffers.len() });
    }
    for (buffer, (&offset, shape)) in placement.offsets.iter().zip(buffers).enumerate() {
        if offset.checked_add(shape.size).is_none_or(|top| top > placement.height) {
            return Err(Flaw::Height { buffer, offset, height: placement.height });
        }
    }
    (0..problem.streams()).try_for_each(|stream| check_stream(problem, placement, stream))
}

/// What happens at a moment, in the order in which it counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The place is free again.
    End,
    /// RangeCounts by a buffer of another stream, or by one that has been live since before time began to be watched.
    Take,
    /// A buffer of this stream starts: nobody else may hold its bytes.
    Start,
}

/// Watches one stream's time: whenever a buffer of that stream starts, none may hold its bytes.
fn check_stream(problem: &Problem, placement: &Placement, stream: usize) -> Result<(), Flaw> {
    let mut moments = Vec::with_capacity(2 * problem.buffers().len());
    for (buffer, shape) in problem.buffers().iter().enumerate() {
        let own = problem.stream(buffer) == stream;
        let end = problem.end(buffer, stream);
        let start = if own { What::Start } else { What::Take };
        match problem.period() {
            Some(period) if end - shape.lower > period && own => return Err(Flaw::Itself { buffer }),
            Some(period) if end - shape.lower >= period => {
                // All of the circle, and where it starts it must find its place empty, too.
                if own {
                    moments.push((shape.lower, What::End, buffer));
                    moments.push((shape.lower, start, buffer));
                }
                moments.push((0, What::Take, buffer));
            }
            Some(period) if end > period => {
                moments.push((0, What::Take, buffer));
                moments.push((end - period, What::End, buffer));
                moments.push((shape.lower, start, buffer));
            }
            _ => {
                moments.push((shape.lower, start, buffer));
                moments.push((end, What::End, buffer));
            }
        }
    }
    moments.sort_unstable();
    let mut held = RangeCounts::new(problem, placement);
    for (_, what, buffer) in moments {
        match what {
            What::End => held.change(buffer, -1),
            What::Take => held.change(buffer, 1),
            What::Start => {
                let others = held.meeting(buffer);
                if others > 0 {
                    return Err(Flaw::Overlap { buffer, offset: placement.offsets[buffer], others });
                }
                held.change(buffer, 1);
            }
        }
    }
    Ok(())
}

/// The address ranges held at a moment. Those that meet a range are those that begin before its end, less those
/// that end at or before its beginning.
struct RangeCounts {
    /// For every buffer the ranks of its first and its last address among all.
    ranks: Vec<(usize, usize)>,
    begins: Counts,
    ends: Counts,
}

impl RangeCounts {
    fn new(problem: &Problem, placement: &Placement) -> Self {
        let ranges: Vec<_> = placement
            .offsets
            .iter()
            .zip(problem.buffers())
            .map(|(&at, shape)| (at, at + shape.size))
            .collect();
        let mut addresses: Vec<u64> = ranges.iter().flat_map(|&(from, to)| [from, to]).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let rank = |address: u64| addresses.partition_point(|&other| other < address);
        let ranks = ranges.iter().map(|&(from, to)| (rank(from), rank(to))).collect();
        Self { ranks, begins: Counts::new(addresses.len()), ends: Counts::new(addresses.len()) }
    }

    fn change(&mut self, buffer: usize, by: i32) {
        let (from, to) = self.ranks[buffer];
        self.begins.add(from, by);
        self.ends.add(to, by);
    }

    fn meeting(&self, buffer: usize) -> usize {
        let (from, to) = self.ranks[buffer];
        let meeting = self.begins.below(to) - self.ends.below(from + 1);
        usize::try_from(meeting).unwrap_or(0)
    }
}

/// A Fenwick tree: counts by rank, and how many there are below a rank.
struct Counts(Vec<i32>);

impl Counts {
    fn new(len: usize) -> Self {
        Self(vec![0; len + 1])
    }

    fn add(&mut self, rank: usize, by: i32) {
        let mut node = rank + 1;
        while node < self.0.len() {
            self.0[node] += by;
            node += node & node.wrapping_neg();
        }
    }

    fn below(&self, rank: usize) -> i32 {
        let mut node = rank;
        let mut sum = 0;
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        sum
    }
}
