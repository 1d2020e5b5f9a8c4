//! The error that each thread's calls leave behind.

use crate::entry::ready;
use crate::personality::personality;
use hip_sys::abi6::*;
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

fn answer(status: i32) -> Answer {
    if status == 0 { Ok(()) } else { Err(Code(status)) }
}

/// Runs a question for the last error, which leaves none itself.
fn run(function: &'static str, body: impl FnOnce() -> Answer) -> hipError_t {
    let asked = || ready().and_then(|_| body());
    lookalike::entry::enter(function, asked).map_or_else(|code| code.0.cast_unsigned(), |()| hipSuccess)
}

lookalike::entries! {
    run: crate::last_error::run, status: hipError_t;

    /// The last error, which is forgotten then.
    fn hipGetLastError as hipGetLastError_t() {
        let asked = asked()?;
        LAST.set(0);
        answer(asked.replace(0))
    }

    /// The last error.
    fn hipPeekAtLastError as hipPeekAtLastError_t() {
        answer(asked()?.get())
    }

    /// The status of the last call, which is forgotten then.
    fn hipExtGetLastError as hipExtGetLastError_t() {
        answer(LAST.replace(0))
    }
}

/// What [`hipPeekAtLastError`] would answer, without a call.
#[unsafe(no_mangle)]
pub extern "C" fn granule_lookalike_last_error() -> i32 {
    asked().map_or(0, std::thread::LocalKey::get)
}
