//! The backend that a command line names.

use granule::backend::Backend;
use granule::backends::{ChoiceError, Name};
use std::sync::Arc;

/// The backend of `--backend`, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named(pub(crate) Name);

impl Named {
    /// What it runs on, with its article.
    pub(crate) const fn device(self) -> &'static str {
        match self.0 {
            Name::OpenReg => "a simulated device",
            Name::Cuda => "an NVIDIA GPU",
            Name::Hip => "an AMD GPU",
            Name::HipAsCuda => "an AMD GPU seen as NVIDIA's",
        }
    }

    /// Starts it; `None` for the simulated accelerator, which a replay sets up for itself.
    pub(crate) fn open_real(self) -> granule::backend::Result<Option<Arc<dyn Backend>>> {
        match self.0 {
            Name::OpenReg => Ok(None),
            name => name.open().map(Some),
        }
    }
}

/// Reads `--backend`.
pub(crate) fn parse(name: &str) -> Result<Named, ChoiceError> {
    Name::parse(name).map(Named)
}
