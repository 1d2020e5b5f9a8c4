//! The edges of a process: forks, the end of the process, and a driver that goes away.
//!
//! Each device has a word that its calls test anyway ([`Attention`]), and every word is in a list that only grows, so a
//! fork or an exit reaches all of them without a lock. A forked child can use neither its parent's driver nor locks
//! that a thread of the parent held: there, words say [`Edge::Forked`] from the first instruction on.

use crate::backend::{Backend, BackendError, ErrorKind};
use crate::process::attention::{Attention, Edge, Reason};
use crate::sync::Ordering;
use crate::sync::plain::{AtomicBool, AtomicPtr, AtomicU64};
use crate::types::BackendId;
use std::sync::atomic::fence;
use std::time::Duration;

/// A place of the list. Never given back to the heap, and not beside another one in the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Word {
    attention: Attention,
    lent: AtomicBool,
    /// Whose driver it is about.
    backend: AtomicU64,
    next: AtomicPtr<Word>,
}

/// The newest word.
static WORDS: AtomicPtr<Word> = AtomicPtr::new(std::ptr::null_mut());
/// The process is at its end.
static ENDED: AtomicBool = AtomicBool::new(false);
static WATCHED: AtomicBool = AtomicBool::new(false);
/// The engine's own threads that call a driver, or are about to. The program does not know of them, so the end of the
/// process waits for them, but not for ever: one of them may have brought it about.
static AT_WORK: AtomicU64 = AtomicU64::new(0);
/// Most milliseconds that the end waits.
const PATIENCE: u64 = 1000;

/// One of the engine's own threads may call the driver while it has this.
#[derive(Debug)]
pub(crate) struct AtWork(());

impl AtWork {
    /// `None` where the driver may not be called any more.
    pub(crate) fn begin(attention: &Attention) -> Option<Self> {
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        let at_work = Self(());
        // Either this sees the edge, or the end of the process sees this.
        fence(Ordering::SeqCst);
        attention.edge().is_none().then_some(at_work)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

fn words() -> impl Iterator<Item = &'static Word> {
    let follow = |at: &AtomicPtr<Word>| {
        // SAFETY: the list's pointers are null or come from leaked boxes, and words are only ever shared.
        unsafe { at.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(follow(&WORDS), move |word| follow(&word.next))
}

/// A word for a new device allocator over `backend`.
pub(crate) fn lend(backend: BackendId) -> &'static Attention {
    let vacant = words().find(|word| !word.lent.swap(true, Ordering::AcqRel));
    let word = vacant.unwrap_or_else(|| {
        let word: &'static Word =
            Box::leak(Box::new(Word { lent: AtomicBool::new(true), ..Word::default() }));
        let this = std::ptr::from_ref(word).cast_mut();
        let mut newest = WORDS.load(Ordering::Acquire);
        loop {
            word.next.store(newest, Ordering::Relaxed);
            match WORDS.compare_exchange_weak(newest, this, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return word,
                Err(newer) => newest = newer,
            }
        }
    });
    word.attention.reset();
    word.backend.store(u64::from(backend.0), Ordering::Release);
    if ENDED.load(Ordering::Acquire) {
        word.attention.set(Reason::DRIVER_GONE, true);
    }
    &word.attention
}

/// Takes the word of a device allocator that is gone.
pub(crate) fn take_back(attention: &'static Attention) {
    if let Some(word) = words().find(|word| std::ptr::eq(&raw const word.attention, attention)) {
        // No backend's from here on: whoever asks about this one must not look at what the next owner does.
        word.backend.store(0, Ordering::Release);
        word.lent.store(false, Ordering::Release);
    }
}

/// Sees to it that forks and the end of the process are noticed. Called before anything is made that they concern.
fn watch() {
    // Twice is harmless, and nobody waits for another thread here: a fork may have left that thread behind.
    // Threads of a schedule exist only inside of it; nothing of theirs is left at a fork or an exit.
    if cfg!(any(loom, shuttle)) || WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler only uses atomics, as a forked child may.
    let forks = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // SAFETY: the handler only uses atomics, and sleeps; it cannot panic.
    let exit = unsafe { libc::atexit(at_exit) };
    if (forks, exit) != (0, 0) {
        tracing::warn!(
            forks,
            exit,
            "no memory to register for forks or the end of the process; they go unnoticed"
        );
    }
    WATCHED.store(true, Ordering::Release);
}

extern "C" fn in_child() {
    words().for_each(|word| word.attention.set(Reason::FORKED, true));
    AT_WORK.store(0, Ordering::SeqCst);
}

extern "C" fn at_exit() {
    ENDED.store(true, Ordering::Release);
    words().for_each(|word| word.attention.set(Reason::DRIVER_GONE, true));
    fence(Ordering::SeqCst);
    for _ in 0..PATIENCE {
        if AT_WORK.load(Ordering::SeqCst) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether an allocator may be made over a backend.
pub(crate) fn admit(backend: BackendId) -> Result<(), Edge> {
    watch();
    if backend.is_inherited() {
        return Err(Edge::Forked);
    }
    if ENDED.load(Ordering::Acquire) { Err(Edge::DriverGone) } else { Ok(()) }
}

/// Whether a backend's driver may be called to destroy something: not at an edge of the process, nor when an allocator over
/// it was told, or noticed, that the driver is gone.
pub(crate) fn may_destroy(backend: BackendId) -> bool {
    let is_gone = |word: &Word| {
        word.lent.load(Ordering::Acquire)
            && word.backend.load(Ordering::Acquire) == u64::from(backend.0)
            && word.attention.edge().is_some()
    };
    admit(backend).is_ok() && !words().any(is_gone)
}

/// Notes where a driver's error means that it is unloading. Its kind alone does not say so: drivers also answer it
/// about one stream, or one thread's context. So the driver is asked what it could answer without either.
#[cold]
pub(crate) fn notice(attention: &Attention, backend: &dyn Backend, error: &BackendError) {
    let unusable = |error: &BackendError| error.kind == ErrorKind::Unusable;
    if unusable(error) && backend.has_primary_context(error.device).is_err_and(|error| unusable(&error)) {
        tracing::info!(%error, "the driver is unloading; it is not called any more");
        attention.set(Reason::DRIVER_GONE, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_lent_to_one_at_a_time_and_comes_back_clean() {
        let (one, other) = (lend(BackendId(1)), lend(BackendId(1)));
        assert!(!std::ptr::eq(one, other));
        one.add_pending();
        one.set(Reason::DRIVER_GONE, true);
        assert_eq!((one.edge(), other.edge()), (Some(Edge::DriverGone), None));
        take_back(one);
        take_back(other);
        let all = words().count();
        let again = lend(BackendId(1));
        assert!(!again.concerns_requests());
        assert!(words().count() >= all, "words are kept");
        take_back(again);
    }
}
