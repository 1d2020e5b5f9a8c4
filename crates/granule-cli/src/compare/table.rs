//! Tables for people: columns as narrow as they must be, and words whole.

use crate::console;
use std::fmt;
use textwrap::core::display_width;

/// Stays on its line with what is beside it.
pub(crate) const GLUE: char = '\u{a0}';

/// Rows under a heading. What does not fit is wrapped at blanks; a long word behind a comma or a slash.
#[derive(Debug)]
pub(crate) struct Table {
    /// The heading comes first.
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
    width: usize,
}

impl Table {
    /// An empty table as wide as the terminal at most.
    pub(crate) fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { rows: vec![header], right: Vec::new(), width: console::width() }
    }

    /// Adds a row. It has a cell for every one of the heading; more are left out.
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// Figures stand to the right, each with its unit.
    pub(crate) fn align_right(&mut self, columns: impl IntoIterator<Item = usize>) {
        self.right.extend(columns);
    }

    /// A cell; a figure keeps its unit where it is `glued`.
    fn cell(&self, row: usize, column: usize, glued: bool) -> String {
        let text = self.rows[row].get(column).map_or("", String::as_str);
        if glued && row > 0 && self.right.contains(&column) {
            text.replace(' ', &GLUE.to_string())
        } else {
            text.to_owned()
        }
    }

    /// The widest line of a column, as `of` measures it.
    fn widest(&self, column: usize, glued: bool, of: fn(&str) -> usize) -> usize {
        let cells = (0..self.rows.len()).map(|row| self.cell(row, column, glued));
        cells.map(|cell| cell.lines().map(of).max().unwrap_or(0)).max().unwrap_or(0)
    }

    /// What fits: margins go first, then figures part from their units; words stay whole in any case.
    fn layout(&self) -> Layout {
        let columns = self.rows[0].len();
        let least = |glued| (0..columns).map(|column| self.widest(column, glued, longest_piece)).collect();
        let lines = |margin| (1 + 2 * margin) * columns + 1;
        let fits = |(glued, margin)| {
            let least: Vec<usize> = least(glued);
            least.iter().sum::<usize>() + lines(margin) <= self.width
        };
        let ways = [(true, 1), (true, 0), (false, 1), (false, 0)];
        let (glued, margin) = ways.into_iter().find(|&way| fits(way)).unwrap_or((false, 0));
        let (least, most): (Vec<usize>, Vec<usize>) =
            (least(glued), (0..columns).map(|column| self.widest(column, glued, display_width)).collect());
        let mut widths = most.clone();
        while widths.iter().sum::<usize>() + lines(margin) > self.width {
            // The widest of those that can do with less.
            let narrower = (0..columns).filter(|&column| widths[column] > least[column]);
            let Some(column) = narrower.max_by_key(|&column| widths[column]) else { break };
            widths[column] -= 1;
        }
        // What was wrapped may need less than it had, so that another column need not be wrapped.
        let mut widths = used(&self.wrapped(&widths, glued));
        let mut room = self.width.saturating_sub(widths.iter().sum::<usize>() + lines(margin));
        for column in 0..columns {
            let more = room.min(most[column] - widths[column]);
            widths[column] += more;
            room -= more;
        }
        let rows = self.wrapped(&widths, glued);
        let widths = used(&rows);
        Layout { rows, widths, margin: " ".repeat(margin) }
    }

    /// The lines of each cell.
    fn wrapped(&self, widths: &[usize], glued: bool) -> Vec<Vec<Vec<String>>> {
        let row = |row| {
            let cell = |(column, width): (usize, &usize)| wrap(&self.cell(row, column, glued), *width);
            widths.iter().enumerate().map(cell).collect()
        };
        (0..self.rows.len()).map(row).collect()
    }
}

/// What the lines of each column need.
fn used(rows: &[Vec<Vec<String>>]) -> Vec<usize> {
    let lines = |column: usize| rows.iter().flat_map(move |row| &row[column]);
    (0..rows[0].len())
        .map(|column| lines(column).map(|line| display_width(line)).max().unwrap_or(0))
        .collect()
}

/// A table as it is shown.
struct Layout {
    /// The lines of each cell.
    rows: Vec<Vec<Vec<String>>>,
    widths: Vec<usize>,
    margin: String,
}

