//! The wheels.

use super::{say, wheel_in, wheels_in};
use crate::process::{self, command, root, target};
use crate::python::venv::Venv;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// What builds wheels. Zig's linker knows the symbols of every glibc, so that a wheel runs on older systems than this one.
const TOOLS: &str = "maturin==1.16.0\nziglang==0.17.1\n";
/// The oldest system that a wheel is for: glibc 2.28, of 2018.
const OLDEST: &str = "manylinux_2_28";
/// What PyPI takes of a project without asking is 100 MB; a cluster's users should not wait for a quarter of it.
const MOST: u64 = 25_000_000;

/// The wheel with the module `granule_alloc` and the command.
pub(super) fn alloc(out: &Path, quick: bool) -> Result<PathBuf> {
    let tools = Venv::prepare("dist-tools", TOOLS, None)?;
    forget(out, "granule_alloc")?;
    let mut maturin = command(tools.folder().join("bin/maturin"));
    maturin.args(["build", "--manifest-path", "crates/granule-python/Cargo.toml", "--out"]).arg(out);
    // The artefacts of the tests serve again, and the linker that made them.
    let quickly = ["--profile", "dev", "--compatibility", "linux"];
    let for_all = ["--zig", "--compatibility", OLDEST];
    maturin.args(if quick { &quickly[..] } else { &for_all[..] });
    let path = std::env::var("PATH").unwrap_or_default();
    maturin.env("PATH", format!("{}:{path}", tools.folder().join("bin").display()));
    process::run(&mut maturin)?;
    let wheel = wheel_in(out, "granule_alloc")?;
    let bytes = say(&wheel)?;
    if !quick && bytes > MOST {
        bail!("the wheel has {bytes} bytes; {MOST} are allowed");
    }
    Ok(wheel)
}

/// The wheel that puts Granule behind PyTorch. Its shim is compiled against the user's PyTorch, at first use.
pub(super) fn torch(out: &Path) -> Result<PathBuf> {
    let tools = Venv::prepare("dist-tools", TOOLS, None)?;
    forget(out, "granule_torch")?;
    process::run(
        command(tools.python())
            .args(["-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "-w"])
            .arg(out)
            .arg(root().join("crates/granule-torch"))
            .env("CARGO_TARGET_DIR", target()),
    )?;
    let wheel = wheel_in(out, "granule_torch")?;
    say(&wheel)?;
    Ok(wheel)
}

/// Takes older wheels away, which would be found instead of the new one.
fn forget(out: &Path, name: &str) -> Result<()> {
    for wheel in wheels_in(out, name)? {
        fs::remove_file(wheel)?;
    }
    Ok(())
}
