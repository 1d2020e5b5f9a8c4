//! Rows as Arrow's columns.

use arrow_array::{ArrayRef, BooleanArray, Int64Array, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;

/// Rows whose fields are columns.
pub(crate) trait Columns: Sized {
    /// The columns' names and types.
    fn schema() -> Schema;

    /// The columns of these rows.
    fn columns(rows: &[Self]) -> Vec<ArrayRef>;
}

/// What a field of a row can be.
pub(crate) trait Cell: Sized {
    /// The column's type.
    fn field(name: &str) -> Field;

    /// The column of these values.
    fn column<'c>(cells: impl ExactSizeIterator<Item = &'c Self>) -> ArrayRef
    where
        Self: 'c;
}

macro_rules! cell {
    ($($type:ty => $data:ident, $array:ident, |$cell:ident| $value:expr;)*) => {$(
        impl Cell for $type {
            fn field(name: &str) -> Field {
                Field::new(name, DataType::$data, false)
            }

            fn column<'c>(cells: impl ExactSizeIterator<Item = &'c Self>) -> ArrayRef
            where
                Self: 'c,
            {
                Arc::new($array::from_iter(cells.map(|$cell| Some($value))))
            }
        }

        impl Cell for Option<$type> {
            fn field(name: &str) -> Field {
                Field::new(name, DataType::$data, true)
            }

            fn column<'c>(cells: impl ExactSizeIterator<Item = &'c Self>) -> ArrayRef
            where
                Self: 'c,
            {
                Arc::new($array::from_iter(cells.map(|cell| cell.as_ref().map(|$cell| $value))))
            }
        }
    )*};
}

cell! {
    bool => Boolean, BooleanArray, |cell| *cell;
    i64 => Int64, Int64Array, |cell| *cell;
    u64 => UInt64, UInt64Array, |cell| *cell;
    String => Utf8, StringArray, |cell| cell.as_str();
    &str => Utf8, StringArray, |cell| *cell;
}
