//! Blocks that other processes open, and other processes' blocks that are opened here.

use crate::arena::ArenaState;
use crate::arena::directory::Arena;
use crate::backend::{BackendError, HandleType, ShareableHandle};
use crate::config::PolicyName;
use crate::device::Device;
use crate::device::space;
use crate::error::{AllocError, Explanation, Result};
use crate::features::share::exchange::{BlockPlace, in_handle};
use crate::features::share::handle::{BlockMemory, Handle};
use crate::features::share::{ImportedMemory, Share, SharedBlock};
use crate::memory::address_map::Location;
use crate::memory::block::{Block, BlockId, Live, SegmentId};
use crate::memory::layout::Layout;
use crate::memory::region::{GranuleState, Piece, ToExport};
use crate::memory::segment::{Origin, Segment};
use crate::sync::{Arc, assert_unlocked};
use crate::types::DevicePtr;
use std::ops::Range;

/// Place of a live block, if its memory can leave the process.
fn place(block: &Block, state: &ArenaState) -> std::result::Result<BlockPlace, String> {
    let segment = &state.layout().segments()[block.segment];
    let registration = segment.registration;
    let region = match segment.origin {
        Origin::Fixed => {
            return Ok(BlockPlace::Fixed { base: segment.base, bytes: segment.bytes, registration });
        }
        Origin::Growable { region, .. } => region,
        Origin::View => return place_elsewhere(block, segment, state),
    };
    if state.binding().pool().source.is_some() {
        return Err("the block's memory comes from its pool's own source of physical memory, which does not say how other \
                    processes could be given it; allocate outside of that pool what is to be shared"
            .into());
    }
    let range = segment.granules.around(block.addr..block.end());
    let base = range.start;
    Ok(BlockPlace::Granules { base, pieces: vec![Piece { region, range }], registration })
}

/// The live block at `ptr`, awake, if a value owns it or none does, as `owned` says.
fn held_by(layout: &Layout, ptr: DevicePtr, id: BlockId, owned: bool) -> Option<&Block> {
    layout.awake(ptr, id).filter(|block| block.live().is_some_and(Live::is_owned) == owned)
}

/// Place of a block in a view: the granules that own its memory, by their homes. These keep it while the block lives or
/// waits for its users, since its home bytes are not free.
fn place_elsewhere(
    block: &Block,
    segment: &Segment,
    state: &ArenaState,
) -> std::result::Result<BlockPlace, String> {
    let changing = || "the block's memory is being moved; share it afterwards".to_owned();
    let homes = state.heap().memory().map(|memory| memory.homes(state.layout().segments(), block));
    let homes = homes.unwrap_or_default();
    let (base, ..) = homes.first().ok_or_else(changing)?.clone();
    let piece = |(_, home, range): (u64, SegmentId, Range<u64>)| match state.layout().segments()[home].origin
    {
        Origin::Growable { region, .. } => Some(Piece { region, range }),
        Origin::Fixed | Origin::View => None,
    };
    let pieces = homes.into_iter().map(piece).collect::<Option<_>>().ok_or_else(changing)?;
    Ok(BlockPlace::Granules { base, pieces, registration: segment.registration })
}

fn not_there(ptr: DevicePtr, state: GranuleState) -> AllocError {
    let problem =
        format!("the block's memory is being moved, put to sleep or woken ({state:?}); share it afterwards");
    AllocError::Share { ptr, problem: problem.into() }
}

impl Device {
    /// See [`Sharing::share`](crate::allocator::Sharing::share). `Ok(None)` where `ptr` is no live block, or is not
    /// `owned` as it should be.
    pub(crate) fn share(
        &self,
        ptr: DevicePtr,
        location: Location,
        owned: bool,
    ) -> Result<Option<SharedBlock>> {
        let Some(arena) = self.arenas.directory().get(location.arena) else { return Ok(None) };
        let (place, size) = {
            let state = arena.lock();
            let Some(block) = held_by(state.layout(), ptr, location.block, owned) else { return Ok(None) };
            if let Some(share) = state.uses().share(block.uses) {
                return Ok(Some(share.block.clone()));
            }
            let place = place(block, &state).map_err(|why| AllocError::Share { ptr, problem: why.into() })?;
            (place, block.size)
        };
        let _relaxed = self.driver.relaxed()?;
        let export = export(self, ptr, &place)?;
        let share = match self.exchange.describe(ptr, size, &place, export) {
            Ok(share) => Arc::new(share),
            Err(error) => {
                self.accounting.end_export(place.granules());
                return Err(error);
            }
        };
        let (outcome, unused, has_moved) = {
            let mut state = arena.lock();
            // Freed meanwhile, compacted, or shared by another thread.
            let live = held_by(state.layout(), ptr, location.block, owned);
            let block = live.filter(|block| self::place(block, &state).as_ref() == Ok(&place));
            let has_moved = live.is_some() && block.is_none();
            let (outcome, unused) = match block.map(|block| state.uses().share(block.uses)) {
                None => (None, Some(share)),
                Some(Some(known)) => (Some(known.block.clone()), Some(share)),
                Some(None) => {
                    let shared = share.block.clone();
                    state.uses_of(location.block).add_share(share);
                    (Some(shared), None)
                }
            };
            (outcome, unused, has_moved)
        };
        if let Some(unused) = unused {
            self.accounting.end_export(&unused.granules);
        }
        if has_moved { self.share(ptr, location, owned) } else { Ok(outcome) }
    }

