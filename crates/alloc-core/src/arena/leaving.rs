//! Giving up what views show and no block uses, granule by granule.

use super::ArenaState;
use super::views::SlotState;
use crate::memory::block::{Block, BlockId, SegmentId, State};
use std::ops::Range;

/// Mappings of a view, side by side, in which no block lives.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) segment: SegmentId,
    slots: Range<usize>,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    /// Up to when the device may be using them.
    pub(crate) epoch: u64,
}

impl ArenaState {
    /// Takes out of views what they show and no block uses, until that comes to `enough` bytes: first of those that served
    /// nobody for the longest. Nothing is served from there any more. With `only_past`, only what the device is known to be
    /// done with.
    pub(crate) fn begin_leaving(&mut self, enough: u64, only_past: bool) -> Vec<Leaving> {
        let mut all: Vec<Leaving> = Vec::new();
        let mut order: Vec<_> = (0..self.views.all.len()).collect();
        order.sort_unstable_by_key(|view| self.views.all[*view].used);
        let mut left = enough;
        for view in order {
            if left == 0 {
                break;
            }
            let segment = self.views.all[view].segment;
            let may_leave = |block: &Block| {
                block.state == State::Blank && (!only_past || self.epochs.is_closed(block.epoch))
            };
            let blank = self.segment_blocks(segment).filter(|(_, block)| may_leave(block));
            let blank: Vec<_> = blank.map(|(_, block)| (block.addr, block.end(), block.epoch)).collect();
            let mut at = self.segments[segment].base;
            let first = all.len();
            for (number, slot) in self.views.all[view].slots.iter_mut().enumerate() {
                let (low, high) = (at, at + slot.shown.bytes);
                at = high;
                let around = blank.iter().find(|(from, to, _)| *from <= low && high <= *to);
                let Some((.., epoch)) = around.filter(|_| slot.state == SlotState::Mapped) else { continue };
                slot.state = SlotState::Leaving;
                left = left.saturating_sub(high - low);
                match all[first..].last_mut() {
                    Some(Leaving { slots, bytes, epoch: newest, .. }) if slots.end == number => {
                        slots.end += 1;
                        *bytes += high - low;
                        *newest = (*newest).max(*epoch);
                    }
                    _ => {
                        let slots = number..number + 1;
                        all.push(Leaving { segment, slots, addr: low, bytes: high - low, epoch: *epoch });
                    }
                }
            }
        }
        all
    }

    /// Those mappings are no more, or are still there. Returns their addresses.
    pub(crate) fn end_leaving(&mut self, leaving: &Leaving, unmapped: bool) -> Vec<u64> {
        let Some(view) = self.views.all.iter_mut().find(|view| view.segment == leaving.segment) else {
            unreachable!("a view stays for as long as a mapping leaves it")
        };
        let mut at = leaving.addr;
        let mut places = Vec::new();
        for slot in &mut view.slots[leaving.slots.clone()] {
            debug_assert_eq!(slot.state, SlotState::Leaving, "each leaves once");
            slot.state = if unmapped { SlotState::Gone } else { SlotState::Mapped };
            if unmapped {
                self.views.bytes -= slot.shown.bytes;
                if let Some(borders) = self.views.borders.get_mut(slot.shown.segment) {
                    borders.hide(slot.shown.number);
                }
            }
            places.push(at);
            at += slot.shown.bytes;
        }
        places
    }

    /// Takes the views out that are nothing but addresses, with the one block of each.
    pub(crate) fn take_empty_views(&mut self) -> Vec<(SegmentId, BlockId)> {
        let mut empty = Vec::new();
        let (blocks, segments) = (&self.blocks, &self.segments);
        self.views.all.retain(|view| {
            let first = segments[view.segment].first;
            let whole = blocks[first].state == State::Blank && !blocks[first].is_split();
            let gone = whole && view.slots.iter().all(|slot| slot.state == SlotState::Gone);
            if gone {
                empty.push((view.segment, first));
            }
            !gone
        });
        empty
    }
}
