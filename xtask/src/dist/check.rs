//! Files where nothing else is installed: no Rust, no compiler, no GPU. All that has the command replays one recording.

use super::elf::Needs;
use super::machine::{GLIBC, Machine};
use super::{container, emulated};
use crate::process::{self, command, debian, files, root, target};
use crate::python::venv::{PATIENT_PIP, Venv};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const RECORDINGS: &str = "crates/tools/granule-cli/data";
const RECORDING: &str = "resnet_train.trace.gz";
/// From `pip install` to the first result, without the download: a few, and more on a busy machine.
const MOST_SECONDS: f64 = 60.0;
const PIP: [&str; 6] = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"];

/// The recording has the figures of PyTorch's own allocator; a replay comes to the same.
fn replays(answer: &str, whose: &str) -> Result<()> {
    let answer: serde_json::Value = serde_json::from_str(answer).with_context(|| answer.to_owned())?;
    let figures = answer["native"]["figures"].as_object().context("a replay has no figures of PyTorch's")?;
    let differs: Vec<_> = figures.iter().filter(|(_, figure)| figure["verdict"] != "same").collect();
    ensure!(!figures.is_empty() && differs.is_empty(), "{whose} replays to other figures: {differs:?}");
    println!("{whose} replays to PyTorch's own figures, all {} of them", figures.len());
    Ok(())
}

/// The wheel granule-alloc: the command and the module, alone; then the module's tests.
pub(super) fn alloc(wheel: &Path, quick: bool) -> Result<()> {
    let venv = Venv::empty("dist-check")?;
    let began = Instant::now();
    install(&venv, wheel)?;
    let help = process::output(there(&venv, "granule").arg("--help"))?;
    if !help.contains("whatif") {
        bail!("granule --help does not name the commands:\n{help}");
    }
    let recording = root().join(RECORDINGS).join(RECORDING);
    let replayed = process::output(there(&venv, "granule").arg("replay").arg(&recording).arg("--json"))?;
    replays(&replayed, "the command of the wheel")?;
    process::run(there(&venv, "python").args(["-c", "import granule_alloc"]))?;
    let seconds = began.elapsed().as_secs_f64();
    println!("pip install to the first results: {seconds:.1} s");
    if !quick && seconds > MOST_SECONDS {
        bail!("that is more than {MOST_SECONDS} s");
    }
    let tests = root().join("crates/tools/granule-python/tests");
    let lists =
        if quick { &["requirements.txt"][..] } else { &["requirements.txt", "requirements-long.txt"] };
    let mut packages = there(&venv, "python");
    packages.args(PIP).envs(PATIENT_PIP);
    for list in lists {
        packages.arg("-r").arg(tests.join(list));
    }
    process::run(&mut packages)?;
    process::run(there(&venv, "python").args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(tests))
}

/// Both wheels for 64-bit ARM, with that processor's Python in an emulator: the command and the modules.
pub(super) fn for_arm(alloc: &Path, torch: &Path) -> Result<()> {
    let python = emulated::Python::prepare()?;
    python.install(alloc)?;
    made_for_arm(&python, "granule_alloc/_native.abi3.so")?;
    let version = python.program("granule", &["--version"])?;
    ensure!(version.trim() == concat!("granule ", env!("CARGO_PKG_VERSION")), "granule --version: {version}");
    let recording = root().join(RECORDINGS).join(RECORDING);
    let recording = recording.to_str().with_context(|| format!("{} is not UTF-8", recording.display()))?;
    replays(&python.program("granule", &["replay", recording, "--json"])?, "the wheel for 64-bit ARM")?;
    let load = "import granule_alloc, sys; print(granule_alloc.load(sys.argv[1]).inspect().run.peak_live)";
    let live: u64 = python.output(&["-c", load, recording])?.trim().parse()?;
    ensure!(live > 0, "the module finds nothing live in {recording}");
    println!("its module finds {live} bytes live at most");
    python.install(torch)?;
    made_for_arm(&python, "granule_torch/libgranule_capi.abi3.so")?;
    println!("granule-torch has the library of version {}", python.output(&["-c", LIBRARY])?.trim());
    Ok(())
}

/// A native file of a wheel for 64-bit ARM: that is its processor, and it asks for no later glibc than the wheel's name says.
fn made_for_arm(python: &emulated::Python, file: &str) -> Result<()> {
    let needs = Needs::of(&python.packages().join(file))?;
    let (major, minor) = needs.glibc;
    println!("{file} is for {}, and asks for glibc {major}.{minor}", needs.processor);
    ensure!(needs.processor == "AArch64", "{file} is for another processor than its wheel");
    needs.run_with(GLIBC).with_context(|| format!("{file}, for {}", Machine::Arm.tag()))
}

/// The wheel granule-torch: the package and its library, without PyTorch.
pub(super) fn torch(wheel: &Path) -> Result<()> {
    let venv = Venv::empty("dist-check")?;
    install(&venv, wheel)?;
    let version = process::output(there(&venv, "python").args(["-c", LIBRARY]))?;
    println!("granule-torch has the library of version {}", version.trim());
    Ok(())
}

const LIBRARY: &str = "import granule_torch; print(granule_torch._library.load().granule_version().decode())";

/// The static binary: it asks for no library, and runs where there is nothing but it and a recording.
pub(super) fn binary(binary: &Path) -> Result<()> {
    let asked =
        process::output(command("readelf").args(["-W", "--program-headers", "--dynamic"]).arg(binary))?;
    ensure!(
        !asked.contains("INTERP") && !asked.contains("(NEEDED)"),
        "{} is not static:\n{asked}",
        binary.display()
    );
    let empty = target().join("dist-empty");
    files::empty(&empty)?;
    fs::copy(binary, empty.join("granule"))?;
    fs::copy(root().join(RECORDINGS).join(RECORDING), empty.join(RECORDING))?;
    let answer = process::output(alone_in(&empty).args(["/granule", "replay", RECORDING, "--json"]))
        .context("a root folder of its own is the administrator's, or needs user namespaces")?;
    replays(&answer, "the static binary, in an empty root folder,")?;
    files::remove(&empty)
}

/// Runs a program for which a folder is all that there is.
fn alone_in(folder: &Path) -> Command {
    let mut alone = if debian::is_administrator() {
        command("chroot")
    } else {
        let mut unshare = command("unshare");
        unshare.args(["--map-root-user", "chroot"]);
        unshare
    };
    alone.arg(folder);
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable != "PATH") {
        alone.env_remove(variable);
    }
    alone
}

/// The image of `packaging/Dockerfile`, built and run.
pub(super) fn image(out: &Path) -> Result<()> {
    let image = container::Image::build(&root().join("packaging/Dockerfile"), out)?;
    let answer = image.run(&root().join(RECORDINGS), &["replay", RECORDING, "--json"])?;
    replays(&answer, "the image")
}

fn install(venv: &Venv, wheel: &Path) -> Result<()> {
    process::run(there(venv, "python").args(PIP).args(["--no-index", "--no-deps"]).arg(wheel))
}

/// What a user has who never heard of Rust.
fn there(venv: &Venv, program: &str) -> Command {
    let mut command = venv.program(program);
    let path = format!("{}:/usr/bin:/bin", venv.folder().join("bin").display());
    command.env("PATH", path).env_remove("CARGO_HOME");
    command
}
