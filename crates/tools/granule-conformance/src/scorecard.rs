//! The result of a run, line by line, as text and as JSON.

use crate::{Area, Outcome};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// The version of a line as JSON; it grows where a name or a meaning changes.
const SCHEMA: u32 = 2;

/// What a run tells as it goes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Line<'c> {
    /// A check has ended, or was not run.
    Check(&'c Scored),
    /// The last check of an area has ended.
    Area {
        /// The area by name.
        area: &'static str,
        /// How its checks ended.
        #[serde(flatten)]
        tally: Tally,
    },
    /// The run has ended.
    Card(&'c Scorecard),
}

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

/// How many checks ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Checks that hold.
    pub passed: usize,
    /// Checks that are broken.
    pub failed: usize,
    /// Checks that do not apply.
    pub skipped: usize,
}

/// All checks of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    /// What was checked.
    pub backend: String,
    /// How its checks ended.
    #[serde(flatten)]
    pub tally: Tally,
    /// Each check, in the order of the kit.
    #[serde(skip)]
    pub checks: Vec<Scored>,
}

impl Line<'_> {
    /// Whether it tells of a check that failed.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Check(Scored { outcome: Outcome::Failed(_), .. }))
    }

    /// Writes the line at once and in one piece, as JSON or as text: a run that is killed leaves whole lines.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(self, json: bool, out: &mut dyn Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Versioned<'c> {
            schema: u32,
            #[serde(flatten)]
            line: Line<'c>,
        }
        let text = match json {
            true => serde_json::to_string(&Versioned { schema: SCHEMA, line: self })?,
            false => self.to_string(),
        };
        out.write_all(format!("{text}\n").as_bytes())?;
        out.flush()
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(check) => {
                let (word, why) = match &check.outcome {
                    Outcome::Passed => ("passed", ""),
                    Outcome::Failed(why) => ("FAILED", why.as_str()),
                    Outcome::Skipped(why) => ("skipped", why.as_str()),
                };
                write!(f, "{word:<8} {}", check.name)?;
                // The card has the rest of a long answer.
                why.lines().next().map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            Self::Area { area, tally } => writeln!(f, "{area}: {tally}"),
            Self::Card(card) => card.fmt(f),
        }
    }
}

impl Tally {
    pub(crate) fn of(checks: &[Scored]) -> Self {
        let mut tally = Self::default();
        for check in checks {
            *match check.outcome {
                Outcome::Passed => &mut tally.passed,
                Outcome::Failed(_) => &mut tally.failed,
                Outcome::Skipped(_) => &mut tally.skipped,
            } += 1;
        }
        tally
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Scorecard {
    /// True where no check failed and one passed at least.
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.tally.failed == 0 && self.tally.passed > 0
    }

    /// The names of the checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.checks.iter().filter(|c| matches!(c.outcome, Outcome::Failed(_))).map(|c| c.name)
    }
}

/// What failed, then the counts: what matters most is at the end, where a terminal shows it.
impl fmt::Display for Scorecard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            if let Outcome::Failed(why) = &check.outcome {
                writeln!(f, "FAILED  {}\n        rule: {}\n        {why}", check.name, check.rule)?;
                if let Some(see) = &check.see {
                    writeln!(f, "        see: {see}")?;
                }
            }
        }
        if self.tally.skipped > 0 {
            writeln!(f, "{} skipped; the lines above that begin with `skipped` say why", self.tally.skipped)?;
        }
        write!(f, "{}: {}", self.backend, self.tally)
    }
}
