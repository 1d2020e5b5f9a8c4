//! `cargo xtask release`: what a tag publishes. The files of `cargo xtask dist` with their checksums go to a release on GitHub, the crates
//! to crates.io. The workflow gives the wheels to PyPI, which trusts it without a password.

use super::crates;
use crate::process::{self, command, files, target};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// As `sha256sum --check` reads it.
const SUMS: &str = "SHA256SUMS";
/// How the names of the files begin without which there is no release.
const DUE: [&str; 3] = ["granule_alloc-", "granule_torch-", "granule-"];

/// The options of `cargo xtask release`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Publish; without it nothing leaves this machine, and cargo packs the crates as it would upload them
    #[arg(long)]
    upload: bool,

    /// The tag; the version is the workspace's where it is not given
    #[arg(long, default_value = concat!("v", env!("CARGO_PKG_VERSION")))]
    tag: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let (tag, version) = (&options.tag, env!("CARGO_PKG_VERSION"));
    ensure!(tag.strip_prefix('v') == Some(version), "the tag {tag} is not the version: v{version} is due");
    let out = target().join("dist/release");
    if !options.upload {
        gather(&target().join("dist"), &out)?;
    }
    let handed_out = checked(&out)?;
    let mut release = command("gh");
    release.args(["release", "create", tag, "--verify-tag", "--generate-notes"]).args(&handed_out);
    // Cargo takes them in the order of their dependencies, and waits for each.
    let mut publish = crates::command("publish")?;
    if options.upload {
        // What cannot be taken back is last.
        process::run(&mut release)?;
        return process::run(&mut publish);
    }
    println!("not run: {release:?}");
    process::run(publish.args(["--dry-run", "--no-verify", "--allow-dirty"]))
}

/// Copies what was built into one folder, with the checksums.
fn gather(dist: &Path, out: &Path) -> Result<()> {
    files::empty(out)?;
    let mut built = files::in_folder(dist, "")?;
    let arm = dist.join("aarch64");
    built.extend(if arm.exists() { files::in_folder(arm, "whl")? } else { Vec::new() });
    let mut sums = Command::new("sha256sum");
    sums.current_dir(out).arg("--");
    for file in built {
        let name = file.file_name().context("a file has a name")?;
        if file.is_file() && DUE.iter().any(|due| name.to_string_lossy().starts_with(due)) {
            fs::copy(&file, out.join(name))?;
            sums.arg(name);
        }
    }
    // Without a name it would read what is typed.
    Ok(fs::write(out.join(SUMS), process::output(sums.stdin(Stdio::null()))?)?)
}

/// The files of a release, each as its checksum says: what was built is what is published.
fn checked(out: &Path) -> Result<Vec<PathBuf>> {
    let handed_out = files::in_folder(out, "")?;
    for due in DUE {
        let is_due =
            |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(due));
        ensure!(handed_out.iter().any(is_due), "there is no {due}…: build it with `cargo xtask dist`");
    }
    process::output(Command::new("sha256sum").args(["--check", "--strict", SUMS]).current_dir(out))?;
    Ok(handed_out)
}

#[cfg(test)]
mod tests {
    use super::{Options, checked, gather, run};
    use std::fs;

    #[test]
    fn a_release_has_what_was_built_and_its_checksums() {
        let dist = tempfile::tempdir().unwrap();
        let out = dist.path().join("release");
        let missing = |part: &str| {
            gather(dist.path(), &out).unwrap();
            let error = checked(&out).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("cargo xtask dist"), "{error}");
        };
        missing("granule_alloc-");
        fs::create_dir(dist.path().join("aarch64")).unwrap();
        fs::write(dist.path().join("granule_alloc-0.1.0-abi3.whl"), "one").unwrap();
        fs::write(dist.path().join("aarch64/granule_torch-0.1.0-arm.whl"), "two").unwrap();
        fs::write(dist.path().join("notes"), "not handed out").unwrap();
        missing("granule-");
        fs::write(dist.path().join("granule-x86_64-unknown-linux-musl"), "three").unwrap();
        gather(dist.path(), &out).unwrap();
        assert_eq!(checked(&out).unwrap().len(), 4);
        fs::write(out.join("granule_alloc-0.1.0-abi3.whl"), "other").unwrap();
        assert!(checked(&out).unwrap_err().to_string().contains("did NOT match"));
    }

    #[test]
    fn a_tag_of_another_version_publishes_nothing() {
        for tag in ["v0.0.9", "0.1.0", "v"] {
            let refused = run(&Options { upload: true, tag: tag.into() }).unwrap_err();
            assert!(refused.to_string().contains("is not the version"), "{refused}");
        }
    }
}
