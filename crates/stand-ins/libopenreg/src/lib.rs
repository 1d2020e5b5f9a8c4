//! `libopenreg.so`: the C interface of PyTorch's openreg reference device, for programs and extensions that
//! were written for PyTorch's own library.
//!
//! Two devices made of host memory. Device memory is closed to the host except while it is unprotected, so
//! that a stray access faults at once; a stream is a thread that works through a queue. `include/openreg.h`
//! declares it all; PyTorch's header does as well.
//!
//! The interface keeps PyTorch's rules, also where Granule's own contract differs: three error codes, strict
//! copy kinds, no default stream, events that begin completed, and asynchronous copies whose errors are lost.
//! Where PyTorch's library has an outright fault that no program can build on, this one is better:
//!
//! | PyTorch's library | here |
//! |---|---|
//! | a stream is said to be idle while its last task runs | `orErrorNotReady` until the task has ended |
//! | synchronizing a stream of another than the current device does not wait | it waits |
//! | an event recorded twice is said to be complete at the first record | at the last one |
//! | streams that wait for each other's events in turn may hang | they go on |
//! | one `orMemoryProtect` too many leaves the next `orMemoryUnprotect` without effect | it does nothing |
//! | a copy may run past the end of its block | `orErrorUnknown` |
//! | elapsed time from an event that was never recorded is a number without meaning | `orErrorUnknown` |
//! | a handle that was destroyed, an empty task, a task that waits for its own stream: a crash or a hang | `orErrorUnknown` |
//!
//! A stream that was made without a priority tells 0, as PyTorch's test programs want it; one that was made with
//! a priority tells that.
//!
//! It shares no code with `backend-openreg`: that simulator's memory lives in files that a forked child would
//! change under its parent, and its streams and events keep Granule's contract.

pub mod abi;
mod device;
mod event;
#[cfg(openreg_cxx)]
mod function;
mod handles;
mod ipc;
mod memory;
mod pages;
mod status;
mod stream;
mod trace;
