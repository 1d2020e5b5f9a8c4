//! Holdings of a device: the state under its lock, and the limits that a request meets there before it reaches the
//! driver.

pub(super) mod accounts;
pub(super) mod device_limits;
pub(super) mod event_counts;
pub(super) mod guarantees;
pub(super) mod recording;
pub(super) mod tenants;
mod whole;

use super::driver_context::DriverContext;
use crate::config::Settings;
use crate::error::{AllocError, Result};
use crate::features::ledger::registry::Published;
use crate::memory::block::Tier;
use crate::memory::region::{Piece, Regions};
use crate::policy::Request;
use crate::process::host_reserve::{Coming, HostReserve};
use crate::process::unified::PinnedRefusal;
use crate::sync::plain::AtomicBool;
use crate::sync::{Guard, Mutex, Ordering, Rank};
use crate::types::{DeviceIndex, PoolId, Stream};
use crate::watch::history::Recorder;
use accounts::{Accounts, Asked, Limit};
use event_counts::DeviceCounters;
use recording::RecordingState;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::path::{Path, PathBuf};

/// The state under the device's lock.
#[derive(Debug)]
pub(super) struct DeviceState {
    settings: Settings,
    /// Bytes held, in all and by pool, and their limits.
    accounts: Accounts,
    regions: Regions,
    /// Other devices that reach its memory.
    peers: SmallVec<[DeviceIndex; 4]>,
    counters: DeviceCounters,
    next_registration: u32,
    max_split_size: i64,
    /// Reserve classes by stream handle.
    reserve_classes: FxHashMap<u64, String>,
    history: Recorder,
    /// Recording of history; `None` while it is off.
    recording: Option<RecordingState>,
    /// Entry in which other processes read how much is held, if published.
    published: Option<Published>,
    /// Bytes that live graphs took beyond their pools.
    graphs: u64,
}

impl DeviceState {
    fn new(settings: &Settings, accounts: Accounts, published: Option<Published>) -> Self {
        Self {
            settings: settings.clone(),
            accounts,
            regions: Regions::default(),
            peers: SmallVec::new(),
            counters: DeviceCounters::default(),
            next_registration: 0,
            max_split_size: i64::try_from(settings.max_split_size).unwrap_or(-1),
            reserve_classes: FxHashMap::default(),
            history: Recorder::default(),
            recording: None,
            published,
            graphs: 0,
        }
    }

    /// Bytes that live graphs took beyond their pools.
    pub(super) fn graphs(&self) -> u64 {
        self.graphs
    }

    fn publish(&mut self) {
        if let Some(published) = &mut self.published {
            published.set(self.accounts.whole().reserved());
        }
    }

    /// Counts bytes that are to be pinned in the device's memory, or returns the limit that refuses them.
    fn pin(&mut self, bytes: u64) -> std::result::Result<(), Limit> {
        let refuses = |limit: &Limit| limit.held.saturating_add(bytes) > limit.bytes;
        match self.accounts.limits(None).into_iter().find(refuses) {
            Some(limit) => Err(limit),
            None => {
                self.accounts.set_pinned(self.accounts.whole().pinned().saturating_add(bytes));
                Ok(())
            }
        }
    }

