//! What a refused request would have needed.

use super::Context;
use super::live::{Group, by_caller};
use super::memory::{Blocker, blockers_of, free_in};
use super::place::{Caller, Place};
use crate::Limit;
use crate::layout::{BlockInUse, Layout, Stretch};
use crate::run::{Moment, Refusal};
use alloc_core::round::size_text;
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
    /// Free memory of its stream, kind and pool: what could have served it.
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
    /// The limit, where one refused it.
    pub limit: Option<Limit>,
    /// Whether segments were fixed under PyTorch's own policy: expandable ones are a remedy then.
    pub fixed_segments: bool,
    /// Free memory that expandable segments join: of all streams and kinds of its pool.
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
    /// Too little memory was free, however it lay.
    TooLittle,
    /// The device had enough: a limit refused it.
    Limited,
    /// A free block was large enough, and the device had not enough: it was for another pool.
    OtherPool,
    /// The file does not say what the device had free, or how much was asked for.
    Unknown,
}

impl Verdict {
    /// In words; [`Refused::why`] has more.
    const fn text(self) -> &'static str {
        match self {
            Self::Fragmented => "enough was free, but not in one piece",
            Self::SplitBetweenCacheAndDevice => {
                "the cache and the device together had enough, but neither alone in one piece"
            }
            Self::HeldElsewhere => {
                "enough was free, but of other streams, pools or sizes, or waiting for them"
            }
            Self::TooLittle => "too little memory was free, however it lay",
            Self::Limited => "by a limit, not by the device",
            Self::OtherPool => {
                "a free block was large enough: it was for another pool, or beyond that pool's limit"
            }
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

    /// How much was asked for, as text.
    #[must_use]
    pub fn asked(&self) -> String {
        if self.size == 0 { "a size that is not told".into() } else { size_text(self.size) }
    }

    /// Why it was refused, as a part of a sentence.
    #[must_use]
    pub fn why(&self) -> String {
        if self.size == 0 {
            return "the file does not say how much was asked for".into();
        }
        self.limit.map_or_else(|| self.verdict.text().into(), |limit| limit.text())
    }

    pub(super) fn new(context: &Context<'_>, refusal: &Refusal, layout: &Layout) -> Self {
        let rules = context.rules;
        // Whether it grows is told by what is there.
        let growable = layout.stretches.iter().any(|stretch| stretch.growable);
        let block = rules.block(refusal.size, growable);
        let small = rules.is_small(refusal.size, growable);
        let room = Room::of(layout, refusal, small, block);
        let device = refusal.device_free;
        let segment = if growable { block } else { rules.segment(refusal.size) };
        let told = context.run.limit;
        // Where the bytes are told, what the device had free is the rest of them.
        let verdict = match told.and_then(|limit| limit.bytes) {
            _ if refusal.size == 0 => Verdict::Unknown,
            Some(_) => Verdict::Limited,
            None => room.verdict(device, block, segment),
        };
        let limit = (verdict == Verdict::Limited).then(|| {
            let told = told.unwrap_or_default();
            let steps = context.run.reserved();
            let (before, after) = steps.split_at(steps.partition_point(|(at, _)| *at <= refusal.at));
            let beyond = before.last().map_or(0, |step| step.1).saturating_add(segment);
            Limit {
                device_free: device.filter(|_| told.bytes.is_none()),
                lifted: told.lifted || after.iter().any(|(_, held)| *held >= beyond),
                ..told
            }
        });
        let missing = if verdict == Verdict::TooLittle { block - room.all(device) } else { 0 };
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
            usable_free: room.usable.bytes,
            usable_largest: room.usable.largest,
            other_free: room.other.bytes,
            other_largest: room.other.largest,
            waiting: room.waiting,
            verdict,
            limit,
            fixed_segments: !growable && rules.could_grow(),
            joinable: joinable(layout, refusal.pool),
            most_live: most_live(context, refusal.at),
            missing,
            in_the_way: room.in_the_way.iter().map(|one| context.blocker(*one, refusal.at)).collect(),
        }
    }
}

/// Free memory.
#[derive(Default)]
struct Free {
    bytes: u64,
    /// Of one piece.
    largest: u64,
}

/// What there was for a request.
#[derive(Default)]
struct Room<'l> {
    /// Of its stream and kind.
    usable: Free,
    /// All else.
    other: Free,
    /// Given back, and waiting for other streams.
    waiting: u64,
    /// Blocks without which there would be room beside them, each with what is free there; the smallest first.
    in_the_way: Vec<(&'l BlockInUse, u64)>,
}

impl<'l> Room<'l> {
    fn of(layout: &'l Layout, refusal: &Refusal, small: bool, block: u64) -> Self {
        let of_pool = |stretch: &Stretch| stretch.stream == refusal.stream && stretch.pool == refusal.pool;
        let mut room = Self::default();
        for stretch in &layout.stretches {
            let is_usable = of_pool(stretch) && stretch.small == small;
            let free = if is_usable { &mut room.usable } else { &mut room.other };
            let (bytes, _, largest) = free_in(stretch);
            (free.bytes, free.largest) = (free.bytes + bytes, free.largest.max(largest));
            let waiting = stretch.blocks.iter().filter(|block| block.waits);
            room.waiting += waiting.map(|block| block.size()).sum::<u64>();
            if is_usable {
                let large_enough = |(held, beside): &(&BlockInUse, u64)| held.size() + beside >= block;
                room.in_the_way.extend(blockers_of(stretch).filter(large_enough));
            }
        }
        room.in_the_way.sort_by_key(|(held, beside)| (held.size(), Reverse(*beside), held.address));
        room.in_the_way.truncate(NAMED);
        room
    }

    /// With what the device had free, where that is known.
    fn with_device(&self, device: Option<u64>) -> u64 {
        self.usable.bytes.saturating_add(device.unwrap_or(0))
    }

    /// Everything, wherever it lay.
    fn all(&self, device: Option<u64>) -> u64 {
        self.with_device(device).saturating_add(self.other.bytes).saturating_add(self.waiting)
    }

    /// Why a block was refused, for which the device was asked for a segment.
    fn verdict(&self, device: Option<u64>, block: u64, segment: u64) -> Verdict {
        if device.is_some_and(|free| free >= segment) {
            Verdict::Limited
        } else if self.usable.largest >= block {
            Verdict::OtherPool
        } else if self.usable.bytes >= block {
            Verdict::Fragmented
        } else if device.is_none() {
            Verdict::Unknown
        } else if self.with_device(device) >= block {
            Verdict::SplitBetweenCacheAndDevice
        } else if self.all(device) >= block {
            Verdict::HeldElsewhere
        } else {
            Verdict::TooLittle
        }
    }
}

fn joinable(layout: &Layout, pool: u32) -> u64 {
    let shared = layout.stretches.iter().filter(|stretch| stretch.pool == pool);
    shared.flat_map(|stretch| stretch.gaps()).map(|gap| gap.size).sum()
}

/// The caller with most live; what has no stack has none.
fn most_live(context: &Context<'_>, at: Moment) -> Option<Group<Caller>> {
    by_caller(context, at).into_iter().find(|group| group.key.place != Place::default())
}
