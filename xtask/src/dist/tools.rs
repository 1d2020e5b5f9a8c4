//! What builds wheels and binaries, in an environment of its own.

use crate::process::files;
use crate::python::venv::Venv;
use anyhow::Result;
use std::path::PathBuf;

/// Zig's compiler knows the symbols of every glibc, so that a library runs on older systems than this one; it has musl, too.
const PACKAGES: &str =
    "auditwheel==6.8.2\nmaturin==1.16.0\npatchelf==0.19.3.0\nwheel==0.48.0\nziglang==0.17.1\n";

pub(super) fn prepare() -> Result<Venv> {
    Venv::prepare("dist-tools", PACKAGES, None)
}

/// A compiler and linker for a target of Zig's, as a program that takes what `cc` does.
pub(super) fn compiler(tools: &Venv, target: &str) -> Result<PathBuf> {
    let bin = tools.folder().join("bin");
    let program = bin.join(format!("cc-{target}"));
    let bin = bin.display();
    // While pip builds a wheel, that variable hides the packages that are installed.
    let compile = format!("PATH={bin}:$PATH exec maturin zig cc -- -target {target} \"$@\"");
    files::script(&program, &format!("unset PYTHONPATH\n{compile}"))?;
    Ok(program)
}
