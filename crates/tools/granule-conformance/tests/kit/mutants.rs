//! Backends that are wrong in one way each, to prove that the kit fails when it should.
//!
//! A mutant is a right backend before which some methods have a rule. It is a row that says what is wrong with
//! it, which method does what instead, and the check that must fail on it:
//!
//! ```ignore
//! mutant("memory.half_the_size", "memory is half as large as asked")
//!     .malloc(|call| call.with(|it| it.bytes = it.bytes.div_ceil(2)))
//!     .caught_by("memory.large_enough")
//! ```
//!
//! What rules of many mutants do has a name: a method of [`Call`] where it needs words of its own, as here, or
//! a function below where it does not (`ignores_refusals`, `blocks`).

mod capture;
mod copies;
mod device;
mod engine;
mod errors;
mod events;
mod families;
mod host;
mod ipc;
mod memory;
mod ordering;
mod peers;
mod streams;
mod threads;
mod virtual_memory;
mod wrong;

use backend_api::types::*;
use backend_api::*;
use granule_conformance::interpose::Interposed;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use wrong::Arguments;
use wrong::{Rules, Wrong};

/// A deliberately broken backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    /// `area.what`, unique.
    pub(crate) name: &'static str,
    /// What is wrong with it.
    pub(crate) what: &'static str,
    /// A check that must fail on it (others may).
    pub(crate) caught_by: &'static str,
    /// What its methods do, but for those that are right.
    rules: Rules,
}

/// A mutant without a fault, yet.
pub(crate) const fn mutant(name: &'static str, what: &'static str) -> Mutant {
    Mutant { name, what, caught_by: "", rules: Rules::NONE }
}

impl Mutant {
    /// Names the check that must fail.
    pub(crate) const fn caught_by(self, check: &'static str) -> Self {
        Self { caught_by: check, ..self }
    }

    /// The mutant over a right backend.
    pub(crate) fn over(&'static self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Interposed::new(Arc::clone(&inner), Wrong::new(&self.rules, inner)))
    }
}

/// Every mutant.
pub(crate) fn all() -> impl Iterator<Item = &'static Mutant> {
    [
        device::MUTANTS,
        memory::MUTANTS,
        copies::MUTANTS,
        streams::MUTANTS,
        events::MUTANTS,
        ordering::MUTANTS,
        host::MUTANTS,
        errors::MUTANTS,
        threads::MUTANTS,
        virtual_memory::MUTANTS,
        ipc::MUTANTS,
        peers::MUTANTS,
        capture::MUTANTS,
        families::MUTANTS,
        engine::MUTANTS,
    ]
    .into_iter()
    .flatten()
}

/// What a mutant does when one of its methods is called.
pub(crate) type Rule<A> = fn(&mut Call<'_, A>) -> A;

/// A call of a mutant, whose answer is an `A`, on its way to the right backend. It reads and changes as its
/// [`Arguments`].
pub(crate) struct Call<'a, A> {
    /// The right backend.
    pub(crate) inner: &'a dyn Backend,
    arguments: Arguments<'a>,
    next: &'a dyn Fn(&mut Arguments<'a>) -> A,
    wrong: &'a Wrong,
}

impl<'a, A> Deref for Call<'a, A> {
    type Target = Arguments<'a>;

    fn deref(&self) -> &Self::Target {
        &self.arguments
    }
}

impl<A> DerefMut for Call<'_, A> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.arguments
    }
}

impl<'a, A> Call<'a, A> {
    /// Answers rightly.
    pub(crate) fn go(&mut self) -> A {
        (self.next)(&mut self.arguments)
    }

    /// Does something first, such as to change the arguments.
    pub(crate) fn with<R>(&mut self, first: impl FnOnce(&mut Self) -> R) -> A {
        first(self);
        self.go()
    }

    /// How often this was asked for, over the whole backend.
    pub(crate) fn turn(&self) -> u32 {
        self.wrong.turns.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether this is one of the times that come once in so many.
    pub(crate) fn is_turn(&self, of: u32) -> bool {
        self.turn() % of == of - 1
    }

    /// Works on what the mutant remembers: one value of each type.
    pub(crate) fn keep<S: Default + Send + 'static, R>(&self, work: impl FnOnce(&mut S) -> R) -> R {
        work(&mut lock(&self.kept()))
    }

    /// Remembers a value by its key.
    pub(crate) fn note<K: Eq + Hash + Send + 'static, V: Send + 'static>(&self, key: K, value: V) {
        self.keep(|notes: &mut HashMap<K, V>| drop(notes.insert(key, value)));
    }

    /// What it remembers by this key.
    pub(crate) fn noted<K: Eq + Hash + Send + 'static, V: Copy + Send + 'static>(&self, key: K) -> Option<V> {
        self.keep(|notes: &mut HashMap<K, V>| notes.get(&key).copied())
    }

