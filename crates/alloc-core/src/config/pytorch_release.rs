//! The releases of PyTorch that the `pytorch` policy can decide as.

use std::fmt;
use std::str::FromStr;

/// A release of PyTorch whose allocator the `pytorch` policy imitates. The default is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it
pub enum PytorchRelease {
    V2_11,
    V2_13,
    V2_14,
    #[default]
    V2_15,
}

impl PytorchRelease {
    /// All of them, the oldest first.
    pub const ALL: &'static [Self] = &[Self::V2_11, Self::V2_13, Self::V2_14, Self::V2_15];

    /// Their names, for help texts.
    pub(super) const NAMES: &'static str = "2.11, 2.13, 2.14, 2.15";

    /// The name in a text: `2.13`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2_11 => "2.11",
            Self::V2_13 => "2.13",
            Self::V2_14 => "2.14",
            Self::V2_15 => "2.15",
        }
    }

    /// The release that decides as that of a program, or nearly so: 2.11 for 2.10, and 2.13 for 2.12.
    #[must_use]
    pub fn about(program: &str) -> Option<Self> {
        let about = |(name, release): &(&str, Self)| is_of(program, name).then_some(*release);
        program.parse().ok().or_else(|| [("2.10", Self::V2_11), ("2.12", Self::V2_13)].iter().find_map(about))
    }
}

/// True if a text names this minor version, or a release of it.
fn is_of(text: &str, minor: &str) -> bool {
    text.strip_prefix(minor).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl fmt::Display for PytorchRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PytorchRelease {
    type Err = String;

    /// Reads `2.13`, and `2.13.1` or `2.13.1+cu130` alike: releases of one minor version decide alike.
    ///
    /// # Errors
    /// A text that names the releases there are.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|release| is_of(text, release.name()));
        known.copied().ok_or_else(|| {
            format!(
                "the decisions of this release are not known; known are {} (2.10 decides about as 2.11, 2.12 as 2.13)",
                Self::NAMES
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::PytorchRelease;

    #[test]
    fn a_release_is_known_by_its_minor_version() {
        for (text, release) in [
            ("2.11", PytorchRelease::V2_11),
            ("2.13.1", PytorchRelease::V2_13),
            ("2.15.0+cu132", PytorchRelease::V2_15),
        ] {
            assert_eq!(text.parse(), Ok(release), "{text}");
        }
        for wrong in ["", "2", "2.1", "2.100", "2.9.1", "2.16", "v2.13", "2.13 ", "2.10", "2.12.1"] {
            assert!(wrong.parse::<PytorchRelease>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_of_2_10_and_2_12_are_decided_for_about_as_theirs_does() {
        for (program, release) in [
            ("2.10.0", Some(PytorchRelease::V2_11)),
            ("2.12.1+cu130", Some(PytorchRelease::V2_13)),
            ("2.14.1", Some(PytorchRelease::V2_14)),
            ("2.9.1", None),
            ("2.120", None),
        ] {
            assert_eq!(PytorchRelease::about(program), release, "{program}");
        }
    }

    #[test]
    fn names_are_those_of_help_texts_and_read_back() {
        let names: Vec<_> = PytorchRelease::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(names.join(", "), PytorchRelease::NAMES);
        assert!(PytorchRelease::ALL.iter().all(|release| release.name().parse() == Ok(*release)));
        assert_eq!(PytorchRelease::ALL.last(), Some(&PytorchRelease::default()));
    }
}
