//! The wheels.

use super::machine::{self, Machine};
use super::{say, tools, wheel_in, wheels_in};
use crate::process::{self, files, root, target, targets};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// What PyPI takes of a project without asking is 100 MB; a cluster's users should not wait for a quarter of it.
const MOST: u64 = 25_000_000;

/// The wheel with the module `granule_alloc` and the command.
pub(super) fn alloc(out: &Path, machine: Machine) -> Result<PathBuf> {
    let tools = tools::prepare()?;
    forget(out, "granule_alloc")?;
    let mut build = tools.program("maturin");
    build.args(["build", "--manifest-path", "crates/tools/granule-python/Cargo.toml", "--zig"]);
    build.args(["--compatibility", &machine::compatibility(), "--out"]).arg(out);
    if machine != Machine::X86 {
        build.args(["--target", machine.target()]);
    }
    process::run(&mut build)?;
    small(&wheel_in(out, "granule_alloc")?)
}

/// The same of what the workspace's tests have built. Maturin, which builds one crate alone, would choose fewer features of the
/// libraries, and build all of them again.
pub(super) fn alloc_of_tests(out: &Path) -> Result<PathBuf> {
    let tools = tools::prepare()?;
    forget(out, "granule_alloc")?;
    process::libraries()?;
    let folder = out.join("granule_alloc");
    files::remove(&folder)?;
    let package = folder.join("granule_alloc");
    files::create(&package)?;
    for file in files::in_folder("crates/tools/granule-python/python/granule_alloc", "")? {
        if file.is_file() {
            fs::copy(&file, package.join(file.file_name().unwrap_or_default()))?;
        }
    }
    let library = target().join("debug/libgranule_alloc_native.so");
    fs::copy(&library, package.join("_native.abi3.so")).with_context(|| library.display().to_string())?;
    process::run(
        tools
            .program("maturin")
            .current_dir(root().join("crates/tools/granule-python"))
            .args(["pep517", "write-dist-info", "--metadata-directory"])
            .arg(&folder),
    )?;
    process::run(tools.program("wheel").arg("pack").arg(&folder).arg("--dest-dir").arg(out))?;
    let wheel = wheel_in(out, "granule_alloc")?;
    say(&wheel)?;
    Ok(wheel)
}

/// The wheel that puts Granule behind PyTorch. Its shim is compiled against the user's PyTorch, at first use.
pub(super) fn torch(out: &Path, machine: Machine) -> Result<PathBuf> {
    let tools = tools::prepare()?;
    forget(out, "granule_torch")?;
    let linker = tools::compiler(&tools, &machine.of_zig())?;
    let built = out.join("granule_torch");
    // What a run left that did not come to its end.
    files::remove(&built)?;
    process::run(
        tools
            .program("python")
            .args(["-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "-w"])
            .arg(&built)
            .arg(root().join("crates/granule-torch"))
            .env("CARGO_TARGET_DIR", target())
            .env("CARGO_BUILD_TARGET", machine.target())
            .env(targets::variable(machine.target(), "LINKER"), &linker)
            // What Python takes for its own machine, and writes into the wheel's name.
            .env("_PYTHON_HOST_PLATFORM", format!("linux-{}", machine.processor())),
    )?;
    // It says from which glibc on the library runs, and knows by name only the systems of the processor that it runs on.
    let system = if machine == Machine::X86 { machine.tag() } else { "auto".into() };
    process::run(
        tools
            .program("auditwheel")
            .args(["repair", "--plat", &system, "--wheel-dir"])
            .arg(out)
            .arg(wheel_in(&built, "granule_torch")?),
    )?;
    files::remove(&built)?;
    let wheel = wheel_in(out, "granule_torch")?;
    if !wheel.to_string_lossy().contains(&machine.tag()) {
        bail!("{} is for other systems than {}", wheel.display(), machine.tag());
    }
    small(&wheel)
}

fn small(wheel: &Path) -> Result<PathBuf> {
    let bytes = say(wheel)?;
    if bytes > MOST {
        bail!("the wheel has {bytes} bytes; {MOST} are allowed");
    }
    Ok(wheel.to_owned())
}

/// Takes older wheels away, which would be found instead of the new one.
fn forget(out: &Path, name: &str) -> Result<()> {
    for wheel in wheels_in(out, name)? {
        fs::remove_file(wheel)?;
    }
    Ok(())
}
