//! What is handed out: wheels for two processors, crates, a static binary; and whether it works where nothing else is installed.

mod binary;
mod check;
mod container;
mod crates;
pub(crate) mod elf;
mod emulated;
mod machine;
mod tools;
mod wheels;

use crate::process::{self, files, target, targets};
use anyhow::{Context, Result};
use machine::Machine;
use std::fs;
use std::path::{Path, PathBuf};

/// The options of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Try it where nothing else is installed: wheels in a fresh environment without Rust, those for ARM in an emulator, the binary in an empty root folder,
    /// packaging/Dockerfile as an image (Debian's tools for that are installed, as root)
    #[arg(long)]
    check: bool,

    /// Only the wheel of the command and the module, of what the tests have built (what CI runs): not for handing it out
    #[arg(long)]
    quick: bool,

    /// Only these
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "quick")]
    only: Vec<Part>,
}

impl Options {
    pub(crate) const SLICE: Self = Self { check: true, quick: true, only: Vec::new() };
}

/// What can be asked for by itself.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The wheels for the machine that builds
    Wheels,
    /// The wheels for 64-bit ARM
    WheelsAarch64,
    /// The static binary
    Binary,
    /// packaging/Dockerfile, with the wheel that is there (only with --check)
    Image,
    /// The crates
    Crates,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.quick {
        let alloc = timed("the wheel granule-alloc", || wheels::alloc_of_tests(&folder("dist-quick")?))?;
        return if options.check { check::alloc(&alloc, true) } else { Ok(()) };
    }
    let out = folder("dist")?;
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Wheels) {
        let alloc = timed("the wheel granule-alloc", || wheels::alloc(&out, Machine::X86))?;
        if options.check {
            timed("granule-alloc where it is alone", || check::alloc(&alloc, false))?;
        }
        let torch = timed("the wheel granule-torch", || wheels::torch(&out, Machine::X86))?;
        if options.check {
            timed("granule-torch where it is alone", || check::torch(&torch))?;
        }
    }
    if wanted(Part::WheelsAarch64) {
        for_arm(options)?;
    }
    if wanted(Part::Binary) {
        let binary = timed("the static binary", || binary::build(&out))?;
        if options.check {
            timed("the static binary where it is alone", || check::binary(&binary))?;
        }
    }
    if options.check && wanted(Part::Image) {
        timed("the image of packaging/Dockerfile", || check::image(&out))?;
    }
    if wanted(Part::Crates) {
        timed("the crates, as cargo publish would take them", || crates::dry_run(options.check))?;
    }
    Ok(())
}

/// Where Rust's library for ARM cannot be had, everything else is built nonetheless.
fn for_arm(options: &Options) -> Result<()> {
    if let Err(reason) = targets::add(targets::AARCH64) {
        if options.only.contains(&Part::WheelsAarch64) {
            return Err(reason);
        }
        println!("no wheels for 64-bit ARM: {reason:#}");
        return Ok(());
    }
    // Apart from the others, of which an image takes all that it finds.
    let out = folder("dist/aarch64")?;
    let alloc = timed("the wheel granule-alloc for 64-bit ARM", || wheels::alloc(&out, Machine::Arm))?;
    let torch = timed("the wheel granule-torch for 64-bit ARM", || wheels::torch(&out, Machine::Arm))?;
    if options.check {
        timed("the wheels for 64-bit ARM, emulated", || check::for_arm(&alloc, &torch))?;
    }
    Ok(())
}

fn folder(name: &str) -> Result<PathBuf> {
    let folder = target().join(name);
    files::create(&folder)?;
    Ok(folder)
}

fn timed<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {what}");
    let (done, [clock, _]) = process::timed(work)?;
    println!("== {what}: {:.0} s", clock.as_secs_f64());
    Ok(done)
}

/// Says what a file is called and how large it is.
fn say(file: &Path) -> Result<u64> {
    let bytes = fs::metadata(file).with_context(|| file.display().to_string())?.len();
    #[allow(clippy::cast_precision_loss)]
    let size = bytes as f64 / f64::from(1 << 20);
    println!("{}: {size:.1} MiB", file.display());
    Ok(bytes)
}

/// The only wheel of that name in a folder.
fn wheel_in(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut found = wheels_in(folder, name)?;
    found.pop().with_context(|| format!("{} has no wheel {name}", folder.display()))
}

fn wheels_in(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut found = files::in_folder(folder, "whl")?;
    let of_name = format!("{name}-");
    found.retain(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&of_name)));
    Ok(found)
}