    /// See [`Sharing::open`](crate::allocator::Sharing::open).
    pub(crate) fn open_shared(&self, bytes: &[u8], handle: Handle) -> Result<Arc<ImportedMemory>> {
        self.exchange.admit(&handle)?;
        let _relaxed = self.driver.relaxed()?;
        self.exchange.open(bytes, handle)
    }

    /// Withdraws shares of an arena's growable blocks that nobody has open, so that they can sleep. Calls no driver.
    pub(in crate::device) fn withdraw_shares(&self, arena: &Arena) {
        let shared: Vec<(BlockId, Arc<Share>)> = {
            let state = arena.lock();
            let live = state.layout().blocks().iter().filter(|(_, block)| block.is_awake());
            live.filter_map(|(id, block)| Some((id, state.uses().share(block.uses).cloned()?))).collect()
        };
        // Fixed memory does not sleep.
        let moves = |share: &Share| !share.granules.is_empty() && share.withdraw();
        for (id, share) in shared.into_iter().filter(|(_, share)| moves(share)) {
            let withdrawn = arena.lock().uses_of(id).remove_share(&share);
            // Else it was freed since, and ends as a pending block.
            if withdrawn {
                self.accounting.end_export(&share.granules);
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
        let bytes = self
            .driver
            .backend()
            .address_range(ptr)
            .inspect_err(|_| self.driver.backend().clear_error())?
            .bytes;
        let registration = self.accounting.lock().register();
        let place = BlockPlace::Fixed { base: ptr.0, bytes, registration };
        let memory = export(self, ptr, &place)?;
        let share = Arc::new(self.exchange.describe(ptr, bytes, &place, memory)?);
        Ok(self.uncached.note_share(ptr, share).map(|share| share.block.clone()))
    }
}

/// Gets a block's memory out of the process; its granules are exported then. Calls the driver.
fn export(device: &Device, ptr: DevicePtr, place: &BlockPlace) -> Result<BlockMemory> {
    assert_unlocked();
    match place {
        BlockPlace::Fixed { base, registration, .. } => {
            let handle = device.exchange.segment(ptr, *base, *registration)?;
            Ok(BlockMemory::Fixed(handle))
        }
        BlockPlace::Granules { pieces, .. } => {
            if space::handle_type(device) == HandleType::None {
                return Err(AllocError::Share { ptr, problem: why_private(device) });
            }
            let exported = device.accounting.lock().regions_mut().begin_export(pieces);
            let mut granules = exported.map_err(|state| not_there(ptr, state))?;
            let taken = export_granules(device, &mut granules)
                .inspect_err(|_| device.accounting.end_export(pieces))?;
            drop(taken);
            Ok(in_handle(&granules))
        }
    }
}

/// Reason why growable memory stays in the process.
fn why_private(device: &Device) -> Explanation {
    let (what, instead, own) = if device.arenas.directory().policy() == PolicyName::Granule {
        let instead = "use policy:pytorch without expandable_segments";
        ("growable memory", instead, instead)
    } else {
        ("an expandable_segments allocation", "disable expandable_segments", "set expandable_segments:False")
    };
    if device.accounting.lock().settings().segments_ipc && device.exchange.cannot_share_growable() {
        let lacks = format!(
            "device {} offers neither file descriptors nor fabric handles for it",
            device.driver.device()
        );
        return Explanation::with_pytorch(
            format!("growable memory cannot be shared: {lacks}; {own}"),
            format!("Cannot share {what}: {lacks}; {instead} for cross-process tensors."),
        );
    }
    Explanation::with_pytorch(
        format!("growable memory cannot be shared: segments_ipc is off; set segments_ipc:True, or {own}"),
        format!(
            "Cannot share {what}: IPC handles are disabled. Set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 or {instead} for \
             cross-process tensors."
        ),
    )
}

/// Asks the driver for missing handles. Drop the returned ones without a lock.
fn export_granules(device: &Device, granules: &mut [ToExport]) -> Result<Vec<Arc<ShareableHandle>>> {
    let vm = device.driver.backend().physical_sharing().map_err(BackendError::from)?;
    let handle_type = space::handle_type(device);
    for granule in granules.iter_mut().filter(|granule| granule.shared.is_none()) {
        let shared = vm.export_physical(granule.handle, handle_type);
        granule.shared = Some(Arc::new(shared.inspect_err(|_| device.driver.backend().clear_error())?));
    }
    Ok(device.accounting.lock().regions_mut().commit_export(granules))
}
