//! The workspace for 64-bit ARM: built by a cross compiler, its tests run under an emulator, with host pages of several sizes.
//!
//! That shows builds, system calls and page sizes. Memory is ordered as this machine's processor orders it: what ARM
//! reorders is looked for by `cargo xtask schedules` (loom) and by Miri.

mod counts;
mod emulator;

use crate::process::{self, command, targets};
use anyhow::{Result, bail};
use counts::Counts;
use emulator::Emulator;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// What is emulated.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The whole workspace, which takes hours, instead of the slice that CI runs
    #[arg(long)]
    full: bool,

    /// Sizes of the host's pages in bytes, one run of the tests for each
    #[arg(long, value_delimiter = ',', default_values_t = [4096, 65536])]
    pages: Vec<u32>,

    /// The longest that a test program may run; then it is cut off, and counted as that
    #[arg(long, default_value_t = 20)]
    minutes: u32,

    /// Passed on to `cargo test`, after `--`, instead of packages: `-p alloc-core --lib`
    #[arg(last = true)]
    rest: Vec<String>,
}

/// What CI runs, in few seconds: what asks the host for pages, and the kernels that threads share.
const SLICE: [&[&str]; 2] = [
    &["-p", "alloc-core", "--lib", "--", "base::", "host::source::", "memory::", "sync::", "arena::"],
    &["-p", "backend-openreg", "--test", "openreg", "--", "of_the_host"],
];
/// What the whole workspace is here. Tasks run on the machine that builds; documentation's examples are the same everywhere.
const WHOLE: [&str; 7] =
    ["--workspace", "--exclude", "xtask", "--exclude", "browser-tests", "--lib", "--tests"];
/// What a property finds does not depend on the processor, and an emulator is slow.
const CASES: &str = "16";
/// The emulator keeps 64 bytes for each page that is mapped, 8 GiB for the addresses of one simulated machine with bytes. Several of
/// them at a time took all memory there was.
const THREADS: &str = "1";

pub(crate) fn run(options: &Options) -> Result<()> {
    let emulator = Emulator::prepare()?;
    let rest: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    let programs = match (options.full, rest.is_empty()) {
        (_, false) => vec![rest],
        (true, true) => vec![[&WHOLE[..], process::ALL_COMMANDS].concat()],
        (false, true) => SLICE.map(<[&str]>::to_vec).to_vec(),
    };
    // Many a test starts programs.
    let _registered =
        if options.full || !options.rest.is_empty() { Some(emulator.register()?) } else { None };
    let mut all = Vec::new();
    for pages in &options.pages {
        all.push((*pages, test(&emulator, (*pages, options.minutes), &programs)?));
    }
    report(&all)
}

/// The slice with large pages; where the tools cannot be had, it says why, and that is no failure.
pub(crate) fn slice() -> Result<()> {
    let emulator = match Emulator::prepare() {
        Ok(emulator) => emulator,
        Err(reason) => {
            println!("aarch64: not run: {reason:#}");
            return Ok(());
        }
    };
    let pages = 65536;
    let programs = SLICE.map(<[&str]>::to_vec);
    report(&[(pages, test(&emulator, (pages, 20), &programs)?)])
}

/// Builds and runs tests, each list of arguments by a `cargo test` of its own.
fn test(emulator: &Emulator, (pages, minutes): (u32, u32), programs: &[Vec<&str>]) -> Result<Counts> {
    println!("== aarch64, host pages of {} KiB", pages >> 10);
    let mut counts = Counts::default();
    for arguments in programs {
        let mut cargo = command("cargo");
        cargo.args(["test", "--no-fail-fast", "--target", targets::AARCH64]).args(arguments);
        cargo.env("PROPTEST_CASES", CASES).env("PROPTEST_RNG_SEED", "1").env("RUST_TEST_THREADS", THREADS);
        emulator.lend(&mut cargo, pages, minutes)?;
        counts.add(watch(&mut cargo)?);
    }
    Ok(counts)
}

/// Runs a command that tests, shows what is not merely well, and counts.
fn watch(cargo: &mut Command) -> Result<Counts> {
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            if counts.note(&line) {
                println!("{line}");
            }
        }
    }
    counts.ended(child.wait()?.success());
    Ok(counts)
}

/// Says what ran; fails where anything did.
fn report(all: &[(u32, Counts)]) -> Result<()> {
    println!("aarch64 under emulation, which says nothing of memory ordering:");
    for (pages, counts) in all {
        println!("  host pages of {} KiB: {counts}", pages >> 10);
    }
    if all.iter().any(|(_, counts)| !counts.are_well()) {
        bail!("tests failed on aarch64");
    }
    Ok(())
}
