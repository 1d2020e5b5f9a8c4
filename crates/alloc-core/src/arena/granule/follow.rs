//! Remembered places: where a request was served the last time the same requests came before it.
//!
//! Programs repeat what they do, and what was placed once without another view can be placed so again: only if every
//! request of a pass comes to lie where it did, memory that views show is free when they are needed. So large requests are
//! logged, by size and place. Once the last [`WINDOW`] sizes are those of an earlier passage, the log is followed from there on:
//! what it says is tried first, and taken where exactly these bytes are free. Else the request is placed as any other.
//!
//! The log is a ring, and passages are found by one entry each in a table of hashes: nothing grows, and after a while
//! nothing is taken from the heap.

use crate::memory::block::SegmentId;

/// Requests that tell one passage from others. Layers of a model are alike: shorter passages are found in the wrong one.
const WINDOW: usize = 64;
/// Requests that are remembered: several passes of most programs.
const LOG: usize = 1 << 14;
const TABLE_BITS: u32 = 14;
const PASSAGES: usize = 1 << TABLE_BITS;

/// The base of the rolling hash, and what the oldest of a window has been multiplied with when it leaves.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
const LEAVING: u64 = {
    let (mut power, mut n) = (1_u64, 0);
    while n < WINDOW {
        power = power.wrapping_mul(BASE);
        n += 1;
    }
    power
};

/// One request, and where it was served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) size: u64,
    pub(super) segment: SegmentId,
    pub(super) addr: u64,
}

/// The same in the log: size, address, segment. A log of zeros takes no memory before it is written.
type Logged = (u64, u64, u32);

/// What was found out about the next request, if it is of `size` bytes: a place is looked for before the request is logged.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// 0 while nothing was asked.
    size: u64,
    /// Of the window that ends with it.
    hash: u64,
    repeats: Option<usize>,
}

/// What an arena remembers of its large requests. They are numbered from 0 on.
#[derive(Debug, Default)]
pub(super) struct Follow {
    /// A ring, once there is a request.
    log: Option<Box<[Logged; LOG]>>,
    count: usize,
    /// Of the sizes of the last window.
    hash: u64,
    /// By hash of a window, where it was seen last: the number of the request after it, and part of the hash, which tells most
    /// others from it, below. 0 is none.
    passages: Option<Box<[u64; PASSAGES]>>,
    /// The request that the next one is likely to repeat.
    next: Option<usize>,
    asked: Asked,
}

/// A table of zeros.
#[cold]
fn zeros<T: Clone + Default, const N: usize>() -> Box<[T; N]> {
    let Ok(table) = vec![T::default(); N].into_boxed_slice().try_into() else {
        unreachable!("it was made with this length")
    };
    table
}

impl Follow {
    /// Where the earlier request was served that one of `size` bytes repeats now.
    #[inline(always)]
    pub(super) fn place(&mut self, size: u64) -> Option<(SegmentId, u64)> {
        self.asked = self.ask(size);
        let (_, addr, segment) = *self.served(self.asked.repeats?)?;
        Some((SegmentId(segment), addr))
    }

    #[inline(always)]
    fn served(&self, number: usize) -> Option<&Logged> {
        let log = self.log.as_ref()?;
        // Below the count, and not more than a log behind it.
        let kept = self.count.wrapping_sub(number).wrapping_sub(1) < LOG;
        kept.then(|| &log[number % LOG])
    }

    #[inline(always)]
    fn is_of(&self, number: usize, size: u64) -> bool {
        self.served(number).is_some_and(|served| served.0 == size)
    }

    /// The hash of a window that ends with a request of `size` bytes, which is not logged yet.
    #[inline(always)]
    fn hash_with(&self, size: u64) -> u64 {
        // Sizes are multiples of 512; powers of two would leave the upper bits alone.
        let mix = |size: u64| (size >> 9 ^ size >> 21).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let oldest = self.count.checked_sub(WINDOW).and_then(|number| self.served(number));
        let oldest = oldest.map_or(0, |served| mix(served.0).wrapping_mul(LEAVING));
        self.hash.wrapping_mul(BASE).wrapping_add(mix(size)).wrapping_sub(oldest)
    }

    /// The place of a passage in the table, and its tag.
    #[allow(clippy::cast_possible_truncation)] // a part of the hash
    fn slot(hash: u64) -> (usize, u32) {
        ((hash >> (u64::BITS - TABLE_BITS)) as usize, hash as u32)
    }

    /// The hash of a window that ends with a request of `size` bytes, and the earlier request that it repeats now.
    #[inline(always)]
    fn ask(&self, size: u64) -> Asked {
        let hash = self.hash_with(size);
        let repeats =
            self.next.filter(|next| self.is_of(*next, size)).or_else(|| self.find_passage(hash, size));
        Asked { size, hash, repeats }
    }

    #[inline(never)]
    fn ask_apart(&self, size: u64) -> Asked {
        self.ask(size)
    }

    #[inline(never)]
    fn find_passage(&self, hash: u64, size: u64) -> Option<usize> {
        let (slot, tag) = Self::slot(hash);
        let passage = self.passages.as_ref()?[slot];
        #[allow(clippy::cast_possible_truncation)] // its halves
        let (after, tagged) = ((passage >> u32::BITS) as u32, passage as u32);
        if tagged != tag || after == 0 {
            return None;
        }
        // The newest number of which this is the lower part.
        #[allow(clippy::cast_possible_truncation)]
        let since = (self.count as u32).wrapping_sub(after) as usize;
        let number = self.count.checked_sub(since)?.checked_sub(1)?;
        let alike = |back: usize| {
            let of = |end: usize| self.served(end.checked_sub(back)?).map(|served| served.0);
            of(number).is_some_and(|then| of(self.count) == Some(then))
        };
        (self.is_of(number, size) && (1..WINDOW).all(alike)).then_some(number)
    }

    /// A request was served.
    #[inline(never)]
    pub(super) fn note(&mut self, Served { size, segment, addr }: Served) {
        let asked = if self.asked.size == size { self.asked } else { self.ask_apart(size) };
        self.log.get_or_insert_with(zeros)[self.count % LOG] = (size, addr, segment.0);
        self.count += 1;
        (self.hash, self.asked.size) = (asked.hash, 0);
        self.next = asked.repeats.map(|number| number + 1);
        if self.count < WINDOW {
            // No window ends here. Most arenas never come this far, and need no table.
            return;
        }
        let (slot, tag) = Self::slot(self.hash);
        #[allow(clippy::cast_possible_truncation)] // the rest is what `find_passage` adds
        let after = self.count as u32;
        self.passages.get_or_insert_with(zeros)[slot] = u64::from(after) << u32::BITS | u64::from(tag);
    }
}
