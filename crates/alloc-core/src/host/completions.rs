//! Pending frees of pinned blocks, and the thread that is woken to notice their end.

use super::driver_access::DriverAccess;
use super::pinned_block::Users;
use crate::error::Result;
use crate::lifetimes::last_work::LastWork;
use crate::lifetimes::pending::{PendingFrees, Waiting};
use crate::lifetimes::uses::User;
use crate::memory::block::BlockId;
use crate::sync::{Arc, AtomicBool, Flight, InFlight, Mutex, OnceLock, Ordering, Rank, SlowPath};
use crate::types::Stream;
use smallvec::SmallVec;
use std::thread::{self, Thread};

/// Pending frees' name of a pinned block. There are no arenas.
fn waiting(block: BlockId) -> Waiting {
    Waiting { arena: 0, block }
}

/// Blocks that wait for devices.
#[derive(Debug)]
pub(super) struct Completions {
    /// By device: one whose events cannot be asked for holds up no other.
    pending: Vec<PendingFrees>,
    /// Of all that share the memory: a block between its event and the table is on its way.
    slow_path: Arc<SlowPath>,
    /// Driver calls under way that name a stream.
    naming: InFlight<Stream>,
    /// Frees whose streams are being captured: nothing can be recorded on these now.
    deferred: Mutex<Vec<(BlockId, User)>>,
    any_deferred: AtomicBool,
    /// The thread that looks, if there is one: while nothing waits, it sleeps.
    watcher: OnceLock<Thread>,
    /// Dropped last: the end of events asks it for the driver.
    driver: Arc<DriverAccess>,
}

impl Completions {
    pub(super) fn new(driver: Arc<DriverAccess>, slow_path: Arc<SlowPath>) -> Self {
        Self {
            pending: driver.devices().map(|_| PendingFrees::new(driver.attention())).collect(),
            driver,
            slow_path,
            naming: InFlight::default(),
            deferred: Mutex::new(Rank::Pending, Vec::new()),
            any_deferred: AtomicBool::new(false),
            watcher: OnceLock::new(),
        }
    }

    /// From here on, this thread is woken.
    pub(super) fn begin_watch(&self, thread: &Thread) {
        let _first = self.watcher.set(thread.clone());
    }

    /// True if a thread ever began to look: the system may refuse one.
    pub(super) fn is_watched(&self) -> bool {
        self.watcher.get().is_some()
    }

    /// Not by the thread itself, which looks again anyway, and in its own rhythm.
    fn wake(&self) {
        if let Some(thread) = self.watcher.get().filter(|thread| thread.id() != thread::current().id()) {
            thread.unpark();
        }
    }

    /// Says that calls which name these users' streams are about to be made. Done under the lock that guards the list.
    pub(super) fn announce<'u>(
        &self,
        users: impl IntoIterator<Item = &'u User>,
    ) -> SmallVec<[Flight<'_, Stream>; 2]> {
        users.into_iter().filter_map(User::live).map(|stream| self.naming.begin(stream)).collect()
    }

    /// So that the free of a block that `stream` has just been recorded on finds an event.
    pub(super) fn prepare(&self, stream: Stream) {
        self.pending[usize::from(stream.device.0)].prepare(self.driver.backend(), stream.device);
    }

    /// Lets a block wait for what its users were given. They are [announced](Self::announce). Never fails: what cannot be
    /// recorded waits for a synchronisation.
    pub(super) fn wait_for(&self, block: BlockId, users: Users) {
        users.into_iter().for_each(|user| self.wait_for_one(block, user));
    }

    fn wait_for_one(&self, block: BlockId, user: User) {
        let Some(device) = user.device() else {
            unreachable!("no other process has pinned memory of this one")
        };
        // An event recorded on a captured stream would become part of the graph, and say nothing.
        let is_captured = |stream| !matches!(self.driver.capture_id(stream), Ok(None));
        if user.live().is_some_and(is_captured) {
            let mut deferred = self.deferred.lock();
            deferred.push((block, user));
            self.any_deferred.store(true, Ordering::Release);
        } else {
            self.pending[usize::from(device.0)].wait_for(self.driver.backend(), user, waiting(block));
        }
        self.wake();
    }

    /// Tries those again whose streams were being captured.
    fn retry_deferred(&self) {
        if !self.any_deferred.load(Ordering::Acquire) {
            return;
        }
        let (deferred, _named) = {
            let mut deferred = self.deferred.lock();
            self.any_deferred.store(false, Ordering::Release);
            let deferred = std::mem::take(&mut *deferred);
            let named = self.announce(deferred.iter().map(|(_, user)| user));
            (deferred, named)
        };
        deferred.into_iter().for_each(|(block, user)| self.wait_for_one(block, user));
    }

    /// True if anything waits.
    pub(super) fn any(&self) -> bool {
        self.driver.attention().any_pending() || self.any_deferred.load(Ordering::Acquire)
    }

    /// Calls `done` for each block that lost a user, without waiting. A device that fails stops no other; the first error
    /// is returned.
    pub(super) fn poll(&self, mut done: impl FnMut(BlockId)) -> Result<()> {
        self.ask(|pending| pending.drain(&self.slow_path, |waiting| done(waiting.block)))
    }

    /// Waits for all that blocks wait for now; otherwise as [`poll`](Self::poll). **Blocks.**
    pub(super) fn synchronise(&self, mut done: impl FnMut(BlockId)) -> Result<()> {
        let backend = &**self.driver.backend();
        self.ask(|pending| {
            let done = |waiting: Waiting| done(waiting.block);
            pending.synchronise(backend, &self.naming, &self.slow_path, |_| true, done)
        })
    }

    fn ask(&self, mut one: impl FnMut(&PendingFrees) -> crate::backend::Result<()>) -> Result<()> {
        self.retry_deferred();
        let ask = |outcome: Result<()>, pending| outcome.and(self.driver.answered(one(pending)));
        self.pending.iter().fold(Ok(()), ask)
    }

    /// Uses whose event could not be recorded.
    pub(super) fn failures(&self) -> u64 {
        self.pending.iter().map(PendingFrees::failures).sum()
    }

    /// True if a pending free, or a call under way, names `stream`.
    pub(super) fn names(&self, stream: Stream) -> bool {
        let is_deferred = {
            let deferred = self.deferred.lock();
            // Under the lock: one that leaves the list is announced before.
            deferred.iter().any(|(_, user)| user.is(stream)) || self.naming.any(|_, named| *named == stream)
        };
        is_deferred || self.pending[usize::from(stream.device.0)].names(stream)
    }

    /// Makes pending frees of `stream` wait for its last work. Waits for the calls under way that name it: they put
    /// what they have where the next round finds it.
    pub(super) fn retire(&self, stream: Stream, last: &Arc<LastWork>) {
        for (_, user) in self.deferred.lock().iter_mut().filter(|(_, user)| user.is(stream)) {
            *user = User::Retired(Arc::clone(last));
        }
        self.pending[usize::from(stream.device.0)].retire(stream, last);
        self.naming.wait_for(|_, named| *named == stream, || None::<()>);
    }
}