    /// What it remembered by this key until now.
    pub(crate) fn take_note<K: Eq + Hash + Send + 'static, V: Send + 'static>(&self, key: K) -> Option<V> {
        self.keep(|notes: &mut HashMap<K, V>| notes.remove(&key))
    }

    /// Whether this key comes for the first time.
    pub(crate) fn is_first<K: Eq + Hash + Send + 'static>(&self, key: K) -> bool {
        self.keep(|seen: &mut HashSet<K>| seen.insert(key))
    }

    /// What the mutant remembers, for those who hold it longer.
    pub(crate) fn kept<S: Default + Send + 'static>(&self) -> Arc<Mutex<S>> {
        let mut all = lock(&self.wrong.kept);
        let found = all.iter().find_map(|one| Arc::clone(one).downcast::<Mutex<S>>().ok());
        found.unwrap_or_else(|| {
            let new = Arc::<Mutex<S>>::default();
            all.push(Arc::clone(&new) as Arc<dyn Any + Send + Sync>);
            new
        })
    }
}

impl<T> Call<'_, Result<T>> {
    /// Gives this answer in some cases.
    pub(crate) fn answer_if(&mut self, case: bool, answer: T) -> Result<T> {
        if case { Ok(answer) } else { self.go() }
    }

    /// Gives it instead of an error of a kind.
    pub(crate) fn answer_instead_of(&mut self, kind: ErrorKind, answer: T) -> Result<T> {
        self.go().or_else(|error| if error.kind == kind { Ok(answer) } else { Err(error) })
    }

    /// Refuses some cases.
    pub(crate) fn refuse_if(&mut self, case: bool) -> Result<T> {
        self.refuse_as(ErrorKind::InvalidValue, case)
    }

    /// Refuses some cases with an error of another kind.
    pub(crate) fn refuse_as(&mut self, kind: ErrorKind, case: bool) -> Result<T> {
        if case { Err(error(kind)) } else { self.go() }
    }

    /// Changes the right answer.
    pub(crate) fn changed(&mut self, change: impl FnOnce(&mut T)) -> Result<T> {
        self.go().map(|mut answer| {
            change(&mut answer);
            answer
        })
    }

    /// Changes the error of a refusal.
    pub(crate) fn changed_error(&mut self, change: impl FnOnce(&mut BackendError)) -> Result<T> {
        self.go().map_err(|mut error| {
            change(&mut error);
            error
        })
    }

    /// Leaves a device current that was not; the first, where it is not there.
    pub(crate) fn leave_current(&mut self, device: DeviceIndex) -> Result<T> {
        let answer = self.go();
        self.inner.set_device(device).or_else(|_| self.inner.set_device(DeviceIndex(0))).and(answer)
    }

    /// Leaves it current where the call is refused.
    pub(crate) fn leave_current_if_refused(&mut self, device: DeviceIndex) -> Result<T> {
        self.go().or_else(|_| self.leave_current(device))
    }

    /// Leaves an error behind for [`strikes`] where its answer is such.
    pub(crate) fn leave_error_if(&mut self, is_such: impl FnOnce(&Result<T>) -> bool) -> Result<T> {
        let answer = self.go();
        let such = is_such(&answer);
        self.keep(|left: &mut LeftBehind| left.0 |= such);
        answer
    }
}

impl Call<'_, Result<PointerInfo>> {
    /// Changes what is said of memory of a kind.
    pub(crate) fn said_of(
        &mut self,
        kind: PointerKind,
        change: impl FnOnce(&mut PointerInfo),
    ) -> Result<PointerInfo> {
        self.changed(|info| {
            if info.kind == kind {
                change(info);
            }
        })
    }
}

impl<T: Copy + Send + 'static> Call<'_, Result<T>> {
    /// Gives again what it gave before, in some cases.
    pub(crate) fn again_if(&mut self, is_case: impl FnOnce(&Self, &T) -> bool) -> Result<T> {
        let before = self.kept::<Option<T>>();
        let mut before = lock(&before);
        match before.filter(|before| is_case(self, before)) {
            Some(before) => Ok(before),
            None => self.go().inspect(|answer| *before = Some(*answer)),
        }
    }
}

impl Call<'_, Result<DevicePtr>> {
    /// Gives everyone the same memory, of so many bytes.
    pub(crate) fn share(&mut self, bytes: u64) -> Result<DevicePtr> {
        self.bytes = bytes;
        self.again_if(|_, _| true)
    }
}

impl Call<'_, Result<()>> {
    /// Whether it is what [`Call::again_if`] gives.
    pub(crate) fn is_shared<T: PartialEq + Send + 'static>(&self, it: T) -> bool {
        self.keep(|before: &mut Option<T>| *before == Some(it))
    }

    /// Runs the host function that was to be launched.
    pub(crate) fn run_function(&mut self) {
        if let Some(function) = self.function.take() {
            function();
        }
    }

    /// Forgets what [`Call::again_if`] would give again.
    pub(crate) fn forget<T: PartialEq + Send + 'static>(&mut self, gone: T) -> Result<()> {
        self.keep(|before: &mut Option<T>| before.take_if(|before| *before == gone));
        self.go()
    }
}

