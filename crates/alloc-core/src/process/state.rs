//! The edges of a process: forks, the end of the process, and a driver that goes away.
//!
//! Each device has a word that its calls test anyway ([`Attention`]), and every word is in a list that only grows, so a
//! fork or an exit reaches all of them without a lock. A forked child can use neither its parent's driver nor locks
//! that a thread of the parent held: there, words say [`ProcessState::Forked`] from the first instruction on.
//!
//! The same list says if a capture is under way on *another* device of the process, or in another allocator: drivers
//! forbid calls by thread or by process then, on any device.

use crate::backend::{Backend, BackendError, ErrorKind};
use crate::process::attention::{Attention, ProcessState, Reason};
use crate::process::leaked_list::LeakedList;
use crate::process::own::OwnFile;
use crate::sync::Ordering;
use crate::sync::plain::{AtomicBool, AtomicU64};
use crate::types::{BackendId, DeviceIndex};
use std::sync::atomic::fence;
use std::time::Duration;

/// Entry of the list, alone in its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct EdgeWord {
    attention: Attention,
    lent: AtomicBool,
    /// Backend whose driver the word is about.
    backend: AtomicU64,
    /// Device that it is about; [`NO_DEVICE`] where there is none.
    device: AtomicU64,
    /// File in which other processes read how much is held.
    published: OwnFile,
}

static WORDS: LeakedList<EdgeWord> = LeakedList::new();
/// The process is at its end.
static ENDED: AtomicBool = AtomicBool::new(false);
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Threads of the engine's own that call a driver, or are about to. The program does not know of them, so the end of
/// the process waits for them, but not for ever: one of them may have caused it.
static AT_WORK: AtomicU64 = AtomicU64::new(0);
/// Words that say that a capture is under way. Mostly zero: then nobody has to search the list.
static CAPTURED: AtomicU64 = AtomicU64::new(0);
/// No device's number.
const NO_DEVICE: u64 = u64::MAX;
/// Most milliseconds that the end waits.
const PATIENCE: u64 = 1000;

/// Permit for one of the engine's own threads to call the driver.
#[derive(Debug)]
pub(crate) struct AtWork(());

