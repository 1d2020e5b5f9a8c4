//! Tables, as every library that speaks Arrow takes them.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, SchemaRef};
use granule_export::runs::{Source, parquet};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;

/// A table in memory. Whoever takes it shares the memory.
#[pyclass(frozen, module = "granule_alloc._native")]
#[derive(Debug)]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    pub(crate) fn of(table: parquet::Table, source: &Source<'_>) -> PyResult<Self> {
        let batches = table.batches(source).map_err(failed)?;
        Ok(Self { schema: Arc::new(table.arrow_schema()), batches })
    }
}

#[pymethods]
impl Table {
    /// Rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The columns' names.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// The table as a pandas data frame.
    fn to_pandas(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        PyModule::import(slf.py(), "granule_alloc._frame")?.getattr("frame")?.call1((slf,))
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    /// The table as a stream of Arrow's C interface. The protocol lets a producer ignore the schema that is asked for.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// The columns as Arrow's C interface has them.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

fn failed(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
