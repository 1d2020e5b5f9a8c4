//! Pending frees: blocks that other streams still use, with the events that tell when they are done, and blocks that
//! other processes hold.
//!
//! One queue per used stream, in order: a slow stream does not hold up the others. No lock is held over driver calls:
//! an entry is looked at, queried, and taken out only if it is still the first.

mod queues;

pub(crate) use crate::base::ids::Waiting;

use queues::{ExportedBlock, PendingBlock, Queue, Queues, UserKey};

use crate::backend::{Backend, Result};
use crate::base::steps::Counted;
use crate::features::share::Share;
use crate::lifetimes::last_work::{LastWork, wait_for_stream};
use crate::lifetimes::uses::{BlockUse, User};
use crate::process::attention::Attention;
use crate::process::held_event::HeldEvent;
use crate::sync::{Arc, AtomicUsize, InFlight, Mutex, Ordering, Rank, SlowPath, assert_unlocked};
use crate::types::{DeviceIndex, Stream};
use rustc_hash::FxHashMap;

/// Moment that a block waits for.
#[derive(Clone, Debug)]
enum Fence {
    /// An event recorded at its free.
    Own(Arc<HeldEvent>),
    /// The end of a stream that was retired before.
    Last(Arc<LastWork>),
}

impl Fence {
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

    fn own(&self) -> Option<Arc<HeldEvent>> {
        match self {
            Self::Own(event) => Some(Arc::clone(event)),
            Self::Last(_) => None,
        }
    }
}

const NO_EVENT: &str = "other processes have a list of their own, without events";

/// Time to ask other processes: those that ended without a word hold nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Now.
    Now,
    /// Only if they were not asked for a while.
    Seldom,
}

/// All pending frees of a device.
#[derive(Debug)]
pub(crate) struct PendingFrees {
    /// Counts the entries, so that the hot path can tell "none" without a lock.
    attention: &'static Attention,
    /// Requests made while a free was pending, for policies that drain every so often.
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

