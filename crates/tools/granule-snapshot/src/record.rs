//! Recording a program's requests while it runs.
//!
//! A [`Recorder`] writes the calls of a program to an allocator as traces ([`trace`](crate::trace)), which every tool reads. A
//! trace has exact sizes, streams, frees, uses on other streams, flushes and iterations, in the order in which they
//! were served. (Where threads serve different streams at one moment, peaks of a replay may differ from the program's
//! by the bytes of the calls under way.)
//!
//! * **What it costs the program**: a small record for each call, kept in memory. A thread of the recorder's own writes
//!   and packs the records. A program that is faster than that thread waits for it. So nothing is ever left out, and
//!   the file says how often the program waited.
//! * **Files** are named `granule-r3-p4242-d0-0001.trace.gz`: rank (where `RANK` is set), process, device, number. A
//!   file that has reached its size is followed by the next. That one begins with requests for the live blocks, so each
//!   file can be replayed by itself. Its header says that it is a window. The newest files stay.
//! * **Out of memory**: before the error is returned, everything is written out. Beside the trace are then a snapshot
//!   (`-oom.pickle`) and the error's report (`-oom.txt`).
//! * **The end**: [`Recorder::stop`], the end of the process, and the recorder's drop end the files. Something else may
//!   end a process: `SIGKILL`, an abort, `std::terminate`, `_exit`. Then the file has all calls up to a hundredth of a
//!   second before, and its header says that it was not ended. A forked child records nothing.
//! * **"terminate called without an active exception"** as a Python program ends comes from its daemon threads. A
//!   thread that allocates while the interpreter goes is unwound through C++ that does not allow it. With PyTorch's own
//!   allocator a program ends in the same way. Join such threads, or let them end, before the program does.

mod options;
mod recorder;
mod series;
mod stopping;

pub use options::{BadRecordOptions, RecordOptions, Stacks};
pub use recorder::{RecordError, Recorder};

/// The environment variable that asks for a recording, as [`RecordOptions`] read it.
pub const VARIABLE: &str = "GRANULE_RECORD";
