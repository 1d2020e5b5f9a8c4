//! Planted defects: one line of the engine is changed in a copy of the tree, and a night has to notice.

use super::{Night, build, jobs};
use crate::process;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PLANTS: &str = "tests/night/plants.toml";

/// All plants.
#[derive(Deserialize)]
struct Plants {
    plant: Vec<Plant>,
}

/// One changed line.
#[derive(Deserialize)]
struct Plant {
    name: String,
    file: String,
    before: String,
    after: String,
    /// The defect of the real world that it is like.
    like: String,
}

/// Looks for a plant. 0 where it was found, 1 where it was not.
pub(super) fn run(name: &str, time: Duration) -> Result<u8> {
    let root = process::root();
    let plants: Plants =
        toml::from_str(&fs::read_to_string(root.join(PLANTS)).context(PLANTS)?).context(PLANTS)?;
    let Some(plant) = plants.plant.iter().find(|plant| plant.name == name) else {
        let known: Vec<_> = plants.plant.iter().map(|plant| plant.name.as_str()).collect();
        bail!("{PLANTS} has no plant {name:?}; it has {}", known.join(", "));
    };
    println!("{name}: {}", plant.like);
    let folder = process::target().join("plants");
    let tree = folder.join("tree");
    copy(&root, &tree, plant)?;
    let program = build(&tree, &folder.join("target"), false)?;
    let begun = Instant::now();
    let night = Night { program, first: 1, ops: 4000, jobs: jobs() };
    let found = night.run(time)?.last_line();
    let seconds = begun.elapsed().as_secs_f64();
    match &found {
        Some(line) => println!("found {name} after {seconds:.1} s: {line}"),
        None => println!("{name} was not found in {seconds:.1} s"),
    }
    Ok(u8::from(found.is_none()))
}

/// Copies the tree's files, with the plant; those that are the same already stay, so that little is built.
fn copy(root: &Path, tree: &Path, plant: &Plant) -> Result<()> {
    let listed = [
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        "Cargo.toml",
        "Cargo.lock",
        "crates",
        "tests",
        "xtask",
    ];
    let listed = process::output(process::command("git").args(listed))?;
    let mut planted = false;
    for name in listed.lines() {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(mut bytes) = fs::read(&from) else { continue };
        if name == plant.file {
            bytes = change(&bytes, plant)?;
            planted = true;
        }
        write_if_other(&to, &bytes)?;
    }
    if !planted {
        bail!("{}: there is no file {}", plant.name, plant.file);
    }
    Ok(())
}

fn change(bytes: &[u8], plant: &Plant) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(bytes)?;
    match text.matches(&plant.before).count() {
        1 => Ok(text.replacen(&plant.before, &plant.after, 1).into_bytes()),
        count => bail!("{}: {} has {count} places with {:?}, not 1", plant.name, plant.file, plant.before),
    }
}

fn write_if_other(to: &PathBuf, bytes: &[u8]) -> Result<()> {
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(to, bytes).with_context(|| to.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::{PLANTS, Plants, change};
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_plant_has_its_place_and_changes_something() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let plants: Plants = toml::from_str(&std::fs::read_to_string(root.join(PLANTS)).unwrap()).unwrap();
        let names: BTreeSet<_> = plants.plant.iter().map(|plant| &plant.name).collect();
        assert_eq!(names.len(), plants.plant.len(), "names differ");
        for plant in &plants.plant {
            let bytes = std::fs::read(root.join(&plant.file)).unwrap();
            assert_ne!(change(&bytes, plant).unwrap(), bytes, "{}", plant.name);
        }
    }
}
