//! Descriptors of imported memory that the runtime still needs, and those of exported memory that it goes by.
//!
//! Before the middle of 2026 the runtime looked at an imported descriptor only when access was set: a program
//! that closed it before was answered with an error then.

use crate::personality::personality;
use lookalike::{Answer, Code, control};
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A descriptor of the program, and the file it was.
#[derive(Clone, Copy, Debug)]
struct Import {
    descriptor: RawFd,
    file: (u64, u64),
}

#[derive(Debug, Default)]
struct Waiting {
    /// By the machine's number of the physical memory.
    handles: HashMap<u64, Import>,
    /// By the address where it is mapped.
    mappings: HashMap<u64, Import>,
    /// The first descriptor of exported memory, by its number.
    exports: HashMap<u64, Import>,
}

static WAITING: LazyLock<Mutex<Waiting>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that a descriptor of the process stands for, where it is open.
fn file(descriptor: RawFd) -> Option<(u64, u64)> {
    let of = |found: Metadata| (found.dev(), found.ino());
    std::fs::metadata(format!("/proc/self/fd/{descriptor}")).ok().map(of)
}

/// Remembers what a handle was imported from.
pub fn imported(handle: u64, descriptor: RawFd) {
    if let Some(file) = file(descriptor) {
        waiting().handles.insert(handle, Import { descriptor, file });
    }
}

/// A handle was mapped.
pub fn mapped(handle: u64, at: u64) {
    let mut waiting = waiting();
    if let Some(import) = waiting.handles.get(&handle).copied() {
        waiting.mappings.insert(at, import);
    }
}

/// Access to a mapping is about to be set.
///
/// # Errors
/// `INVALID_VALUE`, and a trap, where the descriptor was closed since the import.
pub fn opened(at: u64) -> Answer {
    let Some(import) = waiting().mappings.get(&at).copied() else { return Ok(()) };
    if file(import.descriptor) != Some(import.file) {
        control::trap(
            "an imported descriptor was closed before access was set, which the runtime still needs",
        );
        return Err(Code::INVALID_VALUE);
    }
    let mut waiting = waiting();
    waiting.mappings.remove(&at);
    waiting.handles.retain(|_, known| known.descriptor != import.descriptor);
    Ok(())
}

/// Mappings are gone.
pub fn unmapped(at: u64, bytes: u64) {
    waiting().mappings.retain(|&mapping, _| !(at..at + bytes).contains(&mapping));
}

/// A handle is about to be exported.
///
/// # Errors
/// `INVALID_VALUE` where it was before and that descriptor was closed, for a runtime that goes by it.
pub fn exporting(handle: u64) -> Answer {
    let first = waiting().exports.get(&handle).copied();
    let is_closed = first.is_some_and(|first| file(first.descriptor) != Some(first.file));
    if is_closed && personality()?.driver.part.exports_once { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

/// A handle was exported.
pub fn exported(handle: u64, descriptor: RawFd) {
    if let Some(file) = file(descriptor) {
        waiting().exports.entry(handle).or_insert(Import { descriptor, file });
    }
}

/// A handle was released.
pub fn released(handle: u64) {
    let mut waiting = waiting();
    waiting.handles.remove(&handle);
    waiting.exports.remove(&handle);
}
