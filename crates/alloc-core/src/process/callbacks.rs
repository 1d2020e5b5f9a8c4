//! Code of the program that the engine calls: observers, trackers, callbacks, filters, sources of memory, hooks, contexts.
//!
//! All of it is called here, without a lock, and two rules hold.
//!
//! *A panic loses nothing.* It is caught and carried until the operation is complete, and goes on where the [`CallbackScope`]
//! end. Of several, the first goes on. A destructor's is logged and goes nowhere.
//!
//! *Nothing is called in a call of itself.* While a thread is in code of one kind, its requests to the same allocator
//! run without code of that kind.

use crate::sync::{Mutex, Rank, ThreadId, assert_holds_nothing, assert_unlocked, this_thread};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Kind of foreign code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SegmentObserver,
    Tracker,
    FreeMemoryCallback,
    OutOfMemoryObserver,
    RejectionObserver,
    BudgetObserver,
    ProcessSource,
    SpillHook,
    Filter,
    Source,
    Recorder,
    Lookup,
    Destructor,
}

impl Kind {
    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Kinds within which this one is not called. Code that gives contexts up is asked for none.
    const fn shut_out_by(self) -> u16 {
        match self {
            Self::Recorder => self.bit() | Self::Destructor.bit(),
            _ => self.bit(),
        }
    }
}

/// Foreign code that the threads of an allocator are in.
#[derive(Debug)]
pub(crate) struct Callbacks {
    inside: Mutex<FxHashMap<ThreadId, Inside>>,
}

/// Foreign code that a thread is in.
#[derive(Default)]
struct Inside {
    kinds: u16,
    /// Locks that it holds, or is about to take, that destructors may ask for.
    holding: u16,
    /// Values it gave up within a destructor or under such a lock, and ends after it: destructors are not stacked.
    given_up: Vec<Box<dyn Send>>,
}

impl Inside {
    fn is_over(&self) -> bool {
        self.kinds == 0 && self.holding == 0
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl Default for Callbacks {
    fn default() -> Self {
        Self { inside: Mutex::new(Rank::Registry, FxHashMap::default()) }
    }
}

/// Marks that the thread is in foreign code of a kind, until dropped.
struct Entered<'a> {
    callbacks: &'a Callbacks,
    kind: Kind,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        while let Some(given_up) = self.leave() {
            given_up.into_iter().for_each(end);
        }
    }
}

impl Entered<'_> {
    /// Marks that the thread leaves. A destructor first returns the values held back meanwhile, for it to end.
    fn leave(&self) -> Option<Vec<Box<dyn Send>>> {
        let thread = this_thread();
        let mut all = self.callbacks.inside.lock();
        let inside = all.get_mut(&thread)?;
        if self.kind == Kind::Destructor && !inside.given_up.is_empty() {
            return Some(std::mem::take(&mut inside.given_up));
        }
        inside.kinds &= !self.kind.bit();
        if inside.is_over() {
            all.remove(&thread);
        }
        None
    }
}

/// Destructors wait until this is dropped; see [`Callbacks::hold_back`].
pub(crate) struct HeldBack<'a>(&'a Callbacks);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        let thread = this_thread();
        let mut all = self.0.inside.lock();
        let Some(inside) = all.get_mut(&thread) else { return };
        inside.holding -= 1;
        if inside.given_up.is_empty() {
            if inside.is_over() {
                all.remove(&thread);
            }
            return;
        }
        drop(all);
        drop(self.0.enter(Kind::Destructor));
    }
}

