//! Further users of a block: streams and processes, listed in one recycled table per arena.

use crate::base::steps::{Counted, steps};
use crate::features::share::Share;
use crate::lifetimes::last_work::LastWork;
use crate::memory::block::NO_USES;
use crate::sync::Arc;
use crate::types::{DeviceIndex, Stream};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// User of memory besides the stream it belongs to: another stream, by its handle or, once it is retired, by its last
/// work; or other processes.
#[derive(Clone, Debug)]
pub(crate) enum User {
    Live(Stream),
    Retired(Arc<LastWork>),
    Shared(Arc<Share>),
}

impl User {
    /// Its handle, if that may be named.
    pub(crate) fn live(&self) -> Option<Stream> {
        match self {
            Self::Live(stream) => Some(*stream),
            Self::Retired(_) | Self::Shared(_) => None,
        }
    }

    /// Device whose work it is; none of other processes.
    pub(crate) fn device(&self) -> Option<DeviceIndex> {
        match self {
            Self::Live(stream) => Some(stream.device),
            Self::Retired(last) => Some(last.device()),
            Self::Shared(_) => None,
        }
    }

    /// True if this is the stream, and it is not retired: a later stream with the same handle is another.
    pub(crate) fn is(&self, stream: Stream) -> bool {
        self.live() == Some(stream)
    }
}

/// A use of a block by another stream than its own, or by other processes.
#[derive(Clone, Debug)]
pub(crate) struct BlockUse {
    pub(crate) user: User,
    /// Capture that all of it is part of, and that orders it itself. Work of graphs that are launched later is not.
    pub(crate) captured: Option<u64>,
}

/// Lists longer than this have an index.
const FEW: usize = 16;

/// The uses of one block, in the order they were recorded.
#[derive(Debug, Default)]
struct UseList {
    uses: SmallVec<[BlockUse; 4]>,
    /// Places of live streams in it, once there are many.
    places: FxHashMap<Stream, usize>,
}

impl UseList {
    fn find(&mut self, stream: Stream) -> Option<&mut BlockUse> {
        if self.uses.len() > FEW {
            let place = *self.places.get(&stream)?;
            return self.uses.get_mut(place);
        }
        steps(self.uses.len());
        self.uses.iter_mut().find(|found| found.user.is(stream))
    }

    fn push(&mut self, found: BlockUse) {
        self.uses.push(found);
        let unknown = if self.uses.len() == FEW + 1 { 0 } else { self.uses.len() - 1 };
        if self.uses.len() > FEW {
            let live = |(place, found): (usize, &BlockUse)| Some((found.user.live()?, place));
            self.places.extend(self.uses.iter().enumerate().skip(unknown).filter_map(live));
        }
    }
}

/// The uses of one block.
pub(crate) struct UsesOf<'a> {
    lists: &'a mut UseLists,
    /// Its list, or [`NO_USES`].
    list: &'a mut u32,
}

impl<'a> UsesOf<'a> {
    pub(crate) fn new(lists: &'a mut UseLists, list: &'a mut u32) -> Self {
        Self { lists, list }
    }

    /// Records that `stream` uses the block, too, within a capture or outside of any. Returns `true` if that is new, or
    /// `None` for more streams than can be counted.
    pub(crate) fn record(&mut self, stream: Stream, captured: Option<u64>) -> Option<bool> {
        let (list, is_new) = self.lists.add(*self.list, stream, captured)?;
        *self.list = list;
        Some(is_new)
    }

    /// Ends all uses of the block. Returns them in the order they were recorded, to be dropped without a lock.
    pub(crate) fn forget(&mut self) -> SmallVec<[BlockUse; 4]> {
        self.lists.take(std::mem::replace(self.list, NO_USES))
    }

    /// Adds other processes as users of the block, which is not shared yet.
    pub(crate) fn add_share(&mut self, share: Arc<Share>) {
        *self.list = self.lists.push(*self.list, BlockUse { user: User::Shared(share), captured: None });
    }

