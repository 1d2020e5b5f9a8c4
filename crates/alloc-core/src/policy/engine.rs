//! A device, as a policy sees it that gets memory for a miss in ways of its own.

use super::ground::PolicyArena;
use super::{Grain, Request};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, SegmentId};
use crate::memory::segment::Segment;
use crate::types::DevicePtr;
use std::ops::DerefMut;

/// A granule that is to be mapped in a second place: its home, and its address there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granule {
    pub(crate) segment: SegmentId,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
}

/// What became of granules that were to be mapped in a second place, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// They are, and a request was served from there.
    Served(DevicePtr),
    /// There are no addresses for them, or no memory of the driver's own.
    Refused,
    /// The driver maps no memory in two places.
    Unsupported,
}

/// Adjacent mappings in a second place that are to go, and up to when the device may be using them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) epoch: u64,
}

/// A granule of an arena whose memory serves another one at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away {
    pub(crate) segment: SegmentId,
    pub(crate) addr: u64,
    /// Where it serves: the arena's number, the segment there, and the address.
    pub(crate) home: (u16, SegmentId, u64),
}

/// What a policy may ask of other streams' memory. Nothing here is called with a lock held, unless it takes what is under one.
pub(crate) trait Streams<M> {
    /// An arena.
    type Arena;
    /// What is under its lock.
    type State: PolicyArena<M>;

    /// The default pool's other arenas that have a free large block of at least `bytes`, in every call the same; none for that
    /// of a private pool.
    fn givers<'a>(&'a self, arena: &'a Self::Arena, bytes: u64) -> impl Iterator<Item = &'a Self::Arena>;
    /// The default pool's other arenas; none for that of a private pool.
    fn neighbours<'a>(&'a self, arena: &'a Self::Arena) -> Vec<&'a Self::Arena>;
    /// Newest epoch of an arena's free memory that other streams may have: the device is done with it. Calls the driver; does not
    /// block.
    fn newest_spare(&self, from: &Self::Arena) -> Option<u64>;
    /// What an arena is called where memory is handed over.
    fn number(&self, arena: &Self::Arena) -> u16;
    /// The arena with a number.
    fn arena(&self, number: u16) -> Option<&Self::Arena>;
    /// The granules of an arena whose memory serves others.
    fn away_of(&self, arena: &Self::Arena) -> Vec<Away>;
    /// Whether the granule at `addr`, in a free block, served the arena with this number before, and is mapped there still.
    fn is_mapped_in(&self, state: &Self::State, id: BlockId, addr: u64, arena: u16) -> bool;
    /// Hands busy granules, each a block of its own, to another arena, of whose free memory they are part then. They stay mapped
    /// where they were. Returns how many bytes came; `None` where the driver maps no memory in two places.
    fn hand_over(
        &self,
        from: &Self::Arena,
        to: &Self::Arena,
        parts: &[BlockId],
        call: &Call<'_>,
    ) -> Option<u64>;
    /// Bytes that are mapped where they do not serve.
    fn away(&self) -> u64;
    /// Unmaps what of that an arena has, the device is known to be done with and no view shows.
    fn unmap_away(&self, arena: &Self::Arena, call: &Call<'_>);
}

/// What a policy may ask of a device whose arenas it remembers an `M` of. Nothing here is called with a lock held, unless it
/// takes what is under one.
pub(crate) trait Engine<M> {
    /// An arena.
    type Arena;
    /// What is under its lock.
    type State: PolicyArena<M>;
    /// What other streams have.
    type Streams: Streams<M, Arena = Self::Arena, State = Self::State>;

    /// Locks an arena.
    fn lock<'a>(&'a self, arena: &'a Self::Arena) -> impl DerefMut<Target = Self::State> + 'a;
    /// Locks an arena for what `call` does to its blocks.
    fn attend<'a>(
        &'a self,
        arena: &'a Self::Arena,
        call: &'a Call<'a>,
    ) -> impl DerefMut<Target = Self::State> + 'a;

    /// Bytes handed out or pending.
    fn in_use(&self) -> u64;
    /// Bytes held, or about to be.
    fn held(&self) -> u64;
    /// Whether requests are rejected before so many bytes are held.
    fn rejects(&self, held: u64) -> bool;
    /// Bytes of the device.
    fn total(&self) -> u64;
    /// Whether an arena belongs to a private pool.
    fn is_private(&self, arena: &Self::Arena) -> bool;
    /// The unit of virtual memory, once the driver was asked for it.
    fn unit(&self) -> Option<u64>;
    /// Asks the driver for that, where it has virtual memory.
    fn ask_unit(&self) -> Result<()>;
    /// Tries whether memory that is mapped in two places is the same in both; `None` where a capture is under way, or the driver
    /// has no room. Calls the driver, and waits for it.
    fn try_aliases(&self, arena: &Self::Arena, call: &Call<'_>) -> Option<bool>;
    /// Whether to wait for the arena's stream breaks no capture, also none that nobody told of. Calls the driver.
    fn may_wait(&self, arena: &Self::Arena, call: &Call<'_>) -> bool;
    /// An error that the driver answered is no reason to refuse anything.
    fn forget_error(&self);
    /// The calling thread has memory in its hands, in no index, while what is returned lives.
    fn moving(&self) -> impl Sized + '_;

    /// Hands out a block that is in no index.
    fn hand_out(&self, state: &mut Self::State, id: BlockId, requested: u64) -> DevicePtr;
    /// Searches the free blocks again.
    fn search(&self, arena: &Self::Arena, request: &Request, call: &Call<'_>) -> Option<DevicePtr>;
    /// Takes memory for `request` from the device and hands it out; `Ok(None)` where the device, or a limit, has not enough.
    fn grow(
        &self,
        arena: &Self::Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>>;
    /// Takes as much memory as `request` says, which becomes free, in granules of these sizes; `false` where there is not enough.
    fn stock(
        &self,
        arena: &Self::Arena,
        request: &Request,
        grain: Grain,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<bool>;
    /// What other streams have.
    fn streams(&self) -> &Self::Streams;

    /// Maps granules a second time, side by side, and serves `request` from there: `adopt` gives the arena the new segment, and
    /// returns the block. Their homes may not lose their memory meanwhile.
    fn map_again(
        &self,
        arena: &Self::Arena,
        granules: &[Granule],
        request: &Request,
        call: &Call<'_>,
        adopt: impl FnOnce(&mut Self::State, Segment) -> BlockId,
    ) -> Result<Mapped>;
    /// Unmaps such mappings, in which no block lives, once the device is done with them. `commit` is told of each whether it is
    /// gone, and returns the addresses of its granules. `rest` returns the segments of which only addresses are left then; these
    /// are given back. Blocks, unless a capture forbids it; then all stay.
    fn unmap(
        &self,
        arena: &Self::Arena,
        parts: &[Part],
        call: &Call<'_>,
        commit: impl FnMut(&mut Self::State, usize, bool) -> Vec<u64>,
        rest: impl FnOnce(&mut Self::State) -> Vec<Segment>,
    ) -> Result<()>;
}