    /// True if any free is pending.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.attention.any_pending()
    }

    /// True at each 64th call while a free is pending.
    pub(crate) fn any_now_and_then(&self) -> bool {
        self.any() && self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(64)
    }

    /// Number of events that could not be recorded.
    pub(crate) fn failures(&self) -> u64 {
        self.queues.lock().failures()
    }

    /// Lets a block wait for the work of `user`. Never fails: a block whose event cannot be recorded waits for the next
    /// synchronisation, is counted, and reported.
    pub(crate) fn wait_for(&self, backend: &Arc<dyn Backend>, user: User, block: Waiting) {
        self.attention.add_pending();
        assert_unlocked();
        let stream = match user {
            User::Live(stream) => stream,
            User::Retired(last) => {
                let mut queues = self.queues.lock();
                let user = User::Retired(Arc::clone(&last));
                queues.end_use(&user);
                queues.push(user, Fence::Last(last), block);
                return;
            }
            User::Shared(share) => {
                let mut queues = self.queues.lock();
                queues.push_shared(share, block);
                self.shared.fetch_add(1, Ordering::AcqRel);
                return;
            }
        };
        let recorded = self.event(backend, stream).and_then(|event| {
            event.record(stream)?;
            Ok(event)
        });
        match recorded {
            Ok(event) => self.queues.lock().push(User::Live(stream), Fence::Own(event), block),
            Err(error) => {
                self.queues.lock().push_unrecorded(stream, block);
                backend.clear_error();
                crate::process::state::notice(self.attention, &**backend, &error);
                tracing::warn!(%error, "no event could be recorded for a freed block; it stays pending until the next synchronisation");
            }
        }
    }

    /// Prepares an event for the free of a block that a stream of `device` was just recorded on. Creating one may
    /// block, which a free must not. A refusal is met again, and counted, at the free.
    pub(crate) fn prepare(&self, backend: &Arc<dyn Backend>, device: DeviceIndex) {
        let enough = {
            let mut queues = self.queues.lock();
            let events = queues.events(device);
            events.expected += 1;
            events.spare.len() >= events.expected
        };
        if enough {
            return;
        }
        match HeldEvent::new(backend, device) {
            Ok(event) => self.queues.lock().keep(Arc::new(event)),
            Err(error) => {
                backend.clear_error();
                tracing::debug!(%error, "no event could be made ahead of a free");
            }
        }
    }

    /// Counts one more block that `stream` uses, whose arena the caller has locked.
    pub(crate) fn begin_use(&self, stream: Stream) {
        self.queues.lock().begin_use(stream);
    }

    /// True if `stream` uses a block that is not freed.
    pub(crate) fn is_user(&self, stream: Stream) -> bool {
        self.queues.lock().is_user(stream)
    }

    /// Ends uses without a free that needs an event.
    pub(crate) fn end_uses<'a>(&self, uses: impl Iterator<Item = &'a BlockUse>) {
        let mut queues = self.queues.lock();
        uses.for_each(|found| queues.end_use(&found.user));
    }

    fn event(&self, backend: &Arc<dyn Backend>, stream: Stream) -> Result<Arc<HeldEvent>> {
        let spare = {
            let mut queues = self.queues.lock();
            queues.end_use(&User::Live(stream));
            queues.events(stream.device).spare.pop()
        };
        spare.map_or_else(|| Ok(Arc::new(HeldEvent::new(backend, stream.device)?)), Ok)
    }

    /// Notices completed events: calls `done` for each block that lost one, which is in flight meanwhile. Does not
    /// block.
    pub(crate) fn drain(&self, slow_path: &SlowPath, mut done: impl FnMut(Waiting)) -> Result<()> {
        let mut from = 0;
        loop {
            let (number, head) = {
                let queues = self.queues.lock();
                let Some((number, queue)) = queues.next(from) else { return Ok(()) };
                (number, queue.entries.front().cloned())
            };
            assert_unlocked();
            from = number;
            match head {
                Some(head) if head.until.is_past()? => {
                    self.take(number, head.ticket, true, slow_path, &mut done);
                }
                _ => from += 1,
            }
        }
    }

    /// Takes out an entry that is over, unless another thread has. `works` says if its event may be used again.
    fn take(
        &self,
        number: u64,
        ticket: u64,
        works: bool,
        slow_path: &SlowPath,
        done: &mut impl FnMut(Waiting),
    ) {
        let taken = {
            let mut queues = self.queues.lock();
            queues.take(number, ticket).map(|(entry, user)| {
                if let Some(event) = entry.until.own().filter(|_| works) {
                    queues.keep(event);
                }
                (entry, user, slow_path.begin())
            })
        };
        if let Some((entry, _user, _block)) = taken {
            self.finish(entry.block, done);
        }
    }

    /// Notices blocks that no other process holds any more: calls `done` for each, which is in flight meanwhile. Calls
    /// no driver and does not block.
    pub(crate) fn drain_shared(&self, ask: Ask, slow_path: &SlowPath, mut done: impl FnMut(Waiting, &Share)) {
        if self.shared.load(Ordering::Acquire) == 0 {
            return;
        }
        // All of a device are in one ledger.
        let Some((ledger, waiting)) = self.queues.lock().ledger() else { return };
        let held = if ask == Ask::Now { Some(ledger.holds(true)) } else { ledger.holds_in_passing(waiting) };
        let Some(held) = held else { return };
        let waiting = self.queues.lock().shared();
        for (ticket, ExportedBlock { share, block }) in waiting.into_iter().counted() {
            if held.contains(share.ticket()) {
                continue;
            }
            let taken = {
                let mut queues = self.queues.lock();
                queues.take_shared(ticket).map(|entry| (entry, slow_path.begin()))
            };
            // Else another thread has noticed it.
            if let Some((_entry, _block)) = taken {
                self.shared.fetch_sub(1, Ordering::AcqRel);
                self.finish(block, &mut |block| done(block, &share));
            }
        }
    }

    /// Waits for all frees pending now in these arenas. Blocks. Where a stream cannot be waited for (it was destroyed,
    /// or its event is broken), waits for its whole device. Where that fails, too, its blocks stay pending, the other
    /// streams are done all the same, and the first error is returned.
    ///
    /// Calls that name a stream are tickets of `naming`, one stream at a time: a wait for one stream does not hold up
    /// the retirement of another.
    pub(crate) fn synchronise(
        &self,
        backend: &dyn Backend,
        naming: &InFlight<Stream>,
        slow_path: &SlowPath,
        concerns: impl Fn(u16) -> bool,
        mut done: impl FnMut(Waiting),
    ) -> Result<()> {
        let _waiting = self.synchronising.lock();
        let (streams, bound) = {
            let queues = self.queues.lock();
            (queues.numbers(), queues.bound())
        };
        let mut outcome = Ok(());
        for stream in streams {
            let wanted = |entry: &PendingBlock| entry.ticket < bound && concerns(entry.block.arena);
            let waited = self.synchronise_stream(backend, naming, slow_path, stream, wanted, &mut done);
            outcome = outcome.and(waited);
        }
        // Entries that join the list from here on are for the next round: their work may be later.
        let tickets = self.queues.lock().unrecorded_before(bound);
        let mut reached: FxHashMap<UserKey, (User, bool)> = FxHashMap::default();
        for ticket in tickets {
            // Looked up one by one: a stream may be retired while others are waited for.
            let (user, block, _named) = {
                let queues = self.queues.lock();
                let found = queues.unrecorded(ticket).filter(|entry| concerns(entry.block.arena));
                let Some(entry) = found else { continue };
                let named = entry.user.live().map(|stream| naming.begin(stream));
                (entry.user.clone(), entry.block, named)
            };
            let ready = match reached.get(&UserKey::of(&user)) {
                Some((_, ready)) => *ready,
                None => {
                    assert_unlocked();
                    let waited = match &user {
                        User::Live(stream) => wait_for_stream(backend, *stream),
                        User::Retired(last) => last.wait(),
                        User::Shared(_) => unreachable!("{NO_EVENT}"),
                    };
                    reached.insert(UserKey::of(&user), (user.clone(), waited.is_ok()));
                    let ready = waited.is_ok();
                    outcome = outcome.and(waited);
                    ready
                }
            };
            if !ready {
                continue;
            }
            let mut queues = self.queues.lock();
            if let Some(_entry) = queues.take_unrecorded(ticket) {
                let _block = slow_path.begin();
                drop(queues);
                self.finish(block, &mut done);
            }
        }
        outcome
    }

    /// Waits for a stream's wanted entries.
    fn synchronise_stream(
        &self,
        backend: &dyn Backend,
        naming: &InFlight<Stream>,
        slow_path: &SlowPath,
        number: u64,
        wanted: impl Fn(&PendingBlock) -> bool,
        done: &mut impl FnMut(Waiting),
    ) -> Result<()> {
        let mut from = 0;
        loop {
            let first = self.queues.lock().get(number).and_then(|queue| queue.first(from, &wanted).cloned());
            let Some(head) = first else { return Ok(()) };
            from = head.ticket;
            assert_unlocked();
            let waited = head.until.wait();
            let works = waited.is_ok();
            if let Err(error) = waited {
                backend.clear_error();
                tracing::warn!(%error, "an event could not be waited for; waiting for its stream instead");
                let (used, _named) = {
                    let queues = self.queues.lock();
                    let is_there = |queue: &&Queue| queue.place(head.ticket).is_some();
                    let queue = queues.get(number).filter(is_there);
                    // Else another thread has noticed its end.
                    let Some(queue) = queue else { continue };
                    (queue.user.clone(), queue.user.live().map(|stream| naming.begin(stream)))
                };
                match used {
                    User::Live(stream) => wait_for_stream(backend, stream)?,
                    User::Retired(last) => last.wait()?,
                    User::Shared(_) => unreachable!("{NO_EVENT}"),
                }
            }
            // A broken event must not come back for the next free: it goes with `head`.
            self.take(number, head.ticket, works, slow_path, done);
        }
    }

    /// True if a pending free waits for `stream` by its handle.
    pub(crate) fn names(&self, stream: Stream) -> bool {
        self.queues.lock().names(stream)
    }

    /// Replaces `stream` by its last work. Events recorded on it stay.
    pub(crate) fn retire(&self, stream: Stream, last: &Arc<LastWork>) {
        self.queues.lock().retire(stream, last);
    }

    fn finish(&self, block: Waiting, done: &mut impl FnMut(Waiting)) {
        done(block);
        self.attention.remove_pending();
    }
}
