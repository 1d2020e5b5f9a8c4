//! The one way in: nothing unwinds into C, and what failed is remembered.

use crate::error::{Failure, GRANULE_OK, granule_status};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function. On success this costs one comparison.
#[inline(always)]
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> granule_status {
    answer(|| body().map(|()| GRANULE_OK))
}

/// [`guard`] for a body that has more than one good answer.
#[inline(always)]
pub(crate) fn answer(body: impl FnOnce() -> Result<granule_status, Failure>) -> granule_status {
    // What a panic leaves behind is the engine's, which keeps its promises then, or the caller's, who gets no answer.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => failure.remember(),
        Err(payload) => Failure::unwound(payload).remember(),
    }
}

/// Runs the body of a function that cannot say that it failed: then the answer is `otherwise`, and the last error says why.
pub(crate) fn or<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    let mut found = otherwise;
    guard(|| {
        found = body()?;
        Ok(())
    });
    found
}
