//! Pending frees: blocks that other streams still use, and the events that tell when they are done; and blocks that other
//! processes hold.
//!
//! A queue per used stream, in order; a stream that is slow does not hold up the others. No lock is held
//! while the driver is asked: an entry is looked at, queried, and taken out only if it is still the first.

use crate::attention::Attention;
use crate::backend::{Backend, Result};
use crate::block::BlockId;
use crate::held_event::HeldEvent;
use crate::last_work::{LastWork, User, wait_for_stream};
use crate::share::Share;
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, Rank, ThreadId, Transit, assert_unlocked, this_thread};
use crate::types::{DeviceIndex, Stream};
use std::collections::VecDeque;

/// What a block waits for.
#[derive(Clone, Debug)]
enum Moment {
    /// An event recorded at its free.
    Own(Arc<HeldEvent>),
    /// The end of a stream that was retired before.
    Last(Arc<LastWork>),
}

impl Moment {
    fn is_past(&self) -> Result<bool> {
        match self {
            Self::Own(event) => event.is_past(),
            Self::Last(work) => work.is_done(),
        }
    }

    fn wait(&self) -> Result<()> {
        match self {
            Self::Own(event) => event.wait(),
            Self::Last(work) => work.wait(),
        }
    }

    fn precede(&self, stream: Stream) -> Result<()> {
        match self {
            Self::Own(event) => event.precede(stream),
            Self::Last(work) => work.precede(stream),
        }
    }

    fn own(&self) -> Option<Arc<HeldEvent>> {
        match self {
            Self::Own(event) => Some(Arc::clone(event)),
            Self::Last(_) => None,
        }
    }
}

/// A block that waits.
#[derive(Clone, Debug)]
struct Entry {
    /// Tells entries apart, whatever event they reuse.
    ticket: u64,
    until: Moment,
    block: Waiting,
}

const NO_EVENT: &str = "other processes have a list of their own, without events";

/// Which block waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) arena: u16,
    pub(crate) block: BlockId,
}

/// A block that waits without an event.
#[derive(Clone, Debug)]
struct Unrecorded {
    ticket: u64,
    user: User,
    block: Waiting,
}

/// A block that other processes may hold.
#[derive(Clone, Debug)]
struct Shared {
    ticket: u64,
    share: Arc<Share>,
    block: Waiting,
}

/// When other processes are asked for: those that ended without a word hold nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// At this call.
    Now,
    /// If they were not for a while.
    Seldom,
}

#[derive(Debug, Default)]
struct Queues {
    by_stream: Vec<(User, VecDeque<Entry>)>,
    /// Blocks whose event could not be recorded: only a synchronisation of the stream frees them.
    unrecorded: Vec<Unrecorded>,
    /// Blocks that no event frees: other processes let go of them when they like.
    shared: Vec<Shared>,
    /// Events ready for reuse.
    spare: Vec<Arc<HeldEvent>>,
    /// Uses recorded and not freed yet, by device: that many spare events are kept.
    expected: Vec<(DeviceIndex, usize)>,
    tickets: u64,
    /// How often an event could not be recorded.
    failures: u64,
}

impl Queues {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets - 1
    }

    /// Appends to the user's queue. Returns what a queue belonged to that is used again, to be dropped without a lock.
    fn push(&mut self, user: User, until: Moment, block: Waiting) -> Option<User> {
        let entry = Entry { ticket: self.ticket(), until, block };
        if let Some((_, queue)) = self.by_stream.iter_mut().find(|(other, _)| other.is_same(&user)) {
            queue.push_back(entry);
            return None;
        }
        let vacant = |(user, queue): &&mut (User, VecDeque<Entry>)| {
            matches!(user, User::Retired(_)) && queue.is_empty()
        };
        if let Some((former, queue)) = self.by_stream.iter_mut().find(vacant) {
            queue.push_back(entry);
            return Some(std::mem::replace(former, user));
        }
        self.by_stream.push((user, VecDeque::from([entry])));
        None
    }

    /// Takes the entry with this ticket out, if it is still there.
    fn take(&mut self, ticket: u64) -> bool {
        self.by_stream.iter_mut().any(|(_, queue)| {
            let at = queue.iter().position(|entry| entry.ticket == ticket);
            at.and_then(|at| queue.remove(at)).is_some()
        })
    }

    fn expect(&mut self, device: DeviceIndex) -> &mut usize {
        let at = self.expected.iter().position(|(d, _)| *d == device).unwrap_or_else(|| {
            self.expected.push((device, 0));
            self.expected.len() - 1
        });
        &mut self.expected[at].1
    }
}

