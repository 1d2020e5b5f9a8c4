//! Forks. A child can use neither its parent's driver nor what the parent made with it, so the child knows which
//! backends are its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The next backend's id.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Backends with smaller ids were made by a process that this one is a fork of.
static FIRST_OWN: AtomicU64 = AtomicU64::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);

/// The number of a new backend. Forks are noticed from here on: its driver has not been used yet.
pub(crate) fn next_backend() -> u64 {
    watch();
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether a process made that backend which this one is a fork of.
pub(crate) fn is_inherited(backend: u64) -> bool {
    backend < FIRST_OWN.load(Ordering::Acquire)
}

fn watch() {
    // Twice is harmless, and nobody waits for another thread here: a fork may have left that thread behind.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler only uses atomics, as a forked child may.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if refused != 0 {
        tracing::warn!(refused, "no memory to register for forks; they go unnoticed");
    }
    WATCHED.store(true, Ordering::Release);
}

extern "C" fn in_child() {
    FIRST_OWN.store(NEXT.load(Ordering::Relaxed), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use crate::types::BackendId;

    #[test]
    fn a_forked_child_knows_which_backends_are_its_own() {
        let before = BackendId::fresh();
        assert!(!before.is_inherited());
        // SAFETY: the child makes a number, which takes no lock, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let as_due = before.is_inherited() && !BackendId::fresh().is_inherited();
            // SAFETY: nothing of the parent's is touched at the end.
            unsafe { libc::_exit(i32::from(!as_due)) };
        }
        let mut status = 0;
        // SAFETY: `status` lives until the call has returned.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0));
        assert!(!before.is_inherited());
    }
}
