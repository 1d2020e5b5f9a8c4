//! The program over the lookalikes of both drivers, built for the one and for the other.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use granule_tests::lookalike::with_lookalikes;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a driver with another name would not know.
const MACHINE: &str = "devices=2";

/// The same source, built as a user would build it for AMD GPUs.
fn built_for_hip() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hip-as-cuda");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--package", "cuda-program", "--no-default-features"])
        .args(["--features", "hip-as-cuda", "--target-dir"])
        .arg(&target)
        // Built once and run once, beside the other tests.
        .envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "none")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "it builds");
    target.join("debug/cuda-program")
}

fn runs(program: &Path) {
    let output = with_lookalikes(program, MACHINE).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("cuda:0: ") && text.contains("cuda:1: "), "{text}");
    assert!(text.contains("round trip of 512 bytes") && text.contains(" 0 in use"), "{text}");
}

/// It looks at the driver that it was built for, and at no other.
fn misses(program: &Path, variable: &str) {
    let mut program = with_lookalikes(program, MACHINE);
    let output = program.env(variable, "/nonexistent/libdriver.so").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("/nonexistent/libdriver.so") && text.contains(variable), "{text}");
}

#[test]
fn it_runs_on_nvidias_driver() {
    let program = Path::new(env!("CARGO_BIN_EXE_cuda-program"));
    runs(program);
    misses(program, "GRANULE_CUDA_LIBRARY");
}

#[test]
fn the_same_source_runs_on_amds_driver() {
    let program = built_for_hip();
    runs(&program);
    misses(&program, "GRANULE_HIP_LIBRARY");
}
