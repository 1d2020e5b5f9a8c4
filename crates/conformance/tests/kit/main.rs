//! The kit over the simulator, and the proof that the kit fails when it should.

mod matrix;
mod subjects;

use conformance::child;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if child::is_child() {
        return subjects::serve_child();
    }
    let mut trials: Vec<Trial> = subjects::SETUPS
        .iter()
        .map(|setup| Trial::test(format!("kit::{}", setup.name), move || kit_passes(setup)))
        .collect();
    trials.push(Trial::test("kit::names_and_rules", names_and_rules));
    trials.push(Trial::test("matrix", matrix::every_check_and_every_mutant));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// No check fails; families that are there are not skipped.
fn kit_passes(setup: &'static subjects::Setup) -> Result<(), Failed> {
    let card = conformance::run(&setup.subject(), &setup.options(), |_| {})?;
    println!("{card}");
    if card.is_green() { Ok(()) } else { Err(card.to_string().into()) }
}

/// Names are unique, begin with their area, and rules are said.
fn names_and_rules() -> Result<(), Failed> {
    let mut names: Vec<&str> = conformance::checks::all().map(|check| check.name).collect();
    let count = names.len();
    for check in conformance::checks::all() {
        let area = serde_json::to_value(check.area)?;
        if check.name.split_once('.').map(|(first, _)| first) != area.as_str() || check.rule.len() < 10 {
            return Err(format!("{}: {} ({area})", check.name, check.rule).into());
        }
    }
    names.sort_unstable();
    names.dedup();
    if names.len() != count || count < 120 {
        return Err(format!("{count} checks, {} names", names.len()).into());
    }
    Ok(())
}
