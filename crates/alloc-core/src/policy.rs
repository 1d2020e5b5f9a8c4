//! The seam between mechanism and decision.
//!
//! The engine keeps blocks, counters, streams and driver calls straight; a [`Policy`] decides: rounding,
//! placement, splitting, growth, draining, the order of remedies, what to give back. The settings name it; a program
//! brings its own through [`CachingAllocator::with_policy`](crate::CachingAllocator::with_policy).

mod chosen;
pub(crate) mod engine;
mod grain;
pub(crate) mod granule;
mod ground;
mod hooks;
mod placement;
mod pytorch;
mod remembered;
mod supply;

pub(crate) use chosen::{Chosen, Maker, Traits};
pub(crate) use grain::{Grain, Sizes};
pub(crate) use granule::choose;
pub use granule::{GranulePolicy, Growth, Memory as GranuleMemory, Situation};
pub(crate) use ground::{Ground, PolicyArena};
pub(crate) use hooks::Hooks;
pub(crate) use placement::{Placed, Placement, Placing};
pub use pytorch::PytorchPolicy;
pub(crate) use pytorch::{Cached, enough, oldest};
pub use remembered::ArenaMemory;
pub(crate) use remembered::Remembered;
pub(crate) use supply::Supply;

// What a program's own policy is written with.
pub use crate::memory::block::{Block, BlockId, BlockTable, Tier};
pub use crate::memory::index::{BestFitIndex, FitKey, PlacementIndex, SegregatedIndex};
pub use crate::memory::order::TieBreak;
pub use crate::memory::segment::SegmentTable;

use crate::config::{PolicyName, Settings};
use std::fmt::Debug;

/// What makes the policy that settings name.
pub(crate) fn built_in(settings: &Settings) -> Result<Maker, String> {
    match settings.policy_name() {
        name @ PolicyName::Pytorch => Ok(Maker::of(name, PytorchPolicy::new)),
        name @ PolicyName::Granule => Ok(Maker::of(name, GranulePolicy::new)),
        PolicyName::Custom(name) => Err(format!(
            "policy:custom:{name} is a program's own: make the allocator with CachingAllocator::with_policy"
        )),
    }
}

/// A request after rounding. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// As the program asked.
    pub requested: u64,
    /// The block size that serves it.
    pub size: u64,
    /// The tier that serves it.
    pub tier: Tier,
    /// What is asked from the device for it, where segments are fixed.
    pub segment_bytes: u64,
}

/// What the blocks of a pool and a stream come to when more memory is taken for them. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The most that was needed, with what is asked for.
    pub most: u64,
    /// Handed out, or pending.
    pub in_use: u64,
    /// Given back by the program, in all.
    pub taken_back: u64,
}

/// When completed pending frees are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// At every request, all streams (PyTorch).
    EveryRequest,
    /// On a miss, before a new peak, when statistics are read, and at every n-th request while something is pending.
    OnMissAndEvery(u32),
}

/// A remedy for a request that found no block, in the order the policy lists them. After each that changed
/// something, the free blocks are searched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Notice completed pending frees.
    Drain,
    /// Use free memory that is shown in one piece in another place.
    Views,
    /// Run the program's free-memory callbacks.
    Callbacks,
    /// Give old cached segments back, by age.
    CollectGarbage,
    /// Take memory from the device; above the soft limit, give cached memory back first.
    Grow,
    /// Take what pools that opted in have cached (`use_on_oom`).
    OptedInPools,
    /// Give back just enough cached oversize segments, then take memory from the device.
    ReleaseEnough,
    /// Wait for all pending frees and return what they hold.
    WaitForPending,
    /// Give all cached memory back, that of tenants who hold too much first, then take memory from the device: counted as
    /// a retry.
    ReleaseAll,
    /// Ask the program's spill hooks to make room.
    Spill,
}

impl Rung {
    /// Whether it may be tried for a stream that is being captured: it waits for nothing and queries no event. Memory
    /// of which it is not known that the device is done with it then stays.
    #[must_use]
    pub const fn is_capture_safe(self) -> bool {
        !matches!(self, Self::Drain | Self::WaitForPending | Self::Spill)
    }

    /// Whether it may wait for work of the device before memory can go, or be used again.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(
            self,
            Self::CollectGarbage
                | Self::ReleaseEnough
                | Self::WaitForPending
                | Self::ReleaseAll
                | Self::Spill
        )
    }

    /// Whether it calls code of the program that may ask for memory itself.
    #[must_use]
    pub const fn runs_foreign_code(self) -> bool {
        matches!(self, Self::Callbacks | Self::Spill)
    }

    /// A short name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain finished frees",
            Self::Views => "use free memory in another order",
            Self::Callbacks => "run free-memory callbacks",
            Self::CollectGarbage => "give old segments back",
            Self::Grow => "take memory from the device",
            Self::OptedInPools => "take what opted-in pools have cached",
            Self::ReleaseEnough => "give oversize segments back",
            Self::WaitForPending => "wait for pending frees",
            Self::ReleaseAll => "empty the cache",
            Self::Spill => "ask spill hooks",
        }
    }
}

