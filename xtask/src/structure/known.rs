//! The excesses that are known and allowed today. The list can only shrink: what became better must leave it.

use super::limits::Breach;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Where the list is, from the checkout's folder.
pub(super) const FILE: &str = "xtask/structure.toml";

/// By limit, then by file and name, the value allowed.
#[derive(Default)]
pub(super) struct Known {
    limits: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Known {
    /// The list of a checkout; one without has none.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let file = root.join(FILE);
        if !file.is_file() {
            return Ok(Self::default());
        }
        let read = || -> Result<_> { Ok(toml::from_str(&std::fs::read_to_string(&file)?)?) };
        let limits = read().with_context(|| format!("could not read {}", file.display()))?;
        Ok(Self { limits })
    }

    /// A list that has these and no more.
    pub(super) fn of(breaches: &[Breach]) -> Self {
        let mut known = Self::default();
        for breach in breaches {
            known.limits.entry(breach.limit.to_owned()).or_default().insert(key(breach), breach.value);
        }
        known
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let mut text =
            "# Excesses known today, by `cargo xtask structure --update`. This list shrinks.\n".to_owned();
        for (limit, entries) in &self.limits {
            let _ = writeln!(text, "\n[{limit}]");
            for (key, value) in entries {
                let _ = writeln!(text, "{key:?} = {value}");
            }
        }
        let file = root.join(FILE);
        std::fs::write(&file, text).with_context(|| format!("could not write {}", file.display()))
    }

    /// Whether a breach is no worse than the list says. A cycle is known as a part of a larger one, too.
    pub(super) fn allows(&self, breach: &Breach) -> bool {
        let key = key(breach);
        let members = |key: &str| key.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
        let mut entries = self.limits.get(breach.limit).into_iter().flatten();
        if breach.limit.ends_with("-cycle") {
            entries.any(|(known, _)| members(&key).is_subset(&members(known)))
        } else {
            entries.any(|(known, value)| *known == key && breach.value <= *value)
        }
    }

    /// Entries that say more than is found: what they were for is better now, or gone.
    pub(super) fn stale(&self, breaches: &[Breach]) -> Vec<String> {
        let found = Self::of(breaches);
        let mut stale = Vec::new();
        for (limit, entries) in &self.limits {
            for (key, value) in entries {
                match found.limits.get(limit).and_then(|found| found.get(key)) {
                    Some(now) if now >= value => {}
                    Some(now) => stale.push(format!("{limit}, {key}: {now}, the list says {value}")),
                    None => {
                        stale.push(format!("{limit}, {key}: within the limit or gone, the list says {value}"))
                    }
                }
            }
        }
        stale
    }

    pub(super) fn len(&self) -> usize {
        self.limits.values().map(BTreeMap::len).sum()
    }
}

fn key(breach: &Breach) -> String {
    format!("{} {}", breach.file, breach.name).trim_end().to_owned()
}