/// An error that stays behind.
#[derive(Default)]
struct LeftBehind(bool);

/// Is the answer of a later, innocent call where an error was left behind.
pub(crate) fn strikes(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let left = call.keep(|left: &mut LeftBehind| std::mem::take(&mut left.0));
    call.refuse_as(ErrorKind::Other, left)
}

/// Leaves its error behind for [`strikes`].
pub(crate) fn leaves_its_error<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.leave_error_if(Result::is_err)
}

/// Calls that are held back: the handle of their stream or graph, and how each is made.
#[derive(Default)]
struct HeldBack(Vec<(u64, Work)>);

type Work = Box<dyn FnOnce(&dyn Backend) + Send>;

impl Call<'_, Result<()>> {
    /// Holds work back until someone asks for it (see [`flushes`]).
    pub(crate) fn hold_back(&self, of: u64, work: impl FnOnce(&dyn Backend) + Send + 'static) -> Result<()> {
        self.keep(|held: &mut HeldBack| held.0.push((of, Box::new(work))));
        Ok(())
    }

    /// Forgets what is held back of a stream or graph.
    pub(crate) fn drop_held(&mut self, of: u64) -> Result<()> {
        self.keep(|held: &mut HeldBack| held.0.retain(|one| one.0 != of));
        self.go()
    }

    /// Whether something is held back of its stream.
    pub(crate) fn is_behind_held(&self) -> bool {
        self.keep(|held: &mut HeldBack| held.0.iter().any(|one| one.0 == self.stream.raw))
    }
}

/// Makes the calls that are held back.
pub(crate) fn flush<A>(call: &Call<'_, A>) {
    let HeldBack(held) = call.keep(std::mem::take::<HeldBack>);
    held.into_iter().for_each(|(_, work)| work(call.inner));
}

/// Makes them first.
pub(crate) fn flushes<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    flush(call);
    call.go()
}

/// Does nothing.
pub(crate) fn does_nothing(_: &mut Call<'_, Result<()>>) -> Result<()> {
    Ok(())
}

/// Refuses everything.
pub(crate) fn refuses<T>(_: &mut Call<'_, Result<T>>) -> Result<T> {
    Err(error(ErrorKind::Other))
}

/// Says that all is well where it is not.
pub(crate) fn ignores_refusals(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let _ = call.go();
    Ok(())
}

/// Does what was asked, and says that it did not.
pub(crate) fn errs_late(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go().and(Err(error(ErrorKind::Other)))
}

/// Takes the first device for every device that is there.
pub(crate) fn on_first_device<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.inner.has_primary_context(call.device)?;
    call.with(|it| it.device = DeviceIndex(0))
}

/// Takes the first device for one that is not there.
pub(crate) fn takes_unknown_device<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    call.go().or_else(|_| call.with(|it| it.device = DeviceIndex(0)))
}

/// Gives addresses that are so much too high.
pub(crate) fn shifts_up<const BY: u64>(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    if call.bytes == 0 {
        return call.go();
    }
    Ok(call.with(|it| it.bytes = it.bytes.saturating_add(BY))?.add(BY))
}

/// Takes addresses that are so much too high.
pub(crate) fn shifts_down<const BY: u64>(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.with(|it| it.ptr = DevicePtr(it.ptr.0.saturating_sub(BY)))
}

/// Whether the caller is a thread that a check started, and not the check's own.
pub(crate) fn on_side_thread() -> bool {
    std::thread::current().name().is_none()
}

/// An error of a mutant.
pub(crate) fn error(kind: ErrorKind) -> BackendError {
    BackendError::new(kind, 1, "orMutant", DeviceIndex(0), "a mutant says so")
}

/// Locks what a mutant remembers.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a call blocks that should not.
const BLOCKED: Duration = Duration::from_millis(130);

/// Waits until something is ready, or for a while.
fn block(mut query: impl FnMut() -> Result<Readiness>) {
    let end = Instant::now() + BLOCKED;
    while Instant::now() < end && matches!(query(), Ok(Readiness::NotReady)) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for its stream and event, or for a while; where it has none, nobody knows the one that stands there.
pub(crate) fn blocks<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    block(|| call.inner.query_stream(call.stream));
    block(|| call.inner.query_event(call.event));
    call.go()
}

/// Waits as long as a check needs to see it, instead of until the stream is done.
pub(crate) fn pauses<T>(call: &mut Call<'_, Result<T>>) -> Result<T> {
    std::thread::sleep(Duration::from_millis(150));
    call.go()
}
