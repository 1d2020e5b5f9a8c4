//! Tables for people: comfy-table, with words whole and figures beside their units.

use crate::console::{self, cut_to};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};
use std::fmt;
use textwrap::core::display_width;

/// Stays on its line with what is beside it.
pub(crate) const GLUE: char = '\u{a0}';

/// A longer word may be broken: a path, or settings.
const LONGEST_WORD: usize = 33;

/// A longer line of a cell is cut: names in files may have any length.
const LONGEST_LINE: usize = 1000;

/// Rows under a heading. What does not fit the terminal is wrapped at blanks.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
    width: usize,
}

impl Table {
    /// An empty table as wide as the terminal at most.
    pub(crate) fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { header, rows: Vec::new(), right: Vec::new(), width: console::width() }
    }

    /// Adds a row, with a cell for every one of the heading; more are left out.
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cut = |cell: String| {
            cell.split('\n').map(|line| cut_to(line, LONGEST_LINE)).collect::<Vec<_>>().join("\n")
        };
        self.rows.push(cells.into_iter().map(|cell| cut(cell.to_string())).collect());
    }

    /// Figures stand to the right, each with its unit.
    pub(crate) fn align_right(&mut self, columns: impl IntoIterator<Item = usize>) {
        self.right.extend(columns);
    }
}

impl Table {
    /// A cell as comfy-table gets it; a figure may be one word.
    fn cell(&self, column: usize, cell: &str, glued: bool) -> String {
        let figure = glued && self.right.contains(&column);
        if figure { cell.replace(' ', &GLUE.to_string()) } else { cell.to_owned() }
    }

    /// The widths of the columns' longest words, or of the first column's lines.
    fn least(&self, whole: bool, glued: bool) -> Vec<usize> {
        let least = |column: usize| {
            let ends = if whole && column == 0 { ['\n'; 2] } else { [' ', '\n'] };
            let longest = |cell: String| cell.split(ends).map(display_width).max().unwrap_or(0);
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell| longest(self.cell(column, cell, glued)));
            widths.chain([longest(self.header[column].clone())]).max().unwrap_or(0).min(LONGEST_WORD)
        };
        (0..self.header.len()).map(least).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.header.len();
        let fits = |&(whole, glued, margin): &(bool, bool, usize)| {
            self.least(whole, glued).iter().sum::<usize>() + (2 * margin + 1) * columns < self.width
        };
        // What names the rows stays whole where there is room. Where there is none, figures part from their units, and margins go.
        let (whole, glued, margin) = [(true, true, 1), (false, true, 1), (false, false, 1)]
            .into_iter()
            .find(fits)
            .unwrap_or((false, false, 0));
        let least = self.least(whole, glued);
        let mut shown = comfy_table::Table::new();
        let width = |columns: usize| u16::try_from(columns).unwrap_or(u16::MAX);
        shown.load_preset(UTF8_FULL_CONDENSED).set_header(&self.header);
        shown.set_content_arrangement(ContentArrangement::Dynamic).set_width(width(self.width));
        for row in &self.rows {
            let cells = row.iter().enumerate().take(columns);
            shown.add_row(cells.map(|(column, cell)| self.cell(column, cell, glued)));
        }
        for (number, (column, least)) in shown.column_iter_mut().zip(least).enumerate() {
            column.set_padding((width(margin), width(margin)));
            let least = Width::Fixed(width(least + 2 * margin));
            column.set_constraint(ColumnConstraint::LowerBoundary(least));
            if self.right.contains(&number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        f.write_str(&shown.to_string().replace(GLUE, " "))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    fn table(width: usize, rows: &[[&str; 2]]) -> String {
        let mut table = Table::new(["size", "what"]);
        table.width = width;
        rows.iter().for_each(|row| table.row(*row));
        table.align_right([0]);
        format!("\n{table}\n")
    }

    #[test]
    fn what_fits_is_on_one_line() {
        let text = table(40, &[["4 bytes", "one, two"], ["16.00 MiB", "three"]]);
        let due = "
┌───────────┬──────────┐
│      size ┆ what     │
╞═══════════╪══════════╡
│   4 bytes ┆ one, two │
│ 16.00 MiB ┆ three    │
└───────────┴──────────┘
";
        assert_eq!(text, due);
    }

    #[test]
    fn wrapped_cells_keep_words_and_units() {
        let text = table(34, &[["16.00 MiB", "at 0x55555bfaba50, since entry 1\ncalled by a/b.py:1 main"]]);
        let due = "
┌───────────┬────────────────────┐
│      size ┆ what               │
╞═══════════╪════════════════════╡
│ 16.00 MiB ┆ at 0x55555bfaba50, │
│           ┆ since entry 1      │
│           ┆ called by a/b.py:1 │
│           ┆ main               │
└───────────┴────────────────────┘
";
        assert_eq!(text, due);
    }

    #[test]
    fn names_of_any_length_are_cut() {
        let name = "n".repeat(70_000);
        let text = table(80, &[["1 byte", &format!("{name}\ncalled by {name}")]]);
        assert!(text.len() < 20_000 && text.matches('…').count() == 2, "{text}");
    }

    #[test]
    fn a_narrow_terminal_cuts_no_word() {
        let text = table(5, &[["16.00 MiB", "0x55555bfaba50"]]);
        assert!(text.contains("│16.00┆0x55555bfaba50│"), "{text}");
    }
}
