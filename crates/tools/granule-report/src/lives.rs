//! Allocations and spans as columns.

use crate::bytes::Bytes;
use granule_analysis::Run;
use granule_analysis::run::{Allocation, Moment, NEVER, Span};

/// How addresses are written: as multiples of 2^shift from the lowest one, so that they are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) base: u64,
    pub(crate) shift: u32,
}

impl Addresses {
    pub(crate) fn of(run: &Run) -> Self {
        let all = || {
            let allocations = run.allocations.iter().map(|life| life.address);
            allocations.chain(run.spans.iter().map(|span| span.address))
        };
        let base = all().min().unwrap_or(0);
        let bits = all().fold(0, |bits, address| bits | (address - base));
        // All addresses may be the same.
        Self { base, shift: if bits == 0 { 0 } else { bits.trailing_zeros() } }
    }

    pub(crate) fn code(self, address: u64) -> u64 {
        (address - self.base) >> self.shift
    }
}

/// Appends allocations, given by their index in the run, ascending.
pub(crate) fn allocations(bytes: &mut Bytes, run: &Run, indexes: &[u32], addresses: Addresses) {
    let lives = || indexes.iter().map(|index| &run.allocations[*index as usize]);
    bytes.number(indexes.len() as u64);
    bytes.steps(indexes.iter().map(|index| u64::from(*index)));
    bytes.steps(lives().map(|life| u64::from(life.begin)));
    bytes.column(lives().map(|life| after(life.begin, life.end)));
    bytes.column(lives().map(waiting));
    bytes.column(lives().map(|life| life.size));
    bytes.steps(lives().map(|life| addresses.code(life.address)));
    bytes.column(lives().map(|life| u64::from(life.stream)));
    bytes.column(lives().map(|life| u64::from(life.pool)));
    bytes.column(lives().map(|life| u64::from(life.site)));
    bytes.column(lives().map(|life| u64::from(life.label)));
}

/// Appends spans, given by their index in the run, ascending.
pub(crate) fn spans(bytes: &mut Bytes, run: &Run, indexes: &[u32], addresses: Addresses) {
    let spans = || indexes.iter().map(|index| &run.spans[*index as usize]);
    bytes.number(indexes.len() as u64);
    bytes.steps(spans().map(|span| u64::from(span.begin)));
    bytes.column(spans().map(|span| after(span.begin, span.end)));
    bytes.column(spans().map(|span| span.size));
    bytes.steps(spans().map(|span| addresses.code(span.address)));
    bytes.column(spans().map(|span| u64::from(span.stream)));
    bytes.column(spans().map(|span| u64::from(span.pool)));
    bytes.column(spans().map(|span| u64::from(span.growable)));
}

/// How long after `begin` it ends, plus one; 0 where it does not.
fn after(begin: Moment, end: Moment) -> u64 {
    match end {
        NEVER => 0,
        end => u64::from(end.saturating_sub(begin)) + 1,
    }
}

/// As [`after`], from the end to when the memory can be used again, but 0 where that is at once.
fn waiting(life: &Allocation) -> u64 {
    match life.reusable {
        NEVER if life.end == NEVER => 0,
        NEVER => 1,
        reusable if reusable <= life.end => 0,
        reusable => u64::from(reusable - life.end) + 1,
    }
}

/// The last moment at which anything of it is to be seen.
pub(crate) fn last_moment(life: &Allocation, run: &Run) -> Moment {
    last(life.begin, life.end.max(life.reusable), run)
}

/// As [`last_moment`].
pub(crate) fn last_moment_of_span(span: &Span, run: &Run) -> Moment {
    last(span.begin, span.end, run)
}

fn last(begin: Moment, end: Moment, run: &Run) -> Moment {
    end.min(run.length.saturating_add(1)).saturating_sub(1).max(begin)
}

#[cfg(test)]
pub(crate) mod read {
    use super::Addresses;
    use crate::bytes::read::Reader;
    use granule_analysis::run::{Allocation, Moment, NEVER, Span};

    /// Allocations with their indexes.
    pub(crate) fn allocations(reader: &mut Reader<'_>, addresses: Addresses) -> Vec<(u32, Allocation)> {
        let count = reader.number() as usize;
        let (index, begin) = (reader.steps(count), reader.steps(count));
        let (life, waiting, size) = (reader.column(count), reader.column(count), reader.column(count));
        let address = reader.steps(count);
        let [stream, pool, site, label] = [0; 4].map(|_| reader.column(count));
        let one = |i: usize| {
            let begin = begin[i] as Moment;
            let end = end(begin, life[i]);
            let reusable = match waiting[i] {
                0 => end,
                1 => NEVER,
                wait => end + (wait - 1) as Moment,
            };
            let address = addresses.base + (address[i] << addresses.shift);
            let [stream, pool, site, label] = [&stream, &pool, &site, &label].map(|column| column[i] as u32);
            (
                index[i] as u32,
                Allocation { begin, end, reusable, address, size: size[i], stream, pool, site, label },
            )
        };
        (0..count).map(one).collect()
    }

    pub(crate) fn spans(reader: &mut Reader<'_>, addresses: Addresses) -> Vec<Span> {
        let count = reader.number() as usize;
        let (begin, life, size) = (reader.steps(count), reader.column(count), reader.column(count));
        let address = reader.steps(count);
        let [stream, pool, growable] = [0; 3].map(|_| reader.column(count));
        let one = |i: usize| Span {
            begin: begin[i] as Moment,
            end: end(begin[i] as Moment, life[i]),
            address: addresses.base + (address[i] << addresses.shift),
            size: size[i],
            stream: stream[i] as u32,
            pool: pool[i] as u32,
            growable: growable[i] == 1,
        };
        (0..count).map(one).collect()
    }

    fn end(begin: Moment, life: u64) -> Moment {
        if life == 0 { NEVER } else { begin + (life - 1) as Moment }
    }
}
