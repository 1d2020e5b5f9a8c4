//! The table of `example.c`.

use backend_c::Table;

unsafe extern "C" {
    fn example_backend() -> *const Table;
}

/// The table of `example.c`.
#[must_use]
pub fn table() -> *const Table {
    // SAFETY: the function takes nothing, and answers with the address of a static table.
    unsafe { example_backend() }
}
