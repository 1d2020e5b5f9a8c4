//! Pinned memory that comes and goes: requests, frees, emptying, the end. The parts of an allocator, which it shares with its
//! thread.

use super::completions::Completions;
use super::driver_access::DriverAccess;
use super::pinned_block::{Fate, Order};
use super::pinned_pools::PinnedPools;
use super::pinned_source::{PinnedSource, numa};
use super::pinned_stats::{HostStats, signed};
use super::shared::SharedTable;
use super::stream_uses::StreamUses;
use super::table::{BlockTable, Knobs};
use super::{HostBlock, HostBlockId, HostOptions};
use crate::backend::{self, Backend, BackendError, ErrorKind};
use crate::config::Settings;
use crate::error::{AllocError, Result, log_end};
use crate::memory::block::BlockId;
use crate::process::attention::ProcessState;
use crate::process::callbacks::{Callbacks, HeldBack};
use crate::process::pinned::{self, Pins};
use crate::process::state;
use crate::process::unified::{Membership, PinnedInFlight};
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::history::{Context, RecordContext};

/// Most threads that register pages.
const MAX_REGISTER_THREADS: u64 = 128;

/// Attempts at a request while others move memory that devices share.
const ROUNDS: usize = 8;

/// PyTorch's checks of what only matters to pinned memory.
pub(super) fn validate(settings: &Settings) -> Result<()> {
    settings.validate().map_err(AllocError::Settings)?;
    let threads = settings.pinned_num_register_threads;
    if !threads.is_power_of_two() {
        let text = format!("Number of register threads has to be power of 2, got {threads}");
        return Err(AllocError::Settings(text));
    }
    if threads > MAX_REGISTER_THREADS {
        let text = format!("Number of register threads should be less than or equal to 128, got {threads}");
        return Err(AllocError::Settings(text));
    }
    Ok(())
}

/// True if more memory would help.
fn is_short(refused: &AllocError) -> bool {
    match refused {
        AllocError::Backend(error) => matches!(error.kind, ErrorKind::OutOfMemory | ErrorKind::ResourceLimit),
        refused => refused.is_out_of_memory(),
    }
}

/// Pinned blocks, from the driver and back, and what is kept between. Whether the driver may be called at all is asked
/// before.
#[derive(Debug)]
pub(super) struct PinnedCache {
    driver: Arc<DriverAccess>,
    source: PinnedSource,
    table: SharedTable,
    pools: PinnedPools,
    completions: Completions,
    /// Completed uses are to be noticed by a thread.
    wants_thread: AtomicBool,
}

