//! An arena's counters, and exact device-wide peaks without shared atomics.
//!
//! Each arena counts under its own lock. A peak is a property of the sum over arenas, which no arena knows;
//! so each holds a *ceiling* for each count, and the ceilings of all arenas sum to no more than the recorded
//! peak. While an arena stays under its ceilings no new peak is possible and nothing shared is touched.
//! The part of the peak that no ceiling covers is a *reserve*. An arena that crosses its ceiling is granted some of it,
//! and no other arena is looked at. Only if the reserve is too small, [`Peaks::settle`] records the true sum and deals
//! out new ceilings. It looks only at arenas whose ceilings are above what they have. All others were not used since,
//! and their next operation is reported. So a new peak costs what was done since the last one. With one arena the
//! ceiling is the peak.
//!
//! A request changes three figures of its tier, each counted once. They are compared with *limits*: within these,
//! neither allocated nor active figures can cross a ceiling. Further figures are sums and differences.

#[cfg(test)]
mod tests;

use crate::base::ids::Tier;
use crate::base::steps::Counted;
use crate::watch::stats::{DeviceStats, Stat, StatArray};
use smallvec::SmallVec;
use std::ops::{AddAssign, SubAssign};

/// Counted quantity. Its number is the column of a [`Row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    Allocation = 0,
    Active = 1,
    AllocatedBytes = 2,
    ActiveBytes = 3,
    RequestedBytes = 4,
    InactiveSplit = 5,
    InactiveSplitBytes = 6,
    OversizeAllocations = 7,
}

impl Count {
    const ALL: [Self; COUNTS] = [
        Self::Allocation,
        Self::Active,
        Self::AllocatedBytes,
        Self::ActiveBytes,
        Self::RequestedBytes,
        Self::InactiveSplit,
        Self::InactiveSplitBytes,
        Self::OversizeAllocations,
    ];

    /// Index into `special` of a count that requests do not change directly.
    const fn special(self) -> usize {
        self as usize - Self::InactiveSplit as usize
    }
}

const COUNTS: usize = 8;
/// Small, large, both.
const ROWS: usize = 3;
const BOTH: usize = 2;
/// Most arenas that stay listed after they were read; if more moved, all leave the list until their next use.
pub(crate) const RECENT: usize = 8;
pub(crate) type Row = [i64; COUNTS];
pub(crate) type Rows = [Row; ROWS];

/// Increase of the allocated and active counts by one more block.
pub(crate) fn one_more(tier: Tier, size: u64, requested: u64) -> Rows {
    let one = [1, 1, signed(size), signed(size), signed(requested), 0, 0, 0];
    let mut rows = Rows::default();
    (rows[tier as usize], rows[BOTH]) = (one, one);
    rows
}

/// Blocks, their bytes, and the bytes that were requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Triple {
    blocks: i64,
    bytes: i64,
    requested: i64,
}

impl Triple {
    #[inline(always)]
    fn one(size: u64, requested: u64) -> Self {
        Self { blocks: 1, bytes: signed(size), requested: signed(requested) }
    }

    #[inline(always)]
    fn plus(mut self, other: Self) -> Self {
        self += other;
        self
    }

    #[inline(always)]
    fn is_within(&self, limit: &Self) -> bool {
        self.blocks <= limit.blocks && self.bytes <= limit.bytes && self.requested <= limit.requested
    }
}

impl AddAssign for Triple {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.requested += other.requested;
    }
}

impl SubAssign for Triple {
    #[inline(always)]
    fn sub_assign(&mut self, other: Self) {
        self.blocks -= other.blocks;
        self.bytes -= other.bytes;
        self.requested -= other.requested;
    }
}

/// A count, and all its increases.
#[derive(Clone, Copy, Debug, Default)]
struct Special {
    current: i64,
    increases: i64,
}

impl Special {
    #[inline(always)]
    fn change(&mut self, amount: i64) {
        self.current += amount;
        self.increases += amount.max(0);
    }
}

/// Counts of one tier that each request and each free changes.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// In the program's hands; `requested` also counts what is pending.
    current: Triple,
    /// All that was handed out.
    handed_out: Triple,
}