/// All pending frees of a device.
#[derive(Debug)]
pub(crate) struct PendingFrees {
    /// Counts the entries, so that the hot path can tell "none" without a lock.
    attention: &'static Attention,
    /// Requests made while something was pending, for policies that drain every so often.
    requests: AtomicUsize,
    /// Blocks that other processes may hold: mostly none.
    shared: AtomicUsize,
    queues: Mutex<Queues>,
    /// Held by the thread that waits for everything. Others that want the same wait for it.
    synchronising: Mutex<()>,
}

impl PendingFrees {
    pub(crate) fn new(attention: &'static Attention) -> Self {
        Self {
            attention,
            requests: AtomicUsize::new(0),
            shared: AtomicUsize::new(0),
            queues: Mutex::new(Rank::Pending, Queues::default()),
            synchronising: Mutex::new(Rank::Synchronisation, ()),
        }
    }

    /// Whether anything waits.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.attention.any_pending()
    }

    /// Whether something waits and this request is the n-th since it was last so.
    #[inline]
    pub(crate) fn any_at_every(&self, n: u32) -> bool {
        self.any() && self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(n.max(1) as usize)
    }

    /// How often an event could not be recorded.
    pub(crate) fn failures(&self) -> u64 {
        self.queues.lock().failures
    }

    /// Lets a block wait for what `user` has been given. Never fails: a block whose event cannot be recorded waits
    /// for the next synchronisation, is counted, and reported.
    pub(crate) fn wait_for(&self, backend: &Arc<dyn Backend>, user: User, block: Waiting) {
        self.attention.add_pending();
        assert_unlocked();
        let stream = match user {
            User::Live(stream) => stream,
            User::Retired(last) => {
                let _former = {
                    let mut queues = self.queues.lock();
                    let expected = queues.expect(last.device());
                    *expected = expected.saturating_sub(1);
                    queues.push(User::Retired(Arc::clone(&last)), Moment::Last(last), block)
                };
                return;
            }
            User::Shared(share) => {
                // Before anybody looks who holds it.
                share.close();
                let mut queues = self.queues.lock();
                let ticket = queues.ticket();
                queues.shared.push(Shared { ticket, share, block });
                self.shared.fetch_add(1, Ordering::AcqRel);
                return;
            }
        };
        let recorded = self.event(backend, stream.device).and_then(|event| {
            event.record(stream)?;
            Ok(event)
        });
        match recorded {
            Ok(event) => {
                let _former = self.queues.lock().push(User::Live(stream), Moment::Own(event), block);
            }
            Err(error) => {
                let mut queues = self.queues.lock();
                queues.failures += 1;
                let ticket = queues.ticket();
                queues.unrecorded.push(Unrecorded { ticket, user: User::Live(stream), block });
                drop(queues);
                backend.clear_error();
                crate::edges::notice(self.attention, &**backend, &error);
                tracing::warn!(%error, "no event could be recorded for a freed block; it stays pending until the next synchronisation");
            }
        }
    }

    /// Makes sure that the free of a block that a stream of `device` has just been recorded on finds an event.
    /// Creating one may block, which a free must not; a refusal is met again, and counted, at the free.
    pub(crate) fn prepare(&self, backend: &Arc<dyn Backend>, device: DeviceIndex) {
        let enough = {
            let mut queues = self.queues.lock();
            let expected = queues.expect(device);
            *expected += 1;
            let expected = *expected;
            let spare = if queues.expected.len() == 1 {
                queues.spare.len()
            } else {
                queues.spare.iter().filter(|event| event.device() == device).count()
            };
            spare >= expected
        };
        if enough {
            return;
        }
        match HeldEvent::new(backend, device) {
            Ok(event) => self.queues.lock().spare.push(Arc::new(event)),
            Err(error) => {
                backend.clear_error();
                tracing::debug!(%error, "no event could be made ahead of a free");
            }
        }
    }

    /// Uses of blocks of these devices' streams are over without a free that needs an event.
    pub(crate) fn expect_fewer(&self, devices: impl Iterator<Item = DeviceIndex>) {
        let mut queues = self.queues.lock();
        for device in devices {
            let expected = queues.expect(device);
            *expected = expected.saturating_sub(1);
        }
    }

    fn event(&self, backend: &Arc<dyn Backend>, device: DeviceIndex) -> Result<Arc<HeldEvent>> {
        let spare = {
            let mut queues = self.queues.lock();
            let expected = queues.expect(device);
            *expected = expected.saturating_sub(1);
            let at = queues.spare.iter().rposition(|event| event.device() == device);
            at.map(|at| queues.spare.swap_remove(at))
        };
        spare.map_or_else(|| Ok(Arc::new(HeldEvent::new(backend, device)?)), Ok)
    }

    /// Notices completed events: calls `done` for each block that lost one, which is in transit meanwhile. Does not
    /// block.
    pub(crate) fn drain(&self, transit: &Transit<ThreadId>, mut done: impl FnMut(Waiting)) -> Result<()> {
        let mut stream = 0;
        loop {
            let (head, at_end) = {
                let queues = self.queues.lock();
                (
                    queues.by_stream.get(stream).and_then(|(_, q)| q.front().cloned()),
                    stream >= queues.by_stream.len(),
                )
            };
            let Some(head) = head else {
                if at_end {
                    return Ok(());
                }
                stream += 1;
                continue;
            };
            assert_unlocked();
            if !head.until.is_past()? {
                stream += 1;
                continue;
            }
            let taken = {
                let mut queues = self.queues.lock();
                let queue = &mut queues.by_stream[stream].1;
                if queue.front().is_some_and(|e| e.ticket == head.ticket) {
                    queue.pop_front();
                    queues.spare.extend(head.until.own());
                    Some(transit.begin(this_thread()))
                } else {
                    None
                }
            };
            if let Some(_block) = taken {
                self.finish(head.block, &mut done);
            }
        }
    }

    /// Notices blocks that no other process holds any more: calls `done` for each, which is in transit meanwhile. Calls no
    /// driver and does not block.
    pub(crate) fn drain_shared(
        &self,
        ask: Ask,
        transit: &Transit<ThreadId>,
        mut done: impl FnMut(Waiting, &Share),
    ) {
        if self.shared.load(Ordering::Acquire) == 0 {
            return;
        }
        let waiting = self.queues.lock().shared.clone();
        // All of a device are in one ledger.
        let Some(held) = waiting.first().map(|first| first.share.ledger().holds(ask == Ask::Now)) else {
            return;
        };
        for Shared { ticket, share, block } in waiting {
            if held.contains(share.ticket()) {
                continue;
            }
            let taken = {
                let mut queues = self.queues.lock();
                let at = queues.shared.iter().position(|entry| entry.ticket == ticket);
                at.map(|at| (queues.shared.swap_remove(at), transit.begin(this_thread())))
            };
            // Else another thread has noticed it.
            if let Some((_entry, _block)) = taken {
                self.shared.fetch_sub(1, Ordering::AcqRel);
                self.finish(block, &mut |block| done(block, &share));
            }
        }
    }

    /// Makes `stream` wait, on the device, for the `awaited` moments that `block` waits for; then the block has lost
    /// them all. `false`, with nothing changed, where one of them has no event or the driver refuses.
    pub(crate) fn take_over(
        &self,
        backend: &dyn Backend,
        stream: Stream,
        block: Waiting,
        awaited: u16,
        mut done: impl FnMut(Waiting),
    ) -> bool {
        let awaits: Vec<Entry> = {
            let queues = self.queues.lock();
            let entries = queues.by_stream.iter().flat_map(|(_, queue)| queue);
            entries.filter(|entry| entry.block == block).cloned().collect()
        };
        if awaits.len() != usize::from(awaited) {
            return false;
        }
        assert_unlocked();
        // They stay in their queues meanwhile: where the driver refuses, nothing has happened.
        if let Err(error) = awaits.iter().try_for_each(|entry| entry.until.precede(stream)) {
            backend.clear_error();
            tracing::warn!(%error, "a stream could not be made to wait for others; it looks for memory elsewhere");
            return false;
        }
        for Entry { ticket, until, .. } in awaits {
            let taken = {
                let mut queues = self.queues.lock();
                let taken = queues.take(ticket);
                if taken {
                    queues.spare.extend(until.own());
                }
                taken
            };
            // Else another thread has noticed its end.
            if taken {
                self.finish(block, &mut done);
            }
        }
        true
    }

    /// Waits for all that is pending at this call. Blocks. A stream that cannot be waited for (it was
    /// destroyed, or its event is broken) is covered by waiting for its whole device; where that fails, too, what
    /// it has stays pending, the other streams are done all the same, and the first error is returned.
    ///
    /// Calls that name a stream are tickets of `naming`, one stream at a time: who waits for one stream holds up
    /// nobody who retires another.
    pub(crate) fn synchronise(
        &self,
        backend: &dyn Backend,
        naming: &Transit<Stream>,
        transit: &Transit<ThreadId>,
        mut done: impl FnMut(Waiting),
    ) -> Result<()> {
        let _waiting = self.synchronising.lock();
        let (streams, bound) = {
            let queues = self.queues.lock();
            (queues.by_stream.len(), queues.tickets)
        };
        let mut outcome = Ok(());
        for stream in 0..streams {
            let waited = self.synchronise_stream(backend, naming, transit, stream, bound, &mut done);
            outcome = outcome.and(waited);
        }
        // What joins the list from here on is for the next round: its work may be later.
        let mut tickets: Vec<u64> = self.queues.lock().unrecorded.iter().map(|entry| entry.ticket).collect();
        tickets.retain(|ticket| *ticket < bound);
        let mut reached: Vec<(User, bool)> = Vec::new();
        for ticket in tickets {
            // Looked up one by one: a stream may be retired while others are waited for.
            let (user, block, _named) = {
                let queues = self.queues.lock();
                let Some(entry) = queues.unrecorded.iter().find(|entry| entry.ticket == ticket) else {
                    continue;
                };
                let named = entry.user.live().map(|stream| naming.begin(stream));
                (entry.user.clone(), entry.block, named)
            };
            let ready = match reached.iter().find(|(other, _)| other.is_same(&user)) {
                Some((_, ready)) => *ready,
                None => {
                    assert_unlocked();
                    let waited = match &user {
                        User::Live(stream) => wait_for_stream(backend, *stream),
                        User::Retired(last) => last.wait(),
                        User::Shared(_) => unreachable!("{NO_EVENT}"),
                    };
                    reached.push((user.clone(), waited.is_ok()));
                    let ready = waited.is_ok();
                    outcome = outcome.and(waited);
                    ready
                }
            };
            let mut queues = self.queues.lock();
            if let Some(at) = queues.unrecorded.iter().position(|entry| ready && entry.ticket == ticket) {
                let _entry = queues.unrecorded.swap_remove(at);
                let _block = transit.begin(this_thread());
                drop(queues);
                self.finish(block, &mut done);
            }
        }
        outcome
    }

    /// Waits for one stream's entries older than ticket `bound`.
    fn synchronise_stream(
        &self,
        backend: &dyn Backend,
        naming: &Transit<Stream>,
        transit: &Transit<ThreadId>,
        stream: usize,
        bound: u64,
        done: &mut impl FnMut(Waiting),
    ) -> Result<()> {
        loop {
            let head = self.queues.lock().by_stream[stream].1.front().cloned();
            let Some(head) = head.filter(|head| head.ticket < bound) else { return Ok(()) };
            assert_unlocked();
            let waited = head.until.wait();
            let works = waited.is_ok();
            if let Err(error) = waited {
                backend.clear_error();
                tracing::warn!(%error, "an event could not be waited for; waiting for its stream instead");
                let (used, _named) = {
                    let queues = self.queues.lock();
                    let (used, queue) = &queues.by_stream[stream];
                    if queue.front().is_none_or(|entry| entry.ticket != head.ticket) {
                        // Another thread has noticed its end, and the queue may be another stream's now.
                        continue;
                    }
                    (used.clone(), used.live().map(|stream| naming.begin(stream)))
                };
                match used {
                    User::Live(stream) => wait_for_stream(backend, stream)?,
                    User::Retired(last) => last.wait()?,
                    User::Shared(_) => unreachable!("{NO_EVENT}"),
                }
            }
            let mut queues = self.queues.lock();
            let queue = &mut queues.by_stream[stream].1;
            if queue.front().is_some_and(|e| e.ticket == head.ticket) {
                queue.pop_front();
                // A broken event must not come back for the next free: it goes with `head`.
                if works {
                    queues.spare.extend(head.until.own());
                }
                let _block = transit.begin(this_thread());
                drop(queues);
                self.finish(head.block, done);
            }
        }
    }

    /// Whether something waits for `stream` by its handle.
    pub(crate) fn names(&self, stream: Stream) -> bool {
        let queues = self.queues.lock();
        let mut users =
            queues.by_stream.iter().map(|(u, _)| u).chain(queues.unrecorded.iter().map(|entry| &entry.user));
        users.any(|user| user.is(stream))
    }

    /// From here on, `stream` is what it was given last. Events recorded on it stay.
    pub(crate) fn retire(&self, stream: Stream, last: &Arc<LastWork>) {
        let mut queues = self.queues.lock();
        let Queues { by_stream, unrecorded, .. } = &mut *queues;
        let users =
            by_stream.iter_mut().map(|(u, _)| u).chain(unrecorded.iter_mut().map(|entry| &mut entry.user));
        for user in users.filter(|user| user.is(stream)) {
            *user = User::Retired(Arc::clone(last));
        }
    }

    fn finish(&self, block: Waiting, done: &mut impl FnMut(Waiting)) {
        done(block);
        self.attention.remove_pending();
    }
}
