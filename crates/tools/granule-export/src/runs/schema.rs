//! The tables, one struct each: a field is a column. docs/tables.md says what they mean, and a test that it names them all.
//!
//! Moments (`.._at`) count the entries before them; times (`.._us`) are microseconds since the Unix epoch.

use parquet_derive::ParquetRecordWriter;

/// What all rows can say.
pub(crate) trait Row {
    /// Bytes of its texts, which are long only in files that nobody recorded.
    fn text(&self) -> usize;
}

/// Declares a row: from each field follow a column of the Parquet file and one of the Arrow table.
macro_rules! row {
    ($(#[$doc:meta])* pub struct $name:ident<$life:lifetime> $fields:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug, ParquetRecordWriter)]
        #[allow(missing_docs)] // see docs/tables.md
        pub struct $name<$life> $fields

        #[cfg(feature = "arrow")]
        columns!($name<$life> $fields);
    };
}

#[cfg(feature = "arrow")]
macro_rules! columns {
    ($name:ident<$life:lifetime> { $(pub $field:ident: $type:ty,)* }) => {
        impl<$life> crate::runs::columns::Columns for $name<$life> {
            fn schema() -> arrow_schema::Schema {
                use crate::runs::columns::Cell;
                arrow_schema::Schema::new(vec![$(<$type>::field(stringify!($field)),)*])
            }

            fn columns(rows: &[Self]) -> Vec<arrow_array::ArrayRef> {
                use crate::runs::columns::Cell;
                vec![$(<$type>::column(rows.iter().map(|row| &row.$field)),)*]
            }
        }
    };
}

row! {
    /// One run.
    pub struct RunRow<'a> {
        pub run: &'a str,
        pub name: &'a str,
        pub file: &'a str,
        pub source: &'a str,
        pub settings: Option<&'a str>,
        pub device: i64,
        pub capacity: Option<i64>,
        pub complete: bool,
        pub notes: &'a str,
        pub entries: i64,
        pub began_us: Option<i64>,
        pub ended_us: Option<i64>,
        pub allocations: i64,
        pub iterations: i64,
        pub refusals: i64,
        pub bytes_requested: i64,
        pub live_at_begin: i64,
        pub live_at_end: i64,
        pub peak_live: i64,
        pub peak_live_at: i64,
        pub reserved_at_end: i64,
        pub peak_reserved: i64,
        pub peak_reserved_at: i64,
        pub live_at_peak_reserved: i64,
        pub written_by: &'a str,
    }
}

row! {
    /// One iteration of a run.
    pub struct IterationRow<'a> {
        pub run: &'a str,
        pub iteration: i64,
        pub number: i64,
        pub begins_at: i64,
        pub ends_at: i64,
        pub begins_us: Option<i64>,
        pub ends_us: Option<i64>,
        pub live_at_begin: i64,
        pub live_at_end: i64,
        pub growth: i64,
        pub peak_live: i64,
        pub peak_live_at: i64,
        pub peak_reserved: i64,
        pub allocations: i64,
        pub bytes_requested: i64,
        pub frees: i64,
        pub bytes_never_freed: i64,
    }
}

row! {
    /// One allocation's life.
    pub struct AllocationRow<'a> {
        pub run: &'a str,
        pub allocation: i64,
        pub allocated_at: i64,
        pub freed_at: Option<i64>,
        pub reusable_at: Option<i64>,
        pub allocated_us: Option<i64>,
        pub freed_us: Option<i64>,
        pub reusable_us: Option<i64>,
        pub address: Option<u64>,
        pub size: i64,
        pub stream: u64,
        pub pool: &'a str,
        pub site: Option<i64>,
        pub label: Option<&'a str>,
        pub iteration: Option<i64>,
        pub live_at_end: bool,
        pub older: bool,
    }
}

row! {
    /// One stretch of memory that was held from the device.
    pub struct SegmentRow<'a> {
        pub run: &'a str,
        pub taken_at: i64,
        pub returned_at: Option<i64>,
        pub taken_us: Option<i64>,
        pub returned_us: Option<i64>,
        pub address: u64,
        pub size: i64,
        pub stream: u64,
        pub pool: &'a str,
        pub growable: bool,
        pub older: bool,
    }
}

