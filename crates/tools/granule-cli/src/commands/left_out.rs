//! What a build without the feature `full` says of the commands that it lacks: those whose libraries take longest to
//! compile, and that a first look needs least.

use super::command;
use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The commands that this build lacks.
pub(super) const NAMES: &[&str] =
    if cfg!(feature = "full") { &[] } else { &["export", "estimate", "conformance", "completions", "man"] };

/// What builds all of them.
const BUILD: &str = "cargo run --release --features full --";

/// What the help says of them, if there are any.
pub(super) fn help(names: &[&str]) -> Option<String> {
    let said = format!("Left out, for a quick build: {}. All of them:\n  {BUILD} COMMAND", names.join(", "));
    (!names.is_empty()).then_some(said)
}

/// The error of a command line; where it asks for one of `names`, with what to do.
pub(super) fn explain(error: Error, names: &[&str]) -> Error {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if names.contains(&name.as_str()) => command().error(
            ErrorKind::InvalidSubcommand,
            format!("this quick build leaves '{name}' out; all commands are in\n  {BUILD} {name}"),
        ),
        Some(ContextValue::String(name)) => {
            command().error(ErrorKind::InvalidSubcommand, neither(name, &error))
        }
        _ => error,
    }
}

/// What to do about a first word that is nothing.
fn neither(name: &str, error: &Error) -> String {
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => Some(format!("; is '{}' meant?", names.join("' or '"))),
        _ => None,
    };
    format!(
        "'{name}' is neither a command nor a file{}\n  granule FILE takes a snapshot, a trace, or a folder of recordings",
        similar.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::{explain, help};
    use crate::commands::command;

    #[test]
    fn a_command_that_is_left_out_is_named_with_the_line_that_builds_it() {
        let asked = |word| command().try_get_matches_from(["granule", word]).unwrap_err();
        let said = explain(asked("weave"), &["weave"]);
        assert_eq!(said.exit_code(), 2);
        assert!(said.to_string().contains("cargo run --release --features full -- weave"), "{said}");
        let other = explain(asked("knit"), &["weave"]);
        assert!(!other.to_string().contains("--features"), "{other}");
    }

    #[test]
    fn help_names_what_is_left_out_and_only_that() {
        assert!(help(&["weave", "knit"]).unwrap().contains("weave, knit"));
        assert_eq!(help(&[]), None);
    }
}
