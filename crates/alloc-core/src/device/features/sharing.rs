//! Blocks that other processes open, and other processes' blocks that are opened here.

use crate::arena::ArenaState;
use crate::arena::directory::Arena;
use crate::backend::{BackendError, HandleType, ShareableHandle};
use crate::device::Base;
use crate::device::arenas::Arenas;
use crate::device::holdings::Holdings;
use crate::device::site::Site;
use crate::device::space::Space;
use crate::error::{AllocError, Problem, Result};
use crate::features::share::exchange::{Exchange, Place, in_handle};
use crate::features::share::handle::{Handle, Memory};
use crate::features::share::{ImportedMemory, Share, SharedBlock};
use crate::features::uncached::Uncached;
use crate::lifetimes::call::Relaxed;
use crate::memory::address_map::Location;
use crate::memory::block::{Block, BlockId, SegmentId};
use crate::memory::region::{GranuleState, Piece, ToExport};
use crate::memory::segment::{Origin, Segment};
use crate::process::attention::Reason;
use crate::sync::{Arc, assert_unlocked};
use crate::types::DevicePtr;
use std::ops::Range;

/// What a device has to do with other processes.
pub(crate) struct Sharing {
    site: Site,
    holdings: Arc<Holdings>,
    arenas: Arc<Arenas>,
    uncached: Arc<Uncached>,
    exchange: Arc<Exchange>,
    space: Arc<Space>,
}

