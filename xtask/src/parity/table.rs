//! The document: a table of behaviours by area, with their tests and their state.

use super::checklist::Checklist;
use super::finder::Test;
use std::fmt::Write as _;
use std::path::Path;

/// The whole document.
pub(super) fn write(checklist: &Checklist, tests: &[Test]) -> String {
    let mut body = String::new();
    let (mut all, mut missing) = (0, 0);
    for area in &checklist.areas {
        let _ = write!(
            body,
            "\n## {}\n\n| id | behaviour | tests | state |\n| --- | --- | --- | --- |\n",
            area.name
        );
        for behaviour in &area.behaviours {
            let own: Vec<&Test> =
                tests.iter().filter(|test| test.counts() && test.ids.contains(&behaviour.id)).collect();
            all += 1;
            missing += usize::from(own.is_empty());
            let state = if own.is_empty() { "**no test**" } else { "tested" };
            let cells = [&*behaviour.id, &cell(&behaviour.behaviour), &tests_text(&own), state];
            body.push('|');
            for text in cells {
                let blank = if text.is_empty() { "" } else { " " };
                let _ = write!(body, "{blank}{text} |");
            }
            body.push('\n');
        }
    }
    let without = if missing == 0 { String::new() } else { format!(", {missing} without a test") };
    format!(
        "# Parity with PyTorch's allocator\n\n\
         Made by `cargo xtask parity` from `tests/parity.toml` and the names of the tests; do not edit. A test\n\
         that shows a behaviour has a name that begins with its id. CI fails where a behaviour has no test that\n\
         runs, and where this table is out of date.\n\n\
         The tests in `tests/torch` run real PyTorch programs on Granule\n\
         and on PyTorch's own allocator and compare what they see (`cargo xtask e2e-torch`). The tables at the end,\n\
         from `tests/parity_torch.toml`, are of functions: what PyTorch's own allocator has, what a\n\
         `CUDAPluggableAllocator` can have of it, and what Granule has.\n\n\
         {all} behaviours: {} tested{without}.\n{body}",
        all - missing
    )
}

/// The tests, by file.
pub(super) fn tests_text(tests: &[&Test]) -> String {
    let by_file = tests.chunk_by(|a, b| a.file == b.file);
    let files: Vec<String> = by_file
        .map(|tests| {
            let names: Vec<String> = tests.iter().map(|test| format!("`{}`", test.name)).collect();
            let file = &tests[0].file;
            let short = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
            format!("[{short}](../{file}): {}", names.join(", "))
        })
        .collect();
    files.join("; ")
}

/// Text inside a table.
pub(super) fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}
