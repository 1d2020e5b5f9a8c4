//! What a recipe says.

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Deserialize;

/// What a program is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Half {
    /// Constants are chosen on it
    Choosing,
    /// What was chosen is judged by it, and nothing is chosen on it
    Judging,
}

impl Half {
    pub(super) const ALL: [Self; 2] = [Self::Choosing, Self::Judging];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Choosing => "choosing",
            Self::Judging => "judging",
        }
    }
}

/// How a program is recorded, and which trace that gives.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    /// The recipe's file, and the function of its program.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) half: Half,
    pub(super) kind: String,
    /// The Python file of the program.
    pub(super) family: String,
    pub(super) seed: u64,
    /// What the program counts as such; its trace may have several marks for each.
    pub(super) iterations: u32,
    /// The program in one sentence.
    pub(super) about: String,
    /// The trace's hash; absent until the first recording.
    pub(super) hash: Option<String>,
}

impl Recipe {
    pub(super) fn parse(name: String, text: &str) -> Result<Self> {
        let recipe: Self = toml::from_str(text).context("this is no recipe")?;
        ensure!(recipe.iterations > 0, "a recipe has at least one iteration");
        for (key, value) in [("kind", &recipe.kind), ("family", &recipe.family), ("about", &recipe.about)] {
            ensure!(!value.trim().is_empty(), "'{key}' says nothing");
        }
        if let Some(hash) = &recipe.hash {
            let hexadecimal = hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit());
            ensure!(hexadecimal, "'hash' is not the 64 digits of a SHA-256");
        }
        Ok(Self { name, ..recipe })
    }
}

/// A recipe's text with this hash, and everything else as it was.
pub(super) fn with_hash(text: &str, hash: &str) -> String {
    let kept: String =
        text.lines().filter(|line| !line.starts_with("hash")).flat_map(|line| [line, "\n"]).collect();
    format!("{kept}hash = \"{hash}\"\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Half, Recipe, with_hash};
    use std::collections::BTreeSet;

    pub(in crate::bench::corpus) const TEXT: &str = "# why\nhalf = \"judging\"\nkind = \"speech\"\nfamily = \"sequences\"\nseed = 3\niterations = 5\nabout = \"It listens.\"\n";

    fn recipe(half: &str, kind: &str) -> Recipe {
        let text = TEXT.replace("judging", half).replace("speech", kind);
        Recipe::parse(kind.to_owned(), &text).unwrap()
    }

    #[test]
    fn a_recipe_is_read() {
        let found = recipe("judging", "speech");
        assert_eq!((found.half, found.seed, found.iterations), (Half::Judging, 3, 5));
        assert_eq!(found.hash, None);
    }

    #[test]
    fn a_recipe_that_is_wrong_is_refused() {
        let cases = [
            ("judging", "both"),
            ("speech", " "),
            ("seed = 3", "seed = -3"),
            ("iterations = 5", "iterations = 0"),
            ("about =", "abuot ="),
            ("seed = 3", "seed = 3\nhash = \"12\""),
        ];
        for (from, to) in cases {
            let error = Recipe::parse("x".into(), &TEXT.replace(from, to));
            assert!(error.is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn a_hash_is_put_in_and_replaced() {
        let (first, second) = ("0".repeat(64), "a".repeat(64));
        let once = with_hash(TEXT, &first);
        assert_eq!(once, format!("{TEXT}hash = \"{first}\"\n"));
        assert_eq!(with_hash(&once, &second), format!("{TEXT}hash = \"{second}\"\n"));
        assert_eq!(Recipe::parse("x".into(), &once).unwrap().hash, Some(first));
    }

    /// So that a constant is never judged by what it was chosen on.
    #[test]
    fn the_halves_of_this_repository_share_no_kind_and_are_large_enough() {
        let recipes = crate::bench::corpus::folder().recipes().unwrap();
        let of = |half| recipes.iter().filter(move |it| it.half == half);
        let [choosing, judging] = Half::ALL.map(|half| of(half).map(|it| &it.kind).collect::<BTreeSet<_>>());
        assert!(choosing.is_disjoint(&judging), "a kind stays in the half where it was first");
        assert!(judging.len() >= 8 && choosing.len() + judging.len() >= 12, "{choosing:?} {judging:?}");
        let [choosing, judging] = Half::ALL.map(|half| of(half).count());
        assert!(choosing + judging >= 24 && judging.abs_diff(choosing) <= 1, "{choosing} and {judging}");
        for recipe in &recipes {
            assert!(recipe.hash.is_some(), "{} was not recorded", recipe.name);
        }
    }
}
