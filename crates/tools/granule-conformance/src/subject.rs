//! What is checked.

use backend_api::{Backend, Result};
use std::fmt;
use std::sync::Arc;

/// What is checked: a backend by name, and how to start it.
pub struct Subject {
    name: String,
    open: Box<dyn Fn() -> Result<Arc<dyn Backend>> + Send + Sync>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Subject {
    /// A subject; `open` is called once here and once in each child process.
    pub fn new(
        name: impl Into<String>,
        open: impl Fn() -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), open: Box::new(open) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the backend.
    ///
    /// # Errors
    /// What the backend says.
    pub fn open(&self) -> Result<Arc<dyn Backend>> {
        (self.open)()
    }
}
