//! The end of the process ends recordings.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

/// What has to end.
pub(super) trait Stoppable: Send + Sync {
    fn stop(&self);
}

static ALL: Mutex<Vec<Weak<dyn Stoppable>>> = Mutex::new(Vec::new());
/// The process whose recordings they are: in a forked child they are not, and a lock may be one of its parent's.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Stops it when the process ends, if it is still there.
pub(super) fn at_exit(recording: Weak<dyn Stoppable>) {
    PROCESS.store(std::process::id(), Ordering::Release);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|other| other.strong_count() > 0);
    all.push(recording);
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler takes no arguments and cannot unwind.
        let refused = unsafe { libc::atexit(stop_all) };
        if refused != 0 {
            tracing::warn!("no memory to register for the end of the process: stop recordings yourself");
        }
    }
}

extern "C" fn stop_all() {
    if PROCESS.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    // A panic must not leave a C function.
    let stopped = std::panic::catch_unwind(|| {
        let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().filter_map(Weak::upgrade).for_each(|recording| recording.stop());
    });
    if stopped.is_err() {
        tracing::error!("a recording could not be ended");
    }
}
