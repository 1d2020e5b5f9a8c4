//! Tests that need a process of their own: they change its environment, load drivers, fork it or end it.
//!
//! `cargo nextest` gives each test one. Under `cargo test` the tests of a program share one, so such a test runs itself
//! again as a child.

use crate::lookalike::{real_drivers, with_lookalikes, with_named_lookalikes};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Names the test for which a child was started.
const MARK: &str = "GRANULE_TEST_ALONE";

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a test knows its own path")
}

/// The path of the test that runs on this thread.
fn this_test() -> String {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    name.expect("each test has a thread with its name").to_owned()
}

/// Whether this process was started for the test with this path.
#[must_use]
pub fn is_child(test: &str) -> bool {
    std::env::var_os(MARK).is_some_and(|started| started == OsStr::new(test))
}

/// What a process says that has only the test with this path to run.
///
/// # Panics
/// Where there is no such test.
#[must_use]
pub fn child(test: &str) -> Output {
    run(Command::new(this_program()), test)
}

fn run(mut command: Command, test: &str) -> Output {
    command.args(["--exact", test, "--nocapture"]).env(MARK, test);
    let output = command.output().expect("a test can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "{test} is no test of this program: {said}");
    output
}

fn passes(test: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} failed in its own process: see above");
}

/// Runs `test`, which is all that the calling test does, where no other test runs.
///
/// # Panics
/// Where it fails.
pub fn alone(test: impl FnOnce()) {
    let name = this_test();
    let has_its_own = std::env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test");
    if has_its_own || is_child(&name) { test() } else { passes(&name, &child(&name)) }
}

/// The same in a process that finds lookalikes instead of drivers, on the machine that `machine` describes.
///
/// # Panics
/// As above.
pub fn over_lookalikes(machine: &str, test: impl FnOnce()) {
    let name = this_test();
    if is_child(&name) {
        return test();
    }
    passes(&name, &run(with_lookalikes(this_program(), machine), &name));
}

/// The same for code that looks for `libcuda.so` by its name.
///
/// # Panics
/// As above.
pub fn over_named_lookalikes(machine: &str, test: impl FnOnce()) {
    let name = this_test();
    if is_child(&name) {
        return test();
    }
    passes(&name, &run(with_named_lookalikes(this_program(), machine), &name));
}

/// The same over the machine's own drivers, where they are asked for (`GRANULE_REAL_DRIVERS`).
///
/// # Panics
/// As above.
pub fn over_drivers(machine: &str, test: impl FnOnce()) {
    if real_drivers() { alone(test) } else { over_lookalikes(machine, test) }
}