/// The counters of one arena.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Number of the arena.
    number: u16,
    flows: [Flow; 2],
    /// For each tier and for both.
    limits: [Triple; ROWS],
    /// Limits have room for the block that was taken back last: nothing lowered them since.
    has_room: bool,
    /// The next operation is reported to [`Peaks`]: a ceiling was crossed, or a list of theirs lacks the arena.
    due: bool,
    /// On the list of arenas to [settle](Peaks::settle).
    listed: bool,
    /// On the list of arenas to [read](Peaks::read).
    moved: bool,
    /// Active bytes at the last [`Peaks::read`].
    known: i64,
    /// Freed by the program and still in use, by tier: blocks and bytes.
    pending: [(i64, i64); 2],
    /// Counts that requests do not change directly, by tier: inactive splits, their bytes, and oversize allocations.
    special: [[Special; 3]; 2],
    ceiling: Rows,
    /// `increases` and `decreases` at the last reset.
    base_increases: [Row; 2],
    base_decreases: [Row; 2],
}

#[allow(clippy::cast_possible_wrap)] // block sizes are under 2^60
fn signed(bytes: u64) -> i64 {
    bytes as i64
}

impl Counters {
    pub(crate) fn new(number: u16) -> Self {
        Self { number, due: true, ..Self::default() }
    }

    /// A block is handed out.
    #[inline(always)]
    pub(crate) fn give(&mut self, tier: Tier, size: u64, requested: u64) {
        let other = self.flows[1 - tier as usize].current;
        let flow = &mut self.flows[tier as usize];
        let one = Triple::one(size, requested);
        flow.current += one;
        flow.handed_out += one;
        let mine = flow.current;
        if !(mine.is_within(&self.limits[tier as usize]) && mine.plus(other).is_within(&self.limits[BOTH])) {
            self.look_closer();
        }
    }

    /// The block that was taken back last is handed out again; it was used for `before` bytes.
    #[inline(always)]
    pub(crate) fn give_again(&mut self, tier: Tier, size: u64, (before, requested): (u64, u64)) {
        if !self.has_room || requested > before {
            return self.give(tier, size, requested);
        }
        let (flow, one) = (&mut self.flows[tier as usize], Triple::one(size, requested));
        flow.current += one;
        flow.handed_out += one;
    }

    /// True if the arena stays under its ceilings with `more` added.
    pub(crate) fn has_room_for(&self, more: &Rows) -> bool {
        Count::ALL.iter().all(|count| (0..ROWS).all(|row| self.lacks(row, *count, more) == 0))
    }

    /// Amount by which `more` would cross the ceiling; 0 if it fits.
    fn lacks(&self, row: usize, count: Count, more: &Rows) -> i64 {
        let column = count as usize;
        (self.current(row, count) + more[row][column] - self.ceiling[row][column]).max(0)
    }