impl Layout {
    fn rule(&self, left: &str, line: &str, between: &str, right: &str) -> String {
        let parts = self.widths.iter().map(|width| line.repeat(width + 2 * self.margin.len()));
        format!("{left}{}{right}", parts.collect::<Vec<_>>().join(between))
    }

    /// One line of a row.
    fn line(&self, row: &[Vec<String>], line: usize, right: &[usize]) -> String {
        let part = |(column, width): (usize, &usize)| {
            let text = row[column].get(line).map_or("", String::as_str);
            let rest = " ".repeat(width.saturating_sub(display_width(text)));
            let (before, after) =
                if right.contains(&column) { (rest.as_str(), "") } else { ("", rest.as_str()) };
            format!("{0}{before}{text}{after}{0}", self.margin).replace(GLUE, " ")
        };
        let parts: Vec<String> = self.widths.iter().enumerate().map(part).collect();
        format!("│{}│", parts.join("┆"))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout();
        writeln!(f, "{}", layout.rule("┌", "─", "┬", "┐"))?;
        for (number, row) in layout.rows.iter().enumerate() {
            for line in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
                writeln!(f, "{}", layout.line(row, line, &self.right))?;
            }
            if number == 0 {
                writeln!(f, "{}", layout.rule("╞", "═", "╪", "╡"))?;
            }
        }
        write!(f, "{}", layout.rule("└", "─", "┴", "┘"))
    }
}

/// What a line is indented by, and the rest.
fn indented(line: &str) -> (&str, &str) {
    line.split_at(line.len() - line.trim_start_matches(' ').len())
}

/// Where a long word may end on its line.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split_inclusive([',', '/'])
}

/// The width below which a line has a word too many.
fn longest_piece(line: &str) -> usize {
    let (indent, rest) = indented(line);
    let piece = rest.split(' ').flat_map(pieces).map(display_width).max();
    indent.len() + piece.unwrap_or(0)
}

/// A cell in lines; each keeps the indentation of the one that it comes from.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let (indent, rest) = indented(line);
        let mut current = indent.to_owned();
        let mut end = |current: &mut String| lines.push(std::mem::replace(current, indent.to_owned()));
        for word in rest.split(' ') {
            let room = |current: &str, text: &str| display_width(current) + display_width(text) <= width;
            let fresh = current.len() == indent.len();
            if !fresh && room(&current, &format!(" {word}")) {
                current.push(' ');
                current.push_str(word);
                continue;
            }
            if !fresh {
                end(&mut current);
            }
            // A word that fits is one piece.
            let fits = room(&current, word);
            for piece in pieces(word) {
                if !fits && current.len() > indent.len() && !room(&current, piece) {
                    end(&mut current);
                }
                current.push_str(piece);
            }
        }
        end(&mut current);
    }
    lines
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
    fn wrapped_cells_keep_commas_words_units_and_indentation() {
        let text = table(
            34,
            &[
                ["16.00 MiB", "at 0x55555bfaba50, since entry 1\n  called by a/b.py:1 main"],
                ["1.00 KiB", "a:True,b:False,c:1024,d:16"],
            ],
        );
        let due = "
┌───────────┬────────────────────┐
│      size ┆ what               │
╞═══════════╪════════════════════╡
│ 16.00 MiB ┆ at 0x55555bfaba50, │
│           ┆ since entry 1      │
│           ┆   called by        │
│           ┆   a/b.py:1 main    │
│  1.00 KiB ┆ a:True,b:False,    │
│           ┆ c:1024,d:16        │
└───────────┴────────────────────┘
";
        assert_eq!(text, due);
    }

    #[test]
    fn margins_go_before_words_are_cut() {
        let text = table(30, &[["16.00 MiB", "0x55555bfaba50"]]);
        assert!(text.contains("│ 16.00 MiB ┆ 0x55555bfaba50 │"), "{text}");
        let text = table(27, &[["16.00 MiB", "0x55555bfaba50"]]);
        assert!(text.contains("│16.00 MiB┆0x55555bfaba50│"), "{text}");
        let text = table(25, &[["16.00 MiB", "0x55555bfaba50"]]);
        assert!(text.contains("│16.00┆0x55555bfaba50│\n│  MiB┆"), "{text}");
        let text = table(5, &[["16.00 MiB", "0x55555bfaba50"]]);
        assert!(text.contains("0x55555bfaba50"), "a narrow terminal cuts no word either: {text}");
    }
}
