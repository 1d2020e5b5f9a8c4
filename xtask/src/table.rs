//! Tables in Markdown, and what goes into them.

use std::fmt::Write;

/// A table; every row has as many cells as there are columns.
pub(crate) struct Table {
    columns: usize,
    text: String,
}

impl Table {
    pub(crate) fn new<T: AsRef<str>>(columns: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self { columns: 0, text: String::new() };
        table.row(columns);
        table.columns = table.text.matches('|').count() - 1;
        let _ = writeln!(table.text, "|{}", "---|".repeat(table.columns));
        table
    }

    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| cell.as_ref().to_owned()).collect();
        debug_assert!(self.columns == 0 || cells.len() == self.columns, "{cells:?}");
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    pub(crate) fn text(self) -> String {
        self.text
    }
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Mean and largest.
pub(crate) fn mean_and_worst(values: &[f64]) -> Option<(f64, f64)> {
    let worst = values.iter().copied().max_by(f64::total_cmp)?;
    #[allow(clippy::cast_precision_loss)]
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Some((mean, worst))
}

/// Three digits that count.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Table, figure, mean_and_worst, median};

    #[test]
    fn tables_are_markdown() {
        let mut table = Table::new(["a", "b"]);
        table.row(["1", ""]);
        assert_eq!(table.text(), "| a | b |\n|---|---|\n| 1 |  |\n");
    }

    #[test]
    fn figures_of_several() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
        assert_eq!(mean_and_worst(&[1.0, 4.0, 1.0]), Some((2.0, 4.0)));
        assert_eq!([0.123, 12.34, 123.4].map(figure), ["0.12", "12.3", "123"]);
    }
}
