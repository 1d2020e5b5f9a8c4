//! Which releases of PyTorch have which behaviours: a test of `tests/torch` says since when there is what it is about.

use super::finder::{Release, Test};
use crate::table::Table;
use std::collections::BTreeSet;

/// Those that the shim fits.
const KNOWN: [Release; 5] = [(2, 11), (2, 12), (2, 13), (2, 14), (2, 15)];

/// The release in a decorator such as `@scene(real=True, since=(2, 12))`.
pub(super) fn since(decorators: &str) -> Option<Release> {
    let (_, rest) = decorators.split_once("since=(")?;
    let (release, _) = rest.split_once(')')?;
    let (major, minor) = release.split_once(',')?;
    Some((major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

/// The table: what each release has.
pub(super) fn write(python: &[Test]) -> String {
    let tests: Vec<&Test> = python.iter().filter(|test| test.counts()).collect();
    let ids = |has: &dyn Fn(&Test) -> bool| -> BTreeSet<&str> {
        tests.iter().filter(|test| has(test)).flat_map(|test| test.ids.iter().map(String::as_str)).collect()
    };
    let all = ids(&|_| true);
    let mut has = Table::new(["PyTorch", "behaviours", "absent, or in an older form", "tests"]);
    for release in &KNOWN {
        let there = ids(&|test| test.since.is_none_or(|since| since <= *release));
        let runs = tests.iter().filter(|test| test.since.is_none_or(|since| since <= *release)).count();
        let absent: Vec<&str> = all.difference(&there).copied().collect();
        let absent = if absent.is_empty() { "none".to_owned() } else { absent.join(", ") };
        let (there, all) = (there.len(), all.len());
        has.row([name(*release), format!("{there} of {all}"), absent, format!("{runs} of {}", tests.len())]);
    }
    format!(
        "\n## Releases of PyTorch\n\n\
         Behaviours that a test in `tests/torch` shows there, those that a release lacks or has in an older form, and how many of\n\
         these tests it runs.\n\n{}",
        has.text()
    )
}

fn name((major, minor): Release) -> String {
    format!("{major}.{minor}")
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, name, since, write};
    use crate::parity::finder::{Release, Test};
    use crate::process::root;

    fn test(name: &str, id: &str, since: Option<Release>) -> Test {
        Test { since, ..Test::of("tests/torch/test_a.py", name, &[id]) }
    }

    #[test]
    fn a_release_lacks_what_all_tests_of_a_behaviour_find_later() {
        let tests = [
            test("test_s01_old", "S01", None),
            test("test_s01_new", "S01", Some((2, 12))),
            test("test_a02", "A02", Some((2, 14))),
        ];
        let text = write(&tests);
        assert!(
            text.contains("| 2.11 | 1 of 2 | A02 | 1 of 3 |\n| 2.12 | 1 of 2 | A02 | 2 of 3 |"),
            "{text}"
        );
        assert!(text.contains("| 2.15 | 2 of 2 | none | 3 of 3 |"), "{text}");
    }

    #[test]
    fn decorators_name_a_release() {
        assert_eq!(since("@scene(real=True, since=(2, 12))"), Some((2, 12)));
        assert_eq!(since("@scene(real=True)"), None);
    }

    #[test]
    fn the_newest_is_the_one_that_is_pinned() {
        let pinned = std::fs::read_to_string(root().join("tests/torch/requirements.txt")).unwrap();
        let newest = name(*KNOWN.last().unwrap());
        assert!(pinned.contains(&format!("torch=={newest}.")), "{newest}");
    }
}
