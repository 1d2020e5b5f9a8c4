//! Programs that are not Rust's: found, or installed where this is Debian and the user its administrator.

use super::{command, files, output, run};
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

/// Makes Debian 12, with these arguments of mmdebstrap, where it is not there yet: an archive `.tar`, or a folder.
pub(crate) fn system(place: &Path, arguments: &[&str]) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    // What ended too early would be taken for a whole one.
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = place.with_file_name(format!("unfinished-{name}"));
    if unfinished.is_dir() {
        files::remove(&unfinished)?;
    }
    run(command("mmdebstrap").args(arguments).arg("bookworm").arg(&unfinished))?;
    Ok(std::fs::rename(unfinished, place)?)
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
