//! Programs that are not Rust's: found, or installed where this is Debian and the user its administrator.

use super::{command, output, run};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Where programs are; those of `packages` are installed if one of them is missing.
pub(crate) fn programs(names: &[&str], packages: &[&str]) -> Result<Vec<PathBuf>> {
    let find = || names.iter().map(|name| on_path(name)).collect::<Option<Vec<_>>>();
    if let Some(found) = find() {
        return Ok(found);
    }
    if is_administrator() && Path::new("/usr/bin/apt-get").exists() {
        println!("installing {}", packages.join(", "));
        run(command("apt-get").args(["update", "-q"]))?;
        let install = ["install", "-q", "-y", "--no-install-recommends"];
        run(command("apt-get").args(install).args(packages))?;
    }
    let Some(found) = find() else {
        bail!(
            "{} are needed on the PATH: install them (Debian: apt-get install {})",
            names.join(", "),
            packages.join(" ")
        )
    };
    Ok(found)
}

/// Where a program is.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether this is the user who may do everything here.
pub(crate) fn is_administrator() -> bool {
    output(command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