    /// File in which other processes read how much is held, if published.
    pub(super) fn published(&self) -> Option<PathBuf> {
        self.published.as_ref()?.path().map(Path::to_owned)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Bytes held, in all and by pool, and their limits.
    pub(super) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(super) fn accounts_mut(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    /// Reserved addresses, and the memory behind them.
    pub(super) fn regions(&self) -> &Regions {
        &self.regions
    }

    pub(super) fn regions_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }

    pub(super) fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut DeviceCounters {
        &mut self.counters
    }

    /// Records of the device itself.
    pub(super) fn history(&self) -> &Recorder {
        &self.history
    }

    pub(super) fn history_mut(&mut self) -> &mut Recorder {
        &mut self.history
    }

    /// Recording of history; `None` while it is off.
    pub(super) fn recording(&self) -> Option<&RecordingState> {
        self.recording.as_ref()
    }

    pub(super) fn set_recording(&mut self, recording: Option<RecordingState>) {
        self.recording = recording;
    }

    /// Initial setting, as PyTorch shows it.
    pub(super) fn max_split_size(&self) -> i64 {
        self.max_split_size
    }

    /// Notes another device that reaches its memory.
    pub(super) fn add_peer(&mut self, peer: DeviceIndex) {
        self.peers.push(peer);
    }

    pub(super) fn remove_peer(&mut self, peer: DeviceIndex) {
        self.peers.retain(|known| *known != peer);
    }

    /// Counts memory that the driver gave for a pool.
    pub(super) fn take(&mut self, pool: PoolId, tier: Tier, bytes: u64) {
        self.accounts.take(pool, tier, bytes);
        self.publish();
        self.counters.device_alloc += 1;
    }

    /// Counts memory of a pool that the driver took back.
    pub(super) fn give_back(&mut self, pool: PoolId, tier: Tier, bytes: u64) {
        self.accounts.give_back(pool, tier, bytes);
        self.publish();
        self.counters.device_free += 1;
    }

    /// Counts granules that the driver mapped in another place.
    pub(super) fn count_moved(&mut self, granules: usize) {
        self.counters.device_alloc += 1;
        self.counters.granules_moved += i64::try_from(granules).unwrap_or(i64::MAX);
    }

    /// Number of a new segment: they count in the order in which they come.
    pub(super) fn register(&mut self) -> u32 {
        let registration = self.next_registration;
        self.next_registration += 1;
        registration
    }

    /// The stream's reserve class.
    pub(super) fn reserve_class(&self, stream: Stream) -> Option<&String> {
        self.reserve_classes.get(&stream.raw)
    }

    /// Bytes that the stream's reserve class sets for a growable segment, on a device with `total` bytes.
    pub(super) fn class_reserve(&self, stream: Stream, total: u64) -> Option<u64> {
        let class = self.reserve_class(stream)?;
        let sizes = &self.settings.expandable_segments_reserve_by_class;
        sizes.iter().find(|(name, _)| name == class).map(|(_, size)| size.bytes(total))
    }

    /// Bytes held above which requests are rejected without a driver call (`throw_on_cudamalloc_oom`), on a device of
    /// `total` bytes.
    pub(super) fn rejects_above(&self, total: u64) -> Option<u64> {
        self.settings.throw_on_oom.then(|| bytes_of(total, self.settings.per_process_memory_fraction))
    }
}

fn bytes_of(total: u64, fraction: f64) -> u64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let bytes = (fraction * total as f64) as u64;
    bytes
}

/// Bytes that are to be taken for a pool: counted as held until they are reserved, or this is dropped.
pub(super) struct Intent<'a> {
    accounting: &'a Accounting,
    pool: PoolId,
    bytes: u64,
    /// The most that may be mapped for them.
    at_most: u64,
    /// Claim on the host's memory, where they are of it.
    coming: Option<Coming>,
}

