//! Recording a program's requests while it runs.
//!
//! A [`Recorder`] writes what a program asks of an allocator as traces (`files::trace`), which every tool reads: exact sizes,
//! streams, frees, uses on other streams, flushes and iterations, in the order in which they were served. (Where threads serve
//! different streams at one moment, peaks of a replay may differ from the program's by what the calls under way asked.)
//!
//! * **What it costs the program**: a small record for each call, kept in memory; a thread of its own writes and packs them. A
//!   program that is faster than that thread waits for it: nothing is ever left out, and the file says how often
//!   it waited.
//! * **Files** are named `granule-r3-p4242-d0-0001.trace.gz`: rank (where `RANK` is set), process, device, number. One that has
//!   reached its size is followed by the next, which begins with requests for what is live, so that each can be replayed by
//!   itself; its header says that it is a window. The newest stay.
//! * **Out of memory**: before the error is returned everything is written out, and beside the trace a snapshot (`-oom.pickle`)
//!   and the error's report (`-oom.txt`).
//! * **The end**: [`Recorder::stop`], the end of the process, and the recorder's drop end the files. Whatever else ends a process
//!   (`SIGKILL`, an abort, `std::terminate`, `_exit`), what it asked up to a hundredth of a second before is in the file, whose
//!   header says that it was not ended. A forked child records nothing.
//! * **"terminate called without an active exception"** as a Python program ends comes from its daemon threads: one that allocates
//!   while the interpreter goes is unwound through C++ that does not allow it. PyTorch's own allocator ends in the same way. Join
//!   such threads, or let them end, before the program does.

mod options;
#[cfg(feature = "record")]
mod recorder;
#[cfg(feature = "record")]
mod series;
#[cfg(feature = "record")]
mod stopping;

pub use options::{BadRecordOptions, RecordOptions, Stacks};
#[cfg(feature = "record")]
pub use recorder::{RecordError, Recorder};

/// The environment variable that asks for a recording, as [`RecordOptions`] read it.
pub const VARIABLE: &str = "GRANULE_RECORD";
