//! A device, as a policy sees it that gets memory for a miss in ways of its own.

use super::Request;
use super::ground::PolicyArena;
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

/// What a policy may ask of a device whose arenas it remembers an `M` of. Nothing here is called with a lock held, unless it
/// takes what is under one.
pub(crate) trait Engine<M> {
    /// An arena.
    type Arena;
    /// What is under its lock.
    type State: PolicyArena<M>;

    /// Locks an arena.
    fn lock<'a>(&'a self, arena: &'a Self::Arena) -> impl DerefMut<Target = Self::State> + 'a;
    /// Locks an arena for what `call` does to its blocks.
    fn attend<'a>(
        &'a self,
        arena: &'a Self::Arena,
        call: &Call<'_>,
    ) -> impl DerefMut<Target = Self::State> + 'a;

    /// Bytes handed out or pending. Locks all arenas, one after the other.
    fn in_use(&self) -> u64;
    /// Bytes held, or about to be.
    fn held(&self) -> u64;
    /// Bytes of the device.
    fn total(&self) -> u64;
    /// Whether what is freed loses its access.
    fn is_hardened(&self) -> bool;
    /// The unit of virtual memory, once the driver was asked for it.
    fn unit(&self) -> Option<u64>;
    /// Asks the driver for that, where it has virtual memory.
    fn ask_unit(&self) -> Result<()>;
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
    /// Takes as much memory as `request` says, which becomes free, in granules of this size; `false` where there is not enough.
    fn stock(
        &self,
        arena: &Self::Arena,
        request: &Request,
        granule: u64,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<bool>;
    /// The default pool's other arenas.
    fn neighbours<'a>(&'a self, arena: &'a Self::Arena) -> Vec<&'a Self::Arena>;
    /// Whether the device is done with everything that an arena's stream was given. Calls the driver; does not block.
    fn is_idle(&self, arena: &Self::Arena) -> bool;
    /// Moves busy blocks of whole granules to another arena, of whose free memory they are part then. Returns how many bytes
    /// came. Their stream is idle.
    fn hand_over(
        &self,
        from: &Self::Arena,
        to: &Self::Arena,
        parts: Vec<BlockId>,
        call: &Call<'_>,
    ) -> Result<u64>;

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
