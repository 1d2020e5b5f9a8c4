//! Blocks that other processes open, and other processes' blocks that are opened here.

use super::DeviceAllocator;
use crate::arena::directory::Arena;
use crate::arena::{ArenaState, Shown};
use crate::backend::{
    Attribute, Backend, BackendError, ErrorKind, Granularity, HandleType, IpcMemoryHandle, ShareableHandle,
};
use crate::error::{AllocError, Problem, Result};
use crate::features::share::handle::{Exporter, Handle, Memory};
use crate::features::share::import::Imports;
use crate::features::share::ledger::Ledger;
use crate::features::share::{ImportedMemory, Share, SharedBlock, bytes};
use crate::lifetimes::call::{Call, Relaxed};
use crate::lifetimes::pending::Ask;
use crate::memory::address_map::Location;
use crate::memory::block::{Block, BlockId};
use crate::memory::region::{GranuleState, Piece, ToExport};
use crate::memory::segment::{Origin, Segment};
use crate::process::attention::{Attention, Reason};
use crate::sync::{Arc, Mutex, OnceLock, Rank, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr};
use rustc_hash::FxHashMap;
use std::os::fd::AsRawFd;

/// What a device has to do with other processes.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Made when the first block is shared.
    ledger: Mutex<Option<Arc<Ledger>>>,
    /// The driver's handles of fixed segments, by base and registration.
    segments: Mutex<FxHashMap<u64, (u32, IpcMemoryHandle)>>,
    /// How physical memory is made, once the driver was asked.
    handle_type: OnceLock<HandleType>,
    /// What tells models of devices apart, once the driver was asked.
    model: OnceLock<u64>,
    pub(super) imports: Arc<Imports>,
}

impl Sharing {
    pub(super) fn new(backend: Arc<dyn Backend>, device: DeviceIndex, attention: &'static Attention) -> Self {
        Self {
            ledger: Mutex::new(Rank::Registry, None),
            segments: Mutex::new(Rank::Registry, FxHashMap::default()),
            handle_type: OnceLock::new(),
            model: OnceLock::new(),
            imports: Arc::new(Imports::new(backend, device, attention)),
        }
    }

    fn ledger(&self) -> std::io::Result<Arc<Ledger>> {
        if let Some(ledger) = &*self.ledger.lock() {
            return Ok(Arc::clone(ledger));
        }
        let made = Arc::new(Ledger::new()?);
        Ok(Arc::clone(self.ledger.lock().get_or_insert(made)))
    }
}

/// Where a block lies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
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

impl Place {
    /// First address and bytes of what other processes map.
    fn whole(&self) -> (u64, u64) {
        match self {
            Self::Fixed { base, bytes, .. } => (*base, *bytes),
            Self::Granules { base, pieces, .. } => (*base, pieces.iter().map(Piece::bytes).sum()),
        }
    }

    fn registration(&self) -> u32 {
        match self {
            Self::Fixed { registration, .. } | Self::Granules { registration, .. } => *registration,
        }
    }

    fn granules(&self) -> &[Piece] {
        match self {
            Self::Fixed { .. } => &[],
            Self::Granules { pieces, .. } => pieces,
        }
    }
}

impl DeviceAllocator {
    /// See [`Sharing::share`](crate::allocator::Sharing::share). `Ok(None)` where `ptr` is no live block, or is a
    /// value's and should not be, or the other way round.
    pub(crate) fn share(
        &self,
        ptr: DevicePtr,
        location: Location,
        owned: bool,
    ) -> Result<Option<SharedBlock>> {
        let Some(arena) = self.arenas.get(location.arena) else { return Ok(None) };
        let (place, size) = {
            let state = arena.lock();
            let Some(id) = state.held_by(ptr, location.block, owned) else { return Ok(None) };
            if let Some(share) = state.uses.share(state.blocks[id].uses) {
                return Ok(Some(share.block.clone()));
            }
            let place = place(&state, id).map_err(|why| AllocError::Share { ptr, problem: why.into() })?;
            (place, state.blocks[id].size)
        };
        let capture = self.backend.capture().ok().filter(|_| self.attention.has(Reason::CAPTURE));
        let _relaxed = capture.map(Relaxed::enter).transpose()?;
        let export = self.export(ptr, &place)?;
        let share = match self.describe(ptr, size, &place, export) {
            Ok(share) => Arc::new(share),
            Err(error) => {
                self.end_export(place.granules());
                return Err(error);
            }
        };
        let (outcome, unused) = {
            let mut state = arena.lock();
            // Freed meanwhile, or shared by another thread.
            let id = state
                .held_by(ptr, location.block, owned)
                .filter(|id| self::place(&state, *id).as_ref() == Ok(&place));
            let known = id.and_then(|id| state.uses.share(state.blocks[id].uses).cloned());
            match (id, known) {
                (None, _) => (None, Some(share)),
                (Some(_), Some(known)) => (Some(known.block.clone()), Some(share)),
                (Some(id), None) => {
                    let shared = share.block.clone();
                    let uses = state.blocks[id].uses;
                    state.blocks[id].uses = state.uses.add_share(uses, share);
                    (Some(shared), None)
                }
            }
        };
        if let Some(unused) = unused {
            self.end_export(&unused.granules);
        }
        Ok(outcome)
    }

