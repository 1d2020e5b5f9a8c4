//! Replays what is here, half by half.

use super::folder::Folder;
use super::recipe::Half;
use super::replay::Granule;
use super::trace;
use super::verdict::{Judged, Verdict};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::PathBuf;

/// What is judged, and where figures go.
#[derive(Args, Default)]
pub(super) struct Options {
    /// Only this half; both if absent
    #[arg(long, value_enum)]
    half: Option<Half>,
    /// Write the figures there, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A `granule` command that is there, instead of one that is built
    #[arg(long, value_name = "FILE")]
    granule: Option<PathBuf>,
}

pub(super) fn run(folder: &Folder, options: &Options) -> Result<()> {
    let verdict = judge(folder, options)?;
    print!("{}", verdict.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&verdict.json())?;
        std::fs::write(path, text).with_context(|| format!("{} could not be written", path.display()))?;
    }
    if !verdict.changed.is_empty() {
        let names = verdict.changed.join(" ");
        bail!(
            "traces that are not their recipes': {names}; they were not replayed. Fetch them anew from the repository, or \
             make them: cargo xtask corpus record {names}"
        );
    }
    Ok(())
}

fn judge(folder: &Folder, options: &Options) -> Result<Verdict> {
    let (mut verdict, mut granule) = (Verdict::default(), None);
    for recipe in folder.recipes()? {
        if options.half.is_some_and(|half| half != recipe.fields.half) {
            continue;
        }
        let Some(path) = folder.trace(&recipe.name) else {
            verdict.missing.push(recipe.name);
            continue;
        };
        if Some(trace::hash_of(&path)?) != recipe.fields.hash {
            verdict.changed.push(recipe.name);
            continue;
        }
        if granule.is_none() {
            granule = Some(Granule::at(options.granule.as_deref())?);
        }
        let granule = granule.as_ref().context("the command was made above")?;
        let figures = granule.figures(&path).with_context(|| recipe.name.clone())?;
        verdict.judged.push(Judged { recipe, figures });
    }
    Ok(verdict)
}
