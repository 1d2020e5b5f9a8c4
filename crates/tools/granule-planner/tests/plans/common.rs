//! Problems for tests.

use granule_planner::{Buffer, Problem};
use std::path::PathBuf;

/// Small random numbers that are the same everywhere.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A rectangle of `time` by `height`, cut into `count` buffers at least (if it is large enough for so many): they can
/// be placed without any gap. Cuts go straight through, or leave a pinwheel that no straight cut parts.
pub(crate) fn cut(count: usize, time: u64, height: u64, seed: u64) -> Vec<Buffer> {
    let mut dice = Dice(seed);
    let mut pieces = vec![(0, time, 0, height)];
    for _ in 0..count * 50 {
        if pieces.len() >= count {
            break;
        }
        // The larger of two, or slivers would be most of it.
        let area = |&(from, to, low, high): &(u64, u64, u64, u64)| (to - from) * (high - low);
        let (a, b) = (dice.below(pieces.len() as u64) as usize, dice.below(pieces.len() as u64) as usize);
        let index = if area(&pieces[a]) > area(&pieces[b]) { a } else { b };
        let (from, to, low, high) = pieces[index];
        let new = match dice.below(10) {
            0..3 if to - from > 2 && high - low > 2 => {
                let x1 = from + 1 + dice.below(to - from - 2);
                let x2 = x1 + 1 + dice.below(to - x1 - 1);
                let y1 = low + 1 + dice.below(high - low - 2);
                let y2 = y1 + 1 + dice.below(high - y1 - 1);
                vec![
                    (from, x2, low, y1),
                    (x2, to, low, y2),
                    (x1, to, y2, high),
                    (from, x1, y1, high),
                    (x1, x2, y1, y2),
                ]
            }
            3..7 if to - from > 1 => {
                let x = from + 1 + dice.below(to - from - 1);
                vec![(from, x, low, high), (x, to, low, high)]
            }
            7.. if high - low > 1 => {
                let y = low + 1 + dice.below(high - low - 1);
                vec![(from, to, low, y), (from, to, y, high)]
            }
            _ => continue,
        };
        pieces.splice(index..=index, new);
    }
    for index in (1..pieces.len()).rev() {
        pieces.swap(index, dice.below(index as u64 + 1) as usize);
    }
    pieces.into_iter().map(|(lower, upper, low, high)| Buffer { lower, upper, size: high - low }).collect()
}

/// Buffers with random lives, most of them short.
pub(crate) fn random(count: usize, seed: u64) -> Vec<Buffer> {
    let mut dice = Dice(seed);
    let mut buffer = || {
        let lower = dice.below(200);
        let longest = [5, 20, 200][dice.below(3) as usize];
        Buffer { lower, upper: lower + 1 + dice.below(longest), size: 1 + dice.below(64) }
    };
    (0..count).map(|_| buffer()).collect()
}

/// Buffers on several streams; other streams learn of an end later, or never.
pub(crate) fn streams(count: usize, streams: usize, seed: u64) -> Problem {
    let buffers = random(count, seed);
    let mut dice = Dice(!seed);
    let of: Vec<u32> = buffers.iter().map(|_| dice.below(streams as u64) as u32).collect();
    let mut ends = Vec::new();
    for (buffer, &own) in buffers.iter().zip(&of) {
        for stream in 0..streams {
            ends.push(match dice.below(4) {
                _ if stream == own as usize => buffer.upper,
                0 => u64::MAX,
                1 => buffer.upper + dice.below(50),
                _ => buffer.upper,
            });
        }
    }
    Problem::with_streams(buffers, streams, of, ends).expect("a sound problem")
}

/// A problem on a circle, some lives of which go on behind its end.
pub(crate) fn circle(count: usize, seed: u64) -> Problem {
    let period = 100;
    let mut dice = Dice(seed);
    let mut buffer = || {
        let lower = dice.below(period);
        let longest = [period, 20, 20, 5][dice.below(4) as usize];
        Buffer { lower, upper: lower + 1 + dice.below(longest), size: 1 + dice.below(64) }
    };
    let buffers = (0..count).map(|_| buffer()).collect();
    Problem::new(buffers).and_then(|problem| problem.repeating(period)).expect("a sound problem")
}

/// The pairs that share bytes although they conflict, by comparing all with all.
pub(crate) fn overlaps(problem: &Problem, offsets: &[u64]) -> Vec<(usize, usize)> {
    let end = |b: usize| offsets[b] + problem.buffers()[b].size;
    let all = 0..problem.buffers().len();
    let pairs = all.clone().flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.filter(|&(a, b)| offsets[a] < end(b) && offsets[b] < end(a) && problem.conflict(a, b)).collect()
}

/// A folder of recordings and instances, if it is there.
pub(crate) fn shared(folder: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared");
    let path = std::env::var_os("GRANULE_SHARED").map_or_else(beside, PathBuf::from).join(folder);
    if !path.is_dir() {
        println!("skipped: there is no folder of shared {folder} here (GRANULE_SHARED names its parent)");
        return None;
    }
    Some(path)
}
