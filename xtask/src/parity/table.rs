//! The document: behaviours by area, with the files of their tests.

use super::checklist::Checklist;
use super::finder::Test;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// The whole document.
pub(super) fn write(checklist: &Checklist, tests: &[Test]) -> String {
    let mut body = String::new();
    let (mut all, mut missing) = (0, 0);
    for area in &checklist.areas {
        let (mut files, mut rows) = (BTreeSet::new(), String::new());
        for behaviour in &area.behaviours {
            let is_own = |test: &&Test| test.counts() && test.ids.contains(&behaviour.id);
            let own: BTreeSet<String> = tests.iter().filter(is_own).map(|test| link(&test.file)).collect();
            all += 1;
            missing += usize::from(own.is_empty());
            let state = if own.is_empty() { " (**no test**)" } else { "" };
            let _ = writeln!(rows, "- **{}** {}{state}", behaviour.id, behaviour.behaviour.trim());
            files.extend(own);
        }
        let files = Vec::from_iter(files).join(", ");
        let _ = write!(body, "\n## {}\n\n{rows}\nTests: {files}\n", area.name);
    }
    let without = if missing == 0 { String::new() } else { format!(", {missing} without a test") };
    format!(
        "# Parity with PyTorch's allocator\n\n\
         Made by `cargo xtask parity`; do not edit. {all} behaviours: {} tested{without}. The name of a test begins with the\n\
         ids that it shows, so `grep -rn s01_` finds those of S01. CI fails where a behaviour has no test that runs.\n\n\
         Tests in Python run a program on Granule and on PyTorch's own allocator, and compare (`cargo xtask e2e-torch`).\n{body}",
        all - missing
    )
}

/// A link to a file, under its own name.
fn link(file: &str) -> String {
    let short = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
    format!("[{short}](../{file})")
}

/// The tests, by file.
pub(super) fn tests_text(tests: &[&Test]) -> String {
    let by_file = tests.chunk_by(|a, b| a.file == b.file);
    let files: Vec<String> = by_file
        .map(|tests| {
            let names: Vec<String> = tests.iter().map(|test| format!("`{}`", test.name)).collect();
            format!("{}: {}", link(&tests[0].file), names.join(", "))
        })
        .collect();
    files.join("; ")
}

/// Text inside a table.
pub(super) fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}
