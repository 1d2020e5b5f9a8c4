//! Python for 64-bit ARM, in an emulator: Debian's own, unpacked into a folder, and not installed.

use super::machine::Machine;
use super::tools;
use crate::process::{self, command, debian, files, target};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const EMULATOR: &str = "qemu-aarch64-static";
/// The version of Debian 12's Python; its glibc is 2.36.
const PYTHON: &str = "3.11";

pub(super) struct Python {
    system: PathBuf,
    packages: PathBuf,
}

impl Python {
    /// Gets the emulator and the system. No package is installed in it yet.
    pub(super) fn prepare() -> Result<Self> {
        debian::programs(&[EMULATOR, "mmdebstrap"], &["qemu-user-static", "mmdebstrap"])?;
        let system = target().join("dist-debian-arm64");
        debian::system(&system, &["--variant=extract", "--architectures=arm64", "--include=python3"])?;
        let packages = target().join("dist-check-arm64");
        files::remove(&packages)?;
        Ok(Self { system, packages })
    }

    /// Has this machine's pip take and unpack a wheel as that system's would.
    pub(super) fn install(&self, wheel: &Path) -> Result<()> {
        process::run(
            tools::prepare()?
                .program("python")
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"])
                .args(["--no-index", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON])
                .args(["--platform", &Machine::Arm.tag(), "--target"])
                .arg(&self.packages)
                .arg(wheel),
        )
    }

    /// Where a wheel's files are.
    pub(super) fn packages(&self) -> &Path {
        &self.packages
    }

    /// Runs a program of a package, and gives what it printed.
    pub(super) fn program(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let program = self.packages.join("bin").join(name);
        let program = program.to_str().with_context(|| format!("{} is not UTF-8", program.display()))?;
        self.output(&[&[program], arguments].concat())
    }

    /// Runs Python, and gives what it printed.
    pub(super) fn output(&self, arguments: &[&str]) -> Result<String> {
        let mut emulator = command(EMULATOR);
        emulator.arg("-L").arg(&self.system).arg(self.system.join("usr/bin/python3")).args(arguments);
        process::output(emulator.env("PYTHONPATH", &self.packages).env("PYTHONDONTWRITEBYTECODE", "1"))
    }
}