impl Callbacks {
    /// Calls of foreign code until something is complete: panics go on when it is dropped. Make it before guards that
    /// have to settle first.
    pub(crate) fn calls(&self) -> CallbackScope<'_> {
        CallbackScope { callbacks: self, caught: Cell::new(None) }
    }

    /// True if the calling thread is in foreign code of this kind.
    pub(crate) fn is_inside(&self, kind: Kind) -> bool {
        self.inside.lock().get(&this_thread()).is_some_and(|inside| inside.kinds & kind.bit() != 0)
    }

    fn enter(&self, kind: Kind) -> Option<Entered<'_>> {
        let mut all = self.inside.lock();
        let inside = all.entry(this_thread()).or_default();
        if inside.kinds & kind.shut_out_by() != 0 || kind == Kind::Destructor && inside.holding > 0 {
            return None;
        }
        inside.kinds |= kind.bit();
        drop(all);
        if kind == Kind::Destructor {
            assert_holds_nothing();
        }
        Some(Entered { callbacks: self, kind })
    }

    /// Makes destructors of this thread wait until the guard is dropped. Make it before a lock that is held over driver
    /// calls: a destructor may ask the allocator for something that needs that lock.
    pub(crate) fn hold_back(&self) -> HeldBack<'_> {
        self.inside.lock().entry(this_thread()).or_default().holding += 1;
        HeldBack(self)
    }

    /// Ends values whose destructors may be foreign code. Hold no lock, or [hold them back](Self::hold_back).
    pub(crate) fn end<T: Send + 'static>(&self, values: impl IntoIterator<Item = T>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        let Some(_inside) = self.enter(Kind::Destructor) else {
            let boxed: Vec<_> = values.map(|value| Box::new(value) as Box<dyn Send>).collect();
            if let Some(inside) = self.inside.lock().get_mut(&this_thread()) {
                inside.given_up.extend(boxed);
            }
            return;
        };
        values.for_each(end);
    }
}

fn end<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        tracing::error!("a destructor of the program panicked");
        forget(panic);
    }
}

/// Value of the program that was gathered for a call, and ends as foreign code does.
#[derive(Debug)]
pub(crate) struct Gathered<'a, T: Send + 'static> {
    callbacks: &'a Callbacks,
    /// There until this is dropped.
    value: Option<T>,
}

impl<T: Send + 'static> std::ops::Deref for Gathered<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("the value is there until this is dropped"),
        }
    }
}

impl<T: Send + 'static> Drop for Gathered<'_, T> {
    fn drop(&mut self) {
        self.callbacks.end(self.value.take());
    }
}

type Panic = Box<dyn Any + Send>;

/// Drops a panic's payload, whose end is foreign code, too.
fn forget(panic: Panic) {
    std::mem::forget(panic);
}

/// Calls of foreign code; see [`Callbacks::calls`].
pub(crate) struct CallbackScope<'a> {
    callbacks: &'a Callbacks,
    caught: Cell<Option<Panic>>,
}

impl CallbackScope<'_> {
    /// Calls foreign code; `None` where the thread is in code of this kind already, or it panics. Hold no lock.
    #[inline(always)]
    pub(crate) fn call<R>(&self, kind: Kind, code: impl FnOnce() -> R) -> Option<R> {
        assert_unlocked();
        let _inside = self.callbacks.enter(kind)?;
        self.catch(code)
    }

    /// Runs work that may panic because of foreign code; `None` where it does.
    #[inline(always)]
    pub(crate) fn catch<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        // The program answers for what a panic leaves of its own; the engine's state is committed, or undone by guards.
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| self.keep(panic)).ok()
    }

    #[cold]
    fn keep(&self, panic: Panic) {
        match self.caught.take() {
            None => self.caught.set(Some(panic)),
            first => {
                self.caught.set(first);
                tracing::error!("code of the program panicked again before its first panic could go on");
                forget(panic);
            }
        }
    }

    /// True if a panic goes on when this is dropped: nobody gets the call's outcome.
    pub(crate) fn panicked(&self) -> bool {
        let caught = self.caught.take();
        let panicked = caught.is_some() && !std::thread::panicking();
        self.caught.set(caught);
        panicked
    }

    /// True if the calling thread is in foreign code of this kind.
    pub(crate) fn is_inside(&self, kind: Kind) -> bool {
        self.callbacks.is_inside(kind)
    }

    /// Ends values whose destructors may be foreign code.
    pub(crate) fn end<T: Send + 'static>(&self, values: impl IntoIterator<Item = T>) {
        self.callbacks.end(values);
    }
}