    /// Gets a block's memory out of the process; its granules are exported then. Calls the driver.
    fn export(&self, ptr: DevicePtr, place: &Place) -> Result<Memory> {
        assert_unlocked();
        match place {
            Place::Fixed { base, registration, .. } => {
                let known = self.sharing.segments.lock().get(base).copied();
                if let Some((_, handle)) = known.filter(|(of, _)| of == registration) {
                    return Ok(Memory::Fixed(handle));
                }
                let ipc = self
                    .backend
                    .ipc()
                    .map_err(|absent| AllocError::Share { ptr, problem: absent.to_string().into() })?;
                let handle =
                    ipc.export_memory(DevicePtr(*base)).inspect_err(|_| self.backend.clear_error())?;
                self.sharing.segments.lock().insert(*base, (*registration, handle));
                Ok(Memory::Fixed(handle))
            }
            Place::Granules { pieces, .. } => {
                if self.handle_type() == HandleType::None {
                    return Err(AllocError::Share { ptr, problem: self.why_private() });
                }
                let exported = self.state.lock().regions.begin_export(pieces);
                let mut granules = exported.map_err(|state| not_there(ptr, state))?;
                let taken = self.export_granules(&mut granules).inspect_err(|_| self.end_export(pieces))?;
                drop(taken);
                Ok(in_handle(&granules))
            }
        }
    }

    /// Why growable memory stays in the process.
    fn why_private(&self) -> Problem {
        // With views memory is growable whatever the settings say.
        let (what, instead, own) = if self.arenas.traits().views {
            let instead = "use policy:pytorch without expandable_segments";
            ("growable memory", instead, instead)
        } else {
            (
                "an expandable_segments allocation",
                "disable expandable_segments",
                "set expandable_segments:False",
            )
        };
        if self.state.lock().settings.segments_ipc
            && self.sharing.handle_type.get() == Some(&HandleType::None)
        {
            let lacks =
                format!("device {} offers neither file descriptors nor fabric handles for it", self.device);
            return Problem::with_pytorch(
                format!("growable memory cannot be shared: {lacks}; {own}"),
                format!("Cannot share {what}: {lacks}; {instead} for cross-process tensors."),
            );
        }
        Problem::with_pytorch(
            format!("growable memory cannot be shared: segments_ipc is off; set segments_ipc:True, or {own}"),
            format!(
                "Cannot share {what}: IPC handles are disabled. Set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 or {instead} for \
                 cross-process tensors."
            ),
        )
    }

    /// Asks the driver for what it was not asked for yet. Returns what is not needed, to be dropped without a lock.
    fn export_granules(&self, granules: &mut [ToExport]) -> Result<Vec<Arc<ShareableHandle>>> {
        let vm = self.backend.physical_sharing().map_err(BackendError::from)?;
        let handle_type = self.handle_type();
        for granule in granules.iter_mut().filter(|granule| granule.shared.is_none()) {
            let shared = vm.export_physical(granule.handle, handle_type);
            granule.shared = Some(Arc::new(shared.inspect_err(|_| self.backend.clear_error())?));
        }
        Ok(self.state.lock().regions.commit_export(granules))
    }

