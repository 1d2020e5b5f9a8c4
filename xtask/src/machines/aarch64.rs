//! The workspace for 64-bit ARM: built by a cross compiler, its tests run under an emulator, with host pages of several sizes.
//!
//! That shows builds, system calls and page sizes. Memory is ordered as this machine's processor orders it: what ARM
//! reorders is looked for by `cargo xtask schedules` (loom) and by Miri.

mod emulator;

use crate::process::{command, targets};
use anyhow::{Result, ensure};
use emulator::Emulator;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// What is emulated.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sizes of the host's pages in bytes, one run of the tests for each
    #[arg(long, value_delimiter = ',', default_values_t = [4096, 65536])]
    pages: Vec<u32>,

    /// The longest that a test program may run; then it is cut off, which is a failure
    #[arg(long, default_value_t = 20)]
    minutes: u32,

    /// Passed on to `cargo test`, after `--`, instead of the slice that CI runs: `-p alloc-core --lib`, or `--workspace --exclude xtask
    /// --exclude browser-tests --features granule-cli/full --lib --tests`, which takes hours
    #[arg(last = true)]
    rest: Vec<String>,
}

/// What CI runs, in few seconds: what asks the host for pages, and the kernels that threads share.
const SLICE: [&[&str]; 2] = [
    &["-p", "alloc-core", "--lib", "--", "base::", "host::pinned_source::", "memory::", "sync::", "arena::"],
    &["-p", "backend-openreg", "--test", "openreg", "--", "of_the_host"],
];
/// What a property finds does not depend on the processor, and an emulator is slow.
const CASES: &str = "16";
/// The emulator keeps 64 bytes for each page that is mapped, 8 GiB for the addresses of one simulated machine with bytes. Several of
/// them at a time took all memory there was.
const THREADS: &str = "1";

pub(crate) fn run(options: &Options) -> Result<()> {
    let emulator = Emulator::prepare()?;
    let rest: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    // Many a test starts programs.
    let _registered = if rest.is_empty() { None } else { Some(emulator.register()?) };
    let programs = if rest.is_empty() { &SLICE[..] } else { &[&rest[..]] };
    let run = |pages: &u32| test(&emulator, (*pages, options.minutes), programs);
    report(options.pages.iter().map(run).collect::<Result<_>>()?)
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
    report(vec![test(&emulator, (65536, 20), &SLICE)?])
}

/// What tests with pages of one size came to: the size, tests that passed, runs that did not end well.
type Ran = (u32, u64, usize);

/// Builds and runs tests, each list of arguments by a `cargo test` of its own. Shows what is not merely well.
fn test(emulator: &Emulator, (pages, minutes): (u32, u32), programs: &[&[&str]]) -> Result<Ran> {
    println!("== aarch64, host pages of {} KiB", pages >> 10);
    let (mut passed, mut broken) = (0, 0);
    for arguments in programs {
        let mut cargo = command("cargo");
        cargo.args(["test", "--no-fail-fast", "--target", targets::AARCH64]).args(*arguments);
        cargo.env("PROPTEST_CASES", CASES).env("PROPTEST_RNG_SEED", "1").env("RUST_TEST_THREADS", THREADS);
        emulator.lend(&mut cargo, pages, minutes)?;
        let mut child = cargo.stdout(Stdio::piped()).spawn()?;
        for line in child.stdout.take().into_iter().flat_map(|said| BufReader::new(said).lines()) {
            let line = line?;
            let is_well = line.starts_with("test ") && line.ends_with(" ... ok");
            passed += u64::from(is_well);
            if !is_well && !line.is_empty() && !line.starts_with("running ") {
                println!("{line}");
            }
        }
        broken += usize::from(!child.wait()?.success());
    }
    Ok((pages, passed, broken))
}

/// Says what ran; fails where anything did, or nothing ran.
fn report(all: Vec<Ran>) -> Result<()> {
    println!("aarch64 under emulation, which says nothing of memory ordering:");
    for (pages, passed, broken) in &all {
        println!(
            "  host pages of {} KiB: {passed} tests passed, {broken} runs did not end well",
            pages >> 10
        );
    }
    ensure!(all.iter().all(|(_, passed, broken)| *passed > 0 && *broken == 0), "tests failed on aarch64");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::report;

    #[test]
    fn nothing_that_ran_and_what_failed_are_no_success() {
        report(vec![(4096, 3, 0)]).unwrap();
        assert!(report(vec![(4096, 3, 0), (65536, 0, 0)]).is_err());
        assert!(report(vec![(4096, 3, 1)]).is_err());
    }
}
