//! What `granule_alloc` needs of Rust: recordings, the command's answers about them, their tables. The Python files beside this
//! crate make modules, types and pictures of it.

mod listener;
mod recording;
mod refused;
mod table;

use pyo3::prelude::*;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command with these words, the program's name first; `lead` starts it once more. Gives the command's exit code.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<OsString>, lead: Vec<String>) -> u8 {
    let code: ExitCode = py.detach(|| granule_cli::main(&words, &lead));
    // There is no other way to read one, and no platform on which it is not a number.
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(1)
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::command;
    #[pymodule_export]
    use super::listener::Listener;
    #[pymodule_export]
    use super::recording::{History, Recording};
    #[pymodule_export]
    use super::table::Table;
}
