//! Recordings, and what happened in them.

use crate::listener::Listener;
use crate::refused::exception;
use crate::table::Table;
use granule_analysis::curve::curve;
use granule_export::runs::parquet;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A recording in memory.
#[pyclass(frozen, module = "granule_alloc._native")]
#[derive(Debug)]
pub(crate) struct Recording(granule_cli::Session);

#[pymethods]
impl Recording {
    #[new]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        content: Option<Vec<u8>>,
        device: Option<usize>,
        trust: bool,
        listener: &Listener,
    ) -> PyResult<Self> {
        let ear = listener.ear();
        let opened = py.detach(|| granule_cli::Session::open(&path, content.as_deref(), device, trust, &ear));
        opened.map(Self).map_err(exception)
    }

    /// What the command of this name prints under --json; of some, about this recording and another.
    fn ask(
        &self,
        py: Python<'_>,
        command: &str,
        options: Vec<String>,
        other: Option<Bound<'_, Self>>,
        listener: &Listener,
    ) -> PyResult<String> {
        let (ear, other) = (listener.ear(), other.as_ref().map(|other| &other.get().0));
        py.detach(|| self.0.ask(command, &options, other, &ear)).map_err(exception)
    }

    /// What happened in the run, replayed under these options where it is a trace.
    fn history(&self, py: Python<'_>, options: Vec<String>, listener: &Listener) -> PyResult<History> {
        let ear = listener.ear();
        py.detach(|| self.0.history(&options, &ear)).map(History).map_err(exception)
    }
}

/// What happened in a run.
#[pyclass(frozen, module = "granule_alloc._native")]
#[derive(Debug)]
pub(crate) struct History(granule_cli::History);

#[pymethods]
impl History {
    /// The table of this name.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let table = parquet::Table::ALL.into_iter().find(|table| table.name() == name);
        let table = table.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        py.detach(|| Table::of(table, &self.0.source()))
    }

    /// First moment, most live and most reserved bytes of so many stretches of the run.
    fn curve(&self, py: Python<'_>, points: u32) -> Vec<(u32, u64, u64)> {
        py.detach(|| curve(self.0.run(), points))
            .iter()
            .map(|point| (point.at, point.live, point.reserved))
            .collect()
    }

    /// Entries of the history.
    #[getter]
    fn length(&self) -> u32 {
        self.0.run().length
    }

    /// The iterations' first moments and numbers.
    fn iterations(&self) -> Vec<(u32, u64)> {
        self.0.run().iterations.iter().map(|iteration| (iteration.at, iteration.number)).collect()
    }

    /// When requests were refused, and how large they were.
    fn refusals(&self) -> Vec<(u32, u64)> {
        self.0.run().refusals.iter().map(|refusal| (refusal.at, refusal.size)).collect()
    }
}