impl<'a> CallbackScope<'a> {
    /// Value that `recorder` gathers on the calling thread. Inlined, as are its callers: each frame of the gathered
    /// stack costs.
    #[inline(always)]
    pub(crate) fn gather<T: Send + 'static>(
        &self,
        recorder: impl FnOnce() -> Option<T>,
    ) -> Option<Gathered<'a, T>> {
        let value = self.call(Kind::Recorder, recorder)??;
        Some(Gathered { callbacks: self.callbacks, value: Some(value) })
    }
}

impl Drop for CallbackScope<'_> {
    fn drop(&mut self) {
        match self.caught.take() {
            Some(panic) if std::thread::panicking() => {
                tracing::error!("code of the program panicked while another panic was under way");
                forget(panic);
            }
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn code_is_not_called_in_a_call_of_its_kind() {
        let callbacks = Callbacks::default();
        let calls = callbacks.calls();
        let nested = || {
            let calls = callbacks.calls();
            (calls.call(Kind::Tracker, || 1), calls.call(Kind::SpillHook, || 2))
        };
        assert_eq!(calls.call(Kind::Tracker, nested), Some((None, Some(2))));
        assert_eq!(calls.call(Kind::Tracker, || 3), Some(3));
        assert!(callbacks.inside.lock().is_empty());
    }

    #[test]
    fn the_first_panic_goes_on_at_the_end() {
        let callbacks = Callbacks::default();
        let mut completed = false;
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let calls = callbacks.calls();
            assert_eq!(calls.call(Kind::Tracker, || resume_unwind(Box::new("first"))), None::<()>);
            assert_eq!(calls.call(Kind::Tracker, || resume_unwind(Box::new("second"))), None::<()>);
            completed = calls.panicked();
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"first"));
        assert!(completed && callbacks.inside.lock().is_empty());
    }

    #[test]
    fn a_panic_during_another_aborts_nothing() {
        struct AtEnd<'a>(&'a Callbacks);
        impl Drop for AtEnd<'_> {
            fn drop(&mut self) {
                self.0.calls().call(Kind::Tracker, || panic!("in the middle of it"));
            }
        }
        let callbacks = Callbacks::default();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _at_end = AtEnd(&callbacks);
            resume_unwind(Box::new("under way"));
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"under way"));
    }

    /// A value whose end gives up the next one.
    struct Chain(Arc<Callbacks>, u32);

    impl Drop for Chain {
        fn drop(&mut self) {
            if self.1 > 0 {
                self.0.end([Chain(Arc::clone(&self.0), self.1 - 1)]);
            }
            assert_ne!(self.1, 7, "a destructor has a bug");
        }
    }

    #[test]
    fn destructors_wait_for_locks_that_they_may_ask_for() {
        struct Asks(Arc<Mutex<u32>>);
        impl Drop for Asks {
            fn drop(&mut self) {
                *self.0.lock() += 1;
            }
        }
        let callbacks = Callbacks::default();
        let ended = Arc::new(Mutex::new(Rank::Synchronisation, 0));
        let (outer, inner) = (callbacks.hold_back(), callbacks.hold_back());
        let locked = ended.lock();
        callbacks.end([Asks(Arc::clone(&ended)), Asks(Arc::clone(&ended))]);
        assert_eq!(*locked, 0);
        drop(locked);
        drop(inner);
        assert_eq!(*ended.lock(), 0, "another lock is held");
        drop(outer);
        assert_eq!(*ended.lock(), 2);
        assert!(callbacks.inside.lock().is_empty());
    }

    #[test]
    fn destructors_are_not_stacked_and_panic_into_a_log() {
        let callbacks = Arc::new(Callbacks::default());
        callbacks.end([Chain(Arc::clone(&callbacks), 1_000_000)]);
        assert_eq!(Arc::strong_count(&callbacks), 1);
    }
}
