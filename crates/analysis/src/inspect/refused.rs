//! What a refused request would have needed.

use super::Context;
use super::live::{Group, by_caller};
use super::memory::{Blocker, blockers_of};
use super::place::{Caller, Place};
use crate::layout::Layout;
use crate::run::{Moment, Refusal};
use serde::Serialize;
use std::cmp::Reverse;

/// Blocks that are named.
const NAMED: usize = 20;

/// A refused request, and what there was. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// When.
    pub at: u32,
    /// The iteration it is in; `None` before the first, or where the file has none.
    pub iteration: Option<u64>,
    /// As it was asked for, or rounded where the file has only that.
    pub size: u64,
    /// The block that would serve it.
    pub block: u64,
    /// What the device was asked for at least.
    pub segment: u64,
    /// Its stream.
    pub stream: u64,
    /// Who asked, where that is recorded.
    pub caller: Option<Caller>,
    /// What the driver had free.
    pub device_free: Option<u64>,
    /// Free memory of its stream and kind, that of private pools left out: what could have served it.
    pub usable_free: u64,
    /// The largest piece of that.
    pub usable_largest: u64,
    /// Free memory of other streams, pools or kind.
    pub other_free: u64,
    /// The largest piece of that.
    pub other_largest: u64,
    /// Given back, and waiting for other streams.
    pub waiting: u64,
    /// Why it was refused.
    pub verdict: Verdict,
    /// Whether segments were fixed under PyTorch's own policy: expandable ones are a remedy then.
    pub fixed_segments: bool,
    /// Free memory that expandable segments join: of all streams and kinds, that of private pools left out.
    #[serde(skip)]
    pub joinable: u64,
    /// Who had most live then, where that is recorded.
    pub most_live: Option<Group<Caller>>,
    /// Bytes that were missing even if all free memory of the process and the device had been in one piece; 0 under other
    /// verdicts.
    pub missing: u64,
    /// Blocks without which there would have been room in one piece beside them, the smallest first; twenty at most.
    pub in_the_way: Vec<Blocker>,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its own stream and kind had enough free memory, in pieces that were too small.
    Fragmented,
    /// With what the device had free there was enough, but neither alone.
    SplitBetweenCacheAndDevice,
    /// There was enough, but it was in the hands of other streams or pools, or waited for them.
    HeldElsewhere,
    /// There was not enough memory, however it lay.
    TooLittle,
    /// The device had enough, or a free block was large enough.
    Limited,
    /// The file does not say what the device had free.
    Unknown,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Fragmented => "enough was free, but not in one piece",
            Self::SplitBetweenCacheAndDevice => {
                "the cache and the device together had enough, but neither alone in one piece"
            }
            Self::HeldElsewhere => {
                "enough was free, but of other streams, pools or sizes, or waiting for them"
            }
            Self::TooLittle => "there was too little memory, however it lay",
            Self::Limited => "there was room for it: a memory limit refused it, or it was for another pool",
            Self::Unknown => "the file does not say what the device had free",
        }
    }
}

impl Refused {
    /// Whether expandable segments would have served it: they are not on, and free memory that they join is enough.
    #[must_use]
    pub fn expandable_helps(&self) -> bool {
        self.fixed_segments && self.joinable.saturating_add(self.device_free.unwrap_or(0)) >= self.block
    }

    pub(super) fn new(context: &Context<'_>, refusal: &Refusal, layout: &Layout) -> Self {
        let rules = context.rules;
        // Whether it grows is told by what is there.
        let growable = layout.stretches.iter().any(|stretch| stretch.growable);
        let block = rules.block(refusal.size, growable);
        let small = rules.is_small(refusal.size, growable);
        let (mut usable, mut other, mut waiting) = ((0u64, 0u64), (0u64, 0u64), 0u64);
        let mut in_the_way = Vec::new();
        for stretch in &layout.stretches {
            let is_usable = stretch.stream == refusal.stream && stretch.small == small && stretch.pool == 0;
            let (free, largest) = if is_usable { &mut usable } else { &mut other };
            for gap in stretch.gaps() {
                *free += gap.size;
                *largest = (*largest).max(gap.size);
            }
            waiting +=
                stretch.blocks.iter().filter(|block| block.waits).map(|block| block.size()).sum::<u64>();
            if is_usable {
                in_the_way
                    .extend(blockers_of(stretch).filter(|(held, beside)| held.size() + beside >= block));
            }
        }
        in_the_way.sort_by_key(|(held, beside)| (held.size(), Reverse(*beside), held.address));
        in_the_way.truncate(NAMED);
        let blocker = |(held, beside): (&crate::layout::Block, u64)| Blocker {
            block: context.held(held, refusal.at),
            beside,
            would_free: beside + held.size(),
        };
        let device = refusal.device_free;
        let with_device = usable.0.saturating_add(device.unwrap_or(0));
        let all = with_device.saturating_add(other.0).saturating_add(waiting);
        let segment = if growable { block } else { rules.segment(refusal.size) };
        let verdict = if usable.1 >= block || device.is_some_and(|free| free >= segment) {
            Verdict::Limited
        } else if usable.0 >= block {
            Verdict::Fragmented
        } else if device.is_none() {
            Verdict::Unknown
        } else if with_device >= block {
            Verdict::SplitBetweenCacheAndDevice
        } else if all >= block {
            Verdict::HeldElsewhere
        } else {
            Verdict::TooLittle
        };
        let missing = if verdict == Verdict::TooLittle { block - all } else { 0 };
        let caller = refusal.frames.as_deref().filter(|frames| !frames.is_empty()).map(Caller::of_stack);
        Self {
            at: refusal.at,
            iteration: context.run.iteration_at(refusal.at),
            size: refusal.size,
            block,
            segment,
            stream: context.stream(refusal.stream),
            caller,
            device_free: device,
            usable_free: usable.0,
            usable_largest: usable.1,
            other_free: other.0,
            other_largest: other.1,
            waiting,
            verdict,
            fixed_segments: !growable && rules.could_grow(),
            joinable: joinable(layout),
            most_live: most_live(context, refusal.at),
            missing,
            in_the_way: in_the_way.into_iter().map(blocker).collect(),
        }
    }
}

fn joinable(layout: &Layout) -> u64 {
    let shared = layout.stretches.iter().filter(|stretch| stretch.pool == 0);
    shared.flat_map(|stretch| stretch.gaps()).map(|gap| gap.size).sum()
}

/// The caller with most live; what has no stack has none.
fn most_live(context: &Context<'_>, at: Moment) -> Option<Group<Caller>> {
    by_caller(context, at).into_iter().find(|group| group.key.place != Place::default())
}
