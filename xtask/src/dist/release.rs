//! `cargo xtask release`: what a tag publishes. The files of `cargo xtask dist` with their checksums go to a release on GitHub, the crates
//! to crates.io. The workflow gives the wheels to PyPI, which trusts it without a password.

use super::crates;
use crate::process::{self, command, files, target};
use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

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
    let mut found = [dist.to_owned(), dist.join("aarch64")]
        .into_iter()
        .filter(|folder| folder.is_dir())
        .map(|folder| files::in_folder(folder, "whl"))
        .collect::<Result<Vec<_>>>()?
        .concat();
    found.extend(files::in_folder(dist, "")?.into_iter().filter(|path| is_binary(path)));
    let mut sums = String::new();
    for file in found {
        let name = file.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        let to = out.join(&name);
        fs::copy(&file, &to)?;
        writeln!(sums, "{}  {name}", sum(&to)?)?;
    }
    Ok(fs::write(out.join(SUMS), sums)?)
}

fn is_binary(path: &Path) -> bool {
    path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("-musl"))
}

fn sum(file: &Path) -> Result<String> {
    Ok(Sha256::digest(fs::read(file)?).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The files of a release, each as its checksum says: what was built is what is published.
fn checked(out: &Path) -> Result<Vec<PathBuf>> {
    let sums = files::read(out.join(SUMS))?;
    let mut handed_out = vec![out.join(SUMS)];
    for line in sums.lines() {
        let (due, name) = line.split_once("  ").with_context(|| format!("{SUMS} has the line {line}"))?;
        let file = out.join(name);
        ensure!(sum(&file).with_context(|| name.to_owned())? == due, "{name} is not what its checksum says");
        handed_out.push(file);
    }
    for due in DUE {
        let there =
            sums.lines().any(|line| line.split("  ").nth(1).is_some_and(|name| name.starts_with(due)));
        ensure!(there, "there is no {due}…: build it with `cargo xtask dist`");
    }
    Ok(handed_out)
}

#[cfg(test)]
mod tests {
    use super::{Options, SUMS, checked, gather, run};
    use std::fs;
    use std::process::Command;

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
        let read =
            Command::new("sha256sum").args(["--check", "--strict", SUMS]).current_dir(&out).output().unwrap();
        assert!(read.status.success(), "{read:?}");
        fs::write(out.join("granule_alloc-0.1.0-abi3.whl"), "other").unwrap();
        assert!(checked(&out).unwrap_err().to_string().contains("is not what its checksum says"));
    }

    #[test]
    fn a_tag_of_another_version_publishes_nothing() {
        for tag in ["v0.0.9", "0.1.0", "v"] {
            let refused = run(&Options { upload: true, tag: tag.into() }).unwrap_err();
            assert!(refused.to_string().contains("is not the version"), "{refused}");
        }
    }
}
