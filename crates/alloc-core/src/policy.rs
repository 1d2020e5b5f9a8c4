//! Decisions of an allocator: rounding, placement, splitting, growth, draining, giving back.
//!
//! The engine manages blocks, counters, streams and driver calls alike under both policies. The code of the fast path
//! that differs between them is in `arena/rules.rs`.

mod granule_policy;
mod granule_sizes;
mod pytorch_policy;

pub use granule_policy::GranulePolicy;
pub(crate) use granule_policy::{SegmentPlan, Situation, choose};
pub(crate) use granule_sizes::{GranuleSizes, Sizes};
pub use pytorch_policy::PytorchPolicy;
pub(crate) use pytorch_policy::{Cached, enough, oldest};

use crate::base::round::SMALL_SEGMENT;
use crate::config::{PolicyName, Settings};
use crate::memory::block::Tier;
use crate::memory::order::TieBreak;

/// A request after rounding. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// As the program asked.
    pub requested: u64,
    /// The block size that serves it.
    pub size: u64,
    /// The tier that serves it.
    pub tier: Tier,
    /// Bytes asked from the device for it, where segments are fixed.
    pub segment_bytes: u64,
}

/// Memory of a pool and a stream when more is taken for them. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The most that was needed, this request included.
    pub(crate) most: u64,
    /// Handed out, or pending.
    pub(crate) in_use: u64,
    /// Given back by the program, in all.
    pub(crate) taken_back: u64,
}

impl PolicyName {
    /// True if completed pending frees are noticed at every request, as in PyTorch. Else on a miss, before a new peak,
    /// when statistics are read, and now and then.
    pub(crate) const fn drains_at_each_request(self) -> bool {
        matches!(self, Self::Pytorch)
    }
}

/// A policy under certain settings.
#[derive(Clone, Debug)]
pub enum Policy {
    /// PyTorch's.
    Pytorch(PytorchPolicy),
    /// Granule's own.
    Granule(GranulePolicy),
}

impl Policy {
    /// The one that settings name, on a device that has virtual memory or not.
    #[must_use]
    pub fn new(settings: &Settings, virtual_memory: bool) -> Self {
        match settings.policy_name() {
            PolicyName::Pytorch => Self::Pytorch(PytorchPolicy::new(settings, virtual_memory)),
            PolicyName::Granule => Self::Granule(GranulePolicy::new(settings, virtual_memory)),
        }
    }

    pub(crate) fn name(&self) -> PolicyName {
        match self {
            Self::Pytorch(_) => PolicyName::Pytorch,
            Self::Granule(_) => PolicyName::Granule,
        }
    }

    /// Rounds a request of `bytes` (over 0, under 2^60).
    #[must_use]
    pub fn request(&self, bytes: u64) -> Request {
        match self {
            Self::Pytorch(policy) => policy.request(bytes),
            Self::Granule(policy) => policy.request(bytes),
        }
    }

    /// True if a block of `block` bytes is split for `request`.
    #[must_use]
    pub fn splits(&self, block: u64, request: &Request) -> bool {
        match self {
            Self::Pytorch(policy) => policy.splits(block, request),
            Self::Granule(policy) => policy.splits(block, request),
        }
    }

    /// True if new memory comes as growable segments.
    pub(crate) fn grows(&self) -> bool {
        match self {
            Self::Pytorch(policy) => policy.grows(),
            Self::Granule(policy) => policy.grows(),
        }
    }

    /// The same policy with growable segments, whatever the settings say; on devices with virtual memory only.
    #[must_use]
    pub fn growing(&self) -> Self {
        match self {
            Self::Pytorch(policy) => Self::Pytorch(policy.growing()),
            Self::Granule(policy) => Self::Granule(policy.growing()),
        }
    }

    /// The new granules of growable segments of `tier`: multiples of `minimum`.
    pub(crate) fn granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> GranuleSizes {
        match self {
            Self::Pytorch(policy) => GranuleSizes::even(policy.granule(tier, minimum)),
            Self::Granule(policy) => policy.granule(tier, minimum, holding),
        }
    }

    /// Fixed segment to take for `request`, and idle ones to give back for it, where segments do not grow. `None` means
    /// a segment of `request.segment_bytes`, and so does a refusal of that much. `situation` looks at all arenas.
    pub(crate) fn growth(
        &self,
        request: &Request,
        situation: impl FnOnce() -> Situation,
    ) -> Option<SegmentPlan> {
        match self {
            Self::Pytorch(_) => None,
            Self::Granule(policy) => Some(policy.growth(request, &situation())),
        }
    }

    /// Address space for a growable segment with these granules, on a device with `total` bytes of memory.
    pub(crate) fn reserve(&self, total: u64, granule: u64) -> u64 {
        match self {
            Self::Pytorch(policy) => policy.reserve(total),
            Self::Granule(policy) => policy.reserve(total, granule),
        }
    }

    /// Bytes of address space of a new growable segment for `size` bytes, where `reserve` is asked for; and its
    /// alignment, 0 for the driver's own.
    pub(crate) fn reservation(&self, reserve: u64, size: u64) -> (u64, u64) {
        match self {
            Self::Pytorch(_) => (reserve, 0),
            // A request larger than a region gets its own. Borders of granules follow from addresses, hence the
            // alignment.
            Self::Granule(_) => (reserve.max(size), SMALL_SEGMENT),
        }
    }

    /// The unit in which a new growable segment is mapped, where new granules have `granule` bytes and the driver's
    /// unit is `minimum`.
    pub(crate) fn unit(&self, granule: u64, minimum: u64) -> u64 {
        let finest = SMALL_SEGMENT.next_multiple_of(minimum);
        match self {
            // Granules of all sizes lie side by side.
            Self::Granule(_) if granule.is_multiple_of(finest) => finest,
            _ => granule,
        }
    }

    /// Order of free blocks of one size.
    pub(crate) fn tie_break(&self) -> TieBreak {
        match self {
            Self::Pytorch(policy) => policy.tie_break(),
            Self::Granule(_) => TieBreak::OldestSegment,
        }
    }

    /// True if address space of a growable segment with nothing mapped is given back along with cached memory.
    pub(crate) fn gives_empty_addresses_back(&self) -> bool {
        match self {
            Self::Pytorch(policy) => policy.gives_empty_addresses_back(),
            Self::Granule(_) => true,
        }
    }

    /// Bytes from which blocks and segments count as oversize.
    pub(crate) fn oversize(&self) -> u64 {
        match self {
            Self::Pytorch(policy) => policy.oversize(),
            Self::Granule(_) => u64::MAX,
        }
    }

    /// Bytes that cached oversize segments must give back for `request`; `None` where that is off.
    pub(crate) fn release_target(&self, request: &Request) -> Option<u64> {
        let oversize = self.oversize();
        (oversize != u64::MAX).then(|| request.size.max(oversize))
    }

    /// Held bytes above which old segments are given back, under a limit of `allowed` bytes; `None` where that is off.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    pub(crate) fn garbage_threshold(&self, allowed: Option<u64>) -> Option<u64> {
        let share = match self {
            Self::Pytorch(policy) => policy.garbage_threshold(),
            Self::Granule(policy) => policy.garbage_threshold(),
        };
        allowed.filter(|_| share > 0.0).map(|allowed| (share * allowed as f64) as u64)
    }
}
