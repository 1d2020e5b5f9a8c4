//! Every mutant against the checks that should catch it.

use crate::mutants::{self, Mutant};
use crate::subjects::{impatient, mutated};
use granule_conformance::{Options, Scorecard, checks};
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks mostly wait, so that many mutants run beside each other.
const WORKERS: usize = 12;

/// With it every mutant meets every check; without it, those of its own area.
const LONG: &str = "GRANULE_LONG";

/// Every mutant is caught by the check it names, and every check fails on one mutant at least. That checks
/// pass where nothing is wrong is what the other trials show.
pub(crate) fn every_check_and_every_mutant() -> Result<(), Failed> {
    let cards = run_all();
    let mut faults = Vec::new();
    let mut failing = BTreeSet::new();
    for (mutant, card) in &cards {
        match card {
            Ok(card) => {
                failing.extend(card.failures());
                if card.failures().any(|check| check == mutant.caught_by) || caught_alone(mutant) {
                    failing.insert(mutant.caught_by);
                } else {
                    faults.push(format!("{} is not caught by {}", mutant.name, mutant.caught_by));
                }
            }
            Err(error) => faults.push(format!("{} did not run: {error}", mutant.name)),
        }
    }
    let never = checks::all().filter(|check| !failing.contains(check.name));
    faults.extend(never.map(|check| format!("{} fails on no mutant", check.name)));
    println!("{}", matrix(&cards));
    if !faults.is_empty() {
        return Err(faults.join("\n").into());
    }
    let (mutants, checks) = (cards.len(), checks::all().count());
    println!("{mutants} mutants, each caught by the check it names");
    println!("{checks} checks, each fails on at least one of them");
    Ok(())
}

type Cards = Vec<(&'static Mutant, Result<Scorecard, String>)>;

fn run_all() -> Cards {
    let all: Vec<&'static Mutant> = mutants::all().collect();
    let (next, cards) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((place, mutant)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, *all.get(n)?)))
                {
                    let options = Options { only: chosen(mutant), ..impatient(mutant) };
                    let card = run(mutant, &options);
                    cards.lock().expect("no worker panics").insert(place, (mutant, card));
                }
            });
        }
    });
    cards.into_inner().expect("no worker panics").into_values().collect()
}

fn run(mutant: &'static Mutant, options: &Options) -> Result<Scorecard, String> {
    let card = granule_conformance::run(&mutated(mutant), options, |_| Ok(()));
    card.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Whether a mutant is caught with the machine to itself, at one of a few tries. On a busy one, what comes too early
/// by a little may come late enough to look right.
fn caught_alone(mutant: &'static Mutant) -> bool {
    let options = Options { only: vec![mutant.caught_by.to_owned()], ..impatient(mutant) };
    (0..5).any(|_| {
        let card = run(mutant, &options);
        card.is_ok_and(|card| card.failures().any(|check| check == mutant.caught_by))
    })
}

/// The checks that a mutant meets; none for all of them.
fn chosen(mutant: &Mutant) -> Vec<String> {
    if std::env::var_os(LONG).is_some() {
        return Vec::new();
    }
    let area = |name: &'static str| name.split('.').next();
    let near = |name: &&'static str| *name == mutant.caught_by || area(name) == area(mutant.name);
    checks::all().map(|check| check.name).filter(near).map(str::to_owned).collect()
}

/// A paragraph per mutant: what is wrong with it, the check that must catch it, and whether others do.
fn matrix(cards: &Cards) -> String {
    let mut text = String::new();
    for (mutant, card) in cards {
        let _ = writeln!(text, "{}: {}", mutant.name, mutant.what);
        let Ok(card) = card else { continue };
        for check in card.failures() {
            let mark = if check == mutant.caught_by { '*' } else { ' ' };
            let _ = writeln!(text, "  {mark} {check}");
        }
    }
    text
}
