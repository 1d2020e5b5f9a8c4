//! What a command says while it works.

use pyo3::prelude::*;
use std::sync::Arc;

/// Hears what is said during one piece of work, from another thread.
#[pyclass(frozen, module = "granule_alloc._native")]
#[derive(Debug, Default)]
pub(crate) struct Listener(Arc<granule_cli::Listener>);

impl Listener {
    pub(crate) fn ear(&self) -> Arc<granule_cli::Listener> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl Listener {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// What was said since the last call: kinds and texts.
    fn messages(&self) -> Vec<(&'static str, String)> {
        self.0.messages().into_iter().map(|message| (message.kind, message.text)).collect()
    }

    /// What is being done, how much of it is done, and of how much, if that is known.
    fn progress(&self) -> Option<(String, u64, Option<u64>)> {
        self.0.progress().map(|progress| (progress.what, progress.done, progress.total))
    }
}