    /// The program gives a block back that nobody else uses.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, tier: Tier, size: u64, requested: u64) {
        self.flows[tier as usize].current -= Triple::one(size, requested);
        // Above a ceiling that is not reported yet, the same block once more would be a peak.
        self.has_room = !self.due;
    }

    /// The program gives a block back that is still used: it stays active.
    pub(crate) fn suspend(&mut self, tier: Tier, size: u64) {
        let (row, one) = (tier as usize, Triple::one(size, 0));
        self.flows[row].current -= one;
        // Pending memory counts against the limits as before.
        self.limits[row] -= one;
        self.limits[BOTH] -= one;
        self.has_room = false;
        self.pending[row].0 += 1;
        self.pending[row].1 += signed(size);
    }

    /// A block that was [suspended](Self::suspend) is used no more.
    pub(crate) fn release(&mut self, tier: Tier, size: u64, requested: u64) {
        let row = tier as usize;
        self.flows[row].current.requested -= signed(requested);
        self.pending[row].0 -= 1;
        self.pending[row].1 -= signed(size);
    }

    /// Inactive splits become more or fewer, by a number of blocks and bytes.
    #[inline(always)]
    pub(crate) fn change_splits(&mut self, tier: Tier, blocks: i64, bytes: i64) {
        let [of_blocks, of_bytes, _] = &mut self.special[tier as usize];
        of_blocks.change(blocks);
        of_bytes.change(bytes);
        if blocks > 0 || bytes > 0 {
            self.note_more(tier, Count::InactiveSplit);
            self.note_more(tier, Count::InactiveSplitBytes);
        }
    }

    /// An oversize block more, or one less.
    pub(crate) fn change_oversize(&mut self, tier: Tier, amount: i64) {
        self.special[tier as usize][Count::OversizeAllocations.special()].change(amount);
        self.note_more(tier, Count::OversizeAllocations);
    }

    /// One of the counts that change seldom may have crossed its ceiling.
    #[inline(always)]
    fn note_more(&mut self, tier: Tier, count: Count) {
        let of = |row: usize| self.special[row][count.special()].current;
        let (row, column) = (tier as usize, count as usize);
        self.due |= of(row) > self.ceiling[row][column] || of(0) + of(1) > self.ceiling[BOTH][column];
    }

    /// A limit is crossed. If no ceiling is, pending memory had lowered the limits, and they are set anew. Else
    /// [`Peaks::settle`] sets them.
    #[cold]
    #[inline(never)]
    fn look_closer(&mut self) {
        if self.crossed() {
            self.due = true;
        } else {
            self.set_limits();
        }
    }

    /// Reports the next operation, whatever it does.
    pub(crate) fn tell_next(&mut self) {
        self.due = true;
    }

    /// True if the arena must be reported to [`Peaks`].
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    fn set_limits(&mut self) {
        self.has_room = false;
        let [small, large] = self.pending;
        for (row, pending) in [small, large, (small.0 + large.0, small.1 + large.1)].into_iter().enumerate() {
            let ceiling = &self.ceiling[row];
            let least = |allocated: Count, active: Count, pending: i64| {
                ceiling[allocated as usize].min(ceiling[active as usize] - pending)
            };
            self.limits[row] = Triple {
                blocks: least(Count::Allocation, Count::Active, pending.0),
                bytes: least(Count::AllocatedBytes, Count::ActiveBytes, pending.1),
                requested: ceiling[Count::RequestedBytes as usize],
            };
        }
    }

    /// True if the arena is above a ceiling.
    pub(crate) fn crossed(&self) -> bool {
        !self.has_room_for(&Rows::default())
    }

    pub(crate) fn get(&self, tier: Tier, count: Count) -> i64 {
        self.current(tier as usize, count)
    }

    pub(crate) fn both(&self, count: Count) -> i64 {
        self.current(BOTH, count)
    }

    fn current(&self, row: usize, count: Count) -> i64 {
        if row == BOTH {
            return self.current(0, count) + self.current(1, count);
        }
        let Flow { current, .. } = &self.flows[row];
        match count {
            Count::Allocation => current.blocks,
            Count::Active => current.blocks + self.pending[row].0,
            Count::AllocatedBytes => current.bytes,
            Count::ActiveBytes => current.bytes + self.pending[row].1,
            Count::RequestedBytes => current.requested,
            special => self.special[row][special.special()].current,
        }
    }

    /// All increases of a count of a tier since the arena was made.
    fn increases(&self, row: usize, count: Count) -> i64 {
        let Flow { handed_out, .. } = &self.flows[row];
        match count {
            Count::Allocation | Count::Active => handed_out.blocks,
            Count::AllocatedBytes | Count::ActiveBytes => handed_out.bytes,
            Count::RequestedBytes => handed_out.requested,
            special => self.special[row][special.special()].increases,
        }
    }

    fn decreases(&self, row: usize, count: Count) -> i64 {
        self.increases(row, count) - self.current(row, count)
    }

    pub(crate) fn reset_accumulated(&mut self) {
        for row in 0..2 {
            for count in Count::ALL {
                self.base_increases[row][count as usize] = self.increases(row, count);
                self.base_decreases[row][count as usize] = self.decreases(row, count);
            }
        }
    }

    /// Blocks that the program gave back since the arena was made.
    pub(crate) fn taken_back_in_all(&self) -> u64 {
        (0..2).map(|row| self.decreases(row, Count::Allocation).unsigned_abs()).sum()
    }

    /// Bytes of the blocks that the program gave back since the arena was made.
    pub(crate) fn bytes_taken_back(&self) -> u64 {
        (0..2).map(|row| self.decreases(row, Count::AllocatedBytes).unsigned_abs()).sum()
    }

    /// Blocks handed out since the arena was made.
    pub(crate) fn handed_out_in_all(&self) -> u64 {
        self.flows.iter().map(|flow| flow.handed_out.blocks.unsigned_abs()).sum()
    }
}

/// A device's recorded peaks, in two parts. A *boundary* ([`restart`](Peaks::restart)) closes one and begins the other,
/// so that the peak since then is known, too.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    /// The most since the last boundary.
    running: Rows,
    /// Arenas that were granted something last, by number: their unused part is likely enough for the next.
    granted: SmallVec<[u16; RECENT]>,
    /// Arenas that were used or granted something since the last settlement: no other has less than its ceilings.
    listed: SmallVec<[u16; RECENT]>,
    /// Arenas that were used since they were last [read](Self::read).
    moved: SmallVec<[u16; RECENT]>,
    /// Sum of the active bytes that were read.
    in_use: i64,
    /// Part of `running` beyond the sum of all ceilings.
    reserve: Rows,
    /// The most between the last reset and the last boundary.
    earlier: Rows,
}

