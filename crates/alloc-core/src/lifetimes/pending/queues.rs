//! Pending frees, by the stream that they wait for.

use super::{Fence, Waiting};
use crate::base::steps::Counted;
use crate::features::share::Share;
use crate::features::share::export_table::ExportTable;
use crate::lifetimes::last_work::LastWork;
use crate::lifetimes::uses::User;
use crate::process::held_event::HeldEvent;
use crate::sync::Arc;
use crate::types::{DeviceIndex, Stream};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// A block that waits.
#[derive(Clone, Debug)]
pub(super) struct PendingBlock {
    /// Unique number of the entry, whatever event it reuses.
    pub(super) ticket: u64,
    pub(super) until: Fence,
    pub(super) block: Waiting,
}

/// Blocks that wait for one user, in order. There is at least one.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) user: User,
    pub(super) entries: VecDeque<PendingBlock>,
}

impl Queue {
    /// Index of the entry with this ticket.
    pub(super) fn place(&self, ticket: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&ticket, |entry| entry.ticket).ok()
    }

    /// The first wanted entry from a ticket on.
    pub(super) fn first(&self, from: u64, wanted: impl Fn(&PendingBlock) -> bool) -> Option<&PendingBlock> {
        let skip = self.entries.partition_point(|entry| entry.ticket < from);
        self.entries.range(skip..).counted().find(|entry| wanted(entry))
    }
}

/// A block that waits without an event.
#[derive(Clone, Debug)]
pub(super) struct Unrecorded {
    pub(super) user: User,
    pub(super) block: Waiting,
}

/// A block that other processes may hold.
#[derive(Clone, Debug)]
pub(super) struct ExportedBlock {
    pub(super) share: Arc<Share>,
    pub(super) block: Waiting,
}

/// Identity of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum UserKey {
    Live(Stream),
    /// By address, while somebody keeps it.
    Retired(usize),
    Shared(usize),
}

impl UserKey {
    pub(super) fn of(user: &User) -> Self {
        match user {
            User::Live(stream) => Self::Live(*stream),
            User::Retired(last) => Self::Retired(Arc::as_ptr(last).addr()),
            User::Shared(share) => Self::Shared(Arc::as_ptr(share).addr()),
        }
    }
}

/// Events of one device.
#[derive(Debug, Default)]
pub(super) struct EventPool {
    /// Ready for reuse.
    pub(super) spare: Vec<Arc<HeldEvent>>,
    /// Uses recorded and not freed yet: that many spare ones are kept.
    pub(super) expected: usize,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// By number, in the order in which they were begun.
    queues: BTreeMap<u64, Queue>,
    /// The number of each user's newest queue.
    numbers: FxHashMap<UserKey, u64>,
    /// Blocks whose event could not be recorded, by ticket: only a synchronisation of the stream frees them.
    unrecorded: BTreeMap<u64, Unrecorded>,
    /// Blocks that no event frees, by ticket: other processes let go of them when they like.
    shared: BTreeMap<u64, ExportedBlock>,
    /// Number of unfreed blocks that each stream uses besides its own.
    uses: FxHashMap<Stream, usize>,
    /// Mostly one.
    events: BTreeMap<DeviceIndex, EventPool>,
    tickets: u64,
    /// Number of events that could not be recorded.
    failures: u64,
}

