//! The tables in which allocation problems are exchanged: `id,lower,upper,size` in, `id,offset` out.

use crate::problem::{Buffer, Placement, Problem, ProblemError};
use std::io::{self, BufRead, Write};

/// A problem and what its buffers are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// A name for every buffer.
    pub ids: Vec<String>,
    /// The buffers, in the order of the file.
    pub problem: Problem,
}

/// What is wrong with a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Reading failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The first line does not name a column that is needed.
    #[error("the first line names no column {column}; it should be id,lower,upper,size")]
    Column {
        /// The column.
        column: &'static str,
    },
    /// A field is missing or no number.
    #[error("line {line}: {column} is missing or no whole number")]
    Field {
        /// The line, from 1.
        line: usize,
        /// The column.
        column: &'static str,
    },
    /// The buffers make no problem.
    #[error("{0} (buffers count from 0, below the first line)")]
    Problem(#[from] ProblemError),
}

/// The columns in which a table has what is needed.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    size: usize,
}

impl Columns {
    fn find(header: &str) -> Result<Self, TableError> {
        let find = |column: &'static str| {
            let found = header.split(',').position(|name| name.trim().eq_ignore_ascii_case(column));
            found.ok_or(TableError::Column { column })
        };
        Ok(Self { id: find("id")?, lower: find("lower")?, upper: find("upper")?, size: find("size")? })
    }
}

/// Reads a table: a line of column names, then a buffer on every line; `lower` is included, `upper` is not. Blocks
/// on the reader.
///
/// # Errors
/// [`TableError`] says where what is wrong.
pub fn read(input: impl BufRead) -> Result<Table, TableError> {
    let mut lines = input.lines();
    let columns = Columns::find(&lines.next().transpose()?.unwrap_or_default())?;
    let mut ids = Vec::new();
    let mut buffers = Vec::new();
    for (line, text) in (2..).zip(lines) {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let number = |index: usize, column: &'static str| {
            fields.get(index).and_then(|field| field.parse().ok()).ok_or(TableError::Field { line, column })
        };
        ids.push((*fields.get(columns.id).ok_or(TableError::Field { line, column: "id" })?).to_owned());
        buffers.push(Buffer {
            lower: number(columns.lower, "lower")?,
            upper: number(columns.upper, "upper")?,
            size: number(columns.size, "size")?,
        });
    }
    Ok(Table { ids, problem: Problem::new(buffers)? })
}

/// Writes every buffer's offset.
///
/// # Errors
/// What `output` reports.
pub fn write(table: &Table, placement: &Placement, mut output: impl Write) -> io::Result<()> {
    writeln!(output, "id,offset")?;
    for (id, offset) in table.ids.iter().zip(&placement.offsets) {
        writeln!(output, "{id},{offset}")?;
    }
    output.flush()
}
