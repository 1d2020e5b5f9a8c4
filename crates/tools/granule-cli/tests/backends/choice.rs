//! Which backend is taken where several have a device.

use crate::granule;
use serde_json::Value;

/// What is chosen with both vendors' drivers there, changed by some variables.
fn chosen(variables: &[(&str, &str)]) -> Value {
    let output = granule("devices=1")
        .env_remove("GRANULE_BACKEND")
        .envs(variables.iter().copied())
        .args(["devices", "--json"])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    answer["chosen"].clone()
}

#[test]
fn cuda_comes_before_hip_and_the_variable_before_both() {
    let no_cuda = ("GRANULE_CUDA_LIBRARY", "/nonexistent/libdriver.so");
    assert_eq!(chosen(&[]), "cuda");
    assert_eq!(chosen(&[no_cuda]), "hip");
    for name in ["hip", "hip-as-cuda", "openreg"] {
        assert_eq!(chosen(&[("GRANULE_BACKEND", name)]), name);
    }
}
