//! Graph capture: what must not be done while a stream is captured, and frees that wait until it ends.
//!
//! A captured stream's work has not run, so nothing can be waited for and no event of it says anything. Blocks that
//! other streams of the graph use are *deferred*: they stay pending until no capture is under way. Uses made within the
//! graph are ordered by it and need no event then; uses made before get theirs.

use super::DeviceAllocator;
use crate::arena::directory::PoolSlot;
use crate::arena::pool::Holder;
use crate::backend::{BackendError, CaptureNode, CaptureStatus, ErrorKind};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::lifetimes::last_work::LastWork;
use crate::lifetimes::pending::Waiting;
use crate::lifetimes::uses::{Use, User};
use crate::process::attention::Reason;
use crate::process::stream_identity::named;
use crate::sync::{Arc, ThreadId, this_thread};
use crate::types::Stream;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A block that waits for the end of captures.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) block: Waiting,
    /// Its own stream, unless that is retired.
    pub(super) own: Option<Stream>,
    pub(super) slot: PoolSlot,
    /// What it waits for, each counted once by the block.
    pub(super) uses: SmallVec<[Use; 4]>,
    /// Once all of these precede work of its own stream, the graph itself orders the reuse; none: not before the end.
    pub(super) markers: Vec<CaptureNode>,
}

/// A device's captures.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// The thread that began each capture under way, and who ends it.
    open: Vec<(ThreadId, Holder)>,
    pub(super) deferred: Vec<Deferred>,
    /// Nodes known to precede each stream's next work, by stream and capture.
    pub(super) before: FxHashMap<(u64, u64), FxHashSet<CaptureNode>>,
}

impl DeviceAllocator {
    /// The capture that a stream is part of, also a broken one. Calls the driver.
    pub(super) fn capture_id(&self, stream: Stream) -> crate::backend::Result<Option<u64>> {
        let Ok(capture) = self.backend.capture() else { return Ok(None) };
        let status = named(stream).and_then(|stream| capture.status(stream));
        Ok(match status.inspect_err(|_| self.backend.clear_error())? {
            CaptureStatus::Active(id) => Some(id),
            CaptureStatus::Invalidated => Some(u64::MAX),
            CaptureStatus::None => None,
        })
    }

    /// [`capture_id`](Self::capture_id) where a stream that cannot be asked about is one that is not captured.
    pub(super) fn capture_of(&self, stream: Stream) -> Option<u64> {
        self.capture_id(stream).ok().flatten()
    }

    /// Whether a stream is known to be captured. Calls the driver.
    pub(super) fn is_capturing(&self, stream: Stream) -> bool {
        self.capture_of(stream).is_some()
    }

    /// Whether a stream is not known not to be captured. Calls the driver.
    pub(super) fn may_be_capturing(&self, stream: Stream) -> bool {
        !matches!(self.capture_id(stream), Ok(None))
    }

    /// Whether the calling thread has begun a capture that has not ended.
    pub(super) fn thread_captures(&self) -> bool {
        let thread = this_thread();
        self.attention.has(Reason::CAPTURE) && self.captures.lock().open.iter().any(|(by, _)| *by == thread)
    }

    /// See [`Pools::mark_capture_begin`](crate::allocator::Pools::mark_capture_begin).
    pub(crate) fn mark_capture_begin(&self, holder: Holder) -> Result<()> {
        if let Err(absent) = self.backend.capture() {
            let text = absent.to_string();
            return Err(BackendError::new(ErrorKind::NotSupported, 0, "capture", self.device, text).into());
        }
        let mut captures = self.captures.lock();
        captures.open.push((this_thread(), holder));
        self.attention.set(Reason::CAPTURE, true);
        Ok(())
    }

