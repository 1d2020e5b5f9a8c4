//! Devices that two processes count differently, as `CUDA_VISIBLE_DEVICES` and containers make them.

use super::VARIABLE;

/// Whether the process that started this one has the same machine: then it is a second one.
pub(super) fn is_started_by_another() -> bool {
    let parent = std::os::unix::process::parent_id();
    let Ok(variables) = std::fs::read(format!("/proc/{parent}/environ")) else { return false };
    let Some(own) = std::env::var_os(VARIABLE) else { return false };
    let wanted = [VARIABLE.as_bytes(), b"=", own.as_encoded_bytes()].concat();
    variables.split(|byte| *byte == 0).any(|entry| entry == wanted)
}
