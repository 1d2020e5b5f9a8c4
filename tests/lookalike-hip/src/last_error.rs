//! The error that each thread's calls leave behind.

use crate::personality::personality;
use lookalike::{Answer, Code};
use std::cell::Cell;

thread_local! {
    /// The status of the last call.
    static LAST: Cell<i32> = const { Cell::new(0) };
    /// The last error since it was asked for; "not ready" is none.
    static KEPT: Cell<i32> = const { Cell::new(0) };
}

/// Remembers a call's status.
pub fn record(status: i32) {
    // A thread that is ending has none any more.
    let _ = LAST.try_with(|last| last.set(status));
    if status != 0 && status != Code::NOT_READY.0 {
        let _ = KEPT.try_with(|kept| kept.set(status));
    }
}

/// What a question for the last error is about.
fn asked() -> Answer<&'static std::thread::LocalKey<Cell<i32>>> {
    Ok(if personality()?.keeps_errors() { &KEPT } else { &LAST })
}

/// What a question for the last error is answered, without asking for it.
///
/// # Errors
/// Where the settings name no release.
pub fn peek() -> Answer<i32> {
    Ok(asked()?.get())
}

/// [`peek`]; the error is forgotten. Where it is the last call's status, that is forgotten first: the answer is 0 then, as old
/// runtimes answer.
///
/// # Errors
/// As [`peek`].
pub fn take() -> Answer<i32> {
    let asked = asked()?;
    take_status();
    Ok(asked.replace(0))
}

/// The status of the last call, which is forgotten.
pub fn take_status() -> i32 {
    LAST.replace(0)
}

/// What `hipPeekAtLastError` would answer, without a call.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_last_error() -> i32 {
    peek().unwrap_or(0)
}
