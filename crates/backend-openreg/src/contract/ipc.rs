//! Sharing with other processes: handles name a memory file of the exporter, which importers open through
//! the process file system. The exporter must be alive, and of the same user, when a handle is opened.

use crate::config::{Families, MemoryMode};
use crate::driver::Driver;
use crate::gate::call::Call;
use crate::memory::{Extent, Place, RangeKind, index};
use crate::openreg::OpenReg;
use crate::os::{SharedFile, SharedFlag, page};
use crate::refusal::{Answer, Refusal};
use backend_api::types::{DeviceIndex, DevicePtr, Event};
use backend_api::*;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const MEMORY: u32 = 0x6f72_6d31;
const ADDRESSES: u32 = 0x6f72_6131;
const EVENT: u32 = 0x6f72_6531;

/// A handle's 64 bytes, read and written.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    kind: u32,
    process: u32,
    descriptor: u32,
    inode: u64,
    offset: u64,
    bytes: u64,
}

impl Ticket {
    fn new(kind: u32, file: &SharedFile, offset: u64, bytes: u64) -> Answer<Self> {
        Ok(Self {
            kind,
            process: std::process::id(),
            descriptor: file.file().as_raw_fd() as u32,
            inode: file.file().metadata()?.ino(),
            offset,
            bytes,
        })
    }

    /// Of memory without bytes: there is no file.
    fn of_addresses(at: u64, bytes: u64) -> Self {
        Self { kind: ADDRESSES, process: std::process::id(), descriptor: 0, inode: 0, offset: at, bytes }
    }

