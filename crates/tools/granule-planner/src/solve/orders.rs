//! Orders in which to place buffers.

use crate::problem::Buffer;
use crate::solve::random::Random;

/// What comes first. Ties go to the larger size (for loads: area), then to the longer life, then to the order of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The largest.
    Size,
    /// The longest lived.
    Life,
    /// The largest product of size and life.
    Area,
    /// Those live when the most is; among these the largest area.
    LoadArea,
    /// Those that start first.
    Start,
    /// Those that end last.
    End,
}

impl Key {
    /// Every buffer's index, the first to be placed first. `noise`: by what part of a buffer's weight chance may
    /// raise it.
    pub(crate) fn order(self, buffers: &[Buffer], noise: f64, random: &mut Random) -> Vec<u32> {
        let loads = if self == Self::LoadArea { peak_loads(buffers) } else { Vec::new() };
        let mut keyed: Vec<_> = buffers
            .iter()
            .zip(0u32..)
            .map(|(buffer, index)| {
                let weight = self.weight(buffer, loads.get(index as usize).copied().unwrap_or(0));
                let stray = if noise > 0.0 { 1.0 + noise * random.fraction() } else { 1.0 };
                (weight * stray, self.second(buffer), buffer.upper - buffer.lower, index)
            })
            .collect();
        keyed.sort_by(|a, b| {
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(b.2.cmp(&a.2)).then(a.3.cmp(&b.3))
        });
        keyed.into_iter().map(|(.., index)| index).collect()
    }

    /// The place of every buffer in [`order`](Self::order).
    pub(crate) fn ranks(self, buffers: &[Buffer], noise: f64, random: &mut Random) -> Vec<u32> {
        let mut ranks = vec![0; buffers.len()];
        for (index, rank) in self.order(buffers, noise, random).into_iter().zip(0u32..) {
            ranks[index as usize] = rank;
        }
        ranks
    }

    #[allow(clippy::cast_precision_loss)]
    fn weight(self, buffer: &Buffer, load: u64) -> f64 {
        let (size, life) = (buffer.size as f64, (buffer.upper - buffer.lower) as f64);
        match self {
            Self::Size => size,
            Self::Life => life,
            Self::Area => size * life,
            Self::LoadArea => load as f64,
            Self::Start => -(buffer.lower as f64),
            Self::End => buffer.upper as f64,
        }
    }

    /// Among equal weights.
    #[allow(clippy::cast_precision_loss)]
    fn second(self, buffer: &Buffer) -> f64 {
        let size = buffer.size as f64;
        if self == Self::LoadArea { size * (buffer.upper - buffer.lower) as f64 } else { size }
    }
}

/// For every buffer the largest load during its life, from a table of the maxima of runs whose lengths are powers
/// of two.
fn peak_loads(buffers: &[Buffer]) -> Vec<u64> {
    let mut moments: Vec<_> =
        buffers.iter().flat_map(|b| [(b.upper, false, b.size), (b.lower, true, b.size)]).collect();
    moments.sort_unstable();
    let mut load = 0;
    let mut loads = Vec::with_capacity(moments.len());
    for &(_, starts, size) in &moments {
        load = if starts { load + size } else { load - size };
        loads.push(load);
    }
    let mut table = vec![loads];
    while let Some(last) = table.last()
        && last.len() > 1 << (table.len() - 1)
    {
        let half = 1 << (table.len() - 1);
        let next = last.iter().zip(&last[half..]).map(|(a, b)| *a.max(b)).collect();
        table.push(next);
    }
    let at = |time: u64| moments.partition_point(|&(moment, ..)| moment < time);
    buffers
        .iter()
        .map(|buffer| {
            // From the last moment of its start to just before its end.
            let first =
                moments.partition_point(|&(moment, starts, _)| (moment, starts) <= (buffer.lower, true)) - 1;
            let length = at(buffer.upper) - first;
            let level = length.ilog2() as usize;
            table[level][first].max(table[level][first + length - (1 << level)])
        })
        .collect()
}
