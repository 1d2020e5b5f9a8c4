//! Replays what is here, half by half.

use super::folder::Folder;
use super::recipe::Half;
use super::replay::{Conditions, Granule};
use super::trace;
use super::verdict::{Judged, Verdict};
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;

/// What is judged.
#[derive(Args, Default)]
pub(super) struct Options {
    /// Only this half; both if absent
    #[arg(long, value_enum)]
    half: Option<Half>,
    #[command(flatten)]
    conditions: Conditions,
    /// Multiples of the sizes of requests: figures are means. Placements are chaotic, so those of one size say little of a change
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = "1")]
    scales: Vec<f64>,
}

pub(super) fn run(folder: &Folder, options: &Options) -> Result<()> {
    ensure!(options.conditions.lag.len() == 2, "--lag takes two numbers of events: 1000,10000");
    let verdict = judge(folder, options)?;
    print!("{}", verdict.text());
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
    let lag = options.conditions.lag.clone();
    let (mut verdict, mut found) = (Verdict { lag, ..Verdict::default() }, Vec::new());
    for recipe in folder.recipes()? {
        if options.half.is_some_and(|half| half != recipe.half) {
            continue;
        }
        match folder.trace(&recipe.name) {
            None => verdict.missing.push(recipe.name),
            Some(path) if Some(trace::hash_of(&path)?) != recipe.hash => {
                verdict.changed.push(recipe.name);
            }
            Some(path) => found.push((recipe, path)),
        }
    }
    if found.is_empty() {
        return Ok(verdict);
    }
    let granule = Granule::build(options.conditions.clone())?;
    let figures = process::side_by_side(&found, |(_, trace)| {
        let figures = granule.figures(trace, &options.scales);
        eprintln!("replayed {}", trace.display());
        figures.with_context(|| trace.display().to_string())
    })?;
    verdict.judged =
        found.into_iter().zip(figures).map(|((recipe, _), figures)| Judged { recipe, figures }).collect();
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::{Conditions, Options, judge, run};
    use crate::bench::corpus::folder::Folder;
    use crate::bench::corpus::recipe::{tests::TEXT, with_hash};
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;

    /// A corpus of one program, whose recipe has this hash.
    fn planted(path: &Path, hash: &str) -> Folder {
        fs::write(path.join("planted-trace.toml"), with_hash(TEXT, hash)).unwrap();
        Folder::at(path.to_owned())
    }

    /// `main` makes exit code 1 of an error and 0 of none.
    #[test]
    fn a_trace_that_is_not_its_recipes_is_an_error_and_a_missing_one_is_none() {
        let place = tempfile::tempdir().unwrap();
        let folder = planted(place.path(), &"0".repeat(64));
        let conditions = Conditions { lag: vec![100, 1000], ..Conditions::default() };
        let options = Options { conditions, ..Options::default() };
        run(&folder, &options).unwrap();
        assert_eq!(judge(&folder, &options).unwrap().missing, ["planted-trace"]);

        let traces = place.path().join("traces");
        fs::create_dir(&traces).unwrap();
        let file = File::create(traces.join("planted-trace.trace.gz")).unwrap();
        let mut file = GzEncoder::new(file, Compression::fast());
        file.write_all(b"# {}\na 0 512 0\n").unwrap();
        file.finish().unwrap();
        let error = run(&folder, &options).unwrap_err().to_string();
        assert!(error.contains("cargo xtask corpus record planted-trace"), "{error}");
    }
}