impl Peaks {
    /// An arena was used.
    pub(crate) fn note(&mut self, arena: &mut Counters) {
        self.list(arena);
        if !std::mem::replace(&mut arena.moved, true) {
            self.moved.push(arena.number);
        }
        arena.due = false;
    }

    fn list(&mut self, arena: &mut Counters) {
        if !std::mem::replace(&mut arena.listed, true) {
            self.listed.push(arena.number);
        }
    }

    /// Takes the list of arenas to be [settled](Self::settle), by number.
    pub(crate) fn take_listed(&mut self) -> SmallVec<[u16; RECENT]> {
        let mut listed = std::mem::take(&mut self.listed);
        listed.sort_unstable();
        listed
    }

    /// Takes the list of arenas that are to be [read](Self::read).
    pub(crate) fn take_moved(&mut self) -> SmallVec<[u16; RECENT]> {
        std::mem::take(&mut self.moved)
    }

    /// Takes an arena's active bytes into the sum. It stays listed if `goes_on`, else its next use lists it again.
    pub(crate) fn read(&mut self, arena: &mut Counters, goes_on: bool) {
        let now = arena.both(Count::ActiveBytes);
        self.in_use += now - std::mem::replace(&mut arena.known, now);
        arena.moved = goes_on;
        if goes_on {
            self.moved.push(arena.number);
        }
        arena.due |= !goes_on;
    }

