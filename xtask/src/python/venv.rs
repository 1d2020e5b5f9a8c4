//! Python environments in the build folder, made once and kept for as long as what they hold is what is asked for.

use crate::process::{self, command, files, target};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An environment whose packages are installed.
pub(crate) struct Venv {
    folder: PathBuf,
}

/// What was installed last, in the environment's folder.
const STAMP: &str = "granule-stamp.txt";

/// Has pip wait longer and try again: an index may be slow, or stop answering for a while.
pub(crate) const PATIENT_PIP: [(&str, &str); 2] = [("PIP_RETRIES", "10"), ("PIP_DEFAULT_TIMEOUT", "60")];

impl Venv {
    /// The environment of this name, with these lines of a requirements file installed.
    ///
    /// With a base, the packages of that environment are seen in this one, and only what they lack is installed.
    pub(crate) fn prepare(name: &str, requirements: &str, base: Option<&Path>) -> Result<Self> {
        let folder = target().join(name);
        let venv = Self { folder };
        let of_base = base.map_or_else(String::new, |base| format!("# over {}\n", base.display()));
        let wanted = format!("{of_base}{requirements}");
        let installed = fs::read_to_string(venv.folder.join(STAMP)).unwrap_or_default();
        if installed == wanted && venv.python().exists() {
            return Ok(venv);
        }
        if !venv.python().exists() || !installed.starts_with(&of_base) {
            venv.make()?;
        }
        if let Some(base) = base {
            venv.lie_over(base)?;
        }
        let size = if requirements.contains("torch") { "PyTorch is about 6 GB; " } else { "" };
        println!("installing into {} ({size}this is done once)", venv.folder.display());
        let list = venv.folder.join("requirements.txt");
        fs::write(&list, requirements).with_context(|| list.display().to_string())?;
        process::run(
            command(venv.python())
                .args(["-m", "pip", "install", "--disable-pip-version-check", "-r"])
                .arg(&list)
                .envs(PATIENT_PIP),
        )?;
        fs::write(venv.folder.join(STAMP), wanted)?;
        Ok(venv)
    }

    /// An environment of somebody's, as it is.
    pub(crate) fn existing(folder: &Path) -> Result<Self> {
        let venv = Self { folder: files::named(folder)? };
        ensure!(
            venv.python().exists(),
            "{} is no Python environment: it has no bin/python",
            venv.folder.display()
        );
        Ok(venv)
    }

    /// A new environment of this name with nothing but pip.
    pub(crate) fn empty(name: &str) -> Result<Self> {
        let venv = Self { folder: target().join(name) };
        venv.make()?;
        Ok(venv)
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// A program that a package brought. They find each other.
    pub(crate) fn program(&self, name: &str) -> Command {
        let bin = self.folder.join("bin");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut program = command(bin.join(name));
        program.env("PATH", format!("{}:{path}", bin.display()));
        program
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// An empty environment with pip, by whatever this machine has for it.
    fn make(&self) -> Result<()> {
        files::remove(&self.folder)?;
        let by_python = process::run(command("python3").args(["-m", "venv"]).arg(&self.folder));
        let Err(error) = by_python else { return Ok(()) };
        // Debian's python3 has no pip to put into it; a half-made folder is left.
        println!("{error}; trying virtualenv");
        if process::run(command("python3").args(["-m", "virtualenv", "--clear"]).arg(&self.folder)).is_err() {
            bail!(
                "no Python environment can be made here: install the package python3-venv (Debian, Ubuntu) or \
                 virtualenv (pip install --user virtualenv), and run this again"
            );
        }
        Ok(())
    }

    /// Makes the packages of another environment importable from this one.
    fn lie_over(&self, base: &Path) -> Result<()> {
        let own = site_packages(&self.folder)?;
        let file = own.join("base.pth");
        let theirs = site_packages(base)?;
        fs::write(&file, format!("{}\n", theirs.display())).with_context(|| file.display().to_string())
    }
}

/// Where an environment keeps its packages.
fn site_packages(venv: &Path) -> Result<PathBuf> {
    let lib = venv.join("lib");
    let pythons = files::in_folder(&lib, "").context("this is no Python environment")?;
    let mut packages = pythons.iter().map(|python| python.join("site-packages"));
    let packages = packages.find(|packages| packages.is_dir());
    Ok(fs::canonicalize(packages.with_context(|| format!("{} has no site-packages", lib.display()))?)?)
}
