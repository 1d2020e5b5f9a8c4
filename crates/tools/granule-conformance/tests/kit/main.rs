//! The kit over the simulator, and the proof that the kit fails when it should.

mod matrix;
mod mutants;
mod runs;
mod subjects;

use granule_conformance::{Outcome, Scored, child};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(runs::PROGRAM) {
        return runs::program(name);
    }
    if child::is_child() {
        return subjects::serve_child();
    }
    let mut trials: Vec<Trial> = subjects::SETUPS
        .iter()
        .map(|setup| Trial::test(format!("kit::{}", setup.name), move || kit_passes(setup)))
        .collect();
    trials.push(Trial::test("kit::names_and_rules", names_and_rules));
    trials.extend(runs::trials());
    trials.push(Trial::test("matrix", matrix::every_check_and_every_mutant));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// No check fails, and none is skipped but for what the set-up lacks.
fn kit_passes(setup: &'static subjects::Setup) -> Result<(), Failed> {
    let card = granule_conformance::run(&setup.subject(), &setup.options(), |_| Ok(()))??;
    println!("{card}");
    let unasked = |check: &&Scored| matches!(&check.outcome, Outcome::Skipped(why) if !setup.may_skip(why));
    let skipped: Vec<&str> = card.checks.iter().filter(unasked).map(|check| check.name).collect();
    if !card.is_green() || !skipped.is_empty() {
        return Err(format!("{card}\nskipped although there: {skipped:?}").into());
    }
    Ok(())
}

/// Names are unique, begin with their area, and rules are said. An area's checks are together.
fn names_and_rules() -> Result<(), Failed> {
    let mut names: Vec<&str> = granule_conformance::checks::all().map(|check| check.name).collect();
    let count = names.len();
    for check in granule_conformance::checks::all() {
        let area = serde_json::to_value(check.area)?;
        if check.name.split_once('.').map(|(first, _)| first) != area.as_str() || check.rule.len() < 10 {
            return Err(format!("{}: {} ({area})", check.name, check.rule).into());
        }
    }
    let mut areas = granule_conformance::checks::areas();
    let parts = areas.len();
    areas.sort_unstable();
    areas.dedup();
    names.sort_unstable();
    names.dedup();
    if areas.len() != parts {
        return Err(format!("{parts} areas, {} names", areas.len()).into());
    }
    if names.len() != count || count < 120 {
        return Err(format!("{count} checks, {} names", names.len()).into());
    }
    Ok(())
}
