//! What judging gives, as tables.

use super::recipe::{Half, Recipe};
use super::replay::{ALLOCATORS, FIGURES};
use crate::table::{Table, mean_and_worst};
use std::fmt::Write;

/// A program that was replayed.
pub(super) struct Judged {
    pub(super) recipe: Recipe,
    /// In the order of [`FIGURES`], each of all allocators.
    pub(super) figures: Vec<[f64; 3]>,
}

/// All of them, and what could not be replayed.
#[derive(Default)]
pub(super) struct Verdict {
    /// How many events the late devices are behind.
    pub(super) lag: Vec<u64>,
    pub(super) judged: Vec<Judged>,
    /// Programs whose traces are not here.
    pub(super) missing: Vec<String>,
    /// Programs whose traces are not their recipes'.
    pub(super) changed: Vec<String>,
}

impl Verdict {
    fn of(&self, half: Half) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(move |it| it.recipe.half == half)
    }

    pub(super) fn text(&self) -> String {
        let names: Vec<&str> = ALLOCATORS.iter().map(|(name, ..)| *name).collect();
        let mut text = format!(
            "Reserved peak over requested peak, requests refused, modelled driver time. In each cell: {}. Late devices are {:?} \
             events behind.\n",
            names.join(", "),
            self.lag
        );
        for half in Half::ALL {
            if self.of(half).next().is_some() {
                let _ = write!(text, "\n## {}\n\n{}", half.name(), self.table(half));
            }
        }
        if !self.missing.is_empty() {
            let names = self.missing.join(" ");
            let _ = write!(text, "\nnot here: {names}\nmake them: cargo xtask corpus record {names}\n");
        }
        text
    }

    fn table(&self, half: Half) -> String {
        let mut table = Table::new(["program", "kind"].into_iter().chain(FIGURES.iter().map(|it| it.title)));
        let cells = |row: &[[f64; 3]]| -> Vec<String> {
            FIGURES
                .iter()
                .zip(row)
                .map(|(figure, values)| {
                    let digits = figure.digits;
                    values.map(|value| format!("{value:.digits$}")).join(" / ")
                })
                .collect()
        };
        for it in self.of(half) {
            let name = [it.recipe.name.clone(), it.recipe.kind.clone()];
            table.row(name.into_iter().chain(cells(&it.figures)));
        }
        let (mean, worst) = self.summary(half);
        for (name, row) in [("**mean**", mean), ("**worst**", worst)] {
            table.row([name.to_owned(), String::new()].into_iter().chain(cells(&row)));
        }
        table.text()
    }

    /// Means and worst figures of a half, in the order of [`FIGURES`].
    fn summary(&self, half: Half) -> (Vec<[f64; 3]>, Vec<[f64; 3]>) {
        let column = |figure: usize, allocator: usize| -> Vec<f64> {
            self.of(half).map(|it| it.figures[figure][allocator]).collect()
        };
        (0..FIGURES.len())
            .map(|figure| {
                let of = [0, 1, 2].map(|it| mean_and_worst(&column(figure, it)).unwrap_or_default());
                (of.map(|(mean, _)| mean), of.map(|(_, worst)| worst))
            })
            .unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::{Judged, Verdict};
    use crate::bench::corpus::recipe::{Recipe, tests::TEXT};
    use crate::bench::corpus::replay::FIGURES;

    fn judged(name: &str, granule: f64) -> Judged {
        let recipe = Recipe::parse(name.into(), TEXT).unwrap();
        Judged { recipe, figures: vec![[2.0, 1.5, granule]; FIGURES.len()] }
    }

    #[test]
    fn a_half_has_its_mean_and_its_worst() {
        let verdict = Verdict {
            judged: vec![judged("a", 1.0), judged("b", 1.5)],
            missing: vec!["c".into()],
            ..Verdict::default()
        };
        let text = verdict.text();
        for expected in [
            "## judging",
            "| a | speech | 2.0000 / 1.5000 / 1.0000 |",
            "| **mean** |  | 2.0000 / 1.5000 / 1.2500 |",
            "| **worst** |  | 2.0000 / 1.5000 / 1.5000 |",
            "make them: cargo xtask corpus record c\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(!text.contains("## choosing"), "{text}");
    }
}
