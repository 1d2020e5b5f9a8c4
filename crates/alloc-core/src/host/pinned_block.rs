//! A pinned block, and what happens to it.

use crate::lifetimes::uses::User;
use crate::process::callbacks::Gathered;
use crate::types::{DevicePtr, PoolId};
use crate::watch::history::Context;
use smallvec::SmallVec;
use std::time::Duration;

/// Method that made a block, and gives it back, whatever the settings say by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinMethod {
    /// The driver made it.
    Driver,
    /// Our pages, registered with the driver.
    Registered,
    /// A piece of the reserve.
    Reserve,
}

/// Phase of a block's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The program has it.
    HandedOut,
    /// The program gave it back, and devices may still use it.
    Waiting,
    /// The program gave it back, and graphs may use it whenever they are launched.
    Kept,
    /// Free.
    Cached,
    /// On its way to the driver.
    Leaving,
}

/// A pinned block. It is never split, and never merged with others.
#[derive(Debug)]
pub(super) struct PinnedBlock {
    pub(super) ptr: DevicePtr,
    pub(super) size: u64,
    /// As last requested.
    pub(super) requested: u64,
    /// Rounded request.
    pub(super) rounded: u64,
    pub(super) pool: PoolId,
    pub(super) origin: PinMethod,
    pub(super) phase: Phase,
    /// Name while the program has it.
    pub(super) name: u64,
    pub(super) users: Users,
    /// Users it still waits for.
    pub(super) waits: usize,
    /// Handed out while its request's stream was being captured.
    pub(super) captured: bool,
    /// Used by a stream that was being captured.
    pub(super) in_graph: bool,
    /// A buffer has it, and frees it.
    pub(super) buffered: bool,
    /// Counts for itself: it leaves, or is not cached after its end; see [`Pins::take`](crate::process::pinned::Pins::take).
    pub(super) apart: bool,
    pub(super) context: Option<Context>,
}

/// Streams that use a block.
pub(super) type Users = SmallVec<[User; 2]>;

/// A new block, just taken from its source.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) ptr: DevicePtr,
    pub(super) size: u64,
    pub(super) origin: PinMethod,
    /// Time in the driver, where it was asked.
    pub(super) took: Option<Duration>,
}

/// A request, as far as the block's record is concerned.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) requested: u64,
    pub(super) pool: PoolId,
    pub(super) capturing: bool,
    pub(super) apart: bool,
    pub(super) context: Option<Gathered<'a, Context>>,
}

/// Fate of a freed block.
#[derive(Debug)]
pub(super) enum Fate {
    /// Nothing: it is free.
    Free,
    /// Nothing, and it goes back to the driver.
    Leaves,
    /// These.
    Waits(Users),
    /// It is never free again.
    Kept,
}
