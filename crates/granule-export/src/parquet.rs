//! A run as Parquet files, one for each table.

use crate::Source;
use crate::events::Events;
use crate::rows::Rows;
use crate::schema::{AllocationRow, EventRow, IterationRow, Row, RunRow, SegmentRow, SiteRow};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::{RecordWriter, RowAccessor};
use parquet::schema::types::TypePtr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Rows that are in memory at once, and in a row group of the file: what query engines like to read in one piece.
const GROUP: usize = 1 << 17;
/// A group ends early where its texts are longer than this.
const GROUP_TEXT: usize = 64 << 20;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The run: one row.
    Runs,
    /// Its iterations.
    Iterations,
    /// Every allocation's life.
    Allocations,
    /// What was held from the device.
    Segments,
    /// Call sites.
    Sites,
    /// Everything that happened.
    Events,
}

/// The run that a table is of, as its first row says. `None` where the file is not there, or no such table.
#[must_use]
pub fn run_of(path: &Path) -> Option<String> {
    let table = SerializedFileReader::new(File::open(path).ok()?).ok()?;
    let row = table.get_row_iter(None).ok()?.next()?.ok()?;
    row.get_string(0).ok().cloned()
}

impl Table {
    /// All tables, small ones first.
    pub const ALL: [Self; 6] =
        [Self::Runs, Self::Iterations, Self::Sites, Self::Segments, Self::Allocations, Self::Events];

    /// Its name, which its file has too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Iterations => "iterations",
            Self::Allocations => "allocations",
            Self::Segments => "segments",
            Self::Sites => "sites",
            Self::Events => "events",
        }
    }

    /// Writes the table of that run, and says how many rows it has. Blocks on output.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn write(self, source: &Source<'_>, output: impl Write + Send) -> io::Result<u64> {
        let rows = Rows::new(source);
        let written = match self {
            Self::Runs => write(std::iter::once(rows.run()), output),
            Self::Iterations => write(rows.iterations(), output),
            Self::Allocations => write(rows.allocations(), output),
            Self::Segments => write(rows.segments(), output),
            Self::Sites => write(rows.sites(), output),
            Self::Events => write(rows.events(&Events::of(source.run)), output),
        };
        written.map_err(|error| match error {
            ParquetError::External(cause) => match cause.downcast::<io::Error>() {
                Ok(error) => *error,
                Err(cause) => io::Error::other(cause),
            },
            error => io::Error::other(error),
        })
    }

    /// Its columns.
    ///
    /// # Errors
    /// None that are known: the derived schemas are whole.
    pub fn schema(self) -> Result<TypePtr, ParquetError> {
        match self {
            Self::Runs => (&[] as &[RunRow<'_>]).schema(),
            Self::Iterations => (&[] as &[IterationRow<'_>]).schema(),
            Self::Allocations => (&[] as &[AllocationRow<'_>]).schema(),
            Self::Segments => (&[] as &[SegmentRow<'_>]).schema(),
            Self::Sites => (&[] as &[SiteRow<'_>]).schema(),
            Self::Events => (&[] as &[EventRow<'_>]).schema(),
        }
    }
}

fn write<R: Row>(rows: impl Iterator<Item = R>, output: impl Write + Send) -> Result<u64, ParquetError>
where
    for<'s> &'s [R]: RecordWriter<R>,
{
    let mut rows = rows.peekable();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("granule ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let schema = (&[] as &[R]).schema()?;
    let mut file = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
    let mut group = Vec::new();
    let mut written = 0;
    loop {
        let mut text = 0;
        while let Some(row) = rows.next_if(|_| group.len() < GROUP && text < GROUP_TEXT) {
            text += row.text();
            group.push(row);
        }
        if group.is_empty() {
            break;
        }
        written += group.len() as u64;
        let mut part = file.next_row_group()?;
        group.as_slice().write_to_row_group(&mut part)?;
        part.close()?;
        group.clear();
    }
    file.close()?;
    Ok(written)
}
