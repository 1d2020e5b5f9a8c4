//! Finds the tests that are named after behaviours: `s01_...`, or `a04_a06_...` for two of them.
//!
//! Sources are read as tokens, so that tests inside macros (`proptest!`) are found, and names in comments and
//! texts are not.

use crate::process::files;
use anyhow::Result;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A release of PyTorch, such as (2, 15).
pub(super) type Release = (u32, u32);

/// A function named after behaviours.
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
    /// Whether it shows anything.
    pub(super) fn counts(&self) -> bool {
        self.is_test && !self.ignored
    }

    /// Whether it runs PyTorch.
    pub(super) fn is_python(&self) -> bool {
        self.file.ends_with(".py")
    }
}

/// Every function named after an id in the tests that span crates and in those of the crates, by file.
pub(super) fn find(root: &Path, letters: &BTreeSet<char>) -> Result<Vec<Test>> {
    let mut files = Vec::new();
    sources(&root.join("tests/tests"), &mut files)?;
    for package in files::in_folder(root.join("crates"), "")? {
        let tests = package.join("tests");
        if tests.is_dir() {
            sources(&tests, &mut files)?;
        }
    }
    let mut tests = Vec::new();
    for path in files {
        let text = files::read(&path)?;
        let file = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        tests.extend(in_source(&file, &text, letters)?);
    }
    Ok(tests)
}

/// The Rust files of a folder and its folders, in a fixed order.
fn sources(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in files::in_folder(path, "")? {
        if entry.is_dir() {
            sources(&entry, files)?;
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    Ok(())
}

/// The ids that a name begins with.
pub(super) fn ids(name: &str, letters: &BTreeSet<char>) -> Vec<String> {
    let mut ids = Vec::new();
    let mut rest = name;
    while let Some((front, behind)) = rest.split_once('_') {
        let mut front = front.chars();
        let (Some(letter), Some(a), Some(b), None) = (front.next(), front.next(), front.next(), front.next())
        else {
            break;
        };
        let upper = letter.to_ascii_uppercase();
        let known = letter.is_ascii_lowercase() && letters.contains(&upper);
        if !known || !a.is_ascii_digit() || !b.is_ascii_digit() {
            break;
        }
        ids.push(format!("{upper}{a}{b}"));
        rest = behind;
    }
    ids
}

fn in_source(file: &str, text: &str, letters: &BTreeSet<char>) -> Result<Vec<Test>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{file} is not Rust: {error}"))?;
    let mut named = Vec::new();
    items(tokens, false, &mut named);
    let mut tests: Vec<Test> = Vec::new();
    for Named { name, is_test, ignored } in named {
        let ids = ids(&name, letters);
        if ids.is_empty() {
            continue;
        }
        // A function and the macro that makes it a test are one.
        if let Some(known) = tests.iter_mut().find(|test| test.name == name) {
            known.is_test |= is_test;
            known.ignored |= ignored;
        } else {
            tests.push(Test { file: file.to_owned(), name, ids, is_test, ignored, since: None });
        }
    }
    Ok(tests)
}

/// A name that may be a test's.
struct Named {
    name: String,
    is_test: bool,
    ignored: bool,
}

/// Walks over items, into modules and into what macros are given, but not into bodies.
fn items(tokens: TokenStream, in_macro: bool, named: &mut Vec<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut is_test, mut ignored) = (in_macro, false);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let mut over = false;
        match (token, tokens.get(at + 1), tokens.get(at + 2)) {
            (TokenTree::Punct(hash), Some(TokenTree::Group(attribute)), _) if hash.as_char() == '#' => {
                let words = words(attribute.stream());
                let condition = words.first().is_some_and(|word| word.starts_with("cfg"));
                is_test |= !condition && words.iter().any(|word| word == "test");
                ignored |= words.iter().any(|word| word == "ignore");
                at += 1;
            }
            (TokenTree::Ident(word), Some(TokenTree::Ident(name)), _) if word == "fn" => {
                named.push(Named { name: name.to_string(), is_test, ignored });
                at += 1;
            }
            (TokenTree::Ident(word), Some(TokenTree::Ident(_)), Some(TokenTree::Group(inside)))
                if word == "mod" =>
            {
                items(inside.stream(), in_macro, named);
                (over, at) = (true, at + 2);
            }
            (TokenTree::Ident(_), Some(TokenTree::Punct(mark)), Some(TokenTree::Group(given)))
                if mark.as_char() == '!' =>
            {
                items(given.stream(), true, named);
                (over, at) = (true, at + 2);
            }
            // A macro may be given the name of a function alone.
            (TokenTree::Ident(name), ..) if in_macro => {
                named.push(Named { name: name.to_string(), is_test, ignored });
            }
            (TokenTree::Punct(end), ..) => over = end.as_char() == ';',
            (TokenTree::Group(group), ..) => over = group.delimiter() == Delimiter::Brace,
            _ => {}
        }
        if over {
            (is_test, ignored) = (in_macro, false);
        }
        at += 1;
    }
}

