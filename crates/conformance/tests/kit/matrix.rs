//! Every mutant against every check.

use crate::subjects::{impatient, mutated};
use conformance::mutants::{self, Mutant};
use conformance::{Scorecard, checks};
use libtest_mimic::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks mostly wait, so that many mutants run beside each other.
const WORKERS: usize = 12;

/// Where to write the matrix, too.
const FILE: &str = "GRANULE_MATRIX";

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
                if !card.failures().any(|check| check == mutant.caught_by) {
                    faults.push(format!("{} is not caught by {}", mutant.name, mutant.caught_by));
                }
            }
            Err(error) => faults.push(format!("{} did not run: {error}", mutant.name)),
        }
    }
    let never = checks::all().filter(|check| !failing.contains(check.name));
    faults.extend(never.map(|check| format!("{} fails on no mutant", check.name)));
    let text = matrix(&cards);
    println!("{text}");
    if let Some(path) = std::env::var_os(FILE) {
        std::fs::write(path, text)?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
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
                    let card = conformance::run(&mutated(mutant), &impatient(mutant), |_| {});
                    let card = card.map_err(|error| error.to_string());
                    cards.lock().expect("no worker panics").insert(place, (mutant, card));
                }
            });
        }
    });
    cards.into_inner().expect("no worker panics").into_values().collect()
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
    let _ = writeln!(text, "{} mutants, {} checks", cards.len(), checks::all().count());
    text
}
