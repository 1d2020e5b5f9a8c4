//! Every way in, driven by libFuzzer: it sees which code an input reaches, and goes on from those that reach something new. And
//! long runs of the property tests, which see nothing and make well-formed inputs.
//!
//! The targets are functions of `tests/fuzz`. Stable Rust puts libFuzzer's counters into code with a pass of LLVM; libFuzzer
//! itself is compiled by a C++ compiler.

use crate::process::{self, command, debian, files, root, target};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is run, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// Targets; all where none is named
    targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Keep what was reached: the smallest inputs that reach all of it become tests/fuzz/corpus/TARGET.bin
    #[arg(long)]
    keep: bool,
    /// Run one input and stop
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Long property, fuzz and fault-loop runs instead (CI runs a bounded slice of each)
    #[arg(long)]
    properties: bool,
}

/// What counts reached code and compares operands; `tests/fuzz` says what it is for.
const FLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks -Ccodegen-units=4";
/// The longest inputs, in bytes; memory that a run may take, in MiB; seconds that an input may take.
const LIMITS: [&str; 3] = ["-max_len=4096", "-rss_limit_mb=2048", "-timeout=20"];

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.properties {
        return properties();
    }
    let targets = if options.targets.is_empty() { &known()? } else { &options.targets };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let seconds = (options.minutes * 60.0).ceil().max(1.0) as u64;
    if options.input.is_some() && targets.iter().any(|name| name == PAGE) {
        bail!("the page takes no single input; name another target");
    }
    if *targets == [PAGE] {
        return page(seconds, options.keep);
    }
    let fuzzer = build()?;
    if let Some(input) = &options.input {
        let [name] = &targets[..] else { bail!("name the one target that the input is for") };
        return process::run(driven(&fuzzer, name).arg(files::named(input)?));
    }
    // One target's finding hides nothing of the others.
    let mut found = 0;
    for name in targets {
        let done = match name.as_str() {
            PAGE => page(seconds, options.keep),
            _ => one(&fuzzer, name, seconds, options.keep),
        };
        if let Err(error) = done {
            println!("{error:#}");
            found += 1;
        }
    }
    ensure!(found == 0, "{found} of {} targets failed: see above", targets.len());
    Ok(())
}

/// The decoder of the report's page: it is JavaScript, and its fuzzer, too.
const PAGE: &str = "page";

/// Drives the page's decoder, where there is Node.js.
pub(crate) fn page(seconds: u64, keep: bool) -> Result<()> {
    if debian::on_path("node").is_none() {
        println!("page: skipped, there is no Node.js");
        return Ok(());
    }
    let mut fuzzer = command("node");
    fuzzer.args(["tests/fuzz/page.mjs", "--seconds", &seconds.to_string()]);
    if keep {
        fuzzer.arg("--keep");
    }
    process::run(&mut fuzzer)
}

/// The targets: all that have kept inputs.
fn known() -> Result<Vec<String>> {
    Ok(files::in_folder("tests/fuzz/corpus", "bin")?.iter().map(|file| files::stem(file)).collect())
}

/// Builds the fuzzer, apart from all else: its code has counters.
fn build() -> Result<PathBuf> {
    let version = process::output(command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let folder = target().join("fuzz");
    // With a target, programs that run during the build have no counters.
    process::run(
        command("cargo")
            .args(["build", "--release", "-p", "granule-fuzz", "--features", "libfuzzer", "--target", host])
            .arg("--target-dir")
            .arg(&folder)
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_INCREMENTAL", "0"),
    )?;
    Ok(folder.join(host).join("release/granule-fuzz"))
}

/// The fuzzer, of a target.
fn driven(fuzzer: &Path, name: &str) -> Command {
    let mut fuzzer = command(fuzzer);
    fuzzer.env("GRANULE_FUZZ", name).env("GRANULE_LOG", "off").args(LIMITS);
    fuzzer
}

/// Drives a target for its time. Inputs that reach something new stay in `target/fuzz`, for the next time.
fn one(fuzzer: &Path, name: &str, seconds: u64, keeps: bool) -> Result<()> {
    let folder = target().join("fuzz").join(name);
    let (reached, log) = (folder.join("reached"), folder.join("log"));
    process::run(driven(fuzzer, name).env("GRANULE_FUZZ_UNPACK", &reached))?;
    let findings = root().join("tests/fuzz/findings");
    files::create(&findings)?;
    let status = driven(fuzzer, name)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/{name}-", findings.display()))
        .args(["-print_final_stats=1", "-close_fd_mask=1"])
        .arg(&reached)
        .stderr(File::create(&log).with_context(|| log.display().to_string())?)
        .status()?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if !status.success() {
        return Err(finding(name, &said));
    }
    let done =
        said.lines().rfind(|line| line.contains("DONE")).context("libFuzzer did not come to its end")?;
    println!("{name}: {done}");
    if keeps { keep(fuzzer, name, &reached) } else { Ok(()) }
}

/// What was found, and how to see it again.
fn finding(name: &str, said: &str) -> anyhow::Error {
    let lines: Vec<&str> = said.lines().collect();
    let begin =
        lines.iter().rposition(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    let what = lines[begin.unwrap_or(0)..].iter().take(12);
    println!("{}", what.copied().collect::<Vec<_>>().join("\n"));
    let written = |line: &&str| line.split_once("Test unit written to ").map(|(_, path)| path.to_owned());
    match lines.iter().find_map(written) {
        Some(path) => anyhow::anyhow!(
            "{name}: an input breaks a promise. Again: cargo xtask fuzz {name} --input {path}"
        ),
        None => anyhow::anyhow!("{name}: libFuzzer failed, and kept no input"),
    }
}

/// The smallest inputs that together reach all that was reached.
fn keep(fuzzer: &Path, name: &str, reached: &Path) -> Result<()> {
    let kept = reached.with_file_name("kept");
    files::empty(&kept)?;
    let merged = driven(fuzzer, name)
        .args(["-set_cover_merge=1", "-close_fd_mask=1"])
        .args([&kept, reached])
        .stderr(File::create(kept.with_file_name("log-of-merge"))?)
        .status()?;
    ensure!(
        merged.success(),
        "{name}: an input fails that did not before; its log is beside {}",
        kept.display()
    );
    process::run(driven(fuzzer, name).env("GRANULE_FUZZ_PACK", &kept))
}

/// What long runs are of, by the arguments of `cargo test --release`.
const LONG: [&str; 5] = [
    // Properties, with every structure walked after every operation.
    "-p alloc-core -p granule-snapshot --features alloc-core/paranoid --lib --test config --test files",
    // Random programs, and whatever the tools can be given.
    "-p granule-tests --features alloc-core/paranoid --test allocation -- model::",
    "-p granule-analysis --features alloc-core/paranoid --test runs -- fuzz::",
    // Every mutant against every check, not only those of its area.
    "-p granule-conformance --test kit -- matrix",
    // The fault loops over whole traces; they check invariants themselves, where a call failed.
    "-p granule-tests --test faults -- --nocapture",
];

fn properties() -> Result<()> {
    LONG.iter().try_for_each(|arguments| {
        let mut test = command("cargo");
        test.args(["test", "--release"]).args(arguments.split(' '));
        process::run(test.env("PROPTEST_CASES", "20000").env("GRANULE_LONG", "1"))
    })
}
