//! The borders of all segments of an arena.

use super::{AliasPlace, Borders};
use crate::arena::granule::Shown;
use crate::base::steps::Counted;
use crate::memory::block::{Block, BlockId, SegmentId};

/// A row of cells: its segment, and its number there.
pub(crate) type RowId = (SegmentId, u32);

/// The borders of an arena's segments.
#[derive(Debug, Default)]
pub(crate) struct AllBorders {
    of: Vec<Option<Box<Borders>>>,
    /// Rows of cells in which free blocks came, went or changed, until they are [taken](Self::take_changed).
    changed: Vec<RowId>,
}

impl AllBorders {
    /// Notes a free block, where its segment is watched.
    #[inline(always)]
    pub(crate) fn insert_free(&mut self, block: &Block, id: BlockId) {
        if let Some(Some(borders)) = self.of.get_mut(block.segment.0 as usize) {
            borders.insert(block, id, &mut self.changed);
        }
    }

    /// Notes that a free block ends elsewhere than before.
    #[inline(always)]
    pub(crate) fn resize_free(&mut self, block: &Block, id: BlockId) {
        if let Some(Some(borders)) = self.of.get_mut(block.segment.0 as usize) {
            borders.resize(block, id, &mut self.changed);
        }
    }

    /// Notes that a block is free no more.
    #[inline(always)]
    pub(crate) fn remove_free(&mut self, block: &Block, id: BlockId) {
        if let Some(Some(borders)) = self.of.get_mut(block.segment.0 as usize) {
            borders.remove(block, id, &mut self.changed);
        }
    }

    /// A view shows a granule from now on.
    pub(crate) fn show(&mut self, shown: &Shown, place: AliasPlace) {
        if let Some(Some(borders)) = self.of.get_mut(shown.segment.0 as usize) {
            borders.show(shown, place, &mut self.changed);
        }
    }

    /// A view does not show it any more.
    pub(crate) fn hide(&mut self, shown: &Shown, place: AliasPlace) {
        if let Some(Some(borders)) = self.of.get_mut(shown.segment.0 as usize) {
            borders.hide(shown, place, &mut self.changed);
        }
    }

    /// The rows that changed since this was called last.
    pub(crate) fn take_changed(&mut self) -> Vec<RowId> {
        let changed = std::mem::take(&mut self.changed);
        for (segment, row) in changed.iter().counted() {
            let borders = self.of.get_mut(segment.0 as usize).and_then(Option::as_deref_mut);
            if let Some(changed) = borders.and_then(|borders| borders.changed.get_mut(*row as usize)) {
                *changed = false;
            }
        }
        changed
    }

    /// True if a row changed since they were [taken](Self::take_changed).
    pub(crate) fn is_changed(&self, row: RowId) -> bool {
        self.changed.contains(&row)
    }

    /// A segment's, if they are watched.
    #[inline(always)]
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Borders> {
        self.of.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn insert(&mut self, id: SegmentId, borders: Borders) {
        let at = id.0 as usize;
        if self.of.len() <= at {
            self.of.resize_with(at + 1, || None);
        }
        self.of[at] = Some(Box::new(borders));
    }

    pub(crate) fn remove(&mut self, id: SegmentId) {
        if let Some(borders) = self.of.get_mut(id.0 as usize) {
            *borders = None;
        }
    }

    /// All that are watched.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Borders)> {
        (0..)
            .map(SegmentId)
            .zip(&self.of)
            .counted()
            .filter_map(|(id, borders)| Some((id, borders.as_deref()?)))
    }
}
