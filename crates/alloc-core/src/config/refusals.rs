//! Errors in a settings text, and things that are merely dubious.

use std::fmt;

/// The Python exception that PyTorch raises for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceptionClass {
    /// `ValueError`: unknown key, bad value.
    ValueError,
    /// `IndexError`: a number that does not fit.
    IndexError,
    /// `RuntimeError`: the text ends too early, or the running backend would change.
    RuntimeError,
}

impl ExceptionClass {
    /// The Python name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ValueError => "ValueError",
            Self::IndexError => "IndexError",
            Self::RuntimeError => "RuntimeError",
        }
    }
}

impl fmt::Display for ExceptionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A settings text that was refused. Nothing of it was applied.
///
/// `Display` names the token, its place and the values allowed there; [`pytorch_message`](Self::pytorch_message)
/// is what PyTorch says.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub(super) class: ExceptionClass,
    pub(super) pytorch: String,
    /// Boxed so that a `Result` stays small.
    pub(super) detail: Box<Detail>,
}

/// The part of an error that is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) option: Option<String>,
    pub(super) token: Option<String>,
    pub(super) position: Option<usize>,
    pub(super) problem: String,
    pub(super) allowed: String,
    pub(super) did_you_mean: Option<String>,
    pub(super) variable: Option<String>,
}

impl ConfigError {
    pub(super) fn new(class: ExceptionClass, pytorch: impl Into<String>) -> Self {
        Self { class, pytorch: pytorch.into(), detail: Box::default() }
    }

    /// An error of the strict grammar, which has no counterpart in PyTorch.
    pub(super) fn strict(problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::new(ExceptionClass::ValueError, problem.clone()).because(problem)
    }

    pub(super) fn because(mut self, problem: impl Into<String>) -> Self {
        self.detail.problem = problem.into();
        self
    }

    pub(super) fn of(mut self, option: &str) -> Self {
        self.detail.option = Some(clip(option));
        self
    }

    pub(super) fn at(mut self, token: &str, position: usize) -> Self {
        self.detail.token = Some(clip(token));
        self.detail.position = Some(position);
        self
    }

    pub(super) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.detail.allowed = allowed.into();
        self
    }

    pub(super) fn meant(mut self, name: Option<&str>) -> Self {
        self.detail.did_you_mean = name.map(str::to_owned);
        self
    }

    pub(super) fn in_variable(mut self, name: &str) -> Self {
        self.detail.variable = Some(name.to_owned());
        self
    }

    /// The text of PyTorch's exception (without the source location that it puts before internal asserts). For
    /// an error that only Granule's strict grammar knows: what is wrong, in one clause.
    #[must_use]
    pub fn pytorch_message(&self) -> &str {
        &self.pytorch
    }

    /// The Python exception that PyTorch raises.
    #[must_use]
    pub const fn class(&self) -> ExceptionClass {
        self.class
    }

    /// The option concerned, if one was recognised.
    #[must_use]
    pub fn option(&self) -> Option<&str> {
        self.detail.option.as_deref()
    }

    /// The offending token (at most 64 characters of it).
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.detail.token.as_deref()
    }

    /// Byte offset of that token in the text.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.detail.position
    }

    /// Values allowed in its place; empty where nothing can be said.
    #[must_use]
    pub fn allowed_values(&self) -> &str {
        &self.detail.allowed
    }

    /// A known name close to the one given.
    #[must_use]
    pub fn did_you_mean(&self) -> Option<&str> {
        self.detail.did_you_mean.as_deref()
    }

    /// The environment variable that the text came from.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        self.detail.variable.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { option, token, position, problem, allowed, did_you_mean, variable } = &*self.detail;
        if let Some(variable) = variable {
            write!(f, "{variable}: ")?;
        }
        if let Some(option) = option {
            write!(f, "{option}: ")?;
        }
        f.write_str(if problem.is_empty() { &self.pytorch } else { problem })?;
        if let Some(token) = token {
            write!(f, ", got '{token}'")?;
        }
        if let Some(position) = position {
            write!(f, " at byte {position}")?;
        }
        if !allowed.is_empty() {
            write!(f, "; allowed: {allowed}")?;
        }
        if let Some(name) = did_you_mean {
            write!(f, "; did you mean '{name}'?")?;
        }
        Ok(())
    }
}

