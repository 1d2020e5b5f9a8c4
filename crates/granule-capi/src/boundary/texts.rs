//! Texts for C: NUL-terminated, and there for as long as what points to them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

/// Texts that were asked for, each once.
#[derive(Default)]
pub(crate) struct Texts(HashMap<Arc<str>, CString>);

impl Texts {
    /// The text for C; the empty one for none. It is good as long as this is. A NUL inside ends nothing: it shows as U+FFFD.
    pub(crate) fn of(&mut self, text: Option<&Arc<str>>) -> *const c_char {
        const EMPTY: &CStr = c"";
        const OUTSIDE: &CStr = c"N/A";
        match text.map(|text| (text, &**text)) {
            None | Some((_, "")) => EMPTY.as_ptr(),
            Some((_, "N/A")) => OUTSIDE.as_ptr(),
            Some((text, _)) => {
                if !self.0.contains_key(text) {
                    let whole = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
                    self.0.insert(Arc::clone(text), whole);
                }
                self.0.get(text).map_or(EMPTY.as_ptr(), |text| text.as_ptr())
            }
        }
    }
}
