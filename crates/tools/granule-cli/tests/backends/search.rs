//! Drivers are found under the names that their packages install.

use granule_tests::lookalike::{cuda_library, hip_library};
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::process::Command;
use tempfile::TempDir;

/// What `granule devices` finds where the system's search has this driver.
fn devices(installed: &str) -> Value {
    let folder = TempDir::new().unwrap();
    let library = if installed.starts_with("libcuda") { cuda_library() } else { hip_library() };
    symlink(library, folder.path().join(installed)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_granule"));
    for variable in
        ["GRANULE_BACKEND", "GRANULE_CUDA_LIBRARY", "GRANULE_HIP_LIBRARY", "ROCM_PATH", "HIP_PATH"]
    {
        command.env_remove(variable);
    }
    let output = command
        .env("LD_LIBRARY_PATH", folder.path())
        .env("GRANULE_LOOKALIKE", "devices=3")
        .args(["devices", "--json"])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn device_count(answer: &Value, name: &str) -> usize {
    let backends = answer["backends"].as_array().unwrap();
    let backend = backends.iter().find(|backend| backend["name"] == name).unwrap();
    backend["devices"].as_array().unwrap().len()
}

#[test]
fn the_name_of_nvidias_driver() {
    assert_eq!(device_count(&devices("libcuda.so.1"), "cuda"), 3);
}

#[test]
fn the_names_of_amds_runtime() {
    for name in ["libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so"] {
        let answer = devices(name);
        assert_eq!(device_count(&answer, "hip"), 3, "{name}");
        assert_eq!(device_count(&answer, "hip-as-cuda"), 3, "{name}");
    }
}
