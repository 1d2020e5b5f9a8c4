//! The engine: one caching allocator for one device.
//!
//! A request takes the lock of its stream's arena, finds a free block, cuts it and returns. Only a miss
//! goes further: up the policy's ladder of remedies (`device/ladder.rs`), which takes memory from the device
//! (`device/grow.rs`) or gives some back (`device/release.rs`), without a lock over any driver call. What a stream
//! leaves behind when it ends goes to another (`device/retire.rs`).

mod grow;
mod ladder;
mod observe;
mod release;
mod retire;

use crate::address_map::{AddressMap, Location};
use crate::arena::{ArenaState, FreeStep};
use crate::backend::Backend;
use crate::config::Settings;
use crate::counters::{Counters, Peaks};
use crate::directory::{Arena, Directory, Template};
use crate::error::{AllocError, Result};
use crate::history::{HistoryOptions, Recorder, Stamps};
use crate::oom::OomReport;
use crate::pending::{PendingFrees, Waiting};
use crate::policy::{Drain, Policy};
use crate::region::Regions;
use crate::round::EXABYTE;
use crate::stats::{Stat, StatArray};
use crate::sync::{Arc, Guard, Mutex, Rank, Transit};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use rustc_hash::FxHashMap;

/// Called when memory is short; returns whether it freed something through this allocator.
pub type FreeMemoryCallback = Box<dyn Fn() -> bool + Send + Sync>;
/// Called with the report before an out-of-memory error is returned.
pub type OutOfMemoryObserver = Box<dyn Fn(&OomReport) + Send + Sync>;

/// What is counted under the device's lock.
#[derive(Debug, Default)]
struct DeviceCounters {
    segment: StatArray,
    reserved_bytes: StatArray,
    oversize_segments: Stat,
    alloc_retries: i64,
    ooms: i64,
    sync_all_streams: i64,
    device_alloc: i64,
    device_free: i64,
    oom_rejections: i64,
}

/// The state under the device's lock.
#[derive(Debug)]
struct DeviceState {
    settings: Settings,
    /// Bytes being taken from the device at the moment, by threads that hold no lock.
    intents: u128,
    /// The most that may be held, if limited.
    allowed: Option<u64>,
    regions: Regions,
    counters: DeviceCounters,
    next_registration: u32,
    max_split_size: i64,
    /// Reserve classes by stream handle.
    reserve_classes: FxHashMap<u64, String>,
    history: Recorder,
    /// Bounds of the history rings; `None` while history is off.
    recording: Option<Recording>,
}

/// How history is being recorded.
#[derive(Clone, Debug)]
struct Recording {
    options: HistoryOptions,
    stamps: Arc<Stamps>,
    /// Hand-outs before recording began.
    missed: u64,
}

impl DeviceState {
    /// Bytes held from the device, those being taken at the moment included.
    fn held(&self) -> u64 {
        let reserved = u128::from(self.counters.reserved_bytes.all.current.unsigned_abs());
        u64::try_from(reserved + self.intents).unwrap_or(u64::MAX)
    }

    /// What the stream's reserve class says about a growable segment, on a device with `total` bytes.
    fn class_reserve(&self, stream: Stream, total: u64) -> Option<u64> {
        let class = self.reserve_classes.get(&stream.raw)?;
        let sizes = &self.settings.expandable_segments_reserve_by_class;
        sizes.iter().find(|(name, _)| name == class).map(|(_, size)| size.bytes(total))
    }

    fn register(&mut self) -> u32 {
        let registration = self.next_registration;
        self.next_registration += 1;
        registration
    }
}