impl<'a> Intent<'a> {
    /// True if they do for `bytes` that will be taken: more is admitted as far as limits allow. PyTorch's own limits count
    /// more only where they count `exactly`.
    pub(super) fn covers(&mut self, request: &Request, bytes: u64, exactly: bool) -> Result<bool> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(true);
        }
        let asked = Asked { bytes: exactly.then_some(more), exact: more };
        let admitted = self.accounting.admit(self.pool, request, asked)?;
        self.bytes += if admitted { more } else { 0 };
        Ok(admitted)
    }

    /// Tests if the host was known to spare them all when it was read last.
    pub(super) fn was_spared(&mut self) -> bool {
        self.coming.as_mut().is_none_or(|coming| coming.grow(self.bytes))
    }

    /// Intent for admitted bytes, of which at most `at_most` may be mapped.
    pub(super) fn up_to(accounting: &'a Accounting, pool: PoolId, bytes: u64, at_most: u64) -> Self {
        Self { accounting, pool, bytes, at_most, coming: None }
    }

    /// Tests if the host can spare the bytes, where they are of its memory. May read files.
    pub(super) fn is_spared(&mut self, reserve: Option<&HostReserve>) -> bool {
        self.coming = None;
        let Some(reserve) = reserve else { return true };
        let spared = reserve.admit(self.bytes);
        spared.map(|coming| self.coming = coming).is_ok()
    }

    /// The most that may be mapped for them.
    pub(super) fn at_most(&self) -> u64 {
        self.at_most
    }

    /// Counts them as reserved from here on.
    pub(super) fn fulfil(mut self, state: &mut DeviceState) {
        state.accounts.end_intent(self.pool, self.bytes);
        self.coming = None;
        std::mem::forget(self);
    }
}

impl Drop for Intent<'_> {
    fn drop(&mut self) {
        self.accounting.lock().accounts.end_intent(self.pool, self.bytes);
    }
}

/// Holdings of a device.
pub(crate) struct Accounting {
    device: DeviceIndex,
    label: &'static str,
    total_memory: u64,
    state: Mutex<DeviceState>,
    /// Budgets or spill hooks were ever set, or somebody observes budgets. Without them a miss asks nothing more.
    has_budgets: AtomicBool,
}

