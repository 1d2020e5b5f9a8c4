//! The log: what `GRANULE_LOG` asks for, on standard error.

use crate::console;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The variable that says what is logged: a level, or a level for each target, as in `warn,alloc_core=debug`.
const VARIABLE: &str = "GRANULE_LOG";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What logs something.
const TARGETS: [&str; 9] = [
    "granule",
    "alloc_core",
    "backend_cuda",
    "backend_hip",
    "backend_openreg",
    "backend_support",
    "granule_conformance",
    "granule_masquerade",
    "granule_snapshot",
];

/// Starts the log; `otherwise` is its level where the variable is not set.
pub(crate) fn start(otherwise: LevelFilter) {
    let filter = std::env::var(VARIABLE).map_or_else(|_| all(otherwise), |text| filter(&text));
    let stderr = std::io::stderr;
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(console::is_coloured(&stderr())).with_writer(stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
}

/// Everything from this level on.
fn all(level: LevelFilter) -> Targets {
    Targets::new().with_default(level)
}

fn filter(text: &str) -> Targets {
    for word in text.split(',').filter_map(unknown) {
        console::warning(format_args!(
            "{VARIABLE}: '{word}' is neither a level nor something that logs; levels: {}; targets: {}",
            LEVELS.join(", "),
            TARGETS.join(", ")
        ));
    }
    text.parse().unwrap_or_else(|error| {
        console::warning(format_args!("{VARIABLE} is ignored: {error}; write for example debug"));
        all(LevelFilter::WARN)
    })
}

/// The target of a directive, if nothing of that name logs. A typing error in a level reads as a target.
fn unknown(directive: &str) -> Option<&str> {
    let end = directive.find('=').unwrap_or(directive.len());
    let target = directive[..end].trim();
    let bare = end == directive.len();
    let is_level = || LEVELS.iter().any(|level| level.eq_ignore_ascii_case(target)) || is_number(target);
    // Filters go by the beginning of a target.
    let is_target = || TARGETS.iter().any(|known| known.starts_with(target) || target.starts_with(known));
    let known = target.is_empty() || bare && is_level() || is_target();
    (!known).then_some(target)
}

/// Levels can be written as numbers too.
fn is_number(text: &str) -> bool {
    matches!(text, "0" | "1" | "2" | "3" | "4" | "5")
}

#[cfg(test)]
mod tests {
    use super::unknown;

    #[test]
    fn typing_errors_are_noticed() {
        for fine in ["debug", "INFO", "3", "alloc_core=debug", "granule::commands", ""] {
            assert_eq!(unknown(fine), None, "{fine}");
        }
        assert_eq!(unknown("debg"), Some("debg"));
        assert_eq!(unknown("aloc_core=debug"), Some("aloc_core"));
    }
}
