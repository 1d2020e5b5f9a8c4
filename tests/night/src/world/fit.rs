//! Whether there was memory for a request that was refused: what a snapshot shows free. And whether a flush left some.

use super::{Site, World};
use alloc_core::snapshot::{BlockState, SegmentInfo};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PoolId, Stream};

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
    fn missed(self, world: &World, ptr: DevicePtr) -> Option<String> {
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

    /// It was served with memory of the device at `ptr`, which is wrong while a free block would have done.
    pub fn expect_none_missed(self, world: &World, ptr: DevicePtr) {
        let of = &world.sites[self.site];
        if of.granule || !of.allocator.is_enabled() {
            return;
        }
        if let Some(block) = self.missed(world, ptr) {
            let bytes = self.rounded;
            world.verdict.find("fit", format!("malloc of {bytes} at {ptr} took memory, and {block}"));
        }
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

impl Site {
    /// What a flush has given up is the device's again, also where the driver refused at first to take it.
    pub fn expect_flushed(&self, world: &World, site: usize) {
        let process = self.process;
        let alone = world.sites.iter().filter(|other| other.process == process).count() == 1;
        let other = {
            let state = world.state();
            state.relapsing[process]
                || state.captured.is_some()
                || state.blocks.iter().any(|block| block.uncached)
        };
        let asleep = world.pools.borrow().slept.iter().any(|(of, _)| *of == site);
        if !alone || other || asleep || !world.imports.borrow().is_empty() {
            return;
        }
        for device in (0..world.setup.devices).map(DeviceIndex) {
            let stats = self.allocator.stats(device).unwrap_or_default();
            let (held, used) =
                (stats.reserved_bytes.all.current, world.processes[process].machine.used(device) as i64);
            world.verdict.expect(held == used, "flush", || {
                format!("after a flush {held} bytes are held of device {device}, which has {used} in use")
            });
        }
    }
}
