//! What a page tells of who made it, for whoever is about to send it.

use granule_analysis::Run;
use serde::Serialize;
use std::collections::BTreeSet;

/// A kind of text that a page has.
#[derive(Clone, Debug, Serialize)]
pub struct Contents {
    /// What they are, of one and of several.
    pub what: [&'static str; 2],
    /// How many different ones there are.
    pub count: usize,
    /// One of them.
    pub example: String,
}

impl Contents {
    /// Those of a page of the run, with this title and these facts.
    #[must_use]
    pub fn of(run: &Run, title: &str, facts: &[(String, String)]) -> Vec<Self> {
        let refused = run.refusals.iter().filter_map(|refusal| refusal.frames.as_deref());
        let frames = || run.sites.iter().chain(refused.clone()).flatten();
        let texts = run.labels.iter().chain(run.notes.iter().map(|(_, text)| text));
        let environment =
            facts.iter().map(|(_, text)| &**text).filter(|text| text.contains(char::is_alphabetic));
        let kinds = [
            kind(["path", "paths"], frames().map(|frame| &*frame.filename)),
            kind(["function name", "function names"], frames().map(|frame| &*frame.name)),
            kind(["text of the program", "texts of the program"], texts.map(|text| &**text)),
            kind(["fact of the environment", "facts of the environment"], environment),
            kind(["file name", "file names"], std::iter::once(title)),
        ];
        kinds.into_iter().flatten().collect()
    }
}

fn kind<'a>(what: [&'static str; 2], texts: impl Iterator<Item = &'a str>) -> Option<Contents> {
    let texts: BTreeSet<&str> = texts.filter(|text| !text.is_empty()).collect();
    // The longest tells most.
    let example = texts.iter().max_by_key(|text| text.len())?;
    let mut end = example.len().min(200);
    while !example.is_char_boundary(end) {
        end -= 1;
    }
    Some(Contents { what, count: texts.len(), example: example[..end].to_owned() })
}