impl Accounting {
    pub(super) fn new(driver: &DriverContext, settings: &Settings) -> Self {
        let accounts = Accounts::new(driver.total_memory(), settings);
        let published = if settings.publish { driver.publish() } else { None };
        Self {
            device: driver.device(),
            label: driver.backend().label(),
            total_memory: driver.total_memory(),
            state: Mutex::new(Rank::Device, DeviceState::new(settings, accounts, published)),
            has_budgets: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> Guard<'_, DeviceState> {
        self.state.lock()
    }

    /// See [`CachingAllocator::set_reserve_class`](crate::allocator::CachingAllocator::set_reserve_class).
    pub(crate) fn set_reserve_class(&self, stream: Stream, class: &str) {
        let classes = &mut self.state.lock().reserve_classes;
        if class.is_empty() {
            classes.remove(&stream.raw);
        } else {
            classes.insert(stream.raw, class.to_owned());
        }
    }

    /// True if the program uses budgets.
    pub(super) fn has_budgets(&self) -> bool {
        self.has_budgets.load(Ordering::Relaxed)
    }

    pub(super) fn use_budgets(&self) {
        self.has_budgets.store(true, Ordering::Relaxed);
    }

    /// Counts a refused request of the pool.
    pub(super) fn note_refusal(&self, pool: PoolId) {
        if let Some(tenant) = self.state.lock().accounts.tenant_of_mut(pool) {
            tenant.note_refusal();
        }
    }

    /// Applies the limits to bytes that are to be taken. Admitted bytes count as held from then on, as an intent, until
    /// they are reserved or given up. `false` if a limit refuses, an error if it rejects.
    pub(super) fn admit(&self, pool: PoolId, request: &Request, asked: Asked) -> Result<bool> {
        let mut state = self.state.lock();
        if !state.accounts.admits(pool, asked) {
            return Ok(false);
        }
        let held = state.accounts.whole().counted();
        let is_over = |limit: &u64| asked.bytes.is_some_and(|bytes| held.saturating_add(bytes) > *limit);
        if let Some(limit) = state.rejects_above(self.total_memory).filter(is_over) {
            let (label, requested, wanted) = (self.label, request.requested, asked.exact);
            state.counters.oom_rejections += 1;
            return Err(AllocError::Rejected { label, requested, wanted, held, limit });
        }
        state.accounts.intend(pool, asked.exact);
        Ok(true)
    }

    /// Applies the limits to the `bytes` of memory that is to wake. They count as held from then on.
    pub(super) fn admit_waking(&self, pool: PoolId, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let admitted = state.accounts.admits(pool, Asked::exactly(bytes));
        if admitted {
            state.accounts.intend(pool, bytes);
        }
        admitted
    }

    /// Counts bytes that are to be pinned in the device's memory, if limits admit them.
    pub(super) fn pin(&self, bytes: u64) -> std::result::Result<(), Box<PinnedRefusal>> {
        let pinned = self.state.lock().pin(bytes);
        pinned.map_err(|limit| Box::new(self.refusal(bytes, limit.name, limit.bytes)))
    }

    /// Refusal of bytes that are to be pinned, by a limit.
    pub(super) fn refusal(&self, bytes: u64, limit: String, allowed: u64) -> PinnedRefusal {
        let state = self.state.lock();
        let (held, pinned) = (state.accounts.whole().held(), state.accounts.whole().pinned());
        let (label, device) = (self.label, self.device);
        PinnedRefusal { label, device, requested: bytes, bytes, held, pinned, limit, allowed, host: None }
    }

    /// Sets the bytes pinned in the device's memory.
    pub(super) fn set_pinned(&self, pinned: u64) {
        self.state.lock().accounts.set_pinned(pinned);
    }

    /// True if `request` would take the device over its soft limit.
    pub(super) fn is_over_soft_limit(&self, request: &Request) -> bool {
        let accounts = &self.state.lock().accounts;
        accounts
            .device_limits()
            .soft
            .is_some_and(|soft| accounts.whole().counted().saturating_add(request.segment_bytes) > soft)
    }

    /// The share of the device's memory that may be held; 1 when unlimited.
    pub(crate) fn memory_fraction(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        self.state
            .lock()
            .accounts
            .device_limits()
            .fraction
            .map_or(1.0, |allowed| allowed as f64 / self.total_memory as f64)
    }

    /// The device and those that reach its memory.
    pub(super) fn users(&self) -> SmallVec<[DeviceIndex; 4]> {
        let mut users: SmallVec<_> = [self.device].into_iter().collect();
        users.extend_from_slice(&self.state.lock().peers);
        users
    }

    /// True if `device` reaches this device's memory.
    pub(crate) fn is_reached_by(&self, device: DeviceIndex) -> bool {
        device == self.device || self.state.lock().peers.contains(&device)
    }

    /// True if the device holds reserved address space.
    pub(crate) fn has_growable_memory(&self) -> bool {
        self.state.lock().regions.iter().next().is_some()
    }

    /// Notes the bytes that a tenant's spill hook freed.
    pub(super) fn note_spill(&self, pool: PoolId, freed: u64) {
        let mut state = self.state.lock();
        if let Some(tenant) = state.accounts.tenant_of_mut(pool) {
            tenant.note_spill(freed);
        }
    }

    /// Ends the export of granules that other processes need no more.
    pub(super) fn end_export(&self, granules: &[Piece]) {
        let ended = self.state.lock().regions.end_export(granules);
        // Descriptors are closed without a lock.
        drop(ended);
    }

    /// Counts a fixed segment that went back to the device.
    pub(super) fn give_segment_back(&self, pool: PoolId, tier: Tier, bytes: u64, oversize: bool) {
        let mut state = self.state.lock();
        state.give_back(pool, tier, bytes);
        state.counters.segment.decrease(tier, 1);
        if oversize {
            state.counters.oversize_segments.decrease(1);
        }
    }

    /// Counts bytes that a graph took beyond its pools, or gave back.
    pub(crate) fn note_graph(&self, bytes: u64, is_back: bool) {
        let graphs = &mut self.state.lock().graphs;
        *graphs = if is_back { graphs.saturating_sub(bytes) } else { graphs.saturating_add(bytes) };
    }

    /// Bytes that a pool has reserved.
    pub(super) fn reserved_by(&self, pool: PoolId) -> u64 {
        self.state.lock().accounts.of_pool(pool).all.current.unsigned_abs()
    }
}