    /// Active bytes of all arenas, once those that were used are [read](Self::read).
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use.unsigned_abs()
    }

    /// Takes the list of arenas that got the most lately.
    pub(crate) fn take_granted(&mut self) -> SmallVec<[u16; RECENT]> {
        std::mem::take(&mut self.granted)
    }

    /// True if part of a peak is beyond the sum of all ceilings.
    pub(crate) fn has_reserve(&self) -> bool {
        self.reserve.as_flattened().iter().any(|reserve| *reserve > 0)
    }

    /// Grants an arena what it lacks for `more` from the reserve, and half of the rest. `false`, with nothing changed,
    /// if the reserve is too small.
    pub(crate) fn grant(&mut self, arena: &mut Counters, more: &Rows) -> bool {
        if places().any(|(row, count)| arena.lacks(row, count, more) > self.reserve[row][count as usize]) {
            return false;
        }
        for (row, count) in places() {
            let lack = arena.lacks(row, count, more);
            if lack > 0 {
                let reserve = &mut self.reserve[row][count as usize];
                let more = lack + (*reserve - lack) / 2;
                *reserve -= more;
                arena.ceiling[row][count as usize] += more;
            }
        }
        self.list(arena);
        arena.set_limits();
        true
    }

    /// Notes that an arena was granted a part of the peaks.
    pub(crate) fn note_granted(&mut self, number: u16) {
        self.granted.retain(|other| *other != number);
        if self.granted.len() == RECENT {
            self.granted.remove(0);
        }
        self.granted.push(number);
    }

    /// Lowers an arena's ceilings to what it has now. The rest goes to the reserve.
    pub(crate) fn reclaim(&mut self, arena: &mut Counters) {
        for (row, count) in places() {
            let (column, now) = (count as usize, arena.current(row, count));
            let beyond = (arena.ceiling[row][column] - now).max(0);
            arena.ceiling[row][column] -= beyond;
            self.reserve[row][column] += beyond;
        }
        arena.set_limits();
    }

    /// Raises the peaks to the sum over all arenas. `arenas` are those that may have less than their ceilings. The
    /// difference of peak and sum goes half to an arena that crossed its ceiling (it is growing), half to the reserve.
    /// A sole arena gets all of it.
    pub(crate) fn settle(&mut self, arenas: &mut [&mut Counters], is_only: bool) {
        let growing = arenas.iter().counted().position(|a| a.crossed()).unwrap_or(0);
        for (row, count) in places() {
            let (column, reserve) = (count as usize, &mut self.reserve[row][count as usize]);
            let beyond: i64 = arenas.iter().map(|a| a.ceiling[row][column] - a.current(row, count)).sum();
            let peak = &mut self.running[row][column];
            // All other arenas have what they were granted.
            let sum = *peak - *reserve - beyond;
            *peak = (*peak).max(sum);
            let spare = *peak - sum;
            *reserve = if is_only { 0 } else { spare / 2 };
            for (n, arena) in arenas.iter_mut().enumerate() {
                let share = if n == growing { spare - *reserve } else { 0 };
                arena.ceiling[row][column] = arena.current(row, count) + share;
            }
        }
        self.listed.clear();
        for (n, arena) in arenas.iter_mut().enumerate() {
            arena.listed = false;
            if n == growing {
                self.list(arena);
            } else {
                arena.due = true;
            }
            arena.set_limits();
        }
    }

    /// The peaks become the current sums.
    pub(crate) fn reset(&mut self, arenas: &mut [&mut Counters]) {
        self.restart(arenas);
        self.earlier = Rows::default();
    }

    /// Sets a boundary: keeps the peaks so far, and from here on tracks those since now, too.
    pub(crate) fn restart(&mut self, arenas: &mut [&mut Counters]) {
        self.earlier = self.recorded();
        self.begin_with(&Rows::default(), arenas);
    }

    /// Forgets the last boundary: below the recorded peak nothing needs to be settled again.
    pub(crate) fn rejoin(&mut self, arenas: &mut [&mut Counters]) {
        self.begin_with(&self.recorded(), arenas);
    }

    /// Sets the running peaks to `most`, or to the current sums if these are higher.
    fn begin_with(&mut self, most: &Rows, arenas: &mut [&mut Counters]) {
        for (row, count) in places() {
            let column = count as usize;
            // Ceilings stay.
            self.reserve[row][column] += most[row][column] - self.running[row][column];
        }
        self.running = *most;
        let is_only = arenas.len() == 1;
        self.settle(arenas, is_only);
    }

    /// The most since the last boundary, of both tiers.
    pub(crate) fn since_boundary(&self) -> &Row {
        &self.running[BOTH]
    }

    /// The most since the last reset.
    fn recorded(&self) -> Rows {
        let mut most = self.earlier;
        for (most, running) in most.as_flattened_mut().iter_mut().zip(self.running.as_flattened()) {
            *most = (*most).max(*running);
        }
        most
    }

    /// Writes the arenas' part of the statistics.
    pub(crate) fn fill(&self, arenas: &[&Counters], stats: &mut DeviceStats) {
        let peaks = self.recorded();
        let stat = |row: usize, count: Count| {
            let column = count as usize;
            let tiers = if row == BOTH { 0..2 } else { row..row + 1 };
            let mut stat = Stat { peak: peaks[row][column], ..Stat::default() };
            for arena in arenas {
                stat.current += arena.current(row, count);
                for tier in tiers.clone() {
                    stat.allocated += arena.increases(tier, count) - arena.base_increases[tier][column];
                    stat.freed += arena.decreases(tier, count) - arena.base_decreases[tier][column];
                }
            }
            stat
        };
        let array = |count: Count| StatArray {
            small_pool: stat(Tier::Small as usize, count),
            large_pool: stat(Tier::Large as usize, count),
            all: stat(BOTH, count),
        };
        stats.allocation = array(Count::Allocation);
        stats.active = array(Count::Active);
        stats.inactive_split = array(Count::InactiveSplit);
        stats.allocated_bytes = array(Count::AllocatedBytes);
        stats.active_bytes = array(Count::ActiveBytes);
        stats.inactive_split_bytes = array(Count::InactiveSplitBytes);
        stats.requested_bytes = array(Count::RequestedBytes);
        stats.oversize_allocations = stat(BOTH, Count::OversizeAllocations);
    }

    /// Panics if ceilings and reserve are not the peaks, or an arena is above its ceilings and not `due`.
    pub(crate) fn check(&self, arenas: &[&Counters]) {
        for (row, count) in places() {
            let column = count as usize;
            let ceilings: i64 = arenas.iter().map(|a| a.ceiling[row][column]).sum();
            let covered = ceilings + self.reserve[row][column];
            assert_eq!(covered, self.running[row][column], "the peak is what is granted, and the reserve");
            for arena in arenas {
                let is_within = arena.current(row, count) <= arena.ceiling[row][column];
                assert!(arena.due || is_within, "an arena above its ceiling knows it");
            }
        }
    }
}

/// Each place of [`Rows`].
fn places() -> impl Iterator<Item = (usize, Count)> {
    (0..ROWS).flat_map(|row| Count::ALL.map(|count| (row, count)))
}
