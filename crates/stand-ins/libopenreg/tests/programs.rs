//! C and C++ programs against the library, as a user of PyTorch's would write and link them.
//!
//! Each is compiled against `include/openreg.h`, linked with the library that cargo built, and must end well.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use openreg as _; // so that cargo builds the library
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libopenreg.so");
    assert!(library.is_file(), "cargo builds {} beside the tests", library.display());
    library
}

fn cxx() -> &'static str {
    let Some(compiler) = option_env!("OPENREG_CXX") else {
        panic!("these tests need a C++ compiler; the library was built without one")
    };
    compiler
}

fn finish(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    output
}

fn compile(compiler: &str, source: &str, standard: &str) -> PathBuf {
    let library = library();
    let folder = library.parent().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openreg-{source}-{standard}"));
    finish(
        Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg(format!("-std={standard}"))
            .arg(format!("-I{CRATE}"))
            .arg(format!("{CRATE}/tests/programs/{source}"))
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", folder.display()))
            .arg("-lopenreg")
            .arg(format!("-Wl,-rpath,{}", folder.display())),
    );
    program
}

/// Cargo's search path may hold an older copy of the library.
fn started(program: &Path) -> Output {
    finish(Command::new(program).env_remove("LD_LIBRARY_PATH"))
}

fn run(source: &str, standard: &str) {
    let output = started(&compile(cxx(), source, standard));
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn devices() {
    run("device.cpp", "c++17");
}

#[test]
fn memory() {
    run("memory.cpp", "c++17");
}

#[test]
fn protection() {
    run("protection.cpp", "c++17");
}

#[test]
fn streams() {
    run("stream.cpp", "c++17");
}

#[test]
fn streams_in_the_oldest_and_the_newest_cxx() {
    run("stream.cpp", "c++11");
    run("stream.cpp", "c++20");
}

#[test]
fn events() {
    run("event.cpp", "c++17");
}

#[test]
fn ipc() {
    run("ipc.cpp", "c++17");
}

#[test]
fn tracing() {
    run("trace.cpp", "c++17");
}

#[test]
fn plain_c() {
    started(&compile("cc", "plain.c", "c11"));
}

/// All that the header declares, what C++ needs, and nothing else.
#[test]
fn exports_are_what_the_header_declares() {
    let header = include_str!("../include/openreg.h");
    let mut expected: Vec<String> = header
        .split("OPENREG_EXPORT orError_t")
        .skip(1)
        .filter_map(|rest| rest.trim_start().split_once('('))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.starts_with("or"))
        .collect();
    assert_eq!(expected.len(), 35, "{expected:?}");
    expected.push("openreg::addTaskToStream(orStream*, std::function<void ()>)".into());
    expected.extend(
        [
            "disableActivityTracing()",
            "enableActivityTracing()",
            "getExternalCorrelationId() const",
            "instance()",
            "isActivityTracingEnabled() const",
            "popExternalCorrelationId()",
            "pushExternalCorrelationId(unsigned long)",
        ]
        .map(|member| format!("openreg::profiler::OpenRegTracer::{member}")),
    );
    expected.sort();

    let output = finish(Command::new("nm").args(["-DC", "--defined-only"]).arg(library()));
    let mut found: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.splitn(3, ' ').nth(2).unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_library_has_the_name_that_programs_ask_for() {
    let output = finish(Command::new("readelf").arg("-d").arg(library()));
    let dynamic = String::from_utf8(output.stdout).unwrap();
    assert!(dynamic.contains("soname: [libopenreg.so]"), "{dynamic}");
}
