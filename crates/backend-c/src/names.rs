//! What a table calls itself, kept for as long as errors may name it.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

/// A text of a table; none where it is null or empty.
///
/// # Safety
/// `text` is null, or a text with its 0.
pub(crate) unsafe fn of(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    (!text.is_empty()).then(|| kept(text.into_owned()))
}

/// The text for the rest of the process. Equal texts are kept once, however many backends there are.
pub(crate) fn kept(text: String) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&there) = kept.get(text.as_str()) {
        return there;
    }
    let text: &'static str = text.leak();
    kept.insert(text);
    text
}
