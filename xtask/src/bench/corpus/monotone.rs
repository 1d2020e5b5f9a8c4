//! Whether larger devices serve what a smaller one does.

use super::folder::Folder;
use super::recipe::Half;
use super::replay::{Granule, Larger};
use crate::bench::table::Table;
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Which programs are tried, and where figures go.
#[derive(Args)]
pub(super) struct Options {
    /// Only this half; both if absent
    #[arg(long, value_enum)]
    half: Option<Half>,
    /// Only these programs
    names: Vec<String>,
    /// Larger devices tried with each program, up to 1.1 times the smallest
    #[arg(long, value_name = "N", default_value_t = 40)]
    capacities: u64,
    /// How exact the smallest device is
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    step: String,
    /// Settings of the `granule` policy on top, as in GRANULE_CONF
    #[arg(long, value_name = "STR", default_value = "")]
    conf: String,
    /// Write the figures there, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A `granule` command that is there, instead of one that is built
    #[arg(long, value_name = "FILE")]
    granule: Option<PathBuf>,
}

/// A program on devices of several sizes.
struct Tried {
    name: String,
    half: &'static str,
    found: Larger,
}

pub(super) fn run(folder: &Folder, options: &Options) -> Result<()> {
    let granule = Granule::at(options.granule.as_deref())?;
    let mut tried = Vec::new();
    for recipe in folder.recipes()? {
        let is_meant = options.half.is_none_or(|half| half == recipe.fields.half)
            && (options.names.is_empty() || options.names.contains(&recipe.name));
        let Some(trace) = folder.trace(&recipe.name).filter(|_| is_meant) else { continue };
        let found = granule.larger(&trace, options.capacities, &options.step, &options.conf)?;
        eprintln!("tried {}", recipe.name);
        tried.push(Tried { name: recipe.name, half: recipe.fields.half.name(), found });
    }
    print!("{}", text(&tried));
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&json(&tried, options))?;
        std::fs::write(path, text).with_context(|| format!("{} could not be written", path.display()))?;
    }
    Ok(())
}

fn sum(tried: &[Tried], of: fn(&Larger) -> u64) -> u64 {
    tried.iter().map(|one| of(&one.found)).sum()
}

fn text(tried: &[Tried]) -> String {
    let mut table =
        Table::new(["program", "half", "smallest device", "larger tried", "refuse", "the largest of these"]);
    for Tried { name, half, found } in tried {
        let worst = found.refused.last().map_or_else(String::new, |worst| {
            #[allow(clippy::cast_precision_loss)]
            let factor = *worst as f64 / found.smallest as f64;
            format!("{factor:.4} ×")
        });
        let numbers = [found.smallest, found.tried, found.refused.len() as u64].map(|it| it.to_string());
        table.row([name.clone(), (*half).to_owned()].into_iter().chain(numbers).chain([worst]));
    }
    let all = sum(tried, |found| found.tried);
    format!(
        "{}\n{} of {all} larger devices refuse what a smaller one served.\n",
        table.text(),
        refused(tried)
    )
}

fn refused(tried: &[Tried]) -> u64 {
    sum(tried, |found| found.refused.len() as u64)
}

fn json(tried: &[Tried], options: &Options) -> Value {
    let programs: Vec<Value> = tried
        .iter()
        .map(|Tried { name, half, found }| {
            json!({
                "name": name, "half": half, "min_capacity": found.smallest, "tried": found.tried,
                "refused": found.refused,
            })
        })
        .collect();
    json!({
        "schema": 1, "conf": options.conf, "step": options.step, "capacities": options.capacities, "programs": programs,
        "tried": sum(tried, |found| found.tried), "violations": refused(tried),
    })
}

#[cfg(test)]
mod tests {
    use super::{Tried, text};
    use crate::bench::corpus::replay::Larger;

    #[test]
    fn each_device_that_refuses_counts() {
        let of = |name: &str, refused: &[u64]| Tried {
            name: name.into(),
            half: "choosing",
            found: Larger { smallest: 1000, tried: 4, refused: refused.to_vec() },
        };
        let text = text(&[of("a", &[]), of("b", &[1010, 1050])]);
        for expected in ["| a | choosing | 1000 | 4 | 0 |  |", "| b | choosing | 1000 | 4 | 2 | 1.0500 × |"]
        {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(text.ends_with("\n2 of 8 larger devices refuse what a smaller one served.\n"), "{text}");
    }
}