/// A caching allocator for one device. Reach it through
/// [`CachingAllocator`](crate::allocator::CachingAllocator).
pub struct DeviceAllocator<P: Policy> {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    map: Arc<AddressMap>,
    total_memory: u64,
    virtual_memory: bool,
    arenas: Directory<P>,
    state: Mutex<DeviceState>,
    peaks: Mutex<Peaks>,
    pending: PendingFrees,
    transit: Transit,
    /// Driver calls under way that name a stream; see `device/retire.rs`.
    naming: Transit,
    /// Held while a stream gets its arena, or retires.
    tenures: Mutex<()>,
    last_resort: Mutex<()>,
    /// Held while leftovers are tried again.
    retrying: Mutex<()>,
    /// One change of settings at a time.
    configuring: Mutex<()>,
    callbacks: Mutex<Vec<Arc<FreeMemoryCallback>>>,
    observers: Mutex<Vec<Arc<OutOfMemoryObserver>>>,
}

impl<P: Policy> DeviceAllocator<P> {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        device: DeviceIndex,
        map: Arc<AddressMap>,
        settings: &Settings,
    ) -> Result<Self> {
        let total_memory = backend.properties(device)?.total_memory;
        let virtual_memory = match backend.virtual_memory() {
            Ok(_) => true,
            Err(reason) => {
                if settings.expandable_segments {
                    tracing::warn!(%reason, "expandable_segments is on and has no effect on this device");
                }
                false
            }
        };
        let policy = P::new(settings, virtual_memory);
        let allowed = fraction_of(total_memory, settings.per_process_memory_fraction);
        let ages = policy.garbage_threshold(allowed).is_some();
        let template = Template { policy, ages, history: 0, stamps: Arc::new(Stamps::new(true)) };
        let state = DeviceState {
            settings: settings.clone(),
            intents: 0,
            allowed,
            regions: Regions::default(),
            counters: DeviceCounters::default(),
            next_registration: 0,
            max_split_size: i64::try_from(settings.max_split_size).unwrap_or(-1),
            reserve_classes: FxHashMap::default(),
            history: Recorder::default(),
            recording: None,
        };
        Ok(Self {
            backend,
            device,
            map,
            total_memory,
            virtual_memory,
            arenas: Directory::new(device, template),
            state: Mutex::new(Rank::Device, state),
            peaks: Mutex::new(Rank::Peaks, Peaks::default()),
            pending: PendingFrees::default(),
            transit: Transit::default(),
            naming: Transit::default(),
            tenures: Mutex::new(Rank::Synchronisation, ()),
            last_resort: Mutex::new(Rank::LastResort, ()),
            retrying: Mutex::new(Rank::Synchronisation, ()),
            configuring: Mutex::new(Rank::LastResort, ()),
            callbacks: Mutex::new(Rank::Registry, Vec::new()),
            observers: Mutex::new(Rank::Registry, Vec::new()),
        })
    }

    /// See [`CachingAllocator::malloc`](crate::allocator::CachingAllocator::malloc).
    #[inline]
    pub(crate) fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        if bytes >= EXABYTE {
            return Err(AllocError::MoreThanAnExabyte { label: self.backend.kind().label() });
        }
        let due = match P::DRAIN {
            Drain::EveryRequest => self.pending.any(),
            Drain::OnMissAndEvery(n) => self.pending.any_at_every(n),
        };
        if due {
            self.drain()?;
        }
        let (arena, mut state) = match self.enter(stream) {
            Some(entered) => entered,
            None => self.enter_slowly(stream)?,
        };
        let request = state.policy.request(bytes);
        match state.find(&request) {
            Some(block) => {
                let ptr = state.hand_out(&self.map, block, &request);
                self.leave(state);
                Ok(ptr)
            }
            None => {
                drop(state);
                self.climb(arena, &request)
            }
        }
    }

    /// Takes back the block at `ptr`, which the address map says is at `location`. `false` where that is
    /// not, or no longer, a block in the program's hands.
    #[inline]
    pub(crate) fn free(&self, ptr: DevicePtr, location: Location) -> bool {
        let Some(arena) = self.arenas.get(location.arena) else { return false };
        let mut state = arena.lock();
        let Some(block) = state.handed_out(ptr, location.block) else { return false };
        match state.free(&self.map, block) {
            FreeStep::Done => self.leave(state),
            FreeStep::Wait(users) => {
                let _named = self.naming.begin();
                self.leave(state);
                let waiting = Waiting { arena: location.arena, block };
                for user in users {
                    self.pending.wait_for(&*self.backend, user, waiting);
                }
            }
        }
        true
    }

    /// Notes that `stream` uses the block at `ptr`. `Ok(false)` where that is no block.
    pub(crate) fn record_stream(&self, ptr: DevicePtr, location: Location, stream: Stream) -> Result<bool> {
        let Some(arena) = self.arenas.get(location.arena) else { return Ok(false) };
        let mut state = arena.lock();
        let Some(block) = state.handed_out(ptr, location.block) else { return Ok(false) };
        if state.serves(stream) && stream.device == self.device {
            return Ok(true);
        }
        let Some(is_new) = state.record_use(block, stream) else {
            return Err(AllocError::Limit("a block can be used by at most 65535 streams besides its own"));
        };
        drop(state);
        if is_new {
            self.pending.prepare(&*self.backend, stream.device);
        }
        Ok(true)
    }

    /// Notes `text` about the block at `ptr` in the history. `false` where that is no block.
    pub(crate) fn annotate(&self, ptr: DevicePtr, location: Location, text: &str) -> bool {
        let Some(arena) = self.arenas.get(location.arena) else { return false };
        let mut state = arena.lock();
        let Some(block) = state.handed_out(ptr, location.block) else { return false };
        let (addr, requested) = (state.blocks[block].addr, state.blocks[block].requested);
        state.history.annotate(addr, requested, text);
        true
    }

    /// Unlocks an arena; settles the peaks before the call returns if it crossed a ceiling.
    #[inline]
    fn leave(&self, state: Guard<'_, ArenaState<P>>) {
        let crossed = state.counters.crossed();
        drop(state);
        if crossed {
            self.settle_peaks();
        }
        #[cfg(feature = "paranoid")]
        self.check_invariants();
    }

    #[cold]
    fn settle_peaks(&self) {
        self.with_all(|_, _| ());
    }

    /// Runs `work` with the peaks and every arena locked, and the peaks settled: what another thread has
    /// just done is seen with its peak.
    fn with_all<R>(&self, work: impl FnOnce(&mut Peaks, &mut [Guard<'_, ArenaState<P>>]) -> R) -> R {
        let mut peaks = self.peaks.lock();
        // Listed under the lock: an arena whose first request has returned has settled, so it is there.
        let all = self.arenas.all();
        let mut arenas: Vec<_> = all.iter().map(|arena| arena.lock()).collect();
        if arenas.iter().any(|a| a.counters.crossed()) {
            let mut counters: Vec<&mut Counters> = arenas.iter_mut().map(|a| &mut a.counters).collect();
            peaks.settle(&mut counters);
        }
        work(&mut peaks, &mut arenas)
    }

    /// Returns blocks whose events are complete. Does not block.
    #[cold]
    fn drain(&self) -> Result<()> {
        let _blocks = self.transit.begin();
        Ok(self.pending.drain(&*self.backend, |waiting| self.event_done(waiting))?)
    }

    /// Waits for all pending frees. Blocks.
    fn synchronise_pending(&self) -> Result<()> {
        self.state.lock().counters.sync_all_streams += 1;
        let _blocks = self.transit.begin();
        Ok(self.pending.synchronise(&*self.backend, &self.naming, |waiting| self.event_done(waiting))?)
    }

    fn event_done(&self, waiting: Waiting) {
        if let Some(arena) = self.arenas.get(waiting.arena) {
            let mut state = arena.lock();
            state.event_done(waiting.block);
            self.leave(state);
        }
    }

    /// See [`CachingAllocator::empty_cache`](crate::allocator::CachingAllocator::empty_cache).
    pub(crate) fn empty_cache(&self) -> Result<()> {
        self.release_all()
    }

    /// See [`CachingAllocator::set_memory_fraction`](crate::allocator::CachingAllocator::set_memory_fraction).
    pub(crate) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::InvalidFraction { fraction });
        }
        let _alone = self.configuring.lock();
        let allowed = fraction_of(self.total_memory, fraction);
        self.state.lock().allowed = allowed;
        self.refresh_ages(allowed);
        Ok(())
    }

    /// The share of the device's memory that may be held; 1 when unlimited.
    pub(crate) fn memory_fraction(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        self.state.lock().allowed.map_or(1.0, |allowed| allowed as f64 / self.total_memory as f64)
    }

    /// Replaces the settings. What is handed out or cached stays as it is.
    pub(crate) fn configure(&self, settings: &Settings) {
        let _alone = self.configuring.lock();
        let policy = P::new(settings, self.virtual_memory);
        let allowed = {
            let mut state = self.state.lock();
            state.settings = settings.clone();
            state.allowed
        };
        self.arenas.with_template(|template| template.policy = policy.clone());
        for arena in self.arenas.all() {
            arena.lock().policy = policy.clone();
        }
        self.refresh_ages(allowed);
    }

    /// Ages are counted only while garbage collection can happen.
    fn refresh_ages(&self, allowed: Option<u64>) {
        let ages = self.arenas.with_template(|template| {
            template.ages = template.policy.garbage_threshold(allowed).is_some();
            template.ages
        });
        for arena in self.arenas.all() {
            arena.lock().ages = ages;
        }
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

    /// Turns history on or off; see
    /// [`CachingAllocator::record_history`](crate::allocator::CachingAllocator::record_history).
    pub(crate) fn record_history(&self, options: HistoryOptions) {
        let handed_out =
            self.with_all(|_, arenas| arenas.iter().map(|a| a.counters.handed_out_in_all()).sum::<u64>());
        let stamps = {
            let mut state = self.state.lock();
            let kept = state.recording.take().filter(|r| r.options.deterministic == options.deterministic);
            let recording = kept.unwrap_or_else(|| Recording {
                options,
                stamps: Arc::new(Stamps::new(options.deterministic)),
                missed: handed_out,
            });
            let stamps = Arc::clone(&recording.stamps);
            state.history.configure(options.max_entries, &stamps);
            state.recording = (options.max_entries > 0).then_some(Recording { options, ..recording });
            stamps
        };
        self.arenas.with_template(|template| {
            template.history = options.max_entries;
            template.stamps = Arc::clone(&stamps);
        });
        for arena in self.arenas.all() {
            arena.lock().history.configure(options.max_entries, &stamps);
        }
    }

    pub(crate) fn add_free_memory_callback(&self, callback: FreeMemoryCallback) {
        self.callbacks.lock().push(Arc::new(callback));
    }

    pub(crate) fn add_out_of_memory_observer(&self, observer: OutOfMemoryObserver) {
        self.observers.lock().push(Arc::new(observer));
    }

    fn arena_states(&self) -> Vec<&Arc<Arena<P>>> {
        self.arenas.all()
    }

    /// The pool this allocator's arenas belong to.
    const POOL: PoolId = PoolId::DEFAULT;
}

/// The bytes that `fraction` of `total` allows; `None` where that is all of it.
fn fraction_of(total: u64, fraction: f64) -> Option<u64> {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let allowed = (total as f64 * fraction).round() as u64;
    (fraction < 1.0).then_some(allowed)
}

impl<P: Policy> std::fmt::Debug for DeviceAllocator<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAllocator")
            .field("backend", &self.backend.name())
            .field("device", &self.device)
            .field("policy", &P::NAME)
            .field("arenas", &self.arenas.all().len())
            .finish_non_exhaustive()
    }
}

impl<P: Policy> Drop for DeviceAllocator<P> {
    /// Gives everything back to the device that is not in the program's hands.
    fn drop(&mut self) {
        if let Err(error) = self.release_all() {
            tracing::warn!(%error, device = %self.device, "cached memory could not be given back");
        }
        self.pending.destroy_events(&*self.backend);
    }
}
