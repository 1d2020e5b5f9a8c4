//! What is checked.

use backend_api::types::Stream;
use backend_api::{Backend, HostFunction, Result};
use std::fmt;
use std::sync::Arc;

/// Holds a stream of the subject's backend still until the answer is called.
pub type Hold = fn(Stream) -> Result<HostFunction>;

/// What is checked: a backend by name, and how to start it.
pub struct Subject {
    name: String,
    pub(crate) hold: Option<Hold>,
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
        Self { name: name.into(), hold: None, open: Box::new(open) }
    }

    /// The same, with another way to hold streams still: where a host function that waits holds the driver, too.
    #[must_use]
    pub fn held_by(self, hold: Hold) -> Self {
        Self { hold: Some(hold), ..self }
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