/// Same as `Display`: `main` shows errors by `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}

/// At most 64 characters, so that no message grows with its input.
pub(super) fn clip(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A part of a text that is probably not meant, but that PyTorch accepts, mostly in silence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// Only the front of a number was read.
    TrailingGarbage {
        /// The option.
        option: &'static str,
        /// The token as written.
        token: String,
        /// Value it was read as.
        read_as: String,
    },
    /// White space inside a token was dropped (`1 00` is 100).
    InnerSpace {
        /// The token without its white space.
        token: String,
        /// Byte offset of the token.
        position: usize,
    },
    /// Another character stands where a separator belongs; PyTorch goes by position.
    Separator {
        /// The separator that belongs there.
        expected: &'static str,
        /// Text that stands there.
        found: String,
        /// Byte offset.
        position: usize,
    },
    /// The option was given more than once; the last value counts.
    Duplicate {
        /// The option.
        option: &'static str,
    },
    /// A negative whole number wraps around to a huge one.
    Negative {
        /// The option.
        option: &'static str,
        /// The token as written.
        token: String,
        /// Value it was read as.
        read_as: u64,
    },
    /// The size is beyond what can be expressed in bytes and was cut to `limit_mb` MiB.
    Saturated {
        /// The option.
        option: &'static str,
        /// Size it was cut to, in MiB.
        limit_mb: u64,
    },
    /// The option has no effect as things stand.
    NoEffect {
        /// The option.
        option: &'static str,
        /// Reason, and a change that would give it one.
        why: &'static str,
    },
    /// This text put options back to their defaults that an earlier one had set. PyTorch does so for four.
    Reset {
        /// The options.
        options: Vec<&'static str>,
    },
    /// A reserve size that cannot be read is skipped.
    InvalidReserve {
        /// The token as written.
        token: String,
    },
    /// The option has an effect that is hardly meant, as things stand.
    Harm {
        /// The option.
        option: &'static str,
        /// Its effect, and the setting to use instead.
        what: &'static str,
    },
    /// Several variables are set; only the first counts.
    SeveralVariables {
        /// The one that was read.
        used: &'static str,
        /// Those that were not.
        ignored: Vec<&'static str>,
    },
    /// A variable is set to something that is not valid Unicode and was left out.
    NotUnicode {
        /// The variable.
        variable: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrailingGarbage { option, token, read_as } => {
                write!(f, "{option}: '{token}' is read as {read_as}; the rest of it is ignored")
            }
            Self::InnerSpace { token, position } => {
                write!(f, "white space inside '{token}' at byte {position} is ignored")
            }
            Self::Separator { expected, found, position } => write!(
                f,
                "expected '{expected}' at byte {position}, found '{found}'; it is taken as the separator that belongs there"
            ),
            Self::Duplicate { option } => {
                write!(f, "{option} is given more than once; the last value counts")
            }
            Self::Negative { option, token, read_as } => {
                write!(f, "{option}: '{token}' is negative and is read as {read_as}")
            }
            Self::Saturated { option, limit_mb } => {
                write!(
                    f,
                    "{option}: the value is cut to {limit_mb} MiB, the most that can be expressed in bytes"
                )
            }
            Self::NoEffect { option, why } => write!(f, "{option} has no effect: {why}"),
            Self::Harm { option, what } => write!(f, "{option} {what}"),
            Self::Reset { options } => write!(
                f,
                "{} went back to the default, because these settings do not name {}; repeat what should stay",
                options.join(", "),
                if options.len() == 1 { "it" } else { "them" }
            ),
            Self::InvalidReserve { token } => write!(
                f,
                "'{token}' is no reserve of address space, and the default is used; give a positive, finite fraction like 0.5, or \
                 a size like 40G"
            ),
            Self::SeveralVariables { used, ignored } => {
                write!(f, "{used} is used; {} is ignored", ignored.join(", "))
            }
            Self::NotUnicode { variable } => write!(f, "{variable} is not valid Unicode and is ignored"),
        }
    }
}