impl AtWork {
    /// `None` where the driver may not be called any more.
    pub(crate) fn begin(attention: &Attention) -> Option<Self> {
        AT_WORK.fetch_add(1, Ordering::SeqCst);
        let at_work = Self(());
        // Either this sees the edge, or the end of the process sees this.
        fence(Ordering::SeqCst);
        attention.process_state().is_none().then_some(at_work)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A word for a new allocator of a device of `backend`, or of page-locked memory.
pub(crate) fn lend(backend: BackendId, device: Option<DeviceIndex>) -> &'static Attention {
    let borrow = |word: &EdgeWord| !word.lent.swap(true, Ordering::AcqRel);
    let word = WORDS.find_or_add(borrow, || EdgeWord { lent: AtomicBool::new(true), ..EdgeWord::default() });
    word.attention.reset();
    word.device.store(device.map_or(NO_DEVICE, |device| u64::from(device.0)), Ordering::Release);
    word.backend.store(u64::from(backend.0), Ordering::Release);
    if ENDED.load(Ordering::Acquire) {
        word.attention.set(Reason::DRIVER_GONE, true);
    }
    &word.attention
}

fn word_of(attention: &'static Attention) -> Option<&'static EdgeWord> {
    WORDS.iter().find(|word| std::ptr::eq(&raw const word.attention, attention))
}

/// File of a word's allocator in which other processes read what it holds.
pub(crate) fn published_of(attention: &'static Attention) -> Option<&'static OwnFile> {
    word_of(attention).map(|word| &word.published)
}

/// Takes back the word of a device allocator that is gone.
pub(crate) fn take_back(attention: &'static Attention) {
    if let Some(word) = word_of(attention) {
        // SAFETY: the allocator is gone, and with it all that looked at the file.
        unsafe { word.published.put(None) };
        // No backend's from here on: questions about this one must not see the next owner's state.
        word.backend.store(0, Ordering::Release);
        mark_capture(&word.attention, false);
        word.lent.store(false, Ordering::Release);
    }
}

/// Marks a capture under way on the word's device, or none any more.
pub(crate) fn mark_capture(attention: &Attention, under_way: bool) {
    // Counted before it shows, and as long as it does: a thread that sees no count finds no word.
    CAPTURED.fetch_add(u64::from(under_way), Ordering::AcqRel);
    let before = attention.exchange(Reason::CAPTURE, under_way);
    CAPTURED.fetch_sub(u64::from(before), Ordering::AcqRel);
}

fn captured(backend: BackendId) -> impl Iterator<Item = &'static EdgeWord> {
    let any = CAPTURED.load(Ordering::Acquire) != 0;
    let is_of = move |word: &&EdgeWord| {
        word.backend.load(Ordering::Acquire) == u64::from(backend.0) && word.attention.has(Reason::CAPTURE)
    };
    any.then(|| WORDS.iter()).into_iter().flatten().filter(is_of)
}

/// True if a capture of this process is under way over a backend, on any device.
pub(crate) fn captures_over(backend: BackendId) -> bool {
    captured(backend).next().is_some()
}

/// True if a capture of this process is under way on a device, with any allocator.
pub(crate) fn captures_on(backend: BackendId, device: DeviceIndex) -> bool {
    captured(backend).any(|word| word.device.load(Ordering::Acquire) == u64::from(device.0))
}

/// Makes sure that forks and the end of the process are noticed. Called before anything that they concern is made.
fn watch() {
    // Twice is harmless. No thread waits for another here: a fork may have left that thread behind. Threads of a
    // schedule exist only inside of it; nothing of theirs is left at a fork or an exit.
    if cfg!(any(loom, shuttle)) || WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler only uses atomics and closes descriptors, as a forked child may.
    let forks = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // SAFETY: the handler uses atomics, removes files and sleeps; it cannot panic.
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
    WORDS.iter().for_each(|word| {
        word.attention.set(Reason::FORKED, true);
        word.published.let_go();
    });
    AT_WORK.store(0, Ordering::SeqCst);
}

extern "C" fn at_exit() {
    ENDED.store(true, Ordering::Release);
    WORDS.iter().for_each(|word| {
        word.attention.set(Reason::DRIVER_GONE, true);
        word.published.remove();
    });
    fence(Ordering::SeqCst);
    for _ in 0..PATIENCE {
        if AT_WORK.load(Ordering::SeqCst) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Admits a new allocator over a backend, or says why not.
pub(crate) fn admit(backend: BackendId) -> Result<(), ProcessState> {
    watch();
    if backend.is_inherited() {
        return Err(ProcessState::Forked);
    }
    if ENDED.load(Ordering::Acquire) { Err(ProcessState::DriverGone) } else { Ok(()) }
}

/// True if a backend's driver may be called to destroy something: not at an edge of the process, nor after an allocator
/// over it learned that the driver is gone.
pub(crate) fn may_destroy(backend: BackendId) -> bool {
    let is_gone = |word: &EdgeWord| {
        word.lent.load(Ordering::Acquire)
            && word.backend.load(Ordering::Acquire) == u64::from(backend.0)
            && word.attention.process_state().is_some()
    };
    admit(backend).is_ok() && !WORDS.iter().any(is_gone)
}

/// Notes a driver's error that means that it is unloading. Its kind alone does not say so: drivers also answer it about
/// one stream, or one thread's context. So the driver is asked a question that needs neither.
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
        let device = Some(DeviceIndex(0));
        let (one, other) = (lend(BackendId(1), device), lend(BackendId(1), device));
        assert!(!std::ptr::eq(one, other));
        one.add_pending();
        one.set(Reason::DRIVER_GONE, true);
        assert_eq!((one.process_state(), other.process_state()), (Some(ProcessState::DriverGone), None));
        take_back(one);
        take_back(other);
        let all = WORDS.iter().count();
        let again = lend(BackendId(1), device);
        assert!(!again.concerns_requests());
        assert!(WORDS.iter().count() >= all, "words are kept");
        take_back(again);
    }

    #[test]
    fn a_capture_is_known_on_all_devices_of_its_backend_until_its_word_is_taken_back() {
        let (here, there, apart) = (BackendId(901), BackendId(902), DeviceIndex(1));
        let (one, other) = (lend(here, Some(DeviceIndex(0))), lend(here, Some(apart)));
        assert!(!captures_over(here));
        mark_capture(one, true);
        mark_capture(one, true);
        assert!(captures_over(here) && !captures_over(there));
        assert!(captures_on(here, DeviceIndex(0)) && !captures_on(here, apart));
        mark_capture(other, true);
        mark_capture(one, false);
        assert!(captures_over(here) && captures_on(here, apart));
        take_back(other);
        assert!(!captures_over(here));
        mark_capture(one, false);
        take_back(one);
    }
}
