//! A run as Parquet files, one for each table; with the feature `arrow`, as tables in memory.

use crate::runs::Source;
#[cfg(feature = "arrow")]
use crate::runs::columns::Columns;
use crate::runs::events::Events;
use crate::runs::rows::Rows;
use crate::runs::schema::{AllocationRow, EventRow, IterationRow, Row, RunRow, SegmentRow, SiteRow};
#[cfg(feature = "arrow")]
use arrow_array::RecordBatch;
#[cfg(feature = "arrow")]
use arrow_schema::{ArrowError, Schema};
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

    /// Its columns in memory.
    #[cfg(feature = "arrow")]
    #[must_use]
    pub fn arrow_schema(self) -> Schema {
        match self {
            Self::Runs => RunRow::schema(),
            Self::Iterations => IterationRow::schema(),
            Self::Allocations => AllocationRow::schema(),
            Self::Segments => SegmentRow::schema(),
            Self::Sites => SiteRow::schema(),
            Self::Events => EventRow::schema(),
        }
    }

    /// All rows of that run, in batches as large as the row groups of the file.
    ///
    /// # Errors
    /// None that are known: the columns are as long as one another.
    #[cfg(feature = "arrow")]
    pub fn batches(self, source: &Source<'_>) -> Result<Vec<RecordBatch>, ArrowError> {
        let rows = Rows::new(source);
        match self {
            Self::Runs => batches(std::iter::once(rows.run())),
            Self::Iterations => batches(rows.iterations()),
            Self::Allocations => batches(rows.allocations()),
            Self::Segments => batches(rows.segments()),
            Self::Sites => batches(rows.sites()),
            Self::Events => batches(rows.events(&Events::of(source.run))),
        }
    }
}

fn write<R: Row>(rows: impl Iterator<Item = R>, output: impl Write + Send) -> Result<u64, ParquetError>
where
    for<'s> &'s [R]: RecordWriter<R>,
{
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("granule ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let schema = (&[] as &[R]).schema()?;
    let mut file = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
    let mut written = 0;
    for group in groups(rows) {
        written += group.len() as u64;
        let mut part = file.next_row_group()?;
        group.as_slice().write_to_row_group(&mut part)?;
        part.close()?;
    }
    file.close()?;
    Ok(written)
}

#[cfg(feature = "arrow")]
fn batches<R: Row + Columns>(rows: impl Iterator<Item = R>) -> Result<Vec<RecordBatch>, ArrowError> {
    let schema = Arc::new(R::schema());
    groups(rows).map(|group| RecordBatch::try_new(Arc::clone(&schema), R::columns(&group))).collect()
}

/// The rows, group by group.
fn groups<R: Row>(rows: impl Iterator<Item = R>) -> impl Iterator<Item = Vec<R>> {
    let mut rows = rows.peekable();
    std::iter::from_fn(move || {
        let (mut group, mut text) = (Vec::new(), 0);
        while let Some(row) = rows.next_if(|_| group.len() < GROUP && text < GROUP_TEXT) {
            text += row.text();
            group.push(row);
        }
        (!group.is_empty()).then_some(group)
    })
}

#[cfg(all(test, feature = "arrow"))]
mod tests {
    use super::Table;
    use crate::runs::{Kind, Source};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt64Type};
    use granule_analysis::Run;
    use granule_analysis::run::{NEVER, Span};

    #[test]
    fn columns_are_those_of_the_file() {
        for table in Table::ALL {
            let schema = table.schema().unwrap();
            let ours = table.arrow_schema();
            let names: Vec<_> = schema.get_fields().iter().map(|column| column.name()).collect();
            let own: Vec<_> = ours.fields().iter().map(|field| field.name().as_str()).collect();
            assert_eq!(names, own, "{}", table.name());
            for (column, field) in schema.get_fields().iter().zip(ours.fields()) {
                assert_eq!(column.is_optional(), field.is_nullable(), "{} of {}", field.name(), table.name());
            }
        }
    }

    #[test]
    fn rows_are_in_the_columns() {
        let run = Run {
            length: 9,
            spans: vec![
                Span { begin: 1, end: 5, address: 100, size: 10, stream: 0, pool: 0, growable: true },
                Span { begin: 2, end: NEVER, address: 110, size: 20, stream: 0, pool: 0, growable: false },
            ],
            ..Run::default()
        };
        let source = Source {
            run: &run,
            id: "monday",
            name: "train",
            file: "train.pickle",
            kind: Kind::Snapshot,
            settings: None,
            device: 0,
            capacity: None,
            window: false,
            notes: &[],
        };
        let [batch] = &Table::Segments.batches(&source).unwrap()[..] else { panic!("one batch") };
        let names = batch["run"].as_string::<i32>();
        assert!(names.iter().all(|name| name == Some("monday")));
        let addresses: Vec<_> = batch["address"].as_primitive::<UInt64Type>().iter().collect();
        assert_eq!(addresses, [Some(100), Some(110)]);
        let returned: Vec<_> = batch["returned_at"].as_primitive::<Int64Type>().iter().collect();
        assert_eq!(returned, [Some(5), None]);
        assert!(batch["growable"].as_boolean().value(0) && !batch["growable"].as_boolean().value(1));
        assert_eq!(Table::Allocations.batches(&source).unwrap().len(), 0, "no rows need no batch");
    }
}
