//! Runs programs on the rig, and takes their traces in.

use super::folder::Folder;
use super::recipe::{Recipe, with_hash};
use super::trace;
use crate::process::{self, files, root, target};
use crate::python::e2e_torch::Place;
use anyhow::{Result, bail};
use clap::Args;
use std::fs;

/// What is recorded.
#[derive(Args)]
pub(super) struct Options {
    /// Programs, by the names of `corpus list`
    #[arg(required = true, value_name = "NAME", value_parser = known)]
    names: Vec<String>,
    /// Where a program asks for other things than before: let its recipe follow
    #[arg(long)]
    update: bool,
}

/// The recorder's and the converter's folder.
const TOOLS: &str = "tests/nogpu-torch";
/// GiB of a device on which nothing is refused, so that a trace has all that its program asks for.
const AMPLE: &str = "3000";

fn known(name: &str) -> Result<String> {
    let recipes = super::folder().recipes()?;
    if recipes.iter().any(|it| it.name == name) {
        return Ok(name.to_owned());
    }
    bail!("the corpus has no such program: `cargo xtask corpus list` shows them")
}

pub(super) fn run(folder: &Folder, options: &Options) -> Result<()> {
    let place = Place::prepare(None)?;
    for name in &options.names {
        record(folder, &folder.recipe(name)?, &place, options.update)?;
    }
    Ok(())
}

fn record(folder: &Folder, recipe: &Recipe, place: &Place, update: bool) -> Result<()> {
    let name = recipe.name.as_str();
    let work = target().join("corpus/work");
    files::create(&work)?;
    let tool = |file: &str| root().join(TOOLS).join(file);
    process::run(
        place
            .python_on_rig()
            .env("FAKE_GPU_MEM_GB", AMPLE)
            .arg(tool("record.py"))
            .args([name, "--mode", "record", "--seed", &recipe.seed.to_string()])
            .args(["--iters", &recipe.iterations.to_string(), "--programs"])
            .arg(folder.program(&recipe.family))
            .arg("--out")
            .arg(work.join(format!("{name}.ev"))),
    )?;
    let made = work.join(format!("{name}.trace.gz"));
    process::run(
        place.python().arg(tool("convert.py")).arg(name).arg("--dir").arg(&work).arg("--out").arg(&made),
    )?;
    let hash = trace::hash_of(&made)?;
    if let Some(known) = &recipe.hash
        && *known != hash
        && !update
    {
        bail!(
            "{name} asks for other things than its recipe says ({hash}): undo what changed its program or the packages, \
             or run this again with --update; figures of before are then those of another program"
        );
    }
    let home = match folder.trace(name) {
        // The order of frees may differ, which is no change.
        Some(present) if trace::hash_of(&present).is_ok_and(|of_present| of_present == hash) => present,
        _ => folder.keep(name, &made)?,
    };
    if recipe.hash.as_ref() != Some(&hash) {
        let file = folder.recipe_file(name);
        fs::write(&file, with_hash(&fs::read_to_string(&file)?, &hash))?;
    }
    println!("{name}: {}", home.display());
    Ok(())
}
