//! A vendor's headers: where they are and which version they say they are.

use super::Api;
use crate::process::files;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(super) struct Headers {
    pub(super) api: Api,
    /// What the API is called.
    pub(super) title: &'static str,
    /// The include folder.
    pub(super) folder: PathBuf,
    /// The header that declares the API.
    pub(super) file: PathBuf,
    /// The version as people write it.
    pub(super) version: String,
    /// The ABI's generation.
    pub(super) major: u32,
}

impl Headers {
    pub(super) fn find(api: Api, folder: &Path) -> Result<Headers> {
        let folder = std::path::absolute(folder)?;
        match api {
            Api::Hip => {
                let text = files::read(folder.join("hip/hip_version.h"))?;
                let number = |part: &str| defined(&text, &format!("HIP_VERSION_{part}"));
                let (major, minor, patch) = (number("MAJOR")?, number("MINOR")?, number("PATCH")?);
                let file = folder.join("hip/hip_runtime_api.h");
                let version = format!("{major}.{minor}.{patch}");
                Ok(Headers { api, title: "HIP", folder, file, version, major })
            }
            Api::Cuda => {
                let file = folder.join("cuda.h");
                let version = defined(&files::read(&file)?, "CUDA_VERSION")?;
                let (major, minor) = (version / 1000, version % 1000 / 10);
                let version = format!("{major}.{minor}");
                Ok(Headers { api, title: "CUDA driver", folder, file, version, major })
            }
        }
    }
}

/// The number that a header defines under a name.
fn defined(text: &str, name: &str) -> Result<u32> {
    let value = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("#define") && words.next() == Some(name)).then(|| words.next())?
    });
    value.and_then(|value| value.parse().ok()).with_context(|| format!("the header does not define {name}"))
}