/// Every decision of an allocator.
///
/// Its methods are asked while an arena is locked: a method calls no allocator, and blocks on nothing. Nor should it panic. The
/// panic ends the program's request. The block about which [`splits`](Self::splits) was asked stays free. What
/// [`take_fit`](Self::take_fit) had taken out of the index is never served again.
pub trait Policy: Clone + Debug + Send + Sync + 'static {
    /// The index of free blocks it searches.
    type Index: PlacementIndex;
    /// What it remembers of each arena: `()` is nothing.
    ///
    /// With the [`GranuleMemory`] of the `granule` policy a block that was just freed serves the next request of exactly its
    /// size, whatever else would fit. Requests are served where they were before. Free granules are shown side by side in a
    /// second place before memory is taken from the device.
    type Memory: ArenaMemory;

    /// Its name in configuration and reports.
    const NAME: &'static str;
    /// Remedies in order.
    const LADDER: &'static [Rung];
    /// When pending frees are drained.
    const DRAIN: Drain;
    /// Whether memory is growable whatever the settings say, on devices with virtual memory.
    const ALWAYS_GROWS: bool = false;

    /// Rounds a request of `bytes` (over 0, under 2^60).
    fn request(&self, bytes: u64) -> Request;

    /// Whether new memory comes as growable segments.
    fn grows(&self) -> bool;

    /// The same policy with growable segments, whatever the settings say; on devices with virtual memory only.
    fn growing(&self) -> Self;

    /// Bytes of new granules of growable segments of `tier`: a multiple of `minimum`.
    fn granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> u64;

    /// The least bytes of the last of several new granules, which has what the others leave: [`granule`](Self::granule) where all
    /// have one size.
    fn least_granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> u64 {
        self.granule(tier, minimum, holding)
    }

    /// What fixed segment is taken for `request`, and what is given back for it, where segments do not grow. `None`, and where
    /// that much is refused, it is `request.segment_bytes`. What `situation` says takes a look at all arenas.
    fn growth(&self, _: &Request, _situation: &dyn Fn() -> Situation) -> Option<Growth> {
        None
    }

    /// Address space for a growable segment with these granules, on a device with `total` bytes of memory.
    fn reserve(&self, total: u64, granule: u64) -> u64;

    /// Chooses a free block for `request` and takes it out of the index.
    fn take_fit(
        &self,
        index: &mut Self::Index,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId>;

    /// Which of several free blocks of one size [`BestFitIndex`] has first. The same for as long as the policy lives.
    fn tie_break(&self) -> TieBreak {
        TieBreak::default()
    }

    /// Whether address space of a growable segment in which nothing is mapped is given back when cached memory is. The same for
    /// as long as the policy lives.
    fn gives_empty_addresses_back(&self) -> bool {
        true
    }

    /// Whether a block of `block` bytes is cut for `request`.
    fn splits(&self, block: u64, request: &Request) -> bool;

    /// Blocks and segments of at least so many bytes count as oversize; none do by default. The same for as long as the policy
    /// lives.
    fn oversize(&self) -> u64 {
        u64::MAX
    }

    /// What [`Rung::ReleaseEnough`] has to give back for `request`, in bytes; `None` where the rung is off.
    fn release_target(&self, request: &Request) -> Option<u64>;

    /// Held bytes above which [`Rung::CollectGarbage`] works, under an allowed maximum of `allowed` bytes;
    /// `None` where it is off.
    fn garbage_threshold(&self, allowed: Option<u64>) -> Option<u64>;
}

/// Makes the policy of a program's own, for each device, and again whenever settings change. A function of the settings, and of
/// whether the device has virtual memory, is one: `|settings: &Settings, virtual_memory: bool| Own::new(settings)`.
///
/// It is called when an allocator is made, and before its settings change, with no lock held: it may look at the allocator.
pub trait PolicyFactory: Send + Sync + 'static {
    /// What it makes.
    type Policy: Policy;

    /// The policy under `settings`, on a device that has virtual memory or not.
    fn make(&self, settings: &Settings, virtual_memory: bool) -> Self::Policy;
}

impl<P: Policy, F: Fn(&Settings, bool) -> P + Send + Sync + 'static> PolicyFactory for F {
    type Policy = P;

    fn make(&self, settings: &Settings, virtual_memory: bool) -> P {
        self(settings, virtual_memory)
    }
}

/// Held bytes above which garbage is collected: a share of what is allowed; 0 turns it off.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
fn garbage_threshold(share: f64, allowed: Option<u64>) -> Option<u64> {
    allowed.filter(|_| share > 0.0).map(|allowed| (share * allowed as f64) as u64)
}