    /// What goes over the wire, with the block open in the ledger.
    fn describe(&self, ptr: DevicePtr, size: u64, place: &Place, memory: Memory) -> Result<Share> {
        let refused = |problem: String| AllocError::Share { ptr, problem: problem.into() };
        let ledger = self.sharing.ledger().map_err(|error| {
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

    fn backend_tag(&self) -> [u8; 16] {
        let mut tag = [0; 16];
        tag.iter_mut().zip(self.backend.name().bytes()).for_each(|(to, from)| *to = from);
        tag
    }

    /// What devices of one model have in common. The driver is asked once.
    fn model(&self) -> Result<u64> {
        if let Some(known) = self.sharing.model.get() {
            return Ok(*known);
        }
        let properties = self.backend.properties(self.device).inspect_err(|_| self.backend.clear_error())?;
        Ok(*self.sharing.model.get_or_init(|| bytes::checksum(properties.name.as_bytes())))
    }

    fn end_export(&self, granules: &[Piece]) {
        let ended = self.state.lock().regions.end_export(granules);
        // Descriptors are closed without a lock.
        drop(ended);
    }

    /// Takes blocks back that no other process holds any more.
    pub(super) fn take_back_shared(&self, ask: Ask, call: &Call<'_>) {
        self.pending.drain_shared(ask, &self.transit, |waiting, share| {
            self.end_export(&share.granules);
            self.event_done(waiting, call);
        });
        if ask == Ask::Now {
            self.uncached.free_unshared();
        }
    }

    /// Growable blocks of an arena that were shared, and that nobody has open, are this process's own again, so that they can
    /// sleep. Calls no driver.
    pub(super) fn withdraw_shares(&self, arena: &Arena) {
        let shared: Vec<(BlockId, Arc<Share>)> = {
            let state = arena.lock();
            let share = |uses| state.uses.share(uses).cloned();
            let live = state.blocks.iter().filter(|(_, block)| block.state.is_awake());
            live.filter_map(|(id, block)| Some((id, share(block.uses)?))).collect()
        };
        // Fixed memory does not sleep.
        let moves = |share: &Share| !share.granules.is_empty() && share.withdraw();
        for (id, share) in shared.into_iter().filter(|(_, share)| moves(share)) {
            let withdrawn = {
                let mut state = arena.lock();
                let uses = state.blocks[id].uses;
                let rest = state.uses.remove_share(uses, &share);
                rest.map(|rest| state.blocks[id].uses = rest)
            };
            // Else it was freed since, and ends as a pending block.
            if withdrawn.is_some() {
                self.end_export(&share.granules);
            }
        }
    }

    /// Lets other processes open memory that came straight from the driver. `Ok(None)` where `ptr` is none.
    pub(crate) fn share_uncached(&self, ptr: DevicePtr) -> Result<Option<SharedBlock>> {
        if !self.uncached.has(ptr) {
            return Ok(None);
        }
        if let Some(shared) = self.uncached.share(ptr) {
            return Ok(Some(shared.block.clone()));
        }
        let bytes = self.backend.address_range(ptr).inspect_err(|_| self.backend.clear_error())?.bytes;
        let registration = self.state.lock().register();
        let place = Place::Fixed { base: ptr.0, bytes, registration };
        let memory = self.export(ptr, &place)?;
        let share = Arc::new(self.describe(ptr, bytes, &place, memory)?);
        Ok(self.uncached.note_share(ptr, share).map(|share| share.block.clone()))
    }

    /// Whether a handle is of a block of this very allocator.
    pub(crate) fn is_exporter(&self, nonce: u64) -> bool {
        self.sharing.ledger.lock().as_ref().is_some_and(|ledger| ledger.nonce() == nonce)
    }

    /// See [`Sharing::open`](crate::allocator::Sharing::open).
    pub(crate) fn open_shared(&self, bytes: &[u8], handle: Handle) -> Result<Arc<ImportedMemory>> {
        let refused = |problem: Problem| Err(AllocError::Open { problem });
        let (theirs, ours) = (handle.exporter.backend, self.backend_tag());
        if theirs != ours {
            let name = |tag: [u8; 16]| String::from_utf8_lossy(&tag).trim_end_matches('\0').to_owned();
            return refused(format!(
                "the block is memory of backend {:?} and cannot be opened by {:?}: use one backend in both processes",
                name(theirs),
                name(ours)
            )
            .into());
        }
        let capture = self.backend.capture().ok().filter(|_| self.attention.has(Reason::CAPTURE));
        let _relaxed = capture.map(Relaxed::enter).transpose()?;
        if handle.exporter.model != self.model()? {
            return refused(
                format!(
                    "the block is on another model of device than device {}: open it on the device it is on",
                    self.device
                )
                .into(),
            );
        }
        if matches!(handle.memory, Memory::Fabric(_)) && !self.offers(Attribute::FabricHandles, false) {
            let device = self.device;
            return refused(Problem::with_pytorch(
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
        self.sharing.imports.open(bytes, handle)
    }

    /// Bytes of address space that show other processes' memory.
    pub(crate) fn imported_bytes(&self) -> u64 {
        self.sharing.imports.bytes()
    }

    /// How the physical memory of this device is made, so that other processes can be given it. The driver is asked once.
    pub(super) fn handle_type(&self) -> HandleType {
        if let Some(known) = self.sharing.handle_type.get() {
            return *known;
        }
        assert_unlocked();
        let wanted = self.state.lock().settings.segments_ipc;
        let found = if !wanted || self.backend.physical_sharing().is_err() {
            HandleType::None
        } else if self.offers(Attribute::FabricHandles, false) && self.has_fabric() {
            HandleType::Fabric
        } else if self.offers(Attribute::PosixFileDescriptorHandles, true) {
            HandleType::PosixFd
        } else {
            HandleType::None
        };
        *self.sharing.handle_type.get_or_init(|| found)
    }

    /// What an attribute says; `unsaid` where the backend answers no such question.
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

    /// Devices say that they have a fabric where nothing runs that would make it work: one cycle tells.
    fn has_fabric(&self) -> bool {
        let Ok(vm) = self.backend.physical_sharing() else { return false };
        let cycle = || {
            let bytes = vm.granularity(self.device, Granularity::Minimum)?;
            let handle = vm.create_physical(self.device, bytes, HandleType::Fabric)?;
            let exported = vm.export_physical(handle, HandleType::Fabric);
            // SAFETY: rule 1: made just now, mapped nowhere.
            let released = unsafe { vm.release_physical(handle) };
            exported.map(drop).and(released)
        };
        let works: crate::backend::Result<()> = cycle();
        if let Err(error) = &works {
            self.backend.clear_error();
            tracing::debug!(%error, device = %self.device, "fabric handles do not work; memory is shared by descriptors");
        }
        works.is_ok()
    }
}

/// Where a live block lies, if its memory can leave the process.
fn place(state: &ArenaState, id: BlockId) -> std::result::Result<Place, String> {
    let block = &state.blocks[id];
    let segment = &state.segments[block.segment];
    let registration = segment.registration;
    let (region, granule) = match segment.origin {
        Origin::Fixed => return Ok(Place::Fixed { base: segment.base, bytes: segment.bytes, registration }),
        Origin::Growable { region, granule } => (region, granule),
        Origin::View => return place_in_view(state, block, segment),
    };
    if state.pool.source.is_some() {
        return Err("the block's memory comes from its pool's own source of physical memory, which does not say how other \
                    processes could be given it; allocate outside of that pool what is to be shared"
            .into());
    }
    let low = (block.addr - segment.base) / granule * granule + segment.base;
    let high = (block.end() - segment.base).next_multiple_of(granule) + segment.base;
    let pieces = vec![Piece { region, range: low..high, granule }];
    Ok(Place::Granules { base: low, pieces, registration })
}

/// Where a block in a view lies: the granules that show it there, by their homes. While it lives, or waits for its users, they
/// keep their memory, since its home bytes are not free.
fn place_in_view(state: &ArenaState, block: &Block, segment: &Segment) -> std::result::Result<Place, String> {
    let changing = || "the block's memory is being moved; share it afterwards".to_owned();
    let view = state.views.all.iter().find(|view| view.segment == block.segment).ok_or_else(changing)?;
    let shows = |(at, shown): &(u64, &Shown)| *at < block.end() && block.addr < *at + shown.bytes;
    let mut touched = view.mappings(segment.base).filter(shows).peekable();
    let (base, _) = *touched.peek().ok_or_else(changing)?;
    let piece = |(_, shown): (u64, &Shown)| match state.segments[shown.segment].origin {
        Origin::Growable { region, granule } => {
            Some(Piece { region, range: shown.addr..shown.addr + shown.bytes, granule })
        }
        Origin::Fixed | Origin::View => None,
    };
    let pieces = touched.map(piece).collect::<Option<_>>().ok_or_else(changing)?;
    Ok(Place::Granules { base, pieces, registration: segment.registration })
}

fn not_there(ptr: DevicePtr, state: GranuleState) -> AllocError {
    let problem =
        format!("the block's memory is being put to sleep or woken ({state:?}); share it afterwards");
    AllocError::Share { ptr, problem: problem.into() }
}

fn in_handle(granules: &[ToExport]) -> Memory {
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
    if handles.is_empty() { Memory::Descriptors(numbers) } else { Memory::Fabric(handles) }
}
