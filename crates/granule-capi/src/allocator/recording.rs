//! The recording of an allocator.

use crate::error::{Failure, GRANULE_RECORDING, GRANULE_SETTINGS};
use granule::CachingAllocator;
use granule_snapshot::record::{RecordError, Recorder};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An allocator's recording; it stays after its end, to be asked about.
#[derive(Default)]
pub(crate) struct Recording(Mutex<Option<Recorder>>);

impl Recording {
    /// What GRANULE_RECORD asks for. A text that is not understood is a failure; where nothing can be recorded, the program goes
    /// on without, and the log says why.
    pub(crate) fn from_env(engine: &Arc<CachingAllocator>) -> Result<Self, Failure> {
        match Recorder::from_env(engine) {
            Ok(recorder) => Ok(Self(Mutex::new(recorder))),
            Err(error @ RecordError::Options(_)) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "nothing is recorded");
                Ok(Self::default())
            }
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Recorder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Allocator(error) => Self::Engine(error),
            RecordError::Options(_) => Self::own(GRANULE_SETTINGS, error.to_string()),
            _ => Self::own(GRANULE_RECORDING, error.to_string()),
        }
    }
}
