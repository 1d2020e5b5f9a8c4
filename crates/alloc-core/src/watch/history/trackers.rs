//! Trackers: functions of the program that see every entry, whether history is on or not.
//!
//! Entries are queued under the lock of the arena that makes them, and handed over after it is dropped: a tracker
//! may call anything, the allocator too. One thread hands over for all, in order; the others do not wait.

use super::context::Context;
use crate::process::callbacks::{CallbackScope, Callbacks, Kind};
use crate::sync::{Arc, Mutex, Rank};
use crate::watch::snapshot::TraceEntry;
use std::collections::VecDeque;

/// Sees an entry, and its call context if one was gathered. PyTorch: `AllocatorTraceTracker`.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type TraceTracker = Arc<dyn Fn(&TraceEntry, Option<&Context>) + Send + Sync>;

#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) entry: TraceEntry,
    pub(crate) context: Option<Context>,
}

#[derive(Default)]
struct Deliveries {
    queue: VecDeque<Tracked>,
    trackers: Arc<Vec<TraceTracker>>,
    /// Some thread is handing entries over.
    busy: bool,
}

/// Entries on their way to trackers.
pub(crate) struct Outbox {
    state: Mutex<Deliveries>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Registry, Deliveries::default()) }
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("waiting", &self.state.lock().queue.len()).finish_non_exhaustive()
    }
}

/// Hands over queued entries when an operation ends, however it ends.
pub(crate) struct AtEnd<'a>(&'a Outbox, &'a Callbacks);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.deliver(&self.1.calls());
    }
}

impl Outbox {
    /// [`deliver`](Self::deliver) when the result is dropped; make it before any lock is taken.
    #[must_use]
    pub(crate) fn deliver_at_end<'a>(&'a self, callbacks: &'a Callbacks) -> AtEnd<'a> {
        AtEnd(self, callbacks)
    }

    pub(crate) fn add_tracker(&self, tracker: TraceTracker) {
        Arc::make_mut(&mut self.state.lock().trackers).push(tracker);
    }

    pub(super) fn push(&self, tracked: Tracked) {
        self.state.lock().queue.push_back(tracked);
    }

    /// Hands all queued entries over, unless another thread does, or this one is in a tracker. Hold no lock.
    pub(crate) fn deliver(&self, calls: &CallbackScope<'_>) {
        let waits = |state: &Deliveries| !state.busy && !state.queue.is_empty();
        if !waits(&self.state.lock()) || calls.is_inside(Kind::Tracker) {
            return;
        }
        {
            let mut state = self.state.lock();
            if !waits(&state) {
                return;
            }
            state.busy = true;
        }
        loop {
            let (Tracked { entry, context }, trackers) = {
                let mut state = self.state.lock();
                let Some(tracked) = state.queue.pop_front() else {
                    // Under the lock: an entry added from here on is handed over by its own thread.
                    state.busy = false;
                    return;
                };
                (tracked, Arc::clone(&state.trackers))
            };
            for tracker in trackers.iter() {
                calls.call(Kind::Tracker, || tracker(&entry, context.as_ref()));
            }
            calls.end(context);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::{AtomicBool, Ordering, models};
    use crate::watch::snapshot::Action;

    fn entry(thread: u64, n: u64) -> Tracked {
        let entry = TraceEntry {
            action: Action::Alloc,
            addr: thread,
            size: n,
            stream: 0,
            time_us: 0,
            labels: Arc::default(),
            frames: None,
        };
        Tracked { entry, context: None }
    }

    /// Whoever hands over, every entry is seen once, in its thread's order, and by one caller at a time.
    #[test]
    fn nothing_is_left_in_the_outbox() {
        models::check(|| {
            let outbox = Arc::new(Outbox::default());
            let at_it = AtomicBool::new(false);
            let seen: Arc<std::sync::Mutex<Vec<(u64, u64)>>> = Arc::default();
            let notes = Arc::clone(&seen);
            outbox.add_tracker(Arc::new(move |entry: &TraceEntry, _: Option<&Context>| {
                assert!(!at_it.swap(true, Ordering::Relaxed), "one at a time");
                notes.lock().expect("nobody panics").push((entry.addr, entry.size));
                at_it.store(false, Ordering::Relaxed);
            }));
            let works = |thread| {
                let outbox = Arc::clone(&outbox);
                move || {
                    for n in 0..2 {
                        let callbacks = Callbacks::default();
                        let _at_end = outbox.deliver_at_end(&callbacks);
                        outbox.push(entry(thread, n));
                    }
                }
            };
            let other = loom::thread::spawn(works(1));
            works(0)();
            other.join().expect("the other ends well");
            let seen = seen.lock().expect("nobody panics");
            for thread in 0..2 {
                let of_one: Vec<u64> = seen.iter().filter(|(t, _)| *t == thread).map(|(_, n)| *n).collect();
                assert_eq!(of_one, [0, 1]);
            }
        });
    }
}