row! {
    /// One call site.
    pub struct SiteRow<'a> {
        pub run: &'a str,
        pub site: i64,
        pub function: &'a str,
        pub file: &'a str,
        pub line: i64,
        pub frames: i64,
        pub stack: String,
    }
}

row! {
    /// One thing that happened.
    pub struct EventRow<'a> {
        pub run: &'a str,
        pub moment: i64,
        pub time_us: Option<i64>,
        pub action: &'a str,
        pub allocation: Option<i64>,
        pub address: Option<u64>,
        pub size: Option<i64>,
        pub device_free: Option<i64>,
        pub stream: Option<u64>,
        pub pool: Option<&'a str>,
        pub site: Option<i64>,
        pub label: Option<&'a str>,
        pub iteration: Option<i64>,
        pub stack: Option<String>,
    }
}

/// Length of an optional text.
fn length(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

impl Row for RunRow<'_> {
    fn text(&self) -> usize {
        self.run.len() + self.name.len() + self.file.len() + self.notes.len() + length(self.settings)
    }
}

impl Row for IterationRow<'_> {
    fn text(&self) -> usize {
        self.run.len()
    }
}

impl Row for AllocationRow<'_> {
    fn text(&self) -> usize {
        self.run.len() + self.pool.len() + length(self.label)
    }
}

impl Row for SegmentRow<'_> {
    fn text(&self) -> usize {
        self.run.len() + self.pool.len()
    }
}

impl Row for SiteRow<'_> {
    fn text(&self) -> usize {
        self.run.len() + self.function.len() + self.file.len() + self.stack.len()
    }
}

impl Row for EventRow<'_> {
    fn text(&self) -> usize {
        self.run.len() + length(self.label) + length(self.stack.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use crate::runs::events::What;
    use crate::runs::parquet::Table;
    use parquet::basic::{LogicalType, Repetition, Type as Physical};
    use parquet::schema::types::Type;

    const DOC: &str = include_str!("../../../../../docs/tables.md");

    /// The columns under a heading, a line each: - `name` type: what it is.
    fn columns_under(heading: &str) -> Vec<(&'static str, String)> {
        let section = DOC.split_once(&format!("\n## {heading}\n")).expect(heading).1;
        let section = section.split("\n## ").next().unwrap();
        let columns = section.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("` "));
        columns.map(|(name, rest)| (name, rest.split(':').next().unwrap().to_owned())).collect()
    }

    /// The type as the document writes it.
    fn documented(column: &Type) -> String {
        let logical = column.get_basic_info().logical_type_ref().cloned();
        let name = match (column.get_physical_type(), logical) {
            (Physical::BOOLEAN, _) => "bool",
            (Physical::INT64, None) => "int",
            (Physical::INT64, Some(logical)) if logical == LogicalType::integer(64, false) => "uint",
            (Physical::BYTE_ARRAY, Some(LogicalType::String)) => "text",
            other => panic!("{other:?} has no name in the document"),
        };
        let optional = column.get_basic_info().repetition() == Repetition::OPTIONAL;
        format!("{name}{}", if optional { "?" } else { "" })
    }

    #[test]
    fn the_document_names_every_column_with_its_type() {
        for table in Table::ALL {
            let schema = table.schema().unwrap();
            let written: Vec<_> =
                schema.get_fields().iter().map(|column| (column.name(), documented(column))).collect();
            assert_eq!(written, columns_under(table.name()), "{}", table.name());
            assert_eq!(written[0], ("run", "text".to_owned()), "every table names its run");
        }
        assert_eq!(DOC.matches("\n- `run` text").count(), Table::ALL.len(), "a table that is not written");
    }

    #[test]
    fn the_document_names_every_action() {
        let section = DOC.split_once("| action | what happened |").unwrap().1;
        let rows = section.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut said: Vec<_> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
        let mut written = What::ALL.map(What::name);
        said.sort_unstable();
        written.sort_unstable();
        assert_eq!(said, written);
    }
}
