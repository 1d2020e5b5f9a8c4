//! What allocators decide on recorded and random programs, before a change of the engine and after it
//! (`tests/src/decisions.rs`).

use crate::process::{cargo, command, root, run as run_command, target};
use anyhow::Result;
use clap::{ArgGroup, Args};
use std::path::PathBuf;

#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("work").required(true)))]
pub(crate) struct Options {
    /// Write all rows of a policy to this file
    #[arg(long, value_name = "FILE", group = "work")]
    write: Option<PathBuf>,
    /// Say which rows of this file are not as they were; without a name, of the file that is kept of `pytorch`
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = KEPT, group = "work")]
    check: Option<PathBuf>,
    /// Print what was decided for a row, step by step: "resnet_train expandable 0 ample"
    #[arg(long, value_name = "ROW", group = "work")]
    steps: Option<String>,
    /// What is written or printed: `pytorch` or `granule`
    #[arg(long, default_value = "pytorch", conflicts_with = "check")]
    policy: String,
}

/// The tests check some rows of it.
const KEPT: &str = "tests/data/decisions.txt";

pub(crate) fn run(options: &Options) -> Result<()> {
    cargo(&["build", "--quiet", "--package", "granule-tests", "--bin", "decisions"])?;
    let mut decisions = command(target().join("debug/decisions"));
    if let Some(file) = &options.check {
        decisions.arg("check").arg(root().join(file));
    } else if let Some(file) = &options.write {
        decisions.arg("write").arg(root().join(file)).arg(&options.policy);
    } else if let Some(row) = &options.steps {
        decisions.args(["steps", &options.policy, row]);
    }
    run_command(&mut decisions)
}

#[cfg(test)]
mod tests {
    use crate::{Arguments, Task};
    use clap::Parser;

    #[test]
    fn rows_of_either_policy_are_written() {
        let parse = |words: &str| Arguments::try_parse_from(format!("xtask {words}").split(' '));
        let granule = parse("decisions --write rows.txt --policy granule").unwrap();
        assert!(matches!(granule.task, Task::Decisions(options) if options.policy == "granule"));
        for wrong in ["decisions", "decisions --policy granule", "decisions --write rows.txt --check"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
