//! Tests in processes of their own, for both lookalikes.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use std::ffi::c_char;
use std::path::PathBuf;
use std::process::{Command, Output};

const SETTINGS: &str = "GRANULE_LOOKALIKE";
const CHILD: &str = "LOOKALIKE_TEST_CHILD";

/// A library that cargo built beside this test.
pub fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("a test has a path").with_file_name(name)
}

/// Runs `body` in a process of its own, with the driver that `settings` asks for. `test` is the name of the
/// calling test.
pub fn in_process(test: &str, settings: &str, body: impl FnOnce()) {
    if std::env::var(CHILD).as_deref() == Ok(settings) {
        return body();
    }
    if std::env::var_os(CHILD).is_some() {
        // The same test with other settings.
        return;
    }
    let output = child(test, settings, &[]).output().expect("a test starts itself");
    let has_run = output.status.success() && text(&output).contains("1 passed");
    assert!(has_run, "{test} with `{settings}`:\n{}", text(&output));
}

/// A process that runs one test of this program.
pub fn child(test: &str, settings: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args([test, "--exact", "--nocapture"]).env(SETTINGS, settings).env(CHILD, settings);
    command.env("GRANULE_HIP_LIBRARY", beside("liblookalike_hip.so")).envs(variables.iter().copied());
    command
}

/// What a process printed.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A handle as a variable has it.
pub fn hex(bytes: &[c_char; 64]) -> String {
    bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

/// The same back.
pub fn from_hex(text: &str) -> [c_char; 64] {
    std::array::from_fn(|at| {
        u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_or(0, |byte| byte as c_char)
    })
}
