//! `decisions write FILE POLICY`, `decisions check FILE`, `decisions steps POLICY ROW`: what `cargo xtask decisions` runs.

use granule_tests::decisions::{Scope, differences};
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(differences) => {
            eprintln!("{differences} rows differ");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// How many rows differ.
fn run(arguments: &[&str]) -> Result<usize, Box<dyn Error>> {
    match *arguments {
        ["write", file, policy] => std::fs::write(file, Scope::of_policy(policy).text())?,
        ["check", file] => {
            let found = differences(&std::fs::read_to_string(file)?, false);
            found.iter().for_each(|difference| println!("{difference}"));
            return Ok(found.len());
        }
        ["steps", policy, row] => {
            let steps = Scope::of_policy(policy).steps(row);
            print!(
                "{}",
                steps.ok_or("there is no such row: name it as the file does, by its first four columns")?
            );
        }
        _ => return Err("decisions write FILE POLICY, check FILE, or steps POLICY ROW".into()),
    }
    Ok(0)
}
