//! A `libcuda.so.1` over the simulated accelerator: the driver that Granule's tests load, and the one under PyTorch
//! where `granule estimate` runs it.
//!
//! Entry points have the names and signatures of NVIDIA's driver API; [`header`] is made from its header, and
//! every entry point is asserted to have the type declared there. Files are named as those of `backend-cuda`
//! that call them.
//!
//! Where drivers let wrong programs go on (freeing memory that queued work uses, garbage for a handle), this
//! one answers with an error, and the machine behind it counts a trap.
//!
//! [`entries`] is the one table of entry points: what backends, PyTorch and the libraries under both ask for. The
//! driver has no others.
//!
//! Real programs are not tests: `GRANULE_LOOKALIKE=h100` is a machine that lets them do what drivers let them do. See
//! [`Settings::parse`](lookalike::settings::Settings::parse).
//!
//! # Personalities
//!
//! `GRANULE_LOOKALIKE=personality=NAME`: see [`personality::Personality`].

#![allow(non_snake_case, reason = "entry points have their vendor's names")]

pub mod capture;
pub mod codes;
pub mod context;
pub mod copy;
pub mod device;
pub mod entry;
pub mod event;
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, dead_code, non_upper_case_globals, reason = "generated")]
#[allow(clippy::pedantic, reason = "generated")]
pub mod header;
pub mod ipc;
pub mod kernel;
pub mod memory;
pub mod personality;
pub mod statistics;
pub mod stream;
pub mod virtual_memory;

/// The table of entry points: every function that the driver has, with how its calls ended.
pub fn entries() -> impl Iterator<Item = &'static lookalike::entry::Entry> {
    [
        capture::entries::ALL,
        codes::entries::ALL,
        context::entries::ALL,
        copy::entries::ALL,
        device::entries::ALL,
        event::entries::ALL,
        ipc::entries::ALL,
        kernel::entries::ALL,
        memory::entries::ALL,
        memory::host::entries::ALL,
        context::peers::entries::ALL,
        memory::pools::entries::ALL,
        entry::proc_address::entries::ALL,
        stream::entries::ALL,
        virtual_memory::entries::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
}
