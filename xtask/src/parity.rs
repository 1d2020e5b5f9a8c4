//! The parity tables: which behaviours of PyTorch's allocator there are, and which tests show each; and which functions
//! PyTorch offers for memory.
//!
//! [`checklist`] reads the behaviours, [`finder`] finds the tests that are named after their ids,
//! [`releases`] says which releases of PyTorch run them, [`offers`] reads the functions with their tests, [`table`] writes the
//! behaviours. [`run`] writes it or, with
//! `--check`, compares it and lists what is missing.

mod checklist;
mod finder;
mod offers;
mod releases;
mod table;

use crate::process::{files, root};
use anyhow::{Context, Result, bail};
use checklist::Checklist;
use finder::Test;
use offers::Offers;

const CHECKLIST: &str = "tests/parity.toml";
const OFFERS: &str = "tests/parity_torch.toml";
const DOCUMENT: &str = "docs/parity.md";

/// To check is to fail, too, where a behaviour has no test, or a test no behaviour.
pub(crate) fn run(check: bool) -> Result<()> {
    let checklist = Checklist::parse(&files::read(CHECKLIST)?)
        .with_context(|| format!("{CHECKLIST} is not a checklist"))?;
    let offers =
        Offers::parse(&files::read(OFFERS)?).with_context(|| format!("{OFFERS} is no list of functions"))?;
    let letters = checklist.letters();
    let (python, mut tests): (Vec<_>, Vec<_>) =
        finder::find(&root(), &letters)?.into_iter().partition(Test::is_python);
    let tables = releases::write(&python) + &offers.write();
    let mut found = offers.problems(&python);
    tests.extend(python.into_iter().filter(|test| !test.ids.is_empty()));
    let fresh = table::write(&checklist, &tests) + &tables;
    let mut problems = problems(&checklist, &tests);
    problems.append(&mut found);
    if let Err(error) = files::settle(DOCUMENT, &fresh, check, "parity") {
        problems.push(error.to_string());
    }
    if check && !problems.is_empty() {
        bail!("the parity table does not hold:\n  {}", problems.join("\n  "));
    }
    for problem in problems {
        println!("{problem}");
    }
    Ok(())
}

/// What is wrong between the checklist and the tests, a line each.
fn problems(checklist: &Checklist, tests: &[Test]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut untested = Vec::new();
    for behaviour in checklist.behaviours() {
        let id = &behaviour.id;
        let mut own = tests.iter().filter(|test| test.counts() && test.ids.contains(id)).peekable();
        let tested = own.peek().is_some();
        if tested && behaviour.python_half.is_some() && !own.any(Test::is_python) {
            problems.push(format!("{id} has no test in {} for its Python half", finder::PYTHON));
        }
        if !tested {
            untested.push(id.as_str());
        }
    }
    if let Some(first) = untested.first() {
        let (name, ids) = (first.to_lowercase(), untested.join(", "));
        problems.push(format!("no test (its name would begin with the id, as in {name}_...): {ids}"));
    }
    for test in tests {
        let Test { file, name, ids, is_test, ignored, .. } = test;
        for id in ids.iter().filter(|id| !checklist.behaviours().any(|known| known.id == **id)) {
            problems.push(format!("{file}: {name} is named after {id}, which {CHECKLIST} does not have"));
        }
        if !is_test {
            problems
                .push(format!("{file}: {name} is named after a behaviour but never runs: it has no #[test]"));
        } else if *ignored {
            problems.push(format!(
                "{file}: {name} is named after a behaviour but does not run: it has #[ignore]"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{CHECKLIST, Checklist, problems, table};
    use crate::parity::finder::Test;
    use crate::process::files;

    const SAMPLE: &str = r#"
        [[area]]
        name = "Statistics"
        behaviours = [
            { id = "S01", behaviour = "Bytes move | both ways" },
            { id = "S02", behaviour = "Refuses", python_half = "TypeError" },
        ]
    "#;

    fn test(name: &str, ids: &[&str]) -> Test {
        Test::of("tests/tests/a.rs", name, ids)
    }

    #[test]
    fn each_behaviour_needs_a_test_that_runs_and_each_such_test_a_behaviour() {
        let checklist = Checklist::parse(SAMPLE).unwrap();
        let both = test("s01_s02_x", &["S01", "S02"]);
        assert_eq!(
            problems(&checklist, std::slice::from_ref(&both)),
            ["S02 has no test in tests/torch for its Python half"]
        );
        let both = Test { file: "tests/torch/test_a.py".into(), ..both };
        assert_eq!(problems(&checklist, std::slice::from_ref(&both)), [""; 0]);
        assert_eq!(
            problems(&checklist, &[test("s01_x", &["S01"])]),
            ["no test (its name would begin with the id, as in s02_...): S02"]
        );
        assert_eq!(
            problems(&checklist, &[]),
            ["no test (its name would begin with the id, as in s01_...): S01, S02"]
        );
        assert_eq!(
            problems(&checklist, &[both.clone(), test("s09_x", &["S09"])]),
            ["tests/tests/a.rs: s09_x is named after S09, which tests/parity.toml does not have"]
        );
        let found = problems(&checklist, &[Test { ignored: true, ..both.clone() }]);
        assert!(found[0].ends_with("S01, S02"), "both ids lack a test now: {found:?}");
        assert!(found[1].contains("s01_s02_x") && found[1].ends_with("it has #[ignore]"), "{found:?}");
        let found = problems(&checklist, &[Test { is_test: false, ..both }]);
        assert!(found[1].ends_with("it has no #[test]"), "{found:?}");
    }

    #[test]
    fn the_table_counts_and_says_the_state_of_each_behaviour() {
        let checklist = Checklist::parse(SAMPLE).unwrap();
        let tests = [test("s01_x", &["S01"]), test("s01_s02_y", &["S01", "S02"])];
        let text = table::write(&checklist, &tests);
        assert!(text.contains("2 behaviours: 2 tested. "), "{text}");
        for row in [
            "## Statistics",
            "- **S01** Bytes move | both ways",
            "- **S02** Refuses",
            "Tests: [a.rs](../tests/tests/a.rs)",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}\n{text}");
        }
        let text = table::write(&checklist, &tests[..0]);
        assert!(text.contains("2 behaviours: 0 tested, 2 without a test. "), "{text}");
        assert!(text.contains("- **S01** Bytes move | both ways (**no test**)\n"), "{text}");
    }

    #[test]
    fn the_checklist_of_this_repository_is_read() {
        let checklist = Checklist::parse(&files::read(CHECKLIST).unwrap()).unwrap();
        let letters = "ACEGHKNOPS".chars().collect();
        assert_eq!(checklist.letters(), letters);
    }
}
