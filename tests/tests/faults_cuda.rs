//! The fault loop over the backend `cuda` on its lookalike driver: each C entry point fails in turn.
//!
//! One test, because the driver is the process's own.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::policy::{GranulePolicy, PytorchPolicy};
use backend_cuda::Cuda;
use granule_tests::fault_loop::{OverLookalike, every_entry_point_in_turn};
use granule_tests::lookalike::{Controls, cuda_library};

#[test]
fn every_failing_entry_point_is_survived() {
    let library = cuda_library();
    // SAFETY: this process has one test, and no other thread yet.
    unsafe {
        std::env::set_var("GRANULE_LOOKALIKE", "devices=1,capacity=80GiB,memory=reserved,clock=virtual:3")
    };
    // SAFETY: as above.
    unsafe { std::env::set_var("GRANULE_CUDA_LIBRARY", &library) };
    let backend = Cuda::load().unwrap();
    let machine = OverLookalike { backend, controls: Controls::of(&library) };
    every_entry_point_in_turn::<PytorchPolicy>(&machine);
    every_entry_point_in_turn::<GranulePolicy>(&machine);
}
