//! An image, built from its Dockerfile and run, without a daemon.

use crate::process::{self, command, debian, files, target};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the Dockerfile begins with. No registry is asked: Debian's own packages make the same system.
const BASE: &str = "docker.io/library/debian:bookworm-slim";
const NAME: &str = "granule";

/// Takes an archive as the whole system of an image.
const UNPACK: &str = "FROM scratch\nADD debian.tar /\nCMD [\"bash\"]\n";

pub(super) struct Image {
    /// Where images and containers are while this lives.
    store: PathBuf,
}

impl Image {
    /// Builds with the files of a folder.
    pub(super) fn build(dockerfile: &Path, context: &Path) -> Result<Self> {
        debian::programs(&["buildah", "mmdebstrap"], &["buildah", "mmdebstrap"])?;
        let folder = target().join("dist-container");
        files::create(&folder)?;
        let system = folder.join("debian.tar");
        debian::system(&system, &["--variant=minbase"])?;
        let image = Self { store: folder.join("store") };
        fs::write(folder.join("Dockerfile"), UNPACK)?;
        process::run(image.buildah("build").args(["--quiet", "--tag", BASE]).arg(&folder))?;
        process::run(
            image
                .buildah("build")
                .args(["--pull=never", "--network=host", "--tag", NAME, "--file"])
                .arg(dockerfile)
                .arg(context),
        )?;
        Ok(image)
    }

    /// Runs what the image is for, with a folder where it expects files, and gives what it printed.
    pub(super) fn run(&self, files: &Path, arguments: &[&str]) -> Result<String> {
        let image = process::output(self.buildah("inspect").args(["--type=image", NAME]))?;
        let image: serde_json::Value = serde_json::from_str(&image)?;
        let entry = image["OCIv1"]["config"]["Entrypoint"].as_array().context("the image starts nothing")?;
        let entry = entry.iter().filter_map(serde_json::Value::as_str);
        let container = process::output(self.buildah("from").args(["--pull=never", NAME]))?;
        let volume = format!("{}:/data:ro", files.display());
        let run = ["--network=none", "--volume", &volume, container.trim(), "--"];
        process::output(self.buildah("run").args(run).args(entry).args(arguments))
    }

    fn buildah(&self, task: &str) -> Command {
        let mut buildah = command("buildah");
        buildah.arg("--root").arg(&self.store).arg("--runroot").arg(self.store.join("run"));
        // Whatever the kernel offers: plain folders, and a root folder instead of namespaces.
        buildah.args(["--storage-driver", "vfs", task]).env("BUILDAH_ISOLATION", "chroot");
        buildah
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(error) =
            process::run(self.buildah("rm").arg("--all")).and_then(|()| files::remove(&self.store))
        {
            println!("{}: {error}", self.store.display());
        }
    }
}