impl PinnedCache {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: &Settings, options: &HostOptions) -> Result<Self> {
        validate(settings)?;
        state::admit(backend.id()).map_err(ProcessState::refusal)?;
        let node = numa::resolve(options.numa, &*backend, &options.sysfs)?;
        let driver = Arc::new(DriverAccess::new(Arc::clone(&backend), options.captures_are_told)?);
        let callbacks = Arc::new(Callbacks::default());
        let source = PinnedSource::new(backend, node, settings);
        let slow_path = source.unified().map(|unified| Arc::clone(unified.slow_path())).unwrap_or_default();
        Ok(Self {
            source,
            table: SharedTable::new(settings, options.sizing, Arc::clone(&callbacks)),
            pools: PinnedPools::new(Arc::clone(&driver), callbacks),
            completions: Completions::new(Arc::clone(&driver), slow_path),
            wants_thread: AtomicBool::new(settings.pinned_use_background_threads),
            driver,
        })
    }

    pub(super) fn driver(&self) -> &DriverAccess {
        &self.driver
    }

    pub(super) fn table(&self) -> &SharedTable {
        &self.table
    }

    pub(super) fn pools(&self) -> &PinnedPools {
        &self.pools
    }

    pub(super) fn completions(&self) -> &Completions {
        &self.completions
    }

    pub(super) fn uses(&self) -> StreamUses<'_> {
        StreamUses::new(&self.driver, &self.table, &self.completions)
    }

    pub(super) fn node(&self) -> Option<u32> {
        self.source.node()
    }

    pub(super) fn wants_thread(&self) -> bool {
        self.wants_thread.load(Ordering::Acquire)
    }

    /// From here on all pinned memory of its backend is its, and it gives way to devices that share the memory, if some do.
    pub(super) fn join(self: &Arc<Self>) -> Option<Membership> {
        let pins = Arc::clone(self) as Arc<dyn Pins>;
        pinned::install(self.driver.backend().id(), &pins);
        self.source.unified().map(|unified| unified.join_cache(pins))
    }

    /// See [`HostAllocator::configure`](super::HostAllocator::configure).
    pub(super) fn configure(&self, settings: &Settings) {
        self.table.lock().configure(settings);
        self.wants_thread.store(settings.pinned_use_background_threads, Ordering::Release);
    }

    pub(super) fn stats(&self) -> HostStats {
        let mut stats = self.table.lock().stats();
        let (reserve, free) = self.source.reserve_bytes();
        stats.granule.reserve_bytes = signed(reserve);
        stats.granule.reserve_free_bytes = signed(free);
        stats.granule.unrecorded_frees = signed(self.completions.failures());
        stats
    }

    /// See [`HostAllocator::allocate_for`](super::HostAllocator::allocate_for).
    pub(super) fn allocate(&self, bytes: u64, stream: Option<Stream>) -> Result<HostBlock> {
        let stream = stream.map(|stream| self.driver.own(stream)).transpose()?;
        if bytes == 0 {
            return Ok(HostBlock::NONE);
        }
        let context = self.table.gather(RecordContext::State, &self.table.calls());
        let capturing = match stream {
            Some(stream) if self.driver.may_be_capturing() => self.driver.capture_id(stream)?.is_some(),
            _ => false,
        };
        let visit = self.pools.route(stream, capturing)?;
        let order = Order { requested: bytes, pool: visit.pool(), capturing, apart: false, context };
        let is_watched =
            self.wants_thread() && order.pool == PoolId::DEFAULT && self.completions.is_watched();
        if !is_watched && let Err(error) = self.poll(order.context.as_deref()) {
            // One device that cannot be asked is no reason to refuse memory for others.
            tracing::debug!(%error, "finished uses of pinned memory could not be noticed");
        }
        let (size, knobs) = {
            let mut table = self.table.lock();
            let Some(size) = table.rounded(bytes) else {
                return Err(AllocError::Limit("more pinned memory was asked for than can be addressed"));
            };
            if let Some(block) = table.take_cached(size, &order) {
                return Ok(block);
            }
            (size, table.knobs())
        };
        let _relaxed = self.driver.relaxed()?;
        self.make(size, &order, &knobs)
    }

    /// A block from the source. Where devices share the memory, what this thread did not find others may have had on its way, on
    /// either side: it waits for that, and tries all again, until nobody else moved memory meanwhile. The number of times is bounded,
    /// because others may never rest.
    fn make(&self, size: u64, order: &Order<'_>, knobs: &Knobs) -> Result<HostBlock> {
        let attempt = || self.make_once(size, order, knobs);
        // A capture has its own work to queue: it is not held up by that of others.
        let Some(unified) = self.source.unified().filter(|_| !order.capturing) else { return attempt() };
        let slow_path = unified.slow_path();
        for _ in 0..ROUNDS {
            let mark = slow_path.now();
            let made = attempt();
            // Foreign code may ask while its thread moves memory itself, and others may wait for that.
            let knows = slow_path.only_mine_since(mark) || slow_path.is_nested();
            if knows || !made.as_ref().is_err_and(is_short) {
                return made;
            }
            slow_path.wait_for_others();
        }
        attempt()
    }

    /// The calling thread has pinned memory in its hands until this is dropped, where devices share it. Destructors of the program's
    /// wait for that: whoever waits for the memory waits for none of them.
    fn moving(&self) -> Option<(PinnedInFlight, HeldBack<'_>)> {
        self.source.unified().map(|unified| (unified.moving(), self.table.hold_back()))
    }

    /// A block from the source; where the driver has no memory left, or devices that share it leave none, after each remedy once
    /// more, unless that has left one in the cache.
    fn make_once(&self, size: u64, order: &Order<'_>, knobs: &Knobs) -> Result<HostBlock> {
        let context = order.context.as_deref();
        if !order.capturing
            && let Err(error) =
                self.give_up(|table| table.clear_surplus(if order.apart { 0 } else { size }), context)
        {
            tracing::warn!(%error, "not all pinned memory that is kept beyond use could be given back");
        }
        let (poll, wait) = (|| self.poll(context), || self.synchronise(context));
        let unified = self.source.unified();
        let ask = || {
            unified.into_iter().for_each(|unified| unified.ask_devices(!order.capturing));
            Ok(())
        };
        // Nor here is a capture held up.
        let remedies: [(bool, &dyn Fn() -> Result<()>); 3] =
            [(true, &poll), (!order.capturing, &wait), (unified.is_some(), &ask)];
        let mut remedies = remedies.into_iter().filter(|(allowed, _)| *allowed);
        loop {
            let taken = {
                let _moving = self.moving();
                self.source.take(size, !order.apart, knobs)
            };
            let mut refused = match taken {
                Ok(fresh) => return Ok(self.table.lock().add(fresh, order)),
                Err(error) => error,
            };
            if let AllocError::PinnedOutOfMemory(refusal) = &mut refused {
                refusal.requested = order.requested;
            }
            self.driver.backend().clear_error();
            let Some((_, remedy)) = remedies.next().filter(|_| is_short(&refused)) else {
                return Err(refused);
            };
            if let Err(error) = remedy().and(self.release_cached(context)) {
                tracing::warn!(%error, "not all cached pinned memory could be given back");
            }
            if let Some(block) = self.table.lock().take_cached(size, order) {
                return Ok(block);
            }
        }
    }

    /// See [`HostAllocator::free`](super::HostAllocator::free). A buffer's block is freed by the buffer alone.
    pub(super) fn free(&self, id: HostBlockId) -> Result<()> {
        if id == HostBlockId::NONE {
            return Ok(());
        }
        let calls = self.table.calls();
        let context = self.table.gather(RecordContext::All, &calls);
        self.free_in(id, context.as_deref())
    }

    fn free_in(&self, id: HostBlockId, context: Option<&Context>) -> Result<()> {
        let mut table = self.table.lock();
        let Some(block) = table.handed_out(id).filter(|block| !table.block(*block).buffered) else {
            return Err(AllocError::UnknownHostBlock { id: id.0 });
        };
        match table.release(block, context) {
            Fate::Free | Fate::Kept => Ok(()),
            Fate::Waits(users) => {
                let _named = self.completions.announce(&users);
                drop(table);
                self.completions.wait_for(block, users);
                Ok(())
            }
            Fate::Leaves => {
                // Under the lock: whoever finds it nowhere finds that it is on its way.
                let _moving = self.moving();
                let catch_all = table.knobs().free_catch_all;
                drop(table);
                let _relaxed = self.driver.relaxed().ok();
                self.give_back(vec![block], context).or_else(|error| {
                    if !catch_all {
                        tracing::warn!(%error, "Exception in pinned allocator free(), rethrowing");
                        return Err(error);
                    }
                    tracing::warn!(%error, "Suppressed exception in pinned allocator free()");
                    let _suppressed = self.driver.noticing::<()>(Err(error));
                    Ok(())
                })
            }
        }
    }

    /// Gives a block to a buffer, which alone frees it from then on, or takes it back from there.
    pub(super) fn set_buffered(&self, id: HostBlockId, buffered: bool) -> Result<()> {
        if id == HostBlockId::NONE {
            return Ok(());
        }
        let mut table = self.table.lock();
        let Some(block) = table.handed_out(id) else { return Err(AllocError::UnknownHostBlock { id: id.0 }) };
        table.set_buffered(block, buffered);
        Ok(())
    }

    /// Notices completed uses; what is not to be cached goes back to the driver. Does not wait for a device.
    pub(super) fn poll(&self, context: Option<&Context>) -> Result<()> {
        if !self.completions.any() {
            return Ok(());
        }
        let _relaxed = self.driver.relaxed()?;
        let _ends = self.source.unified().map(|_| self.table.hold_back());
        self.notice(context, |done| self.completions.poll(done))
    }

    /// Waits for all that devices still do with blocks that were given back. **Blocks.**
    pub(super) fn synchronise(&self, context: Option<&Context>) -> Result<()> {
        let _relaxed = self.driver.relaxed()?;
        let _ends = self.table.hold_back();
        self.notice(context, |done| self.completions.synchronise(done))
    }

    fn notice(
        &self,
        context: Option<&Context>,
        ask: impl FnOnce(&mut dyn FnMut(BlockId)) -> Result<()>,
    ) -> Result<()> {
        let mut leaving = Vec::new();
        let asked = ask(&mut |block| {
            if matches!(self.table.lock().event_done(block, context), Fate::Leaves) {
                leaving.push(block);
            }
        });
        // Nothing is on its way before: others wait for that, and this thread has waited for devices.
        asked.and(self.give_up(|table| table.clear(leaving), context))
    }

    /// Gives leaving blocks back to the driver, which the caller has marked [in flight](Self::moving). What it refuses is cached
    /// again; the first error is returned.
    fn give_back(&self, leaving: Vec<BlockId>, context: Option<&Context>) -> Result<()> {
        let mut outcome = Ok(());
        for id in leaving {
            let (ptr, size, origin) = {
                let table = self.table.lock();
                let block = table.block(id);
                (block.ptr, block.size, block.origin)
            };
            // SAFETY: rule 3: the source gave it as this block, nobody finds it any more, and devices are done with it.
            let given = unsafe { self.source.give_back(ptr, size, origin) };
            match given {
                Ok(took) => self.table.lock().gone(id, took, context),
                Err(error) => {
                    self.table.lock().stays(id);
                    self.driver.backend().clear_error();
                    outcome = outcome.and(Err(error.into()));
                }
            }
        }
        outcome
    }

    /// See [`HostAllocator::empty_cache`](super::HostAllocator::empty_cache).
    pub(super) fn empty(&self) -> Result<()> {
        let calls = self.table.calls();
        let context = self.table.gather(RecordContext::All, &calls);
        let context = context.as_deref();
        self.poll(context).and(self.release_cached(context))
    }

    /// Gives back what the default pool has cached, and then what pools have that nobody uses any more.
    fn release_cached(&self, context: Option<&Context>) -> Result<()> {
        let _relaxed = self.driver.relaxed()?;
        let mut outcome = self.release_pool(PoolId::DEFAULT, context);
        let known = self.table.lock().private_pools();
        for pool in self.pools.unused(known) {
            outcome = outcome.and(self.release_pool(pool, context));
        }
        // Unused pools without a block leave their figures to the default pool.
        self.pools.forget_abandoned(|pool| self.table.lock().forget_pool(pool));
        outcome
    }

    fn release_pool(&self, pool: PoolId, context: Option<&Context>) -> Result<()> {
        self.give_up(|table| table.clear_cache(pool), context)
    }

    /// Gives back what `choose` lets leave.
    fn give_up(
        &self,
        choose: impl FnOnce(&mut BlockTable) -> Vec<BlockId>,
        context: Option<&Context>,
    ) -> Result<()> {
        let (cached, _moving) = {
            let mut table = self.table.lock();
            let cached = choose(&mut table);
            // Whoever finds nothing in the cache finds that it is on its way.
            let moving = if cached.is_empty() { None } else { self.moving() };
            (cached, moving)
        };
        self.give_back(cached, context)
    }

    /// Everything that the program does not have goes back, after devices were waited for. **Blocks.**
    pub(super) fn shut_down(&self) -> Result<()> {
        self.pools.abandon_all();
        let waited = self.synchronise(None);
        let kept = self.give_kept_back();
        let cached = self.release_cached(None);
        let _relaxed = self.driver.relaxed().ok();
        let _moving = self.moving();
        let reserve = self.source.give_reserve_back().map_err(AllocError::Backend);
        waited.and(kept).and(cached).and(reserve)
    }

    /// Gives back what graphs may use: they are gone with the allocator. Their last launches may not be, so devices are
    /// waited for.
    fn give_kept_back(&self) -> Result<()> {
        if !self.table.lock().has_kept() {
            return Ok(());
        }
        let _relaxed = self.driver.relaxed()?;
        let backend = self.driver.backend();
        for device in self.driver.devices() {
            let wait = || match backend.has_primary_context(device)? {
                true => backend.synchronize_device(device),
                // It has no work, and waiting would make its context.
                false => Ok(()),
            };
            self.driver.answered(wait())?;
        }
        let _moving = self.moving();
        let kept = self.table.lock().clear_kept();
        self.give_back(kept, None)
    }
}

