//! Plain values as C writes and reads them. The header's structs are made of these.

use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use std::ffi::{CStr, c_char};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An answer that a C function writes through a pointer.
pub trait Value: Sized {
    /// What C writes.
    type Raw;
    /// What is there before it writes.
    const BLANK: Self::Raw;
    /// The answer; `None` where what was written is no value of the contract.
    fn read(raw: Self::Raw) -> Option<Self>;
}

macro_rules! numbers {
    ($($value:ty: $raw:ty, $blank:expr, $read:expr;)+) => {$(
        impl Value for $value {
            type Raw = $raw;
            const BLANK: $raw = $blank;
            fn read(raw: $raw) -> Option<Self> {
                Some($read(raw))
            }
        }
    )+};
}

numbers! {
    u16: u16, 0, std::convert::identity;
    u64: u64, 0, std::convert::identity;
    i64: i64, 0, std::convert::identity;
    f32: f32, 0.0, std::convert::identity;
    // A byte of C's `bool`: reading another number than 0 or 1 as Rust's `bool` would be undefined.
    bool: u8, 0, |raw| raw != 0;
    DeviceIndex: u16, 0, DeviceIndex;
    DevicePtr: u64, 0, DevicePtr;
    IpcMemoryHandle: RawIpcHandle, RawIpcHandle { bytes: [0; 64] }, |raw: RawIpcHandle| Self(raw.bytes);
    MemoryInfo: RawMemoryInfo, RawMemoryInfo { free: 0, total: 0 },
        |raw: RawMemoryInfo| Self { free: raw.free, total: raw.total };
    AddressRange: RawAddressRange, RawAddressRange { base: 0, bytes: 0 },
        |raw: RawAddressRange| Self { base: DevicePtr(raw.base), bytes: raw.bytes };
    PriorityRange: RawPriorityRange, RawPriorityRange { least: 0, greatest: 0 },
        |raw: RawPriorityRange| Self { least: raw.least, greatest: raw.greatest };
}

/// A stream. `raw` 0 is the device's default stream.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawStream {
    /// What create_stream answered.
    pub raw: u64,
    /// The device it runs on.
    pub device: u16,
}

impl From<Stream> for RawStream {
    fn from(stream: Stream) -> Self {
        Self { raw: stream.raw, device: stream.device.0 }
    }
}

/// An event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawEvent {
    /// What create_event answered.
    pub raw: u64,
    /// The device it belongs to.
    pub device: u16,
}

impl From<Event> for RawEvent {
    fn from(event: Event) -> Self {
        Self { raw: event.raw, device: event.device.0 }
    }
}

/// A device's memory, in bytes, other processes included.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawMemoryInfo {
    /// Not taken by anyone.
    pub free: u64,
    /// All there is.
    pub total: u64,
}

/// An allocation's extent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawAddressRange {
    /// First address.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// What an address points into.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawPointerInfo {
    /// A granule_backend_pointer_kind.
    pub kind: i32,
    /// The owning device; -1 for host and unmanaged memory.
    pub device: i32,
    /// Start of the allocation; 0 for unmanaged memory.
    pub base: u64,
}

impl Value for PointerInfo {
    type Raw = RawPointerInfo;
    const BLANK: RawPointerInfo = RawPointerInfo { kind: 0, device: -1, base: 0 };
    fn read(raw: RawPointerInfo) -> Option<Self> {
        let device = match raw.device {
            -1 => None,
            device => Some(DeviceIndex(u16::try_from(device).ok()?)),
        };
        Some(Self { kind: PointerKind::read(raw.kind)?, device, base: DevicePtr(raw.base) })
    }
}

/// What a device is. It comes to the function filled with zeroes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawDeviceProperties {
    /// The product's name, with its 0.
    pub name: [c_char; 256],
    /// Bytes that identify the device; all 0 where the driver has none.
    pub uuid: [u8; 16],
    /// "domain:bus:device.function", with its 0; empty where the driver has none.
    pub pci_bus_id: [c_char; 32],
    /// Total memory in bytes.
    pub total_memory: u64,
    /// Threads per warp or wavefront.
    pub warp_size: u32,
}

impl Value for DeviceProperties {
    type Raw = RawDeviceProperties;
    const BLANK: RawDeviceProperties = RawDeviceProperties {
        name: [0; 256],
        uuid: [0; 16],
        pci_bus_id: [0; 32],
        total_memory: 0,
        warp_size: 0,
    };
    fn read(raw: RawDeviceProperties) -> Option<Self> {
        let pci_bus_id = text(&raw.pci_bus_id);
        Some(Self {
            name: text(&raw.name),
            uuid: (raw.uuid != [0; 16]).then_some(raw.uuid),
            pci_bus_id: (!pci_bus_id.is_empty()).then_some(pci_bus_id),
            total_memory: raw.total_memory,
            warp_size: raw.warp_size,
        })
    }
}

/// Stream priorities that make a difference: 0 is normal, negative is more urgent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawPriorityRange {
    /// The least urgent.
    pub least: i32,
    /// The most urgent.
    pub greatest: i32,
}

/// A handle of memory that another process can open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawIpcHandle {
    /// Opaque.
    pub bytes: [u8; 64],
}

/// A physical handle on its way to another process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawShareableHandle {
    /// A granule_backend_handle_type: which of the other fields holds it.
    pub handle_type: i32,
    /// An open file descriptor. Granule closes one that an export gave, and keeps one that it imports.
    pub fd: i32,
    /// A fabric handle.
    pub fabric: [u8; 64],
}

impl RawShareableHandle {
    /// A view for an import.
    pub(crate) fn lent(handle: &ShareableHandle) -> Self {
        match handle {
            ShareableHandle::PosixFd(fd) => {
                Self { handle_type: HandleType::PosixFd as i32, fd: fd.as_raw_fd(), fabric: [0; 64] }
            }
            ShareableHandle::Fabric(fabric) => {
                Self { handle_type: HandleType::Fabric as i32, fd: -1, fabric: *fabric }
            }
        }
    }
}

impl Value for ShareableHandle {
    type Raw = RawShareableHandle;
    const BLANK: RawShareableHandle = RawShareableHandle { handle_type: -1, fd: -1, fabric: [0; 64] };
    fn read(raw: RawShareableHandle) -> Option<Self> {
        match HandleType::read(raw.handle_type)? {
            HandleType::PosixFd if raw.fd >= 0 => {
                // SAFETY: the header gives an exported descriptor to Granule, and it is read once.
                Some(Self::PosixFd(unsafe { OwnedFd::from_raw_fd(raw.fd) }))
            }
            HandleType::Fabric => Some(Self::Fabric(raw.fabric)),
            _ => None,
        }
    }
}

/// Whether a stream is being captured.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawCaptureStatus {
    /// The capture's id, where it is active.
    pub id: u64,
    /// 0: it runs its work; 1: it records into the capture `id`; 2: the capture was invalidated.
    pub state: i32,
}

impl Value for CaptureStatus {
    type Raw = RawCaptureStatus;
    const BLANK: RawCaptureStatus = RawCaptureStatus { id: 0, state: -1 };
    fn read(raw: RawCaptureStatus) -> Option<Self> {
        match raw.state {
            0 => Some(Self::None),
            1 => Some(Self::Active(raw.id)),
            2 => Some(Self::Invalidated),
            _ => None,
        }
    }
}

/// The text up to its 0, or all of it.
pub(crate) fn text(raw: &[c_char]) -> String {
    let bytes: Vec<u8> = raw.iter().map(|&c| c as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
