//! What a personality's file says of itself. The lookalikes check the rest of it.

use crate::process::files;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;

/// A personality.
#[derive(Debug, Deserialize)]
pub(super) struct Personality {
    #[serde(skip)]
    pub(super) name: String,
    cuda: Option<Part>,
    hip: Option<Part>,
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    expect: Expect,
}

/// What a program is to find.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct Expect {
    /// Whether there is a device to work on.
    pub(super) starts: bool,
    /// Why checks of the kit are skipped: parts of the reasons.
    pub(super) skips: Vec<String>,
    /// Checks of the kit that fail.
    pub(super) fails: Vec<String>,
    /// What every device does without.
    pub(super) drops: Vec<String>,
    /// The same, found by contents: under the policy that needs it, where memory has bytes.
    pub(super) disproves: Vec<String>,
    /// Whether a recorded program has all figures of the simulated device, or only what it asked for and got.
    pub(super) exact: bool,
    /// The kind of segments.
    pub(super) segments: Segments,
}

impl Default for Expect {
    fn default() -> Self {
        let (skips, fails, drops, disproves) = Default::default();
        Self { exact: true, starts: true, skips, fails, drops, disproves, segments: Segments::Growable }
    }
}

impl Expect {
    /// What whoever looks at every device finds that it does without.
    pub(super) fn found(&self) -> impl Iterator<Item = &str> {
        self.drops.iter().chain(&self.disproves).map(String::as_str)
    }
}

/// Whether segments grow.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Segments {
    Growable,
    Fixed,
}

impl Personality {
    /// The backends that have such a driver, and what they find.
    pub(super) fn drivers(&self) -> impl Iterator<Item = (&'static str, &Expect)> {
        let drivers = [("cuda", &self.cuda), ("hip", &self.hip)];
        drivers.into_iter().filter_map(|(name, part)| Some((name, &part.as_ref()?.expect)))
    }
}

/// The personalities of a folder, by name, or only those that are named.
pub(super) fn read(folder: &Path, only: &[String]) -> Result<Vec<Personality>> {
    let mut all = Vec::new();
    for path in files::in_folder(folder, "toml")? {
        let read: Personality =
            toml::from_str(&files::read(&path)?).with_context(|| path.display().to_string())?;
        all.push(Personality {
            name: path.with_extension("").file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ..read
        });
    }
    if let Some(unknown) = only.iter().find(|name| !all.iter().any(|known| known.name == **name)) {
        let names: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
        bail!("there is no personality '{unknown}'; there are {}", names.join(", "));
    }
    all.retain(|known| only.is_empty() || only.contains(&known.name));
    Ok(all)
}
