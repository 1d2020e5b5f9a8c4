//! Production lines: without blank lines, comments, tests, benchmarks, examples and generated files.

mod rust;
mod text;

use super::modules::sources_for_tests;
use super::source::{Language, Package};
use anyhow::Result;
use std::collections::BTreeMap;

/// Lines by language.
pub(super) type Count = BTreeMap<Language, usize>;

/// The lines of a package.
pub(super) fn count(package: &Package) -> Result<Count> {
    let for_tests = sources_for_tests(package);
    let mut count = Count::new();
    for (at, source) in package.sources.iter().enumerate() {
        if source.is_generated() || source.is_in_tests() || for_tests.contains(&at) {
            continue;
        }
        let lines = match source.language {
            Language::Rust => rust::lines(&source.text, &source.test_lines)?,
            Language::Cpp => text::lines(&source.text, &text::CPP),
            Language::Python => text::lines(&source.text, &text::PYTHON),
            Language::JavaScript => text::lines(&source.text, &text::JAVA_SCRIPT),
        };
        *count.entry(source.language).or_default() += lines;
    }
    Ok(count)
}

/// A table: a package a row, a language a column. The tasks are no part of the product: it has a sum without them.
pub(super) fn table(counts: &[(String, Count)]) -> String {
    let mut text = String::new();
    let mut row = |name: &str, cells: Vec<String>| {
        text.push_str(&format!("{name:28}"));
        cells.iter().for_each(|cell| text.push_str(&format!("{cell:>12}")));
        text.push('\n');
    };
    let names = Language::ALL.iter().map(|language| language.name().to_owned());
    row("lines", names.chain(["all".to_owned()]).collect());
    let cells = |count: &Count| {
        let each = Language::ALL.iter().map(|language| count.get(language).copied().unwrap_or(0));
        each.chain([count.values().sum()]).map(|lines| lines.to_string()).collect()
    };
    let (mut all, mut product) = (Count::new(), Count::new());
    for (package, count) in counts {
        row(package, cells(count));
        for (language, lines) in count {
            *all.entry(*language).or_default() += lines;
            *product.entry(*language).or_default() += if package == "xtask" { 0 } else { *lines };
        }
    }
    row("all", cells(&all));
    row("all but xtask", cells(&product));
    text
}
