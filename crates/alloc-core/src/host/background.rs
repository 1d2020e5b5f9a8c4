//! The thread that notices completed uses, so that requests need not (`pinned_use_background_threads`).

use super::engine::Engine;
use crate::edges::AtWork;
use crate::sync::{Arc, AtomicBool, OnceLock, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// How often devices are asked while something waits. PyTorch's rhythm.
const EVERY: Duration = Duration::from_micros(100);

/// Wakes the thread, if there is one: while nothing waits, it sleeps.
#[derive(Debug, Default)]
pub(super) struct Waker(OnceLock<Thread>);

impl Waker {
    /// Whether the thread was ever started: the system may refuse one.
    pub(super) fn has_thread(&self) -> bool {
        self.0.get().is_some()
    }

    /// Not by the thread itself, which looks again anyway, and in its own rhythm.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.0.get().filter(|thread| thread.id() != thread::current().id()) {
            thread.unpark();
        }
    }
}

/// The thread, until it is stopped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts it.
    pub(super) fn start(engine: &Arc<Engine>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, engine_of_thread) = (Arc::clone(&stop), Arc::clone(engine));
        let thread = thread::Builder::new()
            .name("granule-pinned".into())
            .spawn(move || watch(&engine_of_thread, &stopped))?;
        // What began to wait before this is found by the thread's first look.
        let _first = engine.waker.0.set(thread.thread().clone());
        thread.thread().unpark();
        Ok(Self { stop, thread })
    }

    /// Stops it, and waits for its end.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the thread that watches pinned memory panicked");
        }
    }
}

fn watch(engine: &Engine, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) && engine.edge().is_none() {
        if engine.any_waiting() {
            let Some(at_work) = AtWork::begin(engine.attention) else { break };
            if let Err(error) = engine.noticing(engine.poll(None)) {
                tracing::debug!(%error, "finished uses of pinned memory could not be noticed");
            }
            drop(at_work);
            thread::park_timeout(EVERY);
        } else {
            thread::park();
        }
    }
}
