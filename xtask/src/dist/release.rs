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
    let mut create = command("gh");
    create.args(["release", "create", tag, "--verify-tag", "--generate-notes"]).args(&handed_out);
    // It says which are published already.
    let dry_run = ["publish", "--dry-run", "--no-verify", "--allow-dirty"];
    let tried = command("cargo").args(dry_run).args(crates::due("")?).output()?;
    let said = String::from_utf8_lossy(&tried.stderr);
    eprint!("{said}");
    ensure!(tried.status.success(), "the crates cannot be published");
    if options.upload {
        let mut view = command("gh");
        view.args(["release", "view", tag]);
        return upload(&mut view, &mut create, command("cargo").arg("publish"), &crates::due(&said)?);
    }
    println!("not run: {create:?}");
    Ok(())
}

/// Goes on where an earlier run stopped. What cannot be taken back is last: cargo takes the crates in the order of their
/// dependencies, and waits for each.
fn upload(view: &mut Command, create: &mut Command, publish: &mut Command, due: &[String]) -> Result<()> {
    if !process::answers(view) {
        process::run(create)?;
    }
    if due.is_empty() { Ok(()) } else { process::run(publish.args(due)) }
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
    use super::{Options, checked, crates, gather, run, upload};
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

    #[test]
    fn a_release_that_stopped_goes_on_when_it_is_run_again() {
        let place = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            let mut shell = Command::new("sh");
            shell.current_dir(place.path()).args(["-c", script, "sh"]);
            shell
        };
        let uploaded = |ends: &str, due: &[String]| {
            let [mut view, mut create] = ["test -e made", "! test -e made && touch made"].map(shell);
            let mut publish = shell(&format!("echo $* > published; {ends}"));
            upload(&mut view, &mut create, &mut publish, due).is_ok()
        };
        let published = || fs::read_to_string(place.path().join("published")).unwrap();
        let all = crates::due("").unwrap();
        assert!(all.contains(&"-palloc-core".to_owned()) && !uploaded("exit 101", &all));
        let there = concat!(
            "warning: crate alloc-core@",
            env!("CARGO_PKG_VERSION"),
            " already exists on crates.io index"
        );
        let rest = crates::due(there).unwrap();
        assert!(rest.len() + 1 == all.len() && uploaded("exit 0", &rest));
        assert!(!published().contains("-palloc-core ") && published().contains("-pgranule "));
        fs::remove_file(place.path().join("published")).unwrap();
        assert!(uploaded("exit 101", &[]) && !place.path().join("published").exists(), "no crate is due");
    }
}
