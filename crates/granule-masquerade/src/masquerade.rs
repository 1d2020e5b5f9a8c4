//! The masquerade itself: what the generated forwarding rests on.

use crate::errors;
use crate::labels::{Device, Handle, LabelError, PackedStream};
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, Stream};
use backend_api::{
    Backend, BackendError, Dropped, ErrorKind, LabelOwner, LabelTaken, Result as DriverResult, Unsupported,
};
use std::sync::Arc;
use thiserror::Error;

/// The name of the implementation, in [`Backend::name`] and in the register of labels.
pub const NAME: &str = "hip-as-cuda";

/// Whether handles carry a label of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// HIP below, CUDA above: handles are relabelled in both directions, and one of the wrong side is refused.
    /// PyTorch's first scheme.
    #[default]
    Flip,
    /// CUDA everywhere: handles keep the inner backend's id, and only devices are called CUDA. PyTorch's second
    /// scheme. A handle of the backend behind is as good as one of the masquerade.
    Identity,
}

/// Why there is no masquerade.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MasqueradeError {
    /// Only HIP can be presented as CUDA.
    #[error("only a HIP backend can be presented as CUDA; `{name}` has devices of kind {kind}")]
    NotHip {
        /// The backend's name.
        name: &'static str,
        /// Its kind.
        kind: DeviceKind,
    },
    /// Another implementation presents its devices as CUDA.
    #[error(transparent)]
    LabelTaken(#[from] LabelTaken),
}

/// A HIP backend presented as CUDA; see the [crate's page](crate).
#[derive(Debug)]
pub struct Masquerade {
    pub(crate) inner: Arc<dyn Backend>,
    /// The id that handles carry above.
    id: BackendId,
    /// The id that handles carry below.
    inner_id: BackendId,
    policy: Policy,
    owner: LabelOwner,
}

impl Masquerade {
    /// Presents `inner` as CUDA, and takes the label for as long as the masquerade lives.
    ///
    /// # Errors
    /// [`MasqueradeError`]: `inner` is not HIP, or the label has another owner.
    pub fn new(inner: Arc<dyn Backend>, policy: Policy) -> Result<Arc<Self>, MasqueradeError> {
        let (name, kind) = (inner.name(), inner.kind());
        if kind != DeviceKind::Hip {
            return Err(MasqueradeError::NotHip { name, kind });
        }
        let owner = LabelOwner::claim(DeviceKind::Cuda, NAME)?;
        let inner_id = inner.id();
        let id = match policy {
            Policy::Flip => BackendId::fresh(),
            Policy::Identity => inner_id,
        };
        tracing::debug!(inner = name, ?policy, "a backend is presented as CUDA");
        Ok(Arc::new(Self { inner, id, inner_id, policy, owner }))
    }

    /// The backend behind it.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    /// How handles are labelled.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// A device under its CUDA label.
    #[must_use]
    pub fn device(&self, index: DeviceIndex) -> Device {
        Device { kind: self.owner.kind(), index }
    }

    /// The index of a CUDA-labelled device.
    ///
    /// # Errors
    /// [`LabelError::WrongKind`] for any other label.
    pub fn device_index(&self, device: Device) -> Result<DeviceIndex, LabelError> {
        device.expect("device", self.owner.kind()).map(|()| device.index)
    }

    /// The inner backend's form of a handle, for code that talks to it directly.
    ///
    /// # Errors
    /// [`LabelError`] where the handle is not CUDA-labelled by this masquerade.
    pub fn to_hip<T: Handle>(&self, handle: T) -> Result<T, LabelError> {
        self.relabel(handle, DeviceKind::Cuda)
    }

    /// The CUDA form of a handle that the inner backend made.
    ///
    /// # Errors
    /// [`LabelError`] where the inner backend did not make it.
    pub fn to_cuda<T: Handle>(&self, handle: T) -> Result<T, LabelError> {
        self.relabel(handle, DeviceKind::Hip)
    }

    /// A CUDA-labelled stream as three numbers.
    ///
    /// # Errors
    /// [`LabelError`] where the stream is not CUDA-labelled by this masquerade.
    pub fn pack(&self, stream: Stream) -> Result<PackedStream, LabelError> {
        self.to_hip(stream).map(PackedStream::pack)
    }

    /// The stream that three numbers stand for.
    ///
    /// # Errors
    /// [`LabelError`] where the numbers are not CUDA-labelled.
    pub fn unpack(&self, packed: PackedStream) -> Result<Stream, LabelError> {
        packed.unpack(self.id)
    }

    /// A handle with the label `from` under the other one.
    fn relabel<T: Handle>(&self, handle: T, from: DeviceKind) -> Result<T, LabelError> {
        let (expected, other, other_kind) = match from {
            DeviceKind::Cuda => (self.id, self.inner_id, DeviceKind::Hip),
            _ => (self.inner_id, self.id, DeviceKind::Cuda),
        };
        let backend = handle.backend();
        // Under `Identity` both ids are the same, and the first test answers.
        if backend == expected {
            return Ok(handle.with_backend(other));
        }
        if backend != other {
            return Err(LabelError::Foreign { what: T::WHAT, backend });
        }
        let found = match handle.device() {
            Some(index) => Device { kind: other_kind, index }.to_string(),
            None => other_kind.to_string(),
        };
        Err(LabelError::WrongKind { what: T::WHAT, expected: from, found })
    }
}

/// What the generated forwarding calls.
impl Masquerade {
    pub(crate) fn own_id(&self) -> BackendId {
        self.id
    }

    pub(crate) fn own_kind(&self) -> DeviceKind {
        self.owner.kind()
    }

    pub(crate) fn own_label(&self) -> &'static str {
        self.owner.kind().label()
    }

    pub(crate) fn own_name(&self) -> &'static str {
        self.owner.implementation()
    }

    /// The table's name; the inner backend is asked for what the table does not list on either side.
    pub(crate) fn own_error_name(&self, code: i32) -> String {
        match errors::name(code) {
            Some(name) => name.to_owned(),
            None if errors::is_hips(code) => "unknown".into(),
            None => errors::text(&self.inner.error_name(code)),
        }
    }

    pub(crate) fn own_dropped(&self, device: DeviceIndex) -> Vec<Dropped> {
        let translated = |one: Dropped| Dropped { reason: errors::text(&one.reason), ..one };
        self.inner.dropped(device).into_iter().map(translated).collect()
    }

    /// A handle on its way to the inner backend.
    pub(crate) fn inward<T: Handle>(&self, call: &'static str, handle: T) -> DriverResult<T> {
        self.to_hip(handle).map_err(|wrong| {
            let device = handle.device().unwrap_or_default();
            BackendError::new(ErrorKind::InvalidValue, 0, call, device, wrong.to_string())
        })
    }

    /// A handle on its way out.
    pub(crate) fn outward<T: Handle>(&self, handle: T) -> T {
        handle.with_backend(self.id)
    }
}

/// An answer of the inner backend, with errors in CUDA's terms.
pub(crate) fn answer<T>(call: &'static str, inner: DriverResult<T>) -> DriverResult<T> {
    inner.map_err(|error| errors::translate(error, call))
}

/// A family of the inner backend, or its absence in CUDA's terms.
pub(crate) fn family<T>(inner: Result<T, Unsupported>) -> Result<T, Unsupported> {
    inner.map_err(errors::translate_absence)
}
