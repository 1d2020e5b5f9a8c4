//! How many tests passed, from what test programs print.

use std::fmt;

/// What tests came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    programs: u32,
    passed: u32,
    failed: Vec<String>,
    ignored: u32,
    filtered: u32,
    /// Tests that passed in the program that runs.
    under_way: Option<u32>,
    /// Programs that did not come to their end.
    cut_off: u32,
    /// Runs of which not every program came to its end, or to a good one.
    broken: u32,
}

impl Counts {
    /// Counts what a line says; whether a reader wants to see it.
    pub(super) fn note(&mut self, line: &str) -> bool {
        if line.starts_with("running ") {
            self.cut();
            self.under_way = Some(0);
        }
        if let Some(passed) =
            self.under_way.as_mut().filter(|_| line.starts_with("test ") && line.ends_with(" ... ok"))
        {
            *passed += 1;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.under_way = None;
            self.programs += 1;
            let number = |what| {
                let mut parts = result.split([';', '.']).map(str::trim);
                parts.find_map(|part| part.strip_suffix(what)?.trim().parse::<u32>().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.ignored += number("ignored");
            self.filtered += number("filtered out");
            return false;
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed.push(name.to_owned());
            return true;
        }
        !line.trim().is_empty() && !line.ends_with(" ... ok") && !line.starts_with("running ")
    }

    /// The program that ran has not said how it ended: what passed before counts.
    fn cut(&mut self) {
        if let Some(passed) = self.under_way.take() {
            (self.passed, self.cut_off, self.programs) =
                (self.passed + passed, self.cut_off + 1, self.programs + 1);
        }
    }

    /// A run has ended.
    pub(super) fn ended(&mut self, well: bool) {
        self.cut();
        self.broken += u32::from(!well);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.programs += other.programs;
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.ignored += other.ignored;
        self.filtered += other.filtered;
        self.cut_off += other.cut_off;
        self.broken += other.broken;
    }

    /// Whether something ran, and all of it passed.
    pub(super) fn are_well(&self) -> bool {
        self.passed > 0 && self.failed.is_empty() && self.broken == 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} ignored", self.passed, self.failed.len(), self.ignored)?;
        write!(f, ", {} not chosen, in {} programs", self.filtered, self.programs)?;
        if self.cut_off > 0 {
            write!(f, ", of which {} did not come to their end", self.cut_off)?;
        } else if self.broken > 0 && self.failed.is_empty() {
            write!(f, "; a program did not come to its end")?;
        }
        self.failed.iter().try_for_each(|name| write!(f, "\n    failed: {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn lines_of_test_programs_are_counted() {
        let mut counts = Counts::default();
        let shown = [
            "running 3 tests",
            "test a::b ... ok",
            "test a::c ... FAILED",
            "test a::d ... ignored",
            "thread 'a::c' panicked",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.05s",
            "test result: ok. 92 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 11.94s",
        ]
        .map(|line| counts.note(line));
        assert_eq!(shown, [false, false, true, true, true, false, false]);
        counts.ended(false);
        assert_eq!((counts.programs, counts.passed, counts.ignored, counts.filtered), (2, 93, 1, 7));
        assert!(!counts.are_well() && counts.to_string().ends_with("failed: a::c"));
    }

    #[test]
    fn what_a_program_passed_before_it_was_cut_off_counts() {
        let mut counts = Counts::default();
        for line in ["running 9 tests", "test a ... ok", "test b ... ok", "running 1 test", "test c ... ok"] {
            counts.note(line);
        }
        counts.note("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.ended(false);
        assert_eq!((counts.passed, counts.cut_off, counts.programs), (3, 1, 2));
        assert!(
            counts.to_string().contains("in 2 programs, of which 1 did not come to their end"),
            "{counts}"
        );
    }

    #[test]
    fn nothing_that_ran_and_what_was_killed_are_no_success() {
        let mut counts = Counts::default();
        assert!(!counts.are_well());
        counts.note("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert!(counts.are_well());
        counts.ended(false);
        assert!(!counts.are_well() && counts.to_string().contains("did not come to its end"));
    }
}
