//! Finds the Python tests of `tests/torch`: functions `test_...` at the margin of `test_*.py`.

use super::finder::{Test, ids};
use super::releases::since;
use crate::process::files;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

/// Where they are, from the workspace's root.
pub(super) const FOLDER: &str = "tests/torch";

/// Every test, whether or not it is named after an id (then without ids).
pub(super) fn find(root: &Path, letters: &BTreeSet<char>) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for path in files::in_folder(root.join(FOLDER), "py")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("test_") {
            tests.extend(in_source(&format!("{FOLDER}/{name}"), &files::read(&path)?, letters));
        }
    }
    Ok(tests)
}

fn in_source(file: &str, text: &str, letters: &BTreeSet<char>) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut decorators = String::new();
    for line in text.lines() {
        if line.starts_with('@') {
            decorators.push_str(line);
        } else if let Some(rest) = line.strip_prefix("def ") {
            let name = rest.split('(').next().unwrap_or_default();
            if let Some(plain) = name.strip_prefix("test_") {
                tests.push(Test {
                    file: file.to_owned(),
                    name: name.to_owned(),
                    ids: ids(plain, letters),
                    is_test: true,
                    ignored: decorators.contains("skip"),
                    since: since(&decorators),
                });
            }
            decorators.clear();
        } else if !line.starts_with([' ', ')']) {
            decorators.clear();
        } else if !decorators.is_empty() {
            // A decorator's arguments over several lines.
            decorators.push_str(line);
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::in_source;

    #[test]
    fn tests_at_the_margin_are_found_with_their_ids() {
        let text = r#"
"""def test_s90_in_a_text(): is at the margin of no line."""
@scene(real=True)
def test_s01_a04_two():
    def test_s91_inside(): pass
def helper(): pass
class Other:
    def test_s92_of_a_class(self): pass
@scene(
    alone=True,
    reason=skip
)
def test_s02_lines(): pass
@pytest.mark.skip
def test_s03_skipped(): pass
def test_plain(rig): pass
"#;
        let tests = in_source("a.py", text, &['A', 'S'].into());
        let seen: Vec<_> =
            tests.iter().map(|test| (test.name.as_str(), test.ids.join(" "), test.ignored)).collect();
        assert_eq!(
            seen,
            [
                ("test_s01_a04_two", "S01 A04".to_owned(), false),
                ("test_s02_lines", "S02".to_owned(), true),
                ("test_s03_skipped", "S03".to_owned(), true),
                ("test_plain", String::new(), false),
            ]
        );
    }
}
