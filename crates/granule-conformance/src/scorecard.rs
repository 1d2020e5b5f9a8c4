//! The result of a run, as text and as JSON.

use crate::{Area, Outcome};
use serde::Serialize;
use std::fmt;

/// One check and how it ended.
#[derive(Clone, Debug, Serialize)]
pub struct Scored {
    /// The check's name.
    pub name: &'static str,
    /// Its part of the contract.
    pub area: Area,
    /// The rule it checks.
    pub rule: &'static str,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Where the guide for vendors tells of such a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
}

/// All checks of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    /// What was checked.
    pub subject: String,
    /// Checks that hold.
    pub passed: usize,
    /// Checks that are broken.
    pub failed: usize,
    /// Checks that do not apply.
    pub skipped: usize,
    /// Each check, in the order of the kit.
    pub checks: Vec<Scored>,
}

impl Scorecard {
    pub(crate) fn new(subject: &str, checks: Vec<Scored>) -> Self {
        let count = |wanted: fn(&Outcome) -> bool| checks.iter().filter(|c| wanted(&c.outcome)).count();
        Self {
            subject: subject.to_owned(),
            passed: count(|o| matches!(o, Outcome::Passed)),
            failed: count(|o| matches!(o, Outcome::Failed(_))),
            skipped: count(|o| matches!(o, Outcome::Skipped(_))),
            checks,
        }
    }

    /// True where no check failed and one passed at least.
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    /// The names of the checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.checks.iter().filter(|c| matches!(c.outcome, Outcome::Failed(_))).map(|c| c.name)
    }

    /// The reasons of skips, in the order of the kit, each with the checks that it holds for.
    fn skips(&self) -> Vec<(&str, Vec<&'static str>)> {
        let mut skips: Vec<(&str, Vec<&'static str>)> = Vec::new();
        for check in &self.checks {
            let Outcome::Skipped(why) = &check.outcome else { continue };
            match skips.iter_mut().find(|(reason, _)| reason == why) {
                Some((_, names)) => names.push(check.name),
                None => skips.push((why, vec![check.name])),
            }
        }
        skips
    }
}

/// A line per area, then the reasons of skips, then what failed, then the counts: what matters most is at the
/// end, where a terminal shows it.
impl fmt::Display for Scorecard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}", self.subject)?;
        let mut rest = self.checks.as_slice();
        while let Some(first) = rest.first() {
            let (area, others) = rest.split_at(rest.iter().take_while(|c| c.area == first.area).count());
            let passed = area.iter().filter(|c| c.outcome == Outcome::Passed).count();
            let name = first.name.split('.').next().unwrap_or(first.name);
            writeln!(f, "  {name:<16} {passed:>3} of {:>3}", area.len())?;
            rest = others;
        }
        for (why, names) in self.skips() {
            let (shown, more) = names.split_at(names.len().min(SHOWN));
            write!(f, "skipped {:>3}: {why}\n             {}", names.len(), shown.join(", "))?;
            match more.len() {
                0 => writeln!(f)?,
                more => writeln!(f, " and {more} more")?,
            }
        }
        for check in &self.checks {
            if let Outcome::Failed(why) = &check.outcome {
                writeln!(f, "FAILED  {}\n        rule: {}\n        {why}", check.name, check.rule)?;
                if let Some(see) = &check.see {
                    writeln!(f, "        see: {see}")?;
                }
            }
        }
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// So many names are shown of the checks that were skipped for one reason; JSON has all.
const SHOWN: usize = 3;
