//! One device's exchange of memory with other processes: the wire format, and checks that this device can take part.

use super::export_table::ExportTable;
use super::handle::{BlockMemory, Exporter, Handle};
use super::import::Imports;
use super::mapping::Undo;
use super::{ImportedMemory, Share, SharedBlock, bytes};
use crate::backend::{
    Attribute, Backend, ErrorKind, Granularity, HandleType, IpcMemoryHandle, ShareableHandle,
};
use crate::error::{AllocError, Explanation, Result};
use crate::memory::region::{Piece, ToExport};
use crate::process::attention::Attention;
use crate::sync::{Arc, Mutex, OnceLock, Rank, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr};
use rustc_hash::FxHashMap;
use std::os::fd::AsRawFd;

/// Place of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockPlace {
    Fixed {
        base: u64,
        bytes: u64,
        registration: u32,
    },
    /// Granules that are shown one after another from `base` on.
    Granules {
        base: u64,
        pieces: Vec<Piece>,
        registration: u32,
    },
}

impl BlockPlace {
    /// First address and bytes of the range that other processes map.
    pub(crate) fn whole(&self) -> (u64, u64) {
        match self {
            Self::Fixed { base, bytes, .. } => (*base, *bytes),
            Self::Granules { base, pieces, .. } => (*base, pieces.iter().map(Piece::bytes).sum()),
        }
    }

    pub(crate) fn registration(&self) -> u32 {
        match self {
            Self::Fixed { registration, .. } | Self::Granules { registration, .. } => *registration,
        }
    }

    pub(crate) fn granules(&self) -> &[Piece] {
        match self {
            Self::Fixed { .. } => &[],
            Self::Granules { pieces, .. } => pieces,
        }
    }
}

/// A device's dealings with other processes.
#[derive(Debug)]
pub(crate) struct Exchange {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    /// Made when the first block is shared.
    ledger: Mutex<Option<Arc<ExportTable>>>,
    /// The driver's handles of fixed segments, by base and registration.
    segments: Mutex<FxHashMap<u64, (u32, IpcMemoryHandle)>>,
    /// Handle type of physical memory, once the driver was asked.
    handle_type: OnceLock<HandleType>,
    /// Identity of the device's model, once the driver was asked.
    model: OnceLock<u64>,
    imports: Arc<Imports>,
}

impl Exchange {
    pub(crate) fn new(backend: Arc<dyn Backend>, device: DeviceIndex, attention: &'static Attention) -> Self {
        Self {
            backend: Arc::clone(&backend),
            device,
            ledger: Mutex::new(Rank::Registry, None),
            segments: Mutex::new(Rank::Registry, FxHashMap::default()),
            handle_type: OnceLock::new(),
            model: OnceLock::new(),
            imports: Arc::new(Imports::new(backend, device, attention)),
        }
    }

    fn ledger(&self) -> std::io::Result<Arc<ExportTable>> {
        if let Some(ledger) = &*self.ledger.lock() {
            return Ok(Arc::clone(ledger));
        }
        let made = Arc::new(ExportTable::new()?);
        Ok(Arc::clone(self.ledger.lock().get_or_insert(made)))
    }

    /// Share that goes over the wire, with the block open in the ledger.
    pub(crate) fn describe(
        &self,
        ptr: DevicePtr,
        size: u64,
        place: &BlockPlace,
        memory: BlockMemory,
    ) -> Result<Share> {
        let refused = |problem: String| AllocError::Share { ptr, problem: problem.into() };
        let ledger = self.ledger().map_err(|error| {
            refused(format!(
                "the page that says who uses shared blocks could not be made: {error} (is /proc mounted?)"
            ))
        })?;
        let exporter = Exporter {
            backend: self.backend_tag(),
            model: self.model()?,
            process: ledger.exporter(),
            ledger: ledger.descriptor(),
            nonce: ledger.nonce(),
        };
        let ticket = ledger.open().ok_or_else(|| {
            refused(
                "65536 blocks of this device are shared already; free some, or share fewer and larger ones"
                    .into(),
            )
        })?;
        let (base, whole) = place.whole();
        let (registration, offset) = (place.registration(), ptr.0 - base);
        let handle = Handle { memory, exporter, ticket, registration, whole, offset, bytes: size };
        let block = SharedBlock { handle: handle.to_bytes(), offset };
        Ok(Share::new(block, place.granules().to_vec(), ledger, ticket))
    }

    /// The driver's handle of a fixed segment. Calls the driver where it has none yet.
    pub(crate) fn segment(&self, ptr: DevicePtr, base: u64, registration: u32) -> Result<IpcMemoryHandle> {
        let known = self.segments.lock().get(&base).copied();
        if let Some((_, handle)) = known.filter(|(of, _)| *of == registration) {
            return Ok(handle);
        }
        let ipc = self.backend.ipc();
        let ipc = ipc.map_err(|absent| AllocError::Share { ptr, problem: absent.to_string().into() })?;
        let handle = ipc.export_memory(DevicePtr(base)).inspect_err(|_| self.backend.clear_error())?;
        self.segments.lock().insert(base, (registration, handle));
        Ok(handle)
    }

    /// True if the driver was asked, and has no way to share growable memory.
    pub(crate) fn cannot_share_growable(&self) -> bool {
        self.handle_type.get() == Some(&HandleType::None)
    }

    /// Blocks that other processes share with this one.
    pub(crate) fn imports(&self) -> &Imports {
        &self.imports
    }

