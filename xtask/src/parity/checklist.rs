//! The behaviours that are claimed, as `tests/parity.toml` lists them.

use anyhow::{Result, bail};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Every behaviour, by area.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checklist {
    #[serde(rename = "area")]
    pub(super) areas: Vec<Area>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Area {
    pub(super) name: String,
    pub(super) behaviours: Vec<Behaviour>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Behaviour {
    /// A letter and two digits.
    pub(super) id: String,
    pub(super) behaviour: String,
    /// What of it only Python can show.
    pub(super) python_half: Option<String>,
}

impl Checklist {
    /// Reads the file's text.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let checklist: Self = toml::from_str(text)?;
        let mut seen = BTreeSet::new();
        for behaviour in checklist.behaviours() {
            let id = &behaviour.id;
            let well_formed = matches!(id.as_bytes(), [letter, a, b]
                if letter.is_ascii_uppercase() && a.is_ascii_digit() && b.is_ascii_digit());
            if !well_formed {
                bail!("'{id}' is not an id: an id is a capital letter and two digits");
            }
            if !seen.insert(id) {
                bail!("{id} is listed twice");
            }
            if behaviour.behaviour.trim().is_empty() {
                bail!("{id} does not say what the behaviour is");
            }
        }
        Ok(checklist)
    }

    pub(super) fn behaviours(&self) -> impl Iterator<Item = &Behaviour> {
        self.areas.iter().flat_map(|area| &area.behaviours)
    }

    /// The letters with which ids begin. A name such as `f32_rounds` is none of them and no id.
    pub(super) fn letters(&self) -> BTreeSet<char> {
        self.behaviours().filter_map(|behaviour| behaviour.id.chars().next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Checklist;

    #[test]
    fn a_wrong_list_is_refused() {
        let one =
            |entries: &str| Checklist::parse(&format!("[[area]]\nname = \"A\"\nbehaviours = [{entries}]"));
        assert_eq!(one(r#"{ id = "S01", behaviour = "x" }"#).unwrap().letters(), ['S'].into());
        for (entries, said) in [
            (r#"{ id = "S1", behaviour = "x" }"#, "'S1' is not an id"),
            (r#"{ id = "s01", behaviour = "x" }"#, "'s01' is not an id"),
            (r#"{ id = "S01", behaviour = " " }"#, "does not say"),
            (r#"{ id = "S01", behaviour = "x" }, { id = "S01", behaviour = "y" }"#, "listed twice"),
            (r#"{ id = "S01", behavior = "x" }"#, "unknown field"),
        ] {
            let error = one(entries).unwrap_err().to_string();
            assert!(error.contains(said), "{entries}: {error}");
        }
    }
}
