//! The program over the lookalike of the driver that it was built for. `cargo xtask test` builds it both ways.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use granule_tests::lookalike::with_lookalikes;

/// What a driver with another name would not know.
const MACHINE: &str = "devices=2";

#[test]
fn the_same_source_runs_on_the_driver_it_was_built_for() {
    let output = with_lookalikes(env!("CARGO_BIN_EXE_cuda-program"), MACHINE).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("cuda:0: ") && text.contains("cuda:1: "), "{text}");
    assert!(text.contains("round trip of 512 bytes") && text.contains(" 0 in use"), "{text}");
}

/// Built for HIP, it does not look at NVIDIA's driver, and the other way round.
#[test]
fn a_missing_driver_is_named() {
    let variable = if cfg!(feature = "cuda") { "GRANULE_CUDA_LIBRARY" } else { "GRANULE_HIP_LIBRARY" };
    let mut program = with_lookalikes(env!("CARGO_BIN_EXE_cuda-program"), MACHINE);
    let output = program.env(variable, "/nonexistent/libdriver.so").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("/nonexistent/libdriver.so") && text.contains(variable), "{text}");
}
