//! Labels of devices and of what belongs to them, and the checks at the membrane.
//!
//! A label is a [`DeviceKind`]. Changing it changes nothing else: index, raw handle, pointer, whatever the value
//! is, stay bit for bit. A thing with the wrong label is refused, never relabelled in silence.

use backend_api::Graph;
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, Event, PhysicalHandle, Stream};
use std::fmt;
use thiserror::Error;

/// Something carries the wrong label.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    /// A device, or something of a device, of another kind.
    #[error("expected a {}-labelled {what}, got {found}", expected.label())]
    WrongKind {
        /// What was given (`device`, `stream`, ...).
        what: &'static str,
        /// The label it should have.
        expected: DeviceKind,
        /// The label it has, with the index where there is one (`hip:0`).
        found: String,
    },
    /// A handle that neither the masquerade nor the backend behind it made.
    #[error("the {what} is a handle of another backend (id {}); use one that this backend made", .backend.0)]
    Foreign {
        /// What was given (`stream`, ...).
        what: &'static str,
        /// Who made it.
        backend: BackendId,
    },
    /// A packed index that no device can have.
    #[error("{index} is no device index")]
    BadIndex {
        /// The number found.
        index: u64,
    },
}

/// A device under its label; prints as `cuda:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// The label.
    pub kind: DeviceKind,
    /// Which of the label's devices.
    pub index: DeviceIndex,
}

impl Device {
    /// The device under the label `to`, if it has the label `from`; only the label changes.
    ///
    /// # Errors
    /// [`LabelError::WrongKind`] where it has another label.
    pub fn relabel(self, from: DeviceKind, to: DeviceKind) -> Result<Self, LabelError> {
        self.expect("device", from)?;
        Ok(Self { kind: to, ..self })
    }

    pub(crate) fn expect(self, what: &'static str, expected: DeviceKind) -> Result<(), LabelError> {
        if self.kind == expected {
            return Ok(());
        }
        Err(LabelError::WrongKind { what, expected, found: self.to_string() })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

/// A value that belongs to a labelled device: a data pointer with its context and deleter, a raw stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Labelled<T> {
    /// Whose it is.
    pub device: Device,
    /// What it is; labels never touch it.
    pub value: T,
}

impl<T> Labelled<T> {
    /// The value under the label `to`, if it has the label `from`; only the label changes. `what` names it in
    /// the error.
    ///
    /// # Errors
    /// [`LabelError::WrongKind`] where it has another label.
    pub fn relabel(self, what: &'static str, from: DeviceKind, to: DeviceKind) -> Result<Self, LabelError> {
        self.device.expect(what, from)?;
        Ok(Self { device: Device { kind: to, ..self.device }, ..self })
    }
}

/// A stream as three numbers, as frameworks pass it through their own calls. `kind` is PyTorch's
/// `c10::DeviceType`; a masquerade always packs CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedStream {
    /// The driver's handle.
    pub id: u64,
    /// The device's index.
    pub index: u64,
    /// The label's number.
    pub kind: u64,
}

impl PackedStream {
    pub(crate) fn pack(stream: Stream) -> Self {
        Self { id: stream.raw, index: u64::from(stream.device.0), kind: CUDA }
    }

    /// A stream of `backend`; the label must be CUDA's.
    pub(crate) fn unpack(self, backend: BackendId) -> Result<Stream, LabelError> {
        if self.kind != CUDA {
            let name = usize::try_from(self.kind).ok().and_then(|kind| DEVICE_TYPES.get(kind));
            let found = match name {
                Some(name) => format!("{name}:{}", self.index),
                None => format!("device type {}", self.kind),
            };
            return Err(LabelError::WrongKind { what: "stream", expected: DeviceKind::Cuda, found });
        }
        let index = u16::try_from(self.index).map_err(|_| LabelError::BadIndex { index: self.index })?;
        Ok(Stream { raw: self.id, device: DeviceIndex(index), backend })
    }
}

/// CUDA's number in `c10::DeviceType`.
const CUDA: u64 = 1;

/// The names of `c10::DeviceType`, by number.
const DEVICE_TYPES: [&str; 21] = [
    "cpu",
    "cuda",
    "mkldnn",
    "opengl",
    "opencl",
    "ideep",
    "hip",
    "fpga",
    "maia",
    "xla",
    "vulkan",
    "metal",
    "xpu",
    "mps",
    "meta",
    "hpu",
    "ve",
    "lazy",
    "ipu",
    "mtia",
    "privateuseone",
];

/// A handle that carries its backend's id: [`Stream`], [`Event`], [`PhysicalHandle`], [`Graph`].
pub trait Handle: Copy + sealed::Sealed {
    /// What it is, for error texts.
    const WHAT: &'static str;

    /// The backend that made it.
    fn backend(self) -> BackendId;

    /// Its device, where the handle knows it.
    fn device(self) -> Option<DeviceIndex>;

    /// The same with another backend's id; all else stays bit for bit.
    #[must_use]
    fn with_backend(self, backend: BackendId) -> Self;
}

mod sealed {
    /// New handles come with the contract, not from outside.
    pub trait Sealed {}
}

macro_rules! handle {
    ($type:ident, $what:literal, $this:ident => $device:expr) => {
        impl sealed::Sealed for $type {}
        impl Handle for $type {
            const WHAT: &'static str = $what;

            fn backend(self) -> BackendId {
                self.backend
            }

            fn device(self) -> Option<DeviceIndex> {
                let $this = self;
                $device
            }

            fn with_backend(self, backend: BackendId) -> Self {
                Self { backend, ..self }
            }
        }
    };
}

handle!(Stream, "stream", stream => Some(stream.device));
handle!(Event, "event", event => Some(event.device));
handle!(PhysicalHandle, "physical handle", _handle => None);
handle!(Graph, "graph", _graph => None);
