//! Planted defects: a copy of the tree has all of them, each in one line of the engine. One at a time is chosen, and a night
//! has to notice.

use super::{Night, Report, build};
use crate::process;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const PLANTS: &str = "tests/night/plants.toml";
/// What stands for "this one is chosen" in a plant.
const PLANTED: &str = "PLANTED";
/// The file of the engine that gets [`CHOSEN`].
const SWITCH: &str = "crates/alloc-core/src/lib.rs";
/// Whether a plant is chosen: one at a time, by the environment.
const CHOSEN: &str = r#"
pub(crate) fn planted(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("NIGHT_PLANT").ok()).as_deref() == Some(name)
}
"#;

/// All plants.
#[derive(Deserialize)]
struct Plants {
    plant: Vec<Plant>,
}

/// One changed line: `after` takes the place of `before`, and does what that did unless the plant is chosen.
#[derive(Deserialize)]
struct Plant {
    name: String,
    file: String,
    before: String,
    after: String,
    /// The defect of the real world that it is like.
    like: String,
    /// Chosen without looking whether the oracles find it.
    #[serde(default)]
    held_back: bool,
}

/// More than a history may take to notice that its time is over: then it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks for a plant, or all of them. 0 where all were found, 1 where one was not.
pub(super) fn run(name: &str, time: Duration, json: Option<&Path>) -> Result<u8> {
    let plants: Plants = toml::from_str(&process::files::read(PLANTS)?).context(PLANTS)?;
    let chosen: Vec<_> = plants.plant.iter().filter(|plant| name == "all" || plant.name == name).collect();
    if chosen.is_empty() {
        let known: Vec<_> = plants.plant.iter().map(|plant| plant.name.as_str()).collect();
        bail!("{PLANTS} has no plant {name:?}; it has all: {}", known.join(", "));
    }
    let folder = process::target().join("plants");
    let tree = folder.join("tree");
    copy(&tree, &plants.plant)?;
    // As tests are built: that takes a small part of the time of a night's build.
    let program = build(&tree, &folder.join("target"), "dev", false)?;
    let (mut rows, mut missed) = (Vec::new(), false);
    for plant in chosen {
        println!("{}: {}", plant.name, plant.like);
        let night = Night {
            program: program.clone(),
            first: 1,
            jobs: process::cores() as u64,
            plant: Some(plant.name.clone()),
        };
        let begun = Instant::now();
        let found = first_finding(&night, time)?;
        let (name, seconds) = (&plant.name, begun.elapsed().as_secs_f64());
        match &found {
            Some(line) => println!("found {name} after {seconds:.1} s: {line}"),
            None => println!("{name} was not found in {seconds:.1} s"),
        }
        missed |= found.is_none();
        rows.push(json!({
            "plant": name, "like": plant.like, "held_back": plant.held_back, "found": found, "seconds": seconds,
        }));
        if let Some(file) = json {
            process::write_json(file, &rows)?;
        }
    }
    Ok(u8::from(missed))
}

/// The first thing that any process finds; the others are ended then. One that crashes, or comes to no end, has found something,
/// too.
fn first_finding(night: &Night, time: Duration) -> Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    let file = |job: u64| folder.path().join(job.to_string());
    let begin = |job: u64| night.begin(night.first + job, time, &file(job));
    let mut children = (0..night.jobs).map(begin).collect::<Result<Vec<_>>>()?;
    let (begun, mut running) = (Instant::now(), true);
    let mut found = None;
    while found.is_none() && running {
        std::thread::sleep(Duration::from_millis(20));
        running = false;
        for (child, job) in children.iter_mut().zip(0..) {
            let Some(status) = child.try_wait()? else {
                running = true;
                continue;
            };
            found = found.or(match status.code() {
                Some(0) => None,
                Some(1) => {
                    let mut report = Report::default();
                    report.add(&serde_json::from_slice(&fs::read(file(job))?)?);
                    report.last_line()
                }
                _ => Some(format!("oracle=crash ({status})")),
            });
        }
        if running && begun.elapsed() > time + PATIENCE {
            found = found.or(Some("oracle=hang".into()));
        }
    }
    for child in &mut children {
        // One that has ended is not there any more.
        let _ = child.kill();
        child.wait()?;
    }
    Ok(found)
}

/// Copies the tree's files, with all plants; those that are the same already stay, so that little is built.
fn copy(tree: &Path, plants: &[Plant]) -> Result<()> {
    let listed = "ls-files --cached --others --exclude-standard -- Cargo.toml Cargo.lock crates tests xtask";
    let listed = process::output(process::command("git").args(listed.split(' ')))?;
    let mut planted = changed(plants)?;
    for name in listed.lines() {
        let (from, to) = (process::root().join(name), tree.join(name));
        let Some(bytes) = planted.remove(name).map(String::into_bytes).or_else(|| fs::read(from).ok()) else {
            continue;
        };
        if !fs::read(&to).is_ok_and(|there| there == bytes) {
            process::files::create(to.parent().unwrap_or(tree))?;
            fs::write(&to, bytes).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}

/// The files that plants change, by name, and the one that says which is chosen.
fn changed(plants: &[Plant]) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::from([(SWITCH.to_owned(), process::files::read(SWITCH)? + CHOSEN)]);
    for Plant { name, file, before, after, .. } in plants {
        let text = match files.remove(file) {
            Some(text) => text,
            None => process::files::read(file)?,
        };
        match text.matches(before.as_str()).count() {
            1 if after.contains(PLANTED) => {
                let after = after.replace(PLANTED, &format!("crate::planted(\"{name}\")"));
                files.insert(file.clone(), text.replacen(before, &after, 1));
            }
            1 => bail!("{name}: what it makes of the line does not say {PLANTED}"),
            count => bail!("{name}: {file} has {count} places with {before:?}, not 1"),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{PLANTS, Plants, changed, process};
    use std::collections::BTreeSet;

    #[test]
    fn every_plant_has_its_place_and_changes_something() {
        let plants: Plants = toml::from_str(&process::files::read(PLANTS).unwrap()).unwrap();
        let names: BTreeSet<_> = plants.plant.iter().map(|plant| &plant.name).collect();
        assert_eq!(names.len(), plants.plant.len(), "names differ");
        assert!(
            plants.plant.len() >= 55 && plants.plant.iter().filter(|plant| plant.held_back).count() >= 19
        );
        let files = changed(&plants.plant).unwrap();
        let text: String = files.into_values().collect();
        for name in names {
            assert!(text.contains(&format!("crate::planted(\"{name}\")")), "{name}");
        }
    }
}
