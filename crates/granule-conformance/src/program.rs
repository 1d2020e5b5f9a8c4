//! The whole kit as a program.

use crate::child::{self, ChildCommand};
use crate::{Options, Outcome, Progress, Subject, checks, run};
use backend_api::{Backend, Result};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const HELP: &str = "\
Checks a backend against every rule of the device contract.

Arguments: [OPTIONS] [PART]...

  PART                 run only checks whose names begin with it (`memory.` is an area), or contain it after
                       the area; all checks where there is none
  --deadline SECONDS   how long one check may take before it has failed (20); after 3 such checks the rest
                       is skipped
  --repeat N           run each check N times (1): for what goes wrong now and then
  --json               print the scorecard as JSON
  --help               print this

The scorecard goes to standard output; each failure goes to standard error as it happens.

Exit code:
  0  no check failed
  1  a check failed, or all were skipped
  2  the backend did not start, or an argument is wrong";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    only: Vec<String>,
    deadline: Option<Duration>,
    repeat: Option<u32>,
    json: bool,
    help: bool,
}

impl Arguments {
    /// Reads them; the error says what is wrong.
    fn read(mut words: impl Iterator<Item = String>) -> std::result::Result<Self, String> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => arguments.json = true,
                "--help" | "-h" => arguments.help = true,
                "--deadline" => {
                    let text = words.next().unwrap_or_default();
                    arguments.deadline = Some(
                        seconds(&text)
                            .ok_or_else(|| format!("--deadline {text:?} is no number of seconds"))?,
                    );
                }
                "--repeat" => {
                    let text = words.next().unwrap_or_default();
                    let times: Option<u32> = text.parse().ok().filter(|times| *times > 0);
                    arguments.repeat =
                        Some(times.ok_or_else(|| format!("--repeat {text:?} is no number of times"))?);
                }
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                _ => arguments.only.push(word),
            }
        }
        if !arguments.help && checks::selected(&arguments.only).next().is_none() {
            // Otherwise a slip in a script would read as a backend that breaks no rule.
            return Err(format!("no check has a name with {}", arguments.only.join(", ")));
        }
        Ok(arguments)
    }
}

/// More than no time.
fn seconds(text: &str) -> Option<Duration> {
    let deadline = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (!deadline.is_zero()).then_some(deadline)
}

/// The `main` of a program that checks one backend; `--help` names its arguments and exit codes.
pub fn main(name: &str, open: impl Fn() -> Result<Arc<dyn Backend>> + Send + Sync + 'static) -> ExitCode {
    let subject = Subject::new(name, open);
    if child::is_child() {
        return child::serve(&subject);
    }
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("{wrong}; --help says what there is");
            return ExitCode::from(2);
        }
    };
    if arguments.help {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let defaults = Options::default();
    let options = Options {
        only: arguments.only,
        deadline: arguments.deadline.unwrap_or(defaults.deadline),
        repeat: arguments.repeat.unwrap_or(defaults.repeat),
        child: Some(ChildCommand::this_program()),
        ..defaults
    };
    match run(&subject, &options, tell_failures) {
        Ok(card) => {
            if arguments.json {
                println!("{}", serde_json::to_string_pretty(&card).unwrap_or_else(|e| e.to_string()));
            } else {
                println!("{card}");
            }
            if card.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{name} did not start: {error}");
            ExitCode::from(2)
        }
    }
}

/// A run over a backend that stands still is long: what is known is said at once.
fn tell_failures(progress: Progress<'_>) {
    if let Progress::Ended(check) = progress
        && let Outcome::Failed(why) = &check.outcome
    {
        eprintln!("FAILED  {}: {why}", check.name);
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use std::time::Duration;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_options_and_parts_of_names() {
        let read = read("memory. --deadline 2.5 --repeat 3 --json free").unwrap();
        let only = ["memory.", "free"].map(str::to_owned).to_vec();
        let deadline = Some(Duration::from_millis(2500));
        assert_eq!(read, Arguments { only, deadline, repeat: Some(3), json: true, help: false });
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (line, word) in [
            ("--fast", "--fast"),
            ("--deadline", "seconds"),
            ("--deadline 0", "seconds"),
            ("--deadline soon", "soon"),
            ("--deadline -1", "-1"),
            ("--repeat 0", "times"),
            ("--repeat often", "often"),
            ("nowhere.", "nowhere."),
        ] {
            let wrong = read(line).unwrap_err();
            assert!(wrong.contains(word), "{line}: {wrong}");
        }
    }
}