    /// Removes other processes from the users of the block. `false` where this is not its share.
    pub(crate) fn remove_share(&mut self, share: &Arc<Share>) -> bool {
        let is_shared = self.lists.share(*self.list).is_some_and(|found| Arc::ptr_eq(found, share));
        if is_shared {
            let others = self.forget().into_iter().filter(|found| !matches!(found.user, User::Shared(_)));
            *self.list = others.fold(NO_USES, |list, found| self.lists.push(list, found));
        }
        is_shared
    }
}

/// All use lists of an arena.
#[derive(Debug, Default)]
pub(crate) struct UseLists {
    lists: Vec<UseList>,
    vacant: Vec<u32>,
}

impl UseLists {
    /// Adds `stream` to list `id`, or to a new one where that is [`NO_USES`]. Returns the list, and `true` if the
    /// stream is new to it; `None` for more streams than a block can count.
    fn add(&mut self, id: u32, stream: Stream, captured: Option<u64>) -> Option<(u32, bool)> {
        if let Some(list) = self.lists.get_mut(id as usize) {
            if let Some(found) = list.find(stream) {
                found.captured = found.captured.filter(|capture| captured == Some(*capture));
                return Some((id, false));
            }
            // One less than a block can count: other processes count as one.
            if list.uses.len() >= usize::from(u16::MAX) - 1 {
                return None;
            }
        }
        Some((self.push(id, BlockUse { user: User::Live(stream), captured }), true))
    }

    /// Share of a block, if it was given to other processes.
    pub(crate) fn share(&self, id: u32) -> Option<&Arc<Share>> {
        self.iter(id).find_map(|found| match &found.user {
            User::Shared(share) => Some(share),
            User::Live(_) | User::Retired(_) => None,
        })
    }

    /// Adds a use that is not in the list; returns the list.
    fn push(&mut self, id: u32, found: BlockUse) -> u32 {
        if let Some(list) = self.lists.get_mut(id as usize) {
            list.push(found);
            return id;
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.lists.push(UseList::default());
            // There are fewer than 2^28 blocks.
            u32::try_from(self.lists.len() - 1).unwrap_or(NO_USES)
        });
        self.lists[id as usize].push(found);
        id
    }

    /// The list's uses, in the order they were recorded.
    pub(crate) fn iter(&self, id: u32) -> impl Iterator<Item = &BlockUse> {
        self.lists.get(id as usize).into_iter().flat_map(|list| &list.uses).counted()
    }

    /// Empties a list and returns its uses, in the order they were recorded.
    fn take(&mut self, id: u32) -> SmallVec<[BlockUse; 4]> {
        let Some(list) = self.lists.get_mut(id as usize) else { return SmallVec::new() };
        self.vacant.push(id);
        // One that was long once has no more memory than others.
        list.places = FxHashMap::default();
        std::mem::take(&mut list.uses)
    }

    /// The devices whose streams are in some list.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceIndex> + '_ {
        let all = self.lists.iter().counted().flat_map(|list| list.uses.iter().counted());
        all.filter_map(|found| found.user.device())
    }

    /// Replaces `stream` by its last work in all lists.
    pub(crate) fn retire(&mut self, stream: Stream, last: &Arc<LastWork>) {
        for list in self.lists.iter_mut().counted() {
            if let Some(found) = list.find(stream) {
                found.user = User::Retired(Arc::clone(last));
                list.places.remove(&stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BackendId;

    fn stream(raw: u64) -> Stream {
        Stream { raw, device: DeviceIndex(0), backend: BackendId(1) }
    }

    #[test]
    fn lists_are_recycled_and_streams_come_once_and_in_order() {
        let mut lists = UseLists::default();
        for streams in [2, 100, 3] {
            for _ in 0..100 {
                let twice = (0..streams).chain(0..streams);
                let id = twice.fold(NO_USES, |id, raw| lists.add(id, stream(raw), None).unwrap().0);
                let taken = lists.take(id);
                assert_eq!(taken.len() as u64, streams);
                assert!(taken.iter().zip(0..).all(|(found, raw)| found.user.is(stream(raw))));
            }
        }
        assert_eq!(lists.lists.len(), 1);
    }
}
