//! What the lookalike drivers share: the simulated machine behind them.
//!
//! A lookalike driver is a shared library with a vendor's entry points, by name, signature and error number,
//! over one [`OpenReg`](backend_openreg::OpenReg) per process. A backend that is tested against it runs the
//! code it runs on hardware: loading, symbol look-up, foreign calls, error conversion.
//!
//! Here is what no vendor differs in; `granule-lookalike-cuda` and `lookalike-hip` add names, signatures and numbers:
//!
//! | module | what |
//! |---|---|
//! | [`mod@settings`] | the environment variable that says what machine it is |
//! | [`machine()`] | that machine, made at the first call |
//! | [`entry`] | what every entry point does first: count, fail on demand, stop panics |
//! | [`control`] | the functions by which a test counts calls and makes them fail |
//! | [`argument`] | pointers from C, checked against null |
//! | [`code`] | driver numbers for the machine's errors |
//! | [`contexts`], [`here`] | contexts of devices and threads, errors that stay, where a thread is |
//! | [`streams`], [`events`], [`graphs`], [`user_objects`] | opaque handles, and what is done with them |
//! | [`copies`], [`host`], [`peers`], [`virtual_memory`] | what is done with memory |
//! | [`personality`], [`rules`] | which machine and driver it is, by files; what a driver refuses |
//! | [`absence`] | the library, or a copy, without some symbols |
//! | [`ipc`], [`callback`] | what was exported, functions of the program |
//!
//! # Answers
//!
//! An [`Answer`] that is no success is the driver's number of what is wrong: what the machine says, `INVALID_HANDLE` for a
//! handle that stands for nothing, `INVALID_VALUE` for null where an answer has to go. What else there is, a function says.
//!
//! # Settings
//!
//! `GRANULE_LOOKALIKE` is a list with commas, for example `devices=8,memory=reserved,no-ipc`; see
//! [`settings::Settings::parse`].

#![allow(clippy::missing_errors_doc, reason = "said above for all")]

pub mod absence;
pub mod argument;
pub mod callback;
pub mod code;
pub mod contexts;
pub mod control;
pub mod copies;
pub mod entry;
pub mod events;
pub mod graphs;
pub mod handles;
pub mod here;
pub mod host;
pub mod ipc;
mod machine;
pub mod peers;
pub mod settings;
pub mod streams;
pub mod virtual_memory;

pub use code::{Answer, Code};
pub use graphs::user_objects;
pub use here::Here;
pub use machine::{machine, settings};
pub use settings::{personality, rules};
