//! Makes the kit: programs that run elsewhere, the package for PyTorch with its shim, recorded programs, the kit's own programs.

use super::{KIT, TORCH};
use crate::dist::elf::Needs;
use crate::process::{self, cargo, command, files, output, root, run, target};
use crate::python::venv::Venv;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The C library of the oldest machine that the programs run on.
const GLIBC: (u32, u32) = (2, 34);
/// Recorded programs that are asked again: training, generation, and activations that a second stream takes away.
const TRACES: [&str; 3] = ["gpt2_small", "chat_caches", "offload_activations"];
/// Tests over real drivers.
const TESTS: [&str; 3] = ["policies", "sleep", "sharing"];

/// Makes the kit. Without an environment its shim is compiled on the machine, at first use.
pub(super) fn pack(folder: &Path, profile: &str, tests: bool, venv: Option<&Path>) -> Result<()> {
    files::create(folder)?;
    let into = fs::canonicalize(folder)?;
    let stage = tempfile::tempdir()?;
    let stage = stage.path();
    let (granule, library) = built(profile)?;
    program(&granule, &stage.join("bin/granule"), "--strip-all")?;
    compile("drvcost.c", &stage.join("bin/drvcost"))?;
    if tests {
        for test in TESTS {
            program(&test_program(test, profile)?, &stage.join(format!("bin/test-{test}")), "--strip-all")?;
        }
    }
    // The package as pip would install it, and the sources of its shim.
    let package = stage.join("python/granule_torch");
    copy("crates/granule-torch/granule_torch", &package)?;
    copy("crates/granule-torch/csrc", &package.join("csrc"))?;
    copy("crates/granule-capi/include", &package.join("csrc/include"))?;
    program(&library, &package.join("libgranule_capi.so"), "--strip-debug")?;
    if let Some(venv) = venv {
        shim(&Venv::existing(venv)?, stage)?;
    } else {
        println!(
            "no environment with torch {TORCH} is at hand (`cargo xtask e2e-torch --torch {TORCH}` makes one): the shim is compiled there, at first use"
        );
    }
    for (from, to) in
        [(KIT, "src"), ("tests/torch", "tests/torch"), ("tests/nogpu-torch", "tests/nogpu-torch")]
    {
        copy(from, &stage.join(to))?;
    }
    fs::create_dir(stage.join("traces"))?;
    for name in TRACES {
        let file = format!("{name}.trace.gz");
        fs::copy(root().join("tests/corpus/traces").join(&file), stage.join("traces").join(&file))
            .context(file)?;
    }
    old_enough(stage)?;
    let version = version(profile)?;
    fs::write(stage.join("VERSION"), &version)?;
    run(command("tar")
        .arg("-C")
        .arg(stage)
        .arg("--exclude=__pycache__")
        .arg("-czf")
        .arg(into.join("kit.tar.gz"))
        .arg("."))?;
    fs::write(into.join("VERSION"), &version)?;
    fs::write(into.join("ARCH"), format!("{}\n", std::env::consts::ARCH))?;
    fs::copy(root().join(KIT).join("run.sh"), into.join("run.sh"))?;
    println!("{} has the kit: run.sh, VERSION, ARCH, kit.tar.gz; {}", folder.display(), version.trim());
    Ok(())
}

/// The command and the library in this profile. What the tests have built serves again.
fn built(profile: &str) -> Result<(PathBuf, PathBuf)> {
    if profile == "dev" {
        process::libraries()?;
        return Ok((process::granule()?, target().join("debug/libgranule_capi.so")));
    }
    cargo(&["build", "--locked", "--profile", profile, "-p", "granule-capi"])?;
    cargo(
        &[&["build", "--locked", "--profile", profile, "-p", "granule-cli"], process::ALL_COMMANDS].concat(),
    )?;
    Ok((target().join(profile).join("granule"), target().join(profile).join("libgranule_capi.so")))
}

/// A program of the project's tests.
fn test_program(name: &str, profile: &str) -> Result<PathBuf> {
    let build = ["test", "--locked", "--profile", profile, "--no-run", "--message-format=json"];
    let said = output(command("cargo").args(build).args(["-p", "granule-tests", "--test", name]))?;
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().with_context(|| format!("cargo names no program of the test {name}"))
}

fn program(from: &Path, to: &Path, strip: &str) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    run(command("strip").arg(strip).arg("-o").arg(to).arg(from))
}

fn compile(source: &str, to: &Path) -> Result<()> {
    let source = root().join(KIT).join(source);
    run(command("cc").args(["-std=gnu17", "-O2", "-s", "-o"]).arg(to).arg(source).args(["-ldl", "-lpthread"]))
}

fn copy(from: &str, to: &Path) -> Result<()> {
    files::create(to)?;
    run(command("cp").args(["-r", "-T", from]).arg(to))
}

/// Compiles the shim beforehand, for the torch of an environment.
fn shim(venv: &Venv, stage: &Path) -> Result<()> {
    run(venv
        .program("python")
        .arg(root().join(KIT).join("shim.py"))
        .arg(stage.join("python/granule_torch/shims"))
        .env("PYTHONPATH", stage.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"))
}

/// Refuses what the C library of an older machine could not run.
fn old_enough(stage: &Path) -> Result<()> {
    let mut files = vec![stage.join("python/granule_torch/libgranule_capi.so")];
    for folder in ["bin", "python/granule_torch/shims"] {
        files.extend(files::below(&stage.join(folder))?);
    }
    files.iter().try_for_each(|file| {
        let name = file.strip_prefix(stage).unwrap_or(file).display();
        let due = Needs::of(file)?.run_with(GLIBC);
        due.with_context(|| format!("{name} is for machines with a GPU: make the kit on an older system"))
    })
}

/// What the kit was made of.
fn version(profile: &str) -> Result<String> {
    let commit =
        output(command("git").args(["describe", "--always", "--dirty"])).unwrap_or_else(|_| "unknown".into());
    let date = output(command("date").args(["-u", "+%F %H:%M"]))?;
    Ok(format!("{} of {}, profile {profile}\n", commit.trim(), date.trim()))
}
