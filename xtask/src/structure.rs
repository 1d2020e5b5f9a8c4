//! The shape of the code: how large types, files, functions and folders may be, and that modules do not import one
//! another in circles.
//!
//! [`source`] reads a checkout, [`modules`] and [`names`] find what its paths mean, [`cycles`], [`types`] and [`sizes`]
//! measure, [`limits`] says what is too much, [`known`] what is allowed for now. [`lines`] counts production lines.

mod attributes;
mod cycles;
mod known;
mod limits;
mod lines;
mod modules;
mod names;
mod production;
mod references;
mod sizes;
mod source;
#[cfg(test)]
mod tests;
mod types;

use crate::process;
use anyhow::{Result, bail};
use cycles::{Cycle, Graph, Level};
use known::Known;
use limits::{Breach, Breaches};
use modules::Tree;
use names::Names;
use serde::Serialize;
use serde_json::json;
use source::Package;
use std::path::PathBuf;
use types::Found;

/// What is to be done.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// The checkout to look at, where it is not this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print JSON: breaches, stale entries, every type with its methods and fields, and every cycle with its imports
    #[arg(long)]
    json: bool,
    /// Count production lines per crate and language, and check nothing
    #[arg(long, conflicts_with_all = ["strict", "update"])]
    lines: bool,
    /// Show every breach, also those that xtask/structure.toml allows for now
    #[arg(long, conflicts_with = "update")]
    strict: bool,
    /// Write xtask/structure.toml anew
    #[arg(long)]
    update: bool,
}

/// What was found of a library or a program.
#[derive(Serialize)]
struct Crate {
    root: String,
    types: Vec<Found>,
    cycles: Vec<Cycle>,
}

/// What was found, against what is known.
struct Report {
    crates: Vec<Crate>,
    /// All of them.
    breaches: Vec<Breach>,
    /// Those that nothing allows.
    new: Vec<Breach>,
    stale: Vec<String>,
    known: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = options.root.clone().unwrap_or_else(process::root);
    let packages = source::packages(&root)?;
    if options.lines {
        return print_lines(&packages, options.json);
    }
    let known = if options.strict { Known::default() } else { Known::read(&root)? };
    let report = report(&packages, &known);
    if options.update {
        let known = Known::of(&report.breaches);
        known.write(&root)?;
        report.new.iter().for_each(|breach| println!("allowed from now on: {breach}"));
        println!("wrote {} with {} entries", known::FILE, known.len());
        return Ok(());
    }
    report.print(options.json)?;
    let closing = report.closing();
    if !(report.new.is_empty() && report.stale.is_empty()) {
        bail!("{closing}");
    }
    if !options.json {
        println!("{closing}");
    }
    Ok(())
}

fn report(packages: &[Package], known: &Known) -> Report {
    let (mut crates, mut breaches) = (Vec::new(), Breaches::default());
    for package in packages {
        breaches.of_package(package);
        for root in &package.roots {
            let found = look_at(package, root);
            breaches.of_types(package, &found.types);
            breaches.of_cycles(&found.cycles);
            crates.push(found);
        }
    }
    let mut breaches = breaches.found;
    breaches.sort();
    let new = breaches.iter().filter(|breach| !known.allows(breach)).cloned().collect();
    let stale = known.stale(&breaches);
    Report { crates, breaches, new, stale, known: known.len() }
}

fn look_at(package: &Package, root: &str) -> Crate {
    let tree = Tree::read(package, root, &|source| source.production.as_ref());
    let names = Names::of(&tree);
    let cycles = [Level::TopLevelModules, Level::Files]
        .into_iter()
        .flat_map(|level| Graph::of(&tree, &names, level).cycles(level, root));
    Crate { root: root.to_owned(), types: types::types(&tree, &names), cycles: cycles.collect() }
}

impl Report {
    fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            let answer = json!({
                "schema": 1,
                "breaches": self.new,
                "stale": self.stale,
                "known": self.known,
                "crates": self.crates,
            });
            println!("{}", serde_json::to_string_pretty(&answer)?);
            return Ok(());
        }
        self.new.iter().for_each(|breach| println!("{breach}"));
        self.stale.iter().for_each(|entry| println!("stale, {entry}"));
        Ok(())
    }

    fn closing(&self) -> String {
        let Self { new, stale, known, .. } = self;
        let advice = match (new.is_empty(), stale.is_empty()) {
            (true, true) => "",
            (false, _) => "; --json shows the imports of cycles, the methods and fields of types",
            (true, false) => "; cargo xtask structure --update takes stale entries off the list",
        };
        format!(
            "structure: {} breaches, {} stale entries, {known} known excesses{advice}",
            new.len(),
            stale.len()
        )
    }
}

fn print_lines(packages: &[Package], as_json: bool) -> Result<()> {
    let counts = packages
        .iter()
        .map(|package| Ok((package.folder.clone(), lines::count(package)?)))
        .filter(|count| count.as_ref().map_or(true, |(_, count)| !count.is_empty()))
        .collect::<Result<Vec<_>>>()?;
    if as_json {
        let packages: serde_json::Map<_, _> = counts
            .into_iter()
            .map(|(package, count)| {
                let by_language =
                    count.into_iter().map(|(language, lines)| (language.name().to_owned(), lines.into()));
                (package, serde_json::Value::Object(by_language.collect()))
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&json!({ "schema": 1, "lines": packages }))?);
    } else {
        print!("{}", lines::table(&counts));
    }
    Ok(())
}
