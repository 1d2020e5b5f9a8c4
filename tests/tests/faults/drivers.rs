//! The fault loop over the real backends on their lookalike drivers: each C entry point fails in turn.

use alloc_core::backend::Backend;
use granule_tests::alone::over_lookalikes;
use granule_tests::fault_loop::{OverLookalike, every_entry_point_in_turn};
use granule_tests::lookalike::{Controls, cuda_library, hip_library};
use granule_tests::policy::{GranulePolicy, PytorchPolicy};
use std::path::Path;
use std::sync::Arc;

const MACHINE: &str = "devices=1,capacity=80GiB,memory=reserved,clock=virtual:3";

/// The machine, with the driver that `cargo xtask personalities --faults` names.
fn machine() -> String {
    let named = std::env::var("GRANULE_PERSONALITY");
    named.map_or_else(|_| MACHINE.to_owned(), |name| format!("personality={name},{MACHINE}"))
}

fn survives(backend: Arc<dyn Backend>, library: &Path) {
    let machine = OverLookalike { backend, controls: Controls::of(library) };
    every_entry_point_in_turn::<PytorchPolicy>(&machine);
    every_entry_point_in_turn::<GranulePolicy>(&machine);
}

mod cuda {
    use super::*;

    #[test]
    fn every_failing_entry_point_is_survived() {
        over_lookalikes(&machine(), || survives(backend_cuda::Cuda::load().unwrap(), &cuda_library()));
    }
}

mod hip {
    use super::*;

    #[test]
    fn every_failing_entry_point_is_survived() {
        over_lookalikes(&machine(), || survives(backend_hip::Hip::load().unwrap(), &hip_library()));
    }
}