/// Where a live block lies, if its memory can leave the process.
fn place(state: &ArenaState, id: BlockId) -> std::result::Result<Place, String> {
    let block = &state.blocks[id];
    let segment = &state.segments[block.segment];
    let registration = segment.registration;
    let (region, granule) = match segment.origin {
        Origin::Fixed => return Ok(Place::Fixed { base: segment.base, bytes: segment.bytes, registration }),
        Origin::Growable { region, granule } => (region, granule),
        Origin::View => return place_elsewhere(state, block, segment),
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

/// Where a block lies whose memory has its home elsewhere: the granules that show it, by their homes. While it lives, or waits
/// for its users, they keep their memory, since its home bytes are not free.
fn place_elsewhere(
    state: &ArenaState,
    block: &Block,
    segment: &Segment,
) -> std::result::Result<Place, String> {
    let changing = || "the block's memory is being moved; share it afterwards".to_owned();
    let homes = state.remembered.hooks().homes(&state.segments, block);
    let (base, ..) = homes.first().ok_or_else(changing)?.clone();
    let piece = |(_, home, range): (u64, SegmentId, Range<u64>)| match state.segments[home].origin {
        Origin::Growable { region, granule } => Some(Piece { region, range, granule }),
        Origin::Fixed | Origin::View => None,
    };
    let pieces = homes.into_iter().map(piece).collect::<Option<_>>().ok_or_else(changing)?;
    Ok(Place::Granules { base, pieces, registration: segment.registration })
}

fn not_there(ptr: DevicePtr, state: GranuleState) -> AllocError {
    let problem =
        format!("the block's memory is being put to sleep or woken ({state:?}); share it afterwards");
    AllocError::Share { ptr, problem: problem.into() }
}

impl Sharing {
    pub(in crate::device) fn new(base: &Base, space: &Arc<Space>) -> Self {
        Self {
            site: base.site.clone(),
            holdings: Arc::clone(&base.holdings),
            arenas: Arc::clone(&base.arenas),
            uncached: Arc::clone(&base.uncached),
            exchange: Arc::clone(&base.exchange),
            space: Arc::clone(space),
        }
    }

    /// See [`Sharing::share`](crate::allocator::Sharing::share). `Ok(None)` where `ptr` is no live block, or is a
    /// value's and should not be, or the other way round.
    pub(crate) fn share(
        &self,
        ptr: DevicePtr,
        location: Location,
        owned: bool,
    ) -> Result<Option<SharedBlock>> {
        let Some(arena) = self.arenas.directory().get(location.arena) else { return Ok(None) };
        let (place, size) = {
            let state = arena.lock();
            let Some(id) = state.held_by(ptr, location.block, owned) else { return Ok(None) };
            if let Some(share) = state.uses.share(state.blocks[id].uses) {
                return Ok(Some(share.block.clone()));
            }
            let place = place(&state, id).map_err(|why| AllocError::Share { ptr, problem: why.into() })?;
            (place, state.blocks[id].size)
        };
        let capture =
            self.site.backend().capture().ok().filter(|_| self.site.attention().has(Reason::CAPTURE));
        let _relaxed = capture.map(Relaxed::enter).transpose()?;
        let export = self.export(ptr, &place)?;
        let share = match self.exchange.describe(ptr, size, &place, export) {
            Ok(share) => Arc::new(share),
            Err(error) => {
                self.holdings.end_export(place.granules());
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
            self.holdings.end_export(&unused.granules);
        }
        Ok(outcome)
    }

    /// Gets a block's memory out of the process; its granules are exported then. Calls the driver.
    fn export(&self, ptr: DevicePtr, place: &Place) -> Result<Memory> {
        assert_unlocked();
        match place {
            Place::Fixed { base, registration, .. } => {
                let handle = self.exchange.segment(ptr, *base, *registration)?;
                Ok(Memory::Fixed(handle))
            }
            Place::Granules { pieces, .. } => {
                if self.space.handle_type() == HandleType::None {
                    return Err(AllocError::Share { ptr, problem: self.why_private() });
                }
                let exported = self.holdings.lock().regions.begin_export(pieces);
                let mut granules = exported.map_err(|state| not_there(ptr, state))?;
                let taken =
                    self.export_granules(&mut granules).inspect_err(|_| self.holdings.end_export(pieces))?;
                drop(taken);
                Ok(in_handle(&granules))
            }
        }
    }

    /// Why growable memory stays in the process.
    fn why_private(&self) -> Problem {
        let (what, instead, own) = if self.arenas.directory().traits().always_grows {
            let instead = "use policy:pytorch without expandable_segments";
            ("growable memory", instead, instead)
        } else {
            (
                "an expandable_segments allocation",
                "disable expandable_segments",
                "set expandable_segments:False",
            )
        };
        if self.holdings.lock().settings.segments_ipc && self.exchange.cannot_share_growable() {
            let lacks = format!(
                "device {} offers neither file descriptors nor fabric handles for it",
                self.site.device()
            );
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
        let vm = self.site.backend().physical_sharing().map_err(BackendError::from)?;
        let handle_type = self.space.handle_type();
        for granule in granules.iter_mut().filter(|granule| granule.shared.is_none()) {
            let shared = vm.export_physical(granule.handle, handle_type);
            granule.shared = Some(Arc::new(shared.inspect_err(|_| self.site.backend().clear_error())?));
        }
        Ok(self.holdings.lock().regions.commit_export(granules))
    }

    /// See [`Sharing::open`](crate::allocator::Sharing::open).
    pub(crate) fn open_shared(&self, bytes: &[u8], handle: Handle) -> Result<Arc<ImportedMemory>> {
        self.exchange.admit(&handle)?;
        let capture =
            self.site.backend().capture().ok().filter(|_| self.site.attention().has(Reason::CAPTURE));
        let _relaxed = capture.map(Relaxed::enter).transpose()?;
        self.exchange.open(bytes, handle)
    }

    /// Growable blocks of an arena that were shared, and that nobody has open, are this process's own again, so that they can
    /// sleep. Calls no driver.
    pub(in crate::device) fn withdraw_shares(&self, arena: &Arena) {
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
                self.holdings.end_export(&share.granules);
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
        let bytes =
            self.site.backend().address_range(ptr).inspect_err(|_| self.site.backend().clear_error())?.bytes;
        let registration = self.holdings.lock().register();
        let place = Place::Fixed { base: ptr.0, bytes, registration };
        let memory = self.export(ptr, &place)?;
        let share = Arc::new(self.exchange.describe(ptr, bytes, &place, memory)?);
        Ok(self.uncached.note_share(ptr, share).map(|share| share.block.clone()))
    }
}
