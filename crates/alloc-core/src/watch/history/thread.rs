//! Labels that a thread gives its operations: a text of its own, and the compiled region it is in.
//!
//! Both belong to the thread and are seen by every allocator of the process, as in PyTorch.

use crate::sync::plain::AtomicBool;
use crate::sync::{Arc, Ordering, thread_local};
use std::cell::{Cell, RefCell};

#[derive(Debug, Default)]
struct Said {
    metadata: Option<Arc<str>>,
    compiled: Vec<Arc<str>>,
}

/// Set once any thread has said anything: the fast path of a record reads only this.
static EVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set while the thread has a text or is in a region.
    static ANY: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<Said> = const { RefCell::new(Said { metadata: None, compiled: Vec::new() }) };
}

fn change(change: impl FnOnce(&mut Said)) {
    // A thread that is going away says nothing more.
    let _ = SAID.try_with(|said| {
        let mut said = said.borrow_mut();
        change(&mut said);
        EVER.store(true, Ordering::Relaxed);
        ANY.with(|any| any.set(said.metadata.is_some() || !said.compiled.is_empty()));
    });
}

/// Puts `text` on every entry of the calling thread from here on; an empty text ends that.
/// PyTorch: `setUserMetadata`.
pub fn set_user_metadata(text: &str) {
    change(|said| said.metadata = (!text.is_empty()).then(|| text.into()));
}

/// The calling thread's text; empty when there is none. PyTorch: `getUserMetadata`.
#[must_use]
pub fn user_metadata() -> Arc<str> {
    let text = SAID.try_with(|said| said.borrow().metadata.clone());
    text.ok().flatten().unwrap_or_default()
}

/// The calling thread enters a compiled region. PyTorch: `pushCompileContext`.
pub fn push_compile_context(name: &str) {
    change(|said| said.compiled.push(name.into()));
}

/// The calling thread leaves the compiled region it entered last; without one, nothing happens.
/// PyTorch: `popCompileContext`.
pub fn pop_compile_context() {
    change(|said| {
        said.compiled.pop();
    });
}

/// True if the calling thread has a text or is in a region.
#[inline(always)]
pub(super) fn has_said() -> bool {
    // Each thread sees its own store.
    EVER.load(Ordering::Relaxed) && ANY.with(Cell::get)
}

/// The thread's text and its compiled region.
pub(super) fn said() -> (Option<Arc<str>>, Option<Arc<str>>) {
    SAID.try_with(|said| {
        let said = said.borrow();
        (said.metadata.clone(), said.compiled.last().cloned())
    })
    .unwrap_or_default()
}
