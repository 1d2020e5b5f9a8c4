//! Finds the tests that are named after behaviours: `s01_...`, or `a04_a06_...` for two of them. In Python, in which offers name
//! their tests, all are found.
//!
//! Sources are read line by line, as formatters leave them: attributes or decorators, then the function. A macro that makes tests
//! is given their names, one a line.

use super::releases::since;
use crate::process::files;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

/// A release of PyTorch, such as (2, 15).
pub(super) type Release = (u32, u32);

/// A function that may be a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// From the workspace's root.
    pub(super) file: String,
    pub(super) name: String,
    /// In capital letters, as in the checklist.
    pub(super) ids: Vec<String>,
    /// It has `#[test]`, or is handed to a macro that makes tests.
    pub(super) is_test: bool,
    pub(super) ignored: bool,
    /// The release of PyTorch that brought what it is about; none is any.
    pub(super) since: Option<Release>,
}

impl Test {
    /// One that runs with any release.
    #[cfg(test)]
    pub(super) fn of(file: &str, name: &str, ids: &[&str]) -> Self {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Self { file: file.into(), name: name.into(), ids, is_test: true, ignored: false, since: None }
    }

    /// Whether it shows anything.
    pub(super) fn counts(&self) -> bool {
        self.is_test && !self.ignored
    }

    /// Whether it runs PyTorch.
    pub(super) fn is_python(&self) -> bool {
        self.file.ends_with(".py")
    }
}

/// Where the tests in Python are, from the workspace's root.
pub(super) const PYTHON: &str = "tests/torch";

/// Every test that is named after an id in the tests that span crates and in those of the crates, and every one in Python, by file.
pub(super) fn find(root: &Path, letters: &BTreeSet<char>) -> Result<Vec<Test>> {
    let mut sources = files::below(&root.join("tests/tests"))?;
    for home in ["crates", "crates/stand-ins", "crates/tools"] {
        for package in files::in_folder(root.join(home), "")? {
            sources.extend(files::below(&package.join("tests"))?);
        }
    }
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    sources.extend(files::in_folder(root.join(PYTHON), "py")?);
    let mut tests = Vec::new();
    for path in sources {
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        tests.extend(in_source(&file, &files::read(&path)?, letters));
    }
    Ok(tests)
}

/// The ids that a name begins with.
fn ids(name: &str, letters: &BTreeSet<char>) -> Vec<String> {
    let is_id = |word: &&str| match word.as_bytes() {
        [letter @ b'a'..=b'z', b'0'..=b'9', b'0'..=b'9'] => {
            letters.contains(&char::from(letter.to_ascii_uppercase()))
        }
        _ => false,
    };
    let Some((words, _)) = name.rsplit_once('_') else { return Vec::new() };
    words.split('_').take_while(is_id).map(str::to_uppercase).collect()
}

fn in_source(file: &str, text: &str, letters: &BTreeSet<char>) -> Vec<Test> {
    let is_python = file.ends_with(".py");
    let (attribute, function, skip) =
        if is_python { ("@", "def test_", "skip") } else { ("#[", "fn ", "ignore") };
    let mut tests: Vec<Test> = Vec::new();
    let mut above = String::new();
    for line in text.lines() {
        // Python's tests stand at the margin.
        let line = if is_python { line } else { line.trim_start() };
        let is_open = above.matches('(').count() > above.matches(')').count();
        if is_open || line.starts_with(attribute) {
            above.push_str(line);
            continue;
        }
        let given = line.strip_suffix(',').filter(|_| !is_python);
        if let Some(name) =
            line.strip_prefix(function).and_then(|rest| rest.split(['(', '<']).next()).or(given)
        {
            let (ids, ignored) = (ids(name, letters), above.contains(skip));
            let is_test = is_python || given.is_some() || above.contains("#[test]");
            // A function and the macro that makes it a test are one.
            if let Some(known) = tests.iter_mut().find(|test| test.name == name) {
                known.is_test |= is_test;
                known.ignored |= ignored;
            } else if is_python || !ids.is_empty() {
                let name = if is_python { format!("test_{name}") } else { name.to_owned() };
                tests.push(Test { file: file.to_owned(), name, ids, is_test, ignored, since: since(&above) });
            }
        }
        if !line.starts_with("//") {
            above.clear();
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::{ids, in_source};

    fn found(file: &str, text: &str) -> Vec<(String, String, bool, bool)> {
        let tests = in_source(file, text, &['A', 'S'].into());
        tests.into_iter().map(|test| (test.name, test.ids.join(" "), test.is_test, test.ignored)).collect()
    }

    fn test(name: &str, ids: &str, ignored: bool) -> (String, String, bool, bool) {
        (name.to_owned(), ids.to_owned(), true, ignored)
    }

    #[test]
    fn a_name_may_begin_with_several_ids() {
        let of = |name| ids(name, &['A', 'S'].into());
        assert_eq!(of("s01_bytes_move"), ["S01"]);
        assert_eq!(of("a04_a06_streams"), ["A04", "A06"]);
        assert_eq!(of("s01_a2_x"), ["S01"]);
        for name in ["s1_x", "s011_x", "s01", "S01_x", "f32_rounds", "x_s01_y", "sa1_x", "é01_x", "_s01_x"] {
            assert_eq!(of(name), [""; 0], "{name}");
        }
    }

    #[test]
    fn tests_are_found_in_modules_and_macros_and_what_does_not_run_is_told() {
        let text = r##"
//! s90_in_a_comment
const TEXT: &str = "fn s91_in_a_text() {}";
/// Says #[ignore] in words only.
#[test]
// Why.
fn s01_plain() {
    s92_called();
}
#[test]
#[should_panic(expected = "x")]
fn a04_a06_two() {}
mod inner {
    #[test]
    #[cfg_attr(
        miri,
        ignore
    )]
    fn s03_in_a_module() {}
}
fn s04_helper() {}
proptest! {
    #[test]
    fn s05_property(n in 0..5u32) {}
}
on_every_device! {
    s06_by_name,
    helper,
}
fn s06_by_name(device: u32) {}
#[ignore = "slow"]
#[test]
fn s07_slow() {}
"##;
        let due = [
            test("s01_plain", "S01", false),
            test("a04_a06_two", "A04 A06", false),
            test("s03_in_a_module", "S03", true),
            ("s04_helper".to_owned(), "S04".to_owned(), false, false),
            test("s05_property", "S05", false),
            test("s06_by_name", "S06", false),
            test("s07_slow", "S07", true),
        ];
        assert_eq!(found("a.rs", text), due);
    }

    #[test]
    fn pythons_tests_stand_at_the_margin_and_need_no_id() {
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
        let due = [
            test("test_s01_a04_two", "S01 A04", false),
            test("test_s02_lines", "S02", true),
            test("test_s03_skipped", "S03", true),
            test("test_plain", "", false),
        ];
        assert_eq!(found("a.py", text), due);
    }
}
