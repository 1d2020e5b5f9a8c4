//! Plain values that every layer shares: device indices, addresses, handles.
//!
//! A handle is a 64-bit driver value together with the backend (and device) that made it. So a stream of one backend
//! that is handed to another is refused instead of dereferenced.

use std::fmt;

/// Which accelerator of a backend, counted from 0. PyTorch's `DeviceIndex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeviceIndex(pub u16);

impl fmt::Display for DeviceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An address in a device's memory. Never dereferenced by the engine; 0 is "no memory".
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// True for the null address.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on.
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Identifies one loaded backend within the process. Handles carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId(pub u16);

impl BackendId {
    /// The next unused id of this process. A backend takes one when it is made.
    ///
    /// # Panics
    /// After 65 535 backends.
    #[must_use]
    pub fn fresh() -> Self {
        let id = crate::fork::next_backend();
        Self(u16::try_from(id).expect("more than 65535 backends were made in this process"))
    }

    /// Whether the backend was made by a process of which this one is a fork. Its driver cannot be used here.
    #[must_use]
    pub fn is_inherited(self) -> bool {
        crate::fork::is_inherited(u64::from(self.0))
    }
}

/// The label under which a backend's devices are known to frameworks (PyTorch's `DeviceType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// NVIDIA, or AMD seen as NVIDIA.
    Cuda,
    /// AMD.
    Hip,
    /// PyTorch's slot for out-of-tree accelerators; the simulated device uses it.
    PrivateUse1,
}

impl DeviceKind {
    /// The lower-case name that frameworks print (`cuda`, `hip`, `privateuseone`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::PrivateUse1 => "privateuseone",
        }
    }

    /// The upper-case name used in error texts (`CUDA out of memory. ...`).
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cuda => "CUDA",
            Self::Hip => "HIP",
            Self::PrivateUse1 => "PrivateUse1",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stream: an ordered queue of device work. `raw` 0 is the device's default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// The driver's handle (`CUstream`, `hipStream_t`, ...).
    pub raw: u64,
    /// The device it runs on.
    pub device: DeviceIndex,
    /// The backend that made it.
    pub backend: BackendId,
}

/// An event: a point in a stream that can be queried and waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The driver's handle (`CUevent`, `hipEvent_t`, ...).
    pub raw: u64,
    /// The device it belongs to.
    pub device: DeviceIndex,
    /// The backend that made it.
    pub backend: BackendId,
}

/// Physical device memory without an address (`CUmemGenericAllocationHandle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle {
    /// The driver's handle.
    pub raw: u64,
    /// The backend that made it.
    pub backend: BackendId,
}

/// One kibibyte, in bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1 << 30;
