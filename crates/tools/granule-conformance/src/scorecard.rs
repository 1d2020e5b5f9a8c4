//! The result of a run, line by line, as text and as JSON.

use crate::{Area, Outcome};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// The version of a line as JSON; it grows where a name or a meaning changes.
const SCHEMA: u32 = 2;

/// How the reason begins for which an area is not run that needs another one.
pub(crate) const MEND: &str = "not run: mend ";

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
        /// Its checks.
        #[serde(skip)]
        checks: &'c [Scored],
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
    /// Whether it failed as one before it in its area did, or behind many: its name is told with its area.
    #[serde(skip)]
    pub brief: bool,
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
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Check(check) if check.outcome.failure().is_some())
    }

    /// Writes the line at once and in one piece, as JSON or as text: a run that is killed leaves whole lines. The text of a
    /// check is empty unless it tells of a failure.
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
            true => serde_json::to_string(&Versioned { schema: SCHEMA, line: self })? + "\n",
            false => self.to_string(),
        };
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(check) if check.brief => Ok(()),
            Self::Check(check) => check.fmt(f),
            Self::Area { area, tally, checks } => area_text(area, *tally, checks, f),
            Self::Card(card) => card.totals(f),
        }
    }
}

/// The counts; the failures that were not told; why checks were skipped, each reason once.
fn area_text(area: &str, tally: Tally, checks: &[Scored], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for check in checks {
        let Outcome::Skipped(why) = &check.outcome else { continue };
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, count)) => *count += 1,
            None => reasons.push((why, 1)),
        }
    }
    if let [(why, count)] = reasons[..]
        && count == checks.len()
    {
        return writeln!(f, "{area}: {count} skipped: {why}");
    }
    writeln!(f, "{area}: {tally}")?;
    let brief: Vec<&str> = checks.iter().filter(|check| check.brief).map(|check| check.name).collect();
    for (line, names) in brief.chunks(3).enumerate() {
        let head = if line == 0 { "FAILED  " } else { "" };
        writeln!(f, "{head:<9}{}", names.join(", "))?;
    }
    reasons.iter().try_for_each(|(why, count)| writeln!(f, "skipped  {count}: {why}"))
}

/// A failure; nothing where there is none.
impl fmt::Display for Scored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(why) = self.outcome.failure() else { return Ok(()) };
        writeln!(f, "FAILED   {}: {}\n         {why}", self.name, self.rule)?;
        self.see.as_ref().map_or(Ok(()), |see| {
            // In the tree first: it needs no network.
            let page = see.find("docs/").map_or(see.as_str(), |path| &see[path..]);
            writeln!(f, "         see: {page}")
        })
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
        self.checks.iter().filter(|check| check.outcome.failure().is_some()).map(|check| check.name)
    }

    fn totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mend = self.checks.iter().find_map(|check| match &check.outcome {
            Outcome::Skipped(why) => why.strip_prefix(MEND),
            _ => None,
        });
        if let Some(mend) = mend {
            writeln!(f, "mend {mend}, then run the kit again; --keep-going runs what builds on it, too")?;
        }
        if self.tally.failed > 0 {
            writeln!(f, "docs/ is in Granule's tree: {}", env!("CARGO_PKG_REPOSITORY"))?;
        }
        writeln!(f, "{}: {}", self.backend, self.tally)
    }
}

/// What failed, then the counts: what matters most is at the end, where a terminal shows it.
impl fmt::Display for Scorecard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checks.iter().try_for_each(|check| check.fmt(f))?;
        self.totals(f)
    }
}