    fn backend_tag(&self) -> [u8; 16] {
        let mut tag = [0; 16];
        tag.iter_mut().zip(self.backend.name().bytes()).for_each(|(to, from)| *to = from);
        tag
    }

    /// Identity that devices of one model have in common. The driver is asked once.
    fn model(&self) -> Result<u64> {
        if let Some(known) = self.model.get() {
            return Ok(*known);
        }
        let properties = self.backend.properties(self.device).inspect_err(|_| self.backend.clear_error())?;
        Ok(*self.model.get_or_init(|| bytes::checksum(properties.name.as_bytes())))
    }

    /// True if a handle is of a block of this very allocator.
    pub(crate) fn is_exporter(&self, nonce: u64) -> bool {
        self.ledger.lock().as_ref().is_some_and(|ledger| ledger.nonce() == nonce)
    }

    /// Refuses a handle of memory that this backend cannot map at all. Calls no driver.
    pub(crate) fn admit(&self, handle: &Handle) -> Result<()> {
        let (theirs, ours) = (handle.exporter.backend, self.backend_tag());
        if theirs == ours {
            return Ok(());
        }
        let name = |tag: [u8; 16]| String::from_utf8_lossy(&tag).trim_end_matches('\0').to_owned();
        let problem = format!(
            "the block is memory of backend {:?} and cannot be opened by {:?}: use one backend in both processes",
            name(theirs),
            name(ours)
        );
        Err(AllocError::Open { problem: problem.into() })
    }

    /// Maps memory that another process shares, if this device can. Calls the driver.
    pub(crate) fn open(&self, bytes: &[u8], handle: Handle) -> Result<Arc<ImportedMemory>> {
        let refused = |problem: Explanation| Err(AllocError::Open { problem });
        if handle.exporter.model != self.model()? {
            return refused(
                format!(
                    "the block is on another model of device than device {}: open it on the device it is on",
                    self.device
                )
                .into(),
            );
        }
        if matches!(handle.memory, BlockMemory::Fabric(_)) && !self.offers(Attribute::FabricHandles, false) {
            let device = self.device;
            return refused(Explanation::with_pytorch(
                format!(
                    "the block goes by a fabric handle, and device {device} has no fabric: open it on a device that has, or \
                     use policy:pytorch with expandable_segments:False in the process that shares"
                ),
                format!(
                    "expandable_segments IPC: received FABRIC handle from producer but consumer device {device} does not \
                     support fabric access. Configure PYTORCH_CUDA_ALLOC_CONF=expandable_segments_handle_type:posix_fd on the \
                     producer, or disable expandable_segments."
                ),
            ));
        }
        self.imports.open(bytes, handle)
    }

    /// Handle type of this device's physical memory, by which other processes can be given it. The driver is asked
    /// once, and only where that is `wanted`.
    pub(crate) fn handle_type(&self, wanted: impl FnOnce() -> bool) -> HandleType {
        if let Some(known) = self.handle_type.get() {
            return *known;
        }
        let found = if wanted() { self.shareable() } else { HandleType::None };
        *self.handle_type.get_or_init(|| found)
    }

    /// Handle type by which others can be given physical memory of this device. Asks the driver.
    pub(crate) fn shareable(&self) -> HandleType {
        assert_unlocked();
        if self.backend.physical_sharing().is_err() {
            HandleType::None
        } else if self.offers(Attribute::FabricHandles, false) && self.has_fabric() {
            HandleType::Fabric
        } else if self.offers(Attribute::PosixFileDescriptorHandles, true) {
            HandleType::PosixFd
        } else {
            HandleType::None
        }
    }

    /// True if the device offers an attribute; `unsaid` where the backend answers no such question.
    fn offers(&self, attribute: Attribute, unsaid: bool) -> bool {
        let ask = || self.backend.attribute(self.device, attribute);
        // A driver that fails once is survived.
        let answer = ask()
            .or_else(|error| if error.kind == ErrorKind::NotSupported { Ok(unsaid.into()) } else { ask() });
        if answer.is_err() {
            self.backend.clear_error();
        }
        answer.is_ok_and(|offered| offered != 0)
    }

    /// Tries one cycle: devices report a fabric even where nothing runs that would make it work.
    fn has_fabric(&self) -> bool {
        let Ok(vm) = self.backend.physical_sharing() else { return false };
        let cycle = || {
            let bytes = vm.granularity(self.device, Granularity::Minimum)?;
            let handle = vm.create_physical(self.device, bytes, HandleType::Fabric)?;
            let exported = vm.export_physical(handle, HandleType::Fabric);
            let _returned = self.imports.undo_trial(Undo::of(handle));
            exported.map(drop)
        };
        let works: crate::backend::Result<()> = cycle().or_else(|_| {
            self.backend.clear_error();
            cycle()
        });
        if let Err(error) = &works {
            self.backend.clear_error();
            tracing::debug!(%error, device = %self.device, "fabric handles do not work; memory is shared by descriptors");
        }
        works.is_ok()
    }
}

pub(crate) fn in_handle(granules: &[ToExport]) -> BlockMemory {
    let (mut numbers, mut handles) = (Vec::new(), Vec::new());
    for granule in granules {
        match granule.shared.as_deref() {
            Some(ShareableHandle::PosixFd(descriptor)) => {
                numbers.push((granule.bytes, descriptor.as_raw_fd()));
            }
            Some(ShareableHandle::Fabric(handle)) => handles.push((granule.bytes, *handle)),
            None => {}
        }
    }
    if handles.is_empty() { BlockMemory::Descriptors(numbers) } else { BlockMemory::Fabric(handles) }
}