/// The words of an attribute, at any depth.
fn words(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) => found.push(word.to_string()),
            TokenTree::Group(group) => found.extend(words(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{ids, in_source};

    fn found(text: &str) -> Vec<(String, bool, bool)> {
        let tests = in_source("a.rs", text, &['A', 'S'].into()).unwrap();
        tests.into_iter().map(|test| (test.name, test.is_test, test.ignored)).collect()
    }

    fn test(name: &str) -> (String, bool, bool) {
        (name.to_owned(), true, false)
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
    fn tests_are_found_in_items_modules_and_macros() {
        let text = r##"
            //! s90_in_a_comment
            #![allow(clippy::unwrap_used)]
            const TEXT: &str = "fn s91_in_a_text() {}";
            /// Says #[ignore] in words only.
            #[test]
            fn s01_plain() { fn s92_inside_a_body() {} }
            #[test]
            #[should_panic(expected = "x")]
            pub(crate) fn a04_a06_two() {}
            #[cfg(test)]
            mod inner { #[test] fn s03_in_a_module() {} }
            fn helper() { s93_called(); }
            proptest! {
                #![proptest_config(ProptestConfig::with_cases(20))]
                #[test]
                fn s04_property(n in 0..5u32) { s94_called(n); }
            }
            on_every_device!(s05_by_name, helper);
            fn s05_by_name(device: u32) {}
            macro_rules! on_every_device { ($($name:ident),*) => { $(#[test] fn $name() {})* } }
        "##;
        let names = ["s01_plain", "a04_a06_two", "s03_in_a_module", "s04_property", "s05_by_name"];
        assert_eq!(found(text), names.map(test));
    }

    #[test]
    fn what_does_not_run_is_told() {
        let not_run = |name: &str| (name.to_owned(), true, true);
        for attribute in ["#[ignore]", "#[ignore = \"slow\"]", "#[cfg_attr(miri, ignore)]"] {
            assert_eq!(found(&format!("#[test] {attribute} fn s01_x() {{}}")), [not_run("s01_x")]);
            assert_eq!(found(&format!("{attribute} #[test] fn s01_x() {{}}")), [not_run("s01_x")]);
            let property = format!("proptest! {{ #[test] {attribute} fn s01_x(n in 0..5u32) {{}} }}");
            assert_eq!(found(&property), [not_run("s01_x")]);
        }
        assert_eq!(found("fn s01_x() {}"), [("s01_x".to_owned(), false, false)]);
        assert_eq!(found("#[cfg(test)] fn s01_x() {}"), [("s01_x".to_owned(), false, false)]);
        // An attribute ends with the item that it is for.
        let text = "#[test] #[ignore] fn x() {} fn s01_x() {} #[test] fn s02_x() {}";
        assert_eq!(found(text), [("s01_x".to_owned(), false, false), test("s02_x")]);
        let text = "#[ignore] use a::b; #[test] fn s02_x() {}";
        assert_eq!(found(text), [test("s02_x")]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_an_error() {
        let error = in_source("a.rs", "fn s01_x( {", &['S'].into()).unwrap_err();
        assert!(error.to_string().starts_with("a.rs is not Rust"), "{error}");
    }
}