    /// See [`Pools::mark_capture_end`](crate::allocator::Pools::mark_capture_end).
    pub(crate) fn mark_capture_end(&self, holder: Holder) -> Result<()> {
        {
            let thread = this_thread();
            let mut captures = self.captures.lock();
            // A capture may end on another thread than it began on.
            let mine = captures.open.iter().rposition(|open| *open == (thread, holder));
            let alike = || captures.open.iter().rposition(|(_, of)| *of == holder);
            let Some(at) = mine.or_else(alike) else {
                return Err(AllocError::NoCapture { device: self.device });
            };
            captures.open.remove(at);
            if captures.open.is_empty() {
                captures.before.clear();
                self.attention.set(Reason::CAPTURE, false);
            }
        }
        self.settle_deferred();
        self.tell_trackers();
        Ok(())
    }

    /// A block was freed while a capture is under way: what can be waited for in the ordinary way is, the rest
    /// waits for the end of captures. Names all these streams; the caller holds tickets.
    pub(super) fn wait_or_defer(
        &self,
        uses: SmallVec<[Use; 4]>,
        block: Waiting,
        own: Option<Stream>,
        slot: PoolSlot,
    ) {
        let (mut captured, mut ordinary) = (SmallVec::<[Use; 4]>::new(), SmallVec::<[Use; 4]>::new());
        for mut found in uses {
            let now = found.user.live().map_or(Ok(None), |stream| self.capture_id(stream));
            // What an earlier capture recorded may be at work by now, as part of a launch.
            found.captured = found.captured.filter(|capture| now == Ok(Some(*capture)));
            if now == Ok(None) { ordinary.push(found) } else { captured.push(found) }
        }
        if !captured.is_empty() {
            let markers = if ordinary.is_empty() { self.markers(own, &captured) } else { Vec::new() };
            let deferred = Deferred { block, own, slot, uses: captured, markers };
            let mut captures = self.captures.lock();
            captures.deferred.push(deferred);
            self.attention.set(Reason::DEFERRED, true);
        }
        for found in ordinary {
            self.pending.wait_for(&self.backend, found.user, block);
        }
    }

    /// When no capture is under way: deferred blocks are free as far as graphs are concerned, and wait for what was
    /// recorded outside of them.
    pub(super) fn settle_deferred(&self) {
        if !self.attention.has(Reason::DEFERRED) {
            return;
        }
        let (_named, _blocks, deferred) = {
            let mut captures = self.captures.lock();
            if !captures.open.is_empty() {
                return;
            }
            self.attention.set(Reason::DEFERRED, false);
            let deferred = std::mem::take(&mut captures.deferred);
            (self.name(deferred.iter().flat_map(|deferred| &deferred.uses)), self.in_transit(), deferred)
        };
        for mut deferred in deferred {
            for found in std::mem::take(&mut deferred.uses) {
                match &found.user {
                    _ if found.captured.is_some() => {
                        self.pending.end_uses(std::iter::once(&found));
                        self.event_done(deferred.block, &Call::PLAIN);
                    }
                    // Its capture goes on although the program said that none does: an event would become part of it.
                    User::Live(stream) if self.is_capturing(*stream) => deferred.uses.push(found),
                    _ => self.pending.wait_for(&self.backend, found.user, deferred.block),
                }
            }
            if !deferred.uses.is_empty() {
                let mut captures = self.captures.lock();
                captures.deferred.push(deferred);
                self.attention.set(Reason::DEFERRED, true);
            }
        }
    }

    /// Whether a deferred free names `stream`.
    pub(super) fn deferred_names(&self, stream: Stream) -> bool {
        let captures = self.captures.lock();
        let mut users = captures.deferred.iter().flat_map(|deferred| &deferred.uses);
        users.any(|found| found.user.is(stream))
    }

    /// From here on, `stream` is what it was given last in all deferred frees.
    pub(super) fn retire_deferred(&self, stream: Stream, last: &Arc<LastWork>) {
        let mut captures = self.captures.lock();
        for deferred in captures.deferred.iter_mut().filter(|deferred| deferred.own == Some(stream)) {
            (deferred.own, deferred.markers) = (None, Vec::new());
        }
        let users = captures.deferred.iter_mut().flat_map(|deferred| &mut deferred.uses);
        for found in users.filter(|found| found.user.is(stream)) {
            found.user = User::Retired(Arc::clone(last));
        }
    }
}
