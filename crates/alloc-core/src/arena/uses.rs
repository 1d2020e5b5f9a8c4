//! Lists of the others that use a block, streams and processes, in one recycled table per arena.

use crate::block::NO_USES;
use crate::last_work::{LastWork, User};
use crate::share::Share;
use crate::sync::Arc;
use crate::types::{DeviceIndex, Stream};
use smallvec::SmallVec;

/// A use of a block by another stream than its own, or by other processes.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) user: User,
    /// All of it is part of this capture, which orders it itself. Work of graphs that are launched later is not.
    pub(crate) captured: Option<u64>,
}

/// All use lists of an arena.
#[derive(Debug, Default)]
pub(crate) struct UseLists {
    nodes: Vec<(Option<Use>, u32)>,
    /// First vacant node plus one; 0 is none.
    vacant: u32,
}

impl UseLists {
    /// Adds `stream` to the list that begins at `head`, unless it is there; returns the new head, or `None` for
    /// more streams than a block can count.
    pub(crate) fn add(&mut self, head: u32, stream: Stream, captured: Option<u64>) -> Option<u32> {
        let mut length = 0;
        let mut at = head;
        while at != NO_USES {
            let (found, next) = &mut self.nodes[at as usize];
            if let Some(found) = found.as_mut().filter(|found| found.user.is(stream)) {
                found.captured = found.captured.filter(|capture| captured == Some(*capture));
                return Some(head);
            }
            length += 1;
            at = *next;
        }
        // Two less than a block can count: hardened mode counts itself, and other processes count as one.
        if length >= u32::from(u16::MAX) - 2 {
            return None;
        }
        Some(self.push(head, Use { user: User::Live(stream), captured }))
    }

    /// What other processes were given of a block, if it was shared.
    pub(crate) fn share(&self, head: u32) -> Option<&Arc<Share>> {
        self.iter(head).find_map(|found| match &found.user {
            User::Shared(share) => Some(share),
            User::Live(_) | User::Retired(_) => None,
        })
    }

    /// Adds other processes to a list that has none; returns the new head.
    pub(crate) fn add_share(&mut self, head: u32, share: Arc<Share>) -> u32 {
        self.push(head, Use { user: User::Shared(share), captured: None })
    }

    /// Takes that share out of a list; returns the new head, and `None` where it is not there.
    pub(crate) fn remove_share(&mut self, head: u32, share: &Arc<Share>) -> Option<u32> {
        self.share(head).filter(|found| Arc::ptr_eq(found, share))?;
        let others = self.take(head).into_iter().filter(|found| !matches!(found.user, User::Shared(_)));
        Some(others.fold(NO_USES, |head, found| self.push(head, found)))
    }

    /// Adds a use that is not in the list; returns the new head.
    fn push(&mut self, head: u32, found: Use) -> u32 {
        let node = (Some(found), head);
        if let Some(slot) = self.vacant.checked_sub(1) {
            self.vacant = self.nodes[slot as usize].1;
            self.nodes[slot as usize] = node;
            return slot;
        }
        self.nodes.push(node);
        // Fewer than 2^28 blocks with fewer than 2^16 uses each do not fit in memory before they do not fit here.
        u32::try_from(self.nodes.len() - 1).unwrap_or(NO_USES)
    }

    /// The list's streams, newest first.
    pub(crate) fn iter(&self, head: u32) -> impl Iterator<Item = &Use> {
        std::iter::successors((head != NO_USES).then_some(head), |at| {
            let next = self.nodes[*at as usize].1;
            (next != NO_USES).then_some(next)
        })
        .filter_map(|at| self.nodes[at as usize].0.as_ref())
    }

    /// Empties a list and returns its streams, in the order they were recorded.
    pub(crate) fn take(&mut self, head: u32) -> SmallVec<[Use; 4]> {
        let mut streams: SmallVec<[Use; 4]> = self.iter(head).cloned().collect();
        streams.reverse();
        let mut at = head;
        while at != NO_USES {
            let next = std::mem::replace(&mut self.nodes[at as usize], (None, self.vacant)).1;
            self.vacant = at + 1;
            at = next;
        }
        streams
    }

    /// The devices whose streams are in some list.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceIndex> + '_ {
        self.nodes.iter().flat_map(|(found, _)| found).filter_map(|found| found.user.device())
    }

    /// Whether some list has `stream`.
    pub(crate) fn name(&self, stream: Stream) -> bool {
        self.nodes.iter().flat_map(|(found, _)| found).any(|found| found.user.is(stream))
    }

    /// From here on, `stream` is what it was given last in all lists.
    pub(crate) fn retire(&mut self, stream: Stream, last: &Arc<LastWork>) {
        for found in self.nodes.iter_mut().flat_map(|(found, _)| found).filter(|found| found.user.is(stream))
        {
            found.user = User::Retired(Arc::clone(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BackendId;

    #[test]
    fn nodes_are_recycled_and_streams_come_once_and_in_order() {
        let stream = |raw| Stream { raw, device: DeviceIndex(0), backend: BackendId(1) };
        let mut lists = UseLists::default();
        for _ in 0..100 {
            let head = [1, 2, 1].iter().try_fold(NO_USES, |head, raw| lists.add(head, stream(*raw), None));
            let taken = lists.take(head.unwrap());
            assert_eq!(taken.len(), 2);
            assert!(taken[0].user.is(stream(1)) && taken[1].user.is(stream(2)));
        }
        assert_eq!(lists.nodes.len(), 2);
    }
}
