//! The whole kit as a program.

use crate::child::{self, ChildCommand};
use crate::{Line, Options, Subject, checks, run};
use backend_api::{Backend, Result};
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const HELP: &str = "\
Checks a backend against every rule of the device contract.

Arguments: [OPTIONS] [PART]...

  PART                 run only checks whose names begin with it (`memory.` is an area), or contain it after
                       the area; all checks where there is none
  --deadline SECONDS   how long one check may take before it has failed (20); after 3 such checks the rest
                       of their area is skipped
  --keep-going         run an area although one that it needs is broken
  --backtrace          print a backtrace where a check panics
  --repeat N           run each check N times (1): for what goes wrong now and then
  --json               print JSON Lines: each check and each area as it ends, then the totals
  --help               print this

Exit code:
  0  no check failed
  1  a check failed, or all were skipped
  2  the backend did not start, or an argument is wrong";

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    options: Options,
    json: bool,
    help: bool,
    backtrace: bool,
}

impl Arguments {
    /// Reads them; the error says what is wrong.
    fn read(mut words: impl Iterator<Item = String>) -> std::result::Result<Self, String> {
        let mut arguments = Self::default();
        let options = &mut arguments.options;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => arguments.json = true,
                "--keep-going" => options.keep_going = true,
                child::BACKTRACE => arguments.backtrace = true,
                "--help" | "-h" => arguments.help = true,
                "--deadline" => {
                    let text = words.next().unwrap_or_default();
                    options.deadline = seconds(&text)
                        .ok_or_else(|| format!("--deadline {text:?} is no number of seconds up to a day"))?;
                }
                "--repeat" => {
                    let text = words.next().unwrap_or_default();
                    let times: Option<u32> = text.parse().ok().filter(|times| *times > 0);
                    options.repeat =
                        times.ok_or_else(|| format!("--repeat {text:?} is no number of times"))?;
                }
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                _ => options.only.push(word),
            }
        }
        if !arguments.help && checks::selected(options).next().is_none() {
            // Otherwise a slip in a script would read as a backend that breaks no rule.
            return Err(format!("no check has a name with {}", options.only.join(", ")));
        }
        Ok(arguments)
    }
}

/// More than no time, and a day at most.
fn seconds(text: &str) -> Option<Duration> {
    let deadline = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
    (!deadline.is_zero() && deadline.as_secs() <= 86_400).then_some(deadline)
}

/// The `main` of a program that checks one backend; `--help` names its arguments and exit codes.
pub fn main(name: &str, open: impl Fn() -> Result<Arc<dyn Backend>> + Send + Sync + 'static) -> ExitCode {
    main_over(&Subject::new(name, open))
}

/// The same over a [`Subject`], which says more than how to start.
pub fn main_over(subject: &Subject) -> ExitCode {
    if child::is_child() {
        return child::serve(subject);
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
    let child = ChildCommand::with_arguments(arguments.backtrace.then(|| child::BACKTRACE.to_owned()));
    let options = Options { child: Some(child), ..arguments.options };
    let mut failed = false;
    let tell = |line: Line<'_>| {
        failed |= line.is_failure();
        line.write(arguments.json, &mut io::stdout())
    };
    match run(subject, &options, tell) {
        Ok(Ok(card)) if card.is_green() => ExitCode::SUCCESS,
        // Whoever reads has seen enough.
        Ok(Err(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(u8::from(failed)),
        Ok(Ok(_)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("writing the results failed: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{} did not start: {error}", subject.name());
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Options};
    use std::time::Duration;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_options_and_parts_of_names() {
        let read = read("memory. --deadline 2.5 --repeat 3 --json --keep-going --backtrace free").unwrap();
        let only = ["memory.", "free"].map(str::to_owned).to_vec();
        let deadline = Duration::from_millis(2500);
        let options = Options { only, deadline, repeat: 3, keep_going: true, ..Options::default() };
        assert_eq!(read, Arguments { options, json: true, help: false, backtrace: true });
    }

    #[test]
    fn a_wrong_argument_is_named() {
        for (line, word) in [
            ("--fast", "--fast"),
            ("--deadline", "seconds"),
            ("--deadline 0", "seconds"),
            ("--deadline soon", "soon"),
            ("--deadline -1", "-1"),
            ("--deadline 1e15", "a day"),
            ("--repeat 0", "times"),
            ("--repeat often", "often"),
            ("nowhere.", "nowhere."),
        ] {
            let wrong = read(line).unwrap_err();
            assert!(wrong.contains(word), "{line}: {wrong}");
        }
    }
}
