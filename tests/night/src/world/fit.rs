//! Whether there was memory for a request that was refused: what a snapshot shows free.

use super::World;
use alloc_core::snapshot::{BlockState, SegmentInfo};
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};

/// A request of an allocator's default pool that nothing but the device's size was in the way of.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Whose it is.
    pub site: usize,
    /// The stream it was for.
    pub stream: Stream,
    /// Bytes, as settings round them.
    pub rounded: u64,
    /// Bytes of the device that would serve it.
    pub needed: u64,
}

impl Wanted {
    fn is_of(self, segment: &SegmentInfo) -> bool {
        let tier = if self.rounded <= MIB { "small" } else { "large" };
        segment.device == i64::from(self.stream.device.0)
            && segment.pool_id == PoolId::DEFAULT
            && &*segment.segment_type == tier
    }

    /// A block that was free for it beside the segment at `ptr`, which was taken for it.
    #[must_use]
    pub fn missed(self, world: &World, ptr: DevicePtr) -> Option<String> {
        let Self { site, stream, rounded, .. } = self;
        let settings = world.sites[site].settings.borrow();
        // As below. What is collected, is free of space that grows, or of streams with former handles, is another question.
        if settings.max_split_size != u64::MAX || settings.throw_on_oom || world.setup.reuse {
            return None;
        }
        let size = if rounded <= MIB { rounded } else { rounded.next_multiple_of(2 * MIB) };
        let size = if settings.roundup_power2_divisions[0] > 1 { size.next_power_of_two() } else { size };
        let snapshot = world.sites[site].allocator.snapshot(false);
        let other = |segment: &&SegmentInfo| {
            let has = (segment.address..segment.address + segment.total_size).contains(&ptr.0);
            !has && self.is_of(segment) && !segment.is_expandable && segment.stream == stream.raw
        };
        let free = snapshot.segments.iter().filter(other).flat_map(|segment| &segment.blocks);
        let fits =
            free.filter(|block| block.state == BlockState::Inactive).find(|block| block.size >= size)?;
        Some(format!("{} bytes at {:#x} are free for it", fits.size, fits.address))
    }

    /// What there was for it, if there was.
    #[must_use]
    pub fn found(self, world: &World) -> Option<String> {
        let Self { site, stream, rounded, needed } = self;
        // What is cut where is another question there; and where settings say so, nothing is waited for or given back.
        let settings = world.sites[site].settings.borrow();
        if settings.max_split_size != u64::MAX || settings.throw_on_oom {
            return None;
        }
        let snapshot = world.sites[site].allocator.snapshot(false);
        // PyTorch leaves segments that grow to those who ask for such.
        let taken = |segment: &SegmentInfo| {
            world.sites[site].granule || settings.expandable_segments || !segment.is_expandable
        };
        // Where handles come back, a former stream's memory shows under the same.
        let own = |segment: &&SegmentInfo| {
            !world.setup.reuse && self.is_of(segment) && taken(segment) && segment.stream == stream.raw
        };
        let free = snapshot.segments.iter().filter(own).flat_map(|segment| &segment.blocks);
        let fits = free
            .filter(|block| block.state == BlockState::Inactive && block.size >= rounded)
            .max_by_key(|block| block.size);
        if let Some(block) = fits {
            return Some(format!("{} bytes at {:#x} are free for it", block.size, block.address));
        }
        let whole = |segment: &&SegmentInfo| {
            segment.device == i64::from(stream.device.0)
                && segment.pool_id == PoolId::DEFAULT
                && segment.active_size == 0
                && !segment.is_expandable
        };
        let cached: u64 = snapshot.segments.iter().filter(whole).map(|segment| segment.total_size).sum();
        let machine = world.machine(site);
        let room = machine.capacity(stream.device).saturating_sub(machine.used(stream.device));
        (cached > 0 && room + cached >= needed).then(|| {
            format!("{cached} bytes of whole segments are cached, and {room} are free on the device")
        })
    }
}