    fn to_bytes(self) -> [u8; 64] {
        let mut into = [0; 64];
        for (at, word) in [(0, self.kind), (4, self.process), (8, self.descriptor)] {
            into[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in [(16, self.inode), (24, self.offset), (32, self.bytes)] {
            into[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        into
    }

    fn from_bytes(from: &[u8; 64], kind: u32) -> Answer<Self> {
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| from[at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| from[at + byte]));
        if short(0) != kind {
            return Err(Refusal::invalid("these bytes are no handle of that kind"));
        }
        Ok(Self {
            kind,
            process: short(4),
            descriptor: short(8),
            inode: long(16),
            offset: long(24),
            bytes: long(32),
        })
    }

    /// The exporter's file, if it is still the same one.
    fn open(self) -> Answer<SharedFile> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let file = File::options().read(true).write(true).open(&path).map_err(|error| {
            Refusal::invalid(format!("the exporter (process {}) cannot be reached: {error}", self.process))
        })?;
        let found = file.metadata()?;
        let end = self.offset.checked_add(self.bytes);
        if found.ino() != self.inode || end.is_none_or(|end| end > found.len()) {
            return Err(Refusal::invalid("the exporter has closed what this handle stood for"));
        }
        Ok(SharedFile::from_file(file))
    }
}

impl Ipc for OpenReg {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        self.unsafe_call(Call::ExportMemory, self.device_at(base), |state| {
            match state.memory.place_of(base.0) {
                Some(Place::Range(at, range)) if at == base.0 && matches!(range.kind, RangeKind::Plain) => {
                    let ticket = match &range.extent {
                        Some(extent) => Ticket::new(MEMORY, &extent.file, extent.offset, extent.bytes)?,
                        None => Ticket::of_addresses(at, range.bytes),
                    };
                    Ok(IpcMemoryHandle(ticket.to_bytes()))
                }
                Some(Place::Mapping(..)) => {
                    Err(Refusal::unsupported("virtual memory is shared by exporting its physical handles"))
                }
                _ => {
                    Err(Refusal::invalid(format!("{base} is not the base of an allocation made with malloc")))
                }
            }
        })
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        self.unsafe_call(Call::OpenMemory, device, |mut state| {
            let opened = state.memory.ranges.iter_mut().find_map(|(&at, range)| match &mut range.kind {
                RangeKind::Imported { handle: known, references } if *known == handle.0 => {
                    *references += 1;
                    Some(at)
                }
                _ => None,
            });
            if let Some(at) = opened {
                return Ok(DevicePtr(at));
            }
            let kind = RangeKind::Imported { handle: handle.0, references: 1 };
            if self.config.memory == MemoryMode::Reserved {
                let ticket = Ticket::from_bytes(&handle.0, ADDRESSES)?;
                return state
                    .memory
                    .take_addresses(index(device), ticket.bytes, 2 << 20, 0, kind)
                    .map(DevicePtr);
            }
            let ticket = Ticket::from_bytes(&handle.0, MEMORY)?;
            let whole_pages = ticket.bytes.is_multiple_of(page()) && ticket.offset.is_multiple_of(page());
            if ticket.bytes == 0 || !whole_pages {
                return Err(Refusal::invalid(
                    "the handle names no whole pages; it was not exported like that",
                ));
            }
            let file = Arc::new(ticket.open()?);
            let at = state.memory.take_addresses(index(device), ticket.bytes, 2 << 20, 0, kind)?;
            let extent = Extent { file, offset: ticket.offset, bytes: ticket.bytes };
            if let Err(refusal) = state.memory.show(at, extent) {
                state.memory.give(at)?;
                return Err(refusal);
            }
            Ok(DevicePtr(at))
        })
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        self.unsafe_call(Call::CloseMemory, self.device_at(ptr), |mut state| {
            let wrong = || Refusal::invalid(format!("{ptr} was not opened from a handle"));
            let (last, bytes) = match state.memory.ranges.get(&ptr.0) {
                Some(range) => match range.kind {
                    RangeKind::Imported { references, .. } => (references == 1, range.bytes),
                    _ => return Err(wrong()),
                },
                None => return Err(wrong()),
            };
            if last {
                state.not_in_use(ptr.0, bytes)?;
                return state.memory.give(ptr.0);
            }
            if let Some(RangeKind::Imported { references, .. }) =
                state.memory.ranges.get_mut(&ptr.0).map(|range| &mut range.kind)
            {
                *references -= 1;
            }
            Ok(())
        })
    }
}

/// Events for other processes.
impl Driver<'_> {
    /// A new event that another process can open. It keeps no time.
    ///
    /// # Errors
    /// `NotSupported` where the machine shares nothing with other processes; what the system refused.
    pub fn create_shared_event(&self, device: DeviceIndex) -> Result<Event> {
        self.0.call(Call::CreateEvent, device, |mut state| {
            self.0
                .offers(Families::IPC, "IPC", !self.0.config.address_sharing)
                .map_err(|absent| Refusal::unsupported(absent.reason))?;
            let flag = Arc::new(SharedFlag::create()?);
            let raw = state.queues.create_event(index(device), EventFlags::empty(), Some(flag));
            Ok(self.0.names.new_event(raw, device))
        })
    }

    /// A handle for such an event.
    ///
    /// # Errors
    /// `InvalidValue` for any other event.
    pub fn export_event(&self, event: Event) -> Result<[u8; 64]> {
        self.0.call(Call::ExportEvent, event.device, |state| {
            let key = self.0.names.event(&state, event)?;
            let flag = state.queues.event(key)?.shared.as_ref();
            let flag = flag.ok_or_else(|| Refusal::invalid("the event was not made for other processes"))?;
            Ok(Ticket::new(EVENT, flag.shared_file(), 0, 0)?.to_bytes())
        })
    }

    /// Opens another process's event.
    ///
    /// # Errors
    /// `InvalidValue` for other bytes, and where the exporter is gone.
    pub fn open_event(&self, device: DeviceIndex, handle: &[u8; 64]) -> Result<Event> {
        self.0.call(Call::OpenEvent, device, |mut state| {
            let flag = SharedFlag::open(Ticket::from_bytes(handle, EVENT)?.open()?)?;
            let raw = state.queues.create_event(index(device), EventFlags::empty(), Some(Arc::new(flag)));
            Ok(self.0.names.new_event(raw, device))
        })
    }
}