impl Queues {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets - 1
    }

    /// Every ticket so far is below this.
    pub(super) fn bound(&self) -> u64 {
        self.tickets
    }

    /// Adds a block that waits for a stream without an event: none could be recorded.
    pub(super) fn push_unrecorded(&mut self, stream: Stream, block: Waiting) {
        self.failures += 1;
        let ticket = self.ticket();
        self.unrecorded.insert(ticket, Unrecorded { user: User::Live(stream), block });
    }

    /// Number of events that could not be recorded.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// The tickets below `bound` of blocks that wait without an event.
    pub(super) fn unrecorded_before(&self, bound: u64) -> Vec<u64> {
        self.unrecorded.range(..bound).map(|(ticket, _)| *ticket).collect()
    }

    /// A block that waits without an event.
    pub(super) fn unrecorded(&self, ticket: u64) -> Option<&Unrecorded> {
        self.unrecorded.get(&ticket)
    }

    /// Takes out a block that waits without an event.
    pub(super) fn take_unrecorded(&mut self, ticket: u64) -> Option<Unrecorded> {
        self.unrecorded.remove(&ticket)
    }

    /// Adds a block that other processes may hold.
    pub(super) fn push_shared(&mut self, share: Arc<Share>, block: Waiting) {
        let ticket = self.ticket();
        self.shared.insert(ticket, ExportedBlock { share, block });
    }

    /// The blocks that other processes may hold, by ticket.
    pub(super) fn shared(&self) -> BTreeMap<u64, ExportedBlock> {
        self.shared.clone()
    }

    /// Ledger that says who holds shared blocks, and the number of these blocks.
    pub(super) fn ledger(&self) -> Option<(Arc<ExportTable>, usize)> {
        let first = self.shared.values().next()?;
        Some((Arc::clone(first.share.ledger()), self.shared.len()))
    }

    /// Takes out a block that other processes may hold.
    pub(super) fn take_shared(&mut self, ticket: u64) -> Option<ExportedBlock> {
        self.shared.remove(&ticket)
    }

    /// Appends to the user's queue.
    pub(super) fn push(&mut self, user: User, until: Fence, block: Waiting) {
        let ticket = self.ticket();
        let entry = PendingBlock { ticket, until, block };
        let key = UserKey::of(&user);
        if let Some(queue) = self.numbers.get(&key).and_then(|number| self.queues.get_mut(number)) {
            return queue.entries.push_back(entry);
        }
        // No ticket is given out twice.
        self.numbers.insert(key, ticket);
        self.queues.insert(ticket, Queue { user, entries: VecDeque::from([entry]) });
    }

    /// The first queue from `number` on, with its number.
    pub(super) fn next(&self, number: u64) -> Option<(u64, &Queue)> {
        self.queues.range(number..).counted().next().map(|(number, queue)| (*number, queue))
    }

    pub(super) fn get(&self, number: u64) -> Option<&Queue> {
        self.queues.get(&number)
    }

    /// The numbers of all queues.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.queues.keys().copied().counted().collect()
    }

    /// Takes the entry with this ticket out, if it is still there. The second value is the user of a queue that is
    /// empty now, to be dropped without a lock.
    pub(super) fn take(&mut self, number: u64, ticket: u64) -> Option<(PendingBlock, Option<User>)> {
        let queue = self.queues.get_mut(&number)?;
        let entry = queue.entries.remove(queue.place(ticket)?)?;
        Some((entry, self.drop_if_empty(number)))
    }

    fn drop_if_empty(&mut self, number: u64) -> Option<User> {
        if self.queues.get(&number).is_none_or(|queue| !queue.entries.is_empty()) {
            return None;
        }
        let Queue { user, .. } = self.queues.remove(&number)?;
        let key = UserKey::of(&user);
        if self.numbers.get(&key) == Some(&number) {
            self.numbers.remove(&key);
        }
        Some(user)
    }

    /// Counts one more block that a stream uses.
    pub(super) fn begin_use(&mut self, stream: Stream) {
        *self.uses.entry(stream).or_default() += 1;
    }

    /// Ends a use, or turns it into a wait.
    pub(super) fn end_use(&mut self, user: &User) {
        if let Some(device) = user.device() {
            let events = self.events(device);
            events.expected = events.expected.saturating_sub(1);
        }
        if let Some(stream) = user.live()
            && let Some(uses) = self.uses.get_mut(&stream)
        {
            *uses -= 1;
            if *uses == 0 {
                self.uses.remove(&stream);
            }
        }
    }

    /// True if `stream` uses a block that is not freed.
    pub(super) fn is_user(&self, stream: Stream) -> bool {
        self.uses.contains_key(&stream)
    }

    /// The events of a device.
    pub(super) fn events(&mut self, device: DeviceIndex) -> &mut EventPool {
        self.events.entry(device).or_default()
    }

    /// Keeps an event for reuse.
    pub(super) fn keep(&mut self, event: Arc<HeldEvent>) {
        self.events(event.device()).spare.push(event);
    }

    /// True if a pending free waits for `stream` by its handle.
    pub(super) fn names(&self, stream: Stream) -> bool {
        let mut unrecorded = self.unrecorded.values().counted();
        self.numbers.contains_key(&UserKey::Live(stream)) || unrecorded.any(|entry| entry.user.is(stream))
    }

    /// Replaces `stream` by its last work.
    pub(super) fn retire(&mut self, stream: Stream, last: &Arc<LastWork>) {
        self.uses.remove(&stream);
        let retired = User::Retired(Arc::clone(last));
        if let Some(number) = self.numbers.remove(&UserKey::Live(stream)) {
            if let Some(queue) = self.queues.get_mut(&number) {
                queue.user = retired.clone();
            }
            self.numbers.insert(UserKey::of(&retired), number);
        }
        for entry in self.unrecorded.values_mut().counted().filter(|entry| entry.user.is(stream)) {
            entry.user = retired.clone();
        }
    }
}