impl Pins for PinnedCache {
    fn give_back(&self, may_wait: bool) {
        if self.driver.process_state().is_some() {
            return;
        }
        let noticed = if may_wait { self.synchronise(None) } else { self.poll(None) };
        if let Err(error) = self.driver.noticing(noticed.and(self.release_cached(None))) {
            tracing::warn!(%error, "not all cached pinned memory could be given back for a device");
        }
    }

    fn take(&self, bytes: u64) -> backend::Result<(DevicePtr, u64)> {
        let order =
            Order { requested: bytes, pool: PoolId::DEFAULT, capturing: false, apart: true, context: None };
        let knobs = self.table.lock().knobs();
        let made = self.driver.relaxed().and_then(|_relaxed| self.make(bytes, &order, &knobs));
        made.map(|block| (block.ptr, block.id.0)).map_err(|error| match error {
            AllocError::Backend(error) => error,
            other => {
                let text = other.to_string();
                BackendError::new(ErrorKind::OutOfMemory, 0, "pinned memory", DeviceIndex(0), text)
            }
        })
    }

    /// Runs no recorder: those may wait for other threads, which may wait for memory of the device that wakes.
    fn end(&self, id: u64) {
        log_end(self.free_in(HostBlockId(id), None), "pinned memory could not be given back; it is cached");
    }
}
