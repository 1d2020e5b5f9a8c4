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
         Made by `cargo xtask parity`; do not edit. {all} behaviours: {} tested{without}. A test's name begins\n\
         with the ids that it shows (`s01_...`). Tests in Python compare Granule with PyTorch's own allocator.\n{body}",
        all - missing
    )
}

/// A link to a file, under its own name.
fn link(file: &str) -> String {
    let short = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
    format!("[{short}](../{file})")
}
