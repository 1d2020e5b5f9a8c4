//! The thread that notices completed uses, so that requests need not (`pinned_use_background_threads`).

use super::cache::PinnedCache;
use crate::process::state::AtWork;
use crate::sync::{Arc, AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval of asking devices while something waits, as in PyTorch.
const EVERY: Duration = Duration::from_micros(100);

/// The thread, until it is stopped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts it.
    pub(super) fn start(cache: &Arc<PinnedCache>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, cache_of_thread) = (Arc::clone(&stop), Arc::clone(cache));
        let thread = thread::Builder::new()
            .name("granule-pinned".into())
            .spawn(move || watch(&cache_of_thread, &stopped))?;
        // Waits that began before are found by the thread's first look.
        cache.completions().begin_watch(thread.thread());
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

fn watch(cache: &PinnedCache, stop: &AtomicBool) {
    let driver = cache.driver();
    while !stop.load(Ordering::Acquire) && driver.process_state().is_none() {
        if cache.completions().any() {
            let Some(at_work) = AtWork::begin(driver.attention()) else { break };
            if let Err(error) = driver.noticing(cache.poll(None)) {
                tracing::debug!(%error, "finished uses of pinned memory could not be noticed");
            }
            drop(at_work);
            thread::park_timeout(EVERY);
        } else {
            thread::park();
        }
    }
}
