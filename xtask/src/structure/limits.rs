//! The limits, and what exceeds them.

use super::cycles::{Cycle, Level};
use super::sizes;
use super::source::Package;
use super::types::Found;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

/// Something larger than it may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Breach {
    pub(super) limit: &'static str,
    pub(super) file: String,
    /// Which type, function, field or modules; nothing where the file is meant.
    pub(super) name: String,
    pub(super) value: usize,
    pub(super) allowed: usize,
}

impl Display for Breach {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { limit, file, name, value, allowed } = self;
        write!(f, "{limit}, {file}, {name}, {value}, {allowed}")
    }
}

const METHODS: &str = "methods";
const FIELDS: &str = "fields";
const OPEN_FIELDS: &str = "open-fields";
const MODULE_CYCLE: &str = "module-cycle";
const FILE_CYCLE: &str = "file-cycle";
const FILE_LINES: &str = "file-lines";
const FUNCTION_LINES: &str = "function-lines";
const FOLDER_ENTRIES: &str = "folder-entries";

/// Whose types are parts with state of their own, behind methods.
const ENGINE: &str = "crates/alloc-core";

/// The engine as a whole is composed of parts, and its public face passes on to them: both may have more methods. What
/// the engine is composed of fits on a page.
const COMPOSITIONS: &[(&str, usize, Option<usize>)] =
    &[("DeviceAllocator", 60, Some(12)), ("CachingAllocator", 60, None)];

/// What exceeds a limit.
#[derive(Default)]
pub(super) struct Breaches {
    pub(super) found: Vec<Breach>,
}

impl Breaches {
    /// Looks at a package's files, with their functions, and its folders.
    pub(super) fn of_package(&mut self, package: &Package) {
        for (file, lines) in sizes::files(package) {
            self.check(FILE_LINES, file, String::new(), lines, 600);
        }
        for ((file, name), lines) in sizes::functions(package) {
            self.check(FUNCTION_LINES, file, name, lines, 60);
        }
        for (folder, entries) in sizes::folders(package) {
            self.check(FOLDER_ENTRIES, &folder, String::new(), entries, 15);
        }
    }

    /// Looks at the types that people wrote.
    pub(super) fn of_types(&mut self, package: &Package, types: &[Found]) {
        let own: BTreeSet<&str> = package.own_sources().map(|source| source.path.as_str()).collect();
        for found in types.iter().filter(|found| own.contains(found.file.as_str())) {
            let Found { file, name, methods, fields, .. } = found;
            let (_, most_methods, most_fields) = COMPOSITIONS
                .iter()
                .copied()
                .find(|(composition, ..)| composition == name)
                .unwrap_or(("", 40, None));
            self.check(METHODS, file, name.clone(), methods.len(), most_methods);
            self.check(FIELDS, file, name.clone(), fields.len(), most_fields.unwrap_or(usize::MAX));
            if package.folder == ENGINE && found.is_part {
                let open = fields.iter().filter(|field| field.open).count();
                self.check(OPEN_FIELDS, file, name.clone(), open, 0);
            }
        }
    }

    /// Every circle of top-level modules is one too many. Two files of one module may need each other.
    pub(super) fn of_cycles(&mut self, cycles: &[Cycle]) {
        for Cycle { level, root, members, .. } in cycles {
            let (limit, allowed) = match level {
                Level::TopLevelModules => (MODULE_CYCLE, 1),
                Level::Files => (FILE_CYCLE, 2),
            };
            self.check(limit, root, members.join(" "), members.len(), allowed);
        }
    }

    fn check(&mut self, limit: &'static str, file: &str, name: String, value: usize, allowed: usize) {
        if value > allowed {
            self.found.push(Breach { limit, file: file.to_owned(), name, value, allowed });
        }
    }
}
