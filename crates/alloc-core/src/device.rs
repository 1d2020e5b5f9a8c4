//! The engine: one caching allocator for one device.
//!
//! A request takes the lock of its stream's arena, finds a free block, cuts it and returns (`device/serve.rs`). Only a
//! miss goes further: up the policy's ladder of remedies (`device/ladder.rs`), which takes memory from the device
//! (`device/grow.rs`) or gives some back (`device/release.rs`), without a lock over any driver call. What a stream
//! leaves behind when it ends goes to another (`device/retire.rs`). Private pools, captures and checkpoints each have
//! a file of their own.

mod accounts;
mod budgets;
mod capture;
mod checkpoint;
mod diagnose;
mod early;
mod elsewhere;
mod exact;
mod explain;
mod grow;
mod guarantees;
mod hand_over;
mod hardened;
mod ladder;
mod limits;
mod observe;
mod peers;
mod pools;
mod reclaim;
mod record;
mod release;
mod replace;
mod retire;
mod reuse;
mod scopes;
mod serve;
mod share;
mod sleep;
mod tenants;
mod wake;

pub use crate::watch::observers::{
    FreeMemoryCallback, OutOfMemoryObserver, ProcessMemorySource, RejectionObserver, SegmentChange,
    SegmentEvent, SegmentObserver,
};
pub use checkpoint::{CheckpointDelta, PoolCheckpoint};
pub use observe::GrowableSize;
pub(crate) use observe::Observation;
pub(crate) use release::Flush;
pub(crate) use scopes::ScopeId;
pub(crate) use sleep::Sleeper;

use crate::arena::ArenaState;
use crate::arena::directory::{Directory, PoolSlot, Template};
use crate::arena::pool::Pools;
use crate::backend::Backend;
use crate::base::steps::Counted;
use crate::config::Settings;
use crate::error::{AllocError, Result};
use crate::features::hardened::Quarantine;
use crate::features::share::exchange::Exchange;
use crate::features::uncached::Uncached;
use crate::lifetimes::call::Call;
use crate::lifetimes::pending::PendingFrees;
use crate::memory::address_map::AddressMap;
use crate::memory::backup::Spares;
use crate::memory::region::Regions;
use crate::policy::{Chosen, Maker, Supply};
use crate::process::attention::{Attention, Edge, Reason};
use crate::process::edges;
use crate::process::foreign::Foreign;
use crate::sync::{Arc, Claims, Guard, Mutex, OnceLock, Rank, ThreadId, Transit, Turns};
use crate::types::{DeviceIndex, Stream};
use crate::watch::counters::{Counters, Peaks};
use crate::watch::history::{HistoryOptions, HistoryTemplate, Outbox, Recorder};
use crate::watch::observers::Observers;
use crate::watch::stats::{Stat, StatArray};
use accounts::Accounts;
use budgets::Budgets;
use capture::Captures;
use record::{Gathering, Recording};
use rustc_hash::FxHashMap;
use scopes::{Events, Scopes};
use smallvec::SmallVec;

/// What is counted under the device's lock.
#[derive(Debug, Default)]
struct DeviceCounters {
    segment: StatArray,
    oversize_segments: Stat,
    alloc_retries: i64,
    ooms: i64,
    sync_all_streams: i64,
    device_alloc: i64,
    device_free: i64,
    oom_rejections: i64,
    granules_moved: i64,
    /// What these had come to when they were reset.
    at_reset: Events,
}

/// The state under the device's lock.
#[derive(Debug)]
struct DeviceState {
    settings: Settings,
    /// What is held, by pool, and what may be.
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
    /// How history is recorded; `None` while it is off.
    recording: Option<Recording>,
}

impl DeviceState {
    fn new(settings: &Settings, accounts: Accounts) -> Self {
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
        }
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
pub struct DeviceAllocator {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    map: Arc<AddressMap>,
    foreign: Arc<Foreign>,
    total_memory: u64,
    virtual_memory: bool,
    attention: &'static Attention,
    arenas: Directory,
    pools: Mutex<Pools>,
    captures: Mutex<Captures>,
    state: Mutex<DeviceState>,
    peaks: Mutex<Peaks>,
    scopes: Mutex<Scopes>,
    pending: PendingFrees,
    /// Memory in the hands of threads, which is in no index; see `device/ladder.rs`.
    transit: Transit<ThreadId>,
    /// Who takes memory for an arena; see `device/ladder.rs`.
    growing: Turns,
    /// Driver calls under way that name a stream; see `device/retire.rs`.
    naming: Transit<Stream>,
    /// Pools that are being put to sleep or woken.
    sleeping: Claims<PoolSlot>,
    /// Host memory kept for the next sleep.
    spares: Mutex<Spares>,
    /// Held while a stream gets its arena.
    tenures: Mutex<()>,
    last_resort: Mutex<()>,
    /// Held while leftovers are tried again.
    retrying: Mutex<()>,
    /// One change of settings at a time.
    configuring: Mutex<()>,
    /// Held while the memory is opened to another device.
    opening_to_peers: Mutex<()>,
    observers: Observers,
    gathering: Mutex<Gathering>,
    budgets: Budgets,
    uncached: Uncached,
    exchange: Exchange,
    quarantine: Mutex<Quarantine>,
    /// The unit of its virtual memory, once the hardened mode or the policy has asked for it.
    minimum_granule: OnceLock<u64>,
    /// How its policy gets memory for a miss.
    supply: Supply,
    outbox: Arc<Outbox>,
}

impl DeviceAllocator {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        device: DeviceIndex,
        map: Arc<AddressMap>,
        foreign: Arc<Foreign>,
        settings: &Settings,
        maker: &Maker,
    ) -> Result<Self> {
        let total_memory = backend.properties(device)?.total_memory;
        let absent = backend.virtual_memory().err();
        if let Some(reason) = absent.as_ref().filter(|_| settings.expandable_segments) {
            tracing::warn!(%reason, "expandable_segments is on and has no effect on this device");
        }
        let virtual_memory = absent.is_none();
        let policy = maker.make(settings, virtual_memory);
        let supply = policy.supply();
        let accounts = Accounts::new(total_memory, settings);
        let ages = policy.garbage_threshold(accounts.allowed()).is_some();
        let template = Template { policy, ages, history: HistoryTemplate::default() };
        let attention = edges::lend(backend.id());
        let observers = Observers::new(device, Arc::clone(&foreign));
        let uncached = Uncached::new(Arc::clone(&backend), device, attention);
        let exchange = Exchange::new(Arc::clone(&backend), device, attention);
        let state = DeviceState::new(settings, accounts);
        let arenas = Directory::new(device, Arc::clone(&map), template);
        let allocator = Self {
            backend,
            device,
            map,
            foreign,
            total_memory,
            virtual_memory,
            attention,
            arenas,
            pools: Mutex::new(Rank::Registry, Pools::default()),
            captures: Mutex::new(Rank::Pending, Captures::default()),
            state: Mutex::new(Rank::Device, state),
            peaks: Mutex::new(Rank::Peaks, Peaks::default()),
            scopes: Mutex::new(Rank::Registry, Scopes::default()),
            pending: PendingFrees::new(attention),
            transit: Transit::default(),
            growing: Turns::default(),
            naming: Transit::default(),
            sleeping: Claims::default(),
            spares: Mutex::new(Rank::Registry, Spares::default()),
            tenures: Mutex::new(Rank::Synchronisation, ()),
            last_resort: Mutex::new(Rank::LastResort, ()),
            retrying: Mutex::new(Rank::Synchronisation, ()),
            configuring: Mutex::new(Rank::LastResort, ()),
            opening_to_peers: Mutex::new(Rank::LastResort, ()),
            observers,
            gathering: Mutex::new(Rank::Registry, Gathering::default()),
            budgets: Budgets::default(),
            uncached,
            exchange,
            quarantine: Mutex::new(Rank::Registry, Quarantine::default()),
            minimum_granule: OnceLock::new(),
            supply,
            outbox: Arc::default(),
        };
        allocator.uncached.turn(!settings.caching);
        allocator.configure_hardened(settings);
        Ok(allocator)
    }

    /// An arena has crossed a ceiling.
    #[cold]
    fn settle_peaks(&self, number: u16) {
        let mut peaks = self.peaks.lock();
        if self.raise_ceilings(&mut peaks, number) {
            return;
        }
        let granted = peaks.take_granted().into_iter();
        for other in granted.filter(|other| *other != number).counted() {
            if let Some(arena) = self.arenas.get(other) {
                peaks.reclaim(&mut arena.lock_shortly().counters);
            }
        }
        if self.raise_ceilings(&mut peaks, number) {
            return;
        }
        peaks.note_granted(number);
        drop(peaks);
        self.with_all(|_, _| ());
    }

    /// Whether the peaks' reserve has what an arena lacks, or that lacks nothing any more.
    fn raise_ceilings(&self, peaks: &mut Peaks, number: u16) -> bool {
        let Some(arena) = self.arenas.get(number).filter(|_| peaks.has_reserve()) else { return false };
        let mut state = arena.lock_shortly();
        let has_enough = !state.counters.crossed() || peaks.grant(&mut state.counters);
        if has_enough {
            peaks.note_granted(number);
        }
        has_enough
    }

    /// Runs `work` with the peaks and every arena locked, and the peaks settled: what another thread has
    /// just done is seen with its peak.
    fn with_all<R>(&self, work: impl FnOnce(&mut Peaks, &mut [Guard<'_, ArenaState>]) -> R) -> R {
        let mut peaks = self.peaks.lock();
        // Listed under the lock: an arena whose first request has returned has settled, so it is there.
        let all = self.arenas.all();
        let mut arenas: SmallVec<[_; 4]> = all.iter().map(|arena| arena.lock()).collect();
        if arenas.iter().any(|a| a.counters.crossed()) {
            let mut counters: SmallVec<[&mut Counters; 4]> =
                arenas.iter_mut().map(|a| &mut a.counters).collect();
            peaks.settle(&mut counters);
        }
        work(&mut peaks, &mut arenas)
    }

    /// What decides under `settings`.
    pub(crate) fn policy(&self, settings: &Settings, maker: &Maker) -> Chosen {
        maker.make(settings, self.virtual_memory)
    }

    /// Replaces the settings. What is handed out or cached stays as it is.
    pub(crate) fn configure(&self, settings: &Settings, policy: &Chosen) {
        let _alone = self.configuring.lock();
        let allowed = {
            let mut state = self.state.lock();
            state.settings = settings.clone();
            state.accounts.configure(self.total_memory, settings);
            state.accounts.allowed()
        };
        self.arenas.with_template(|template| template.policy = policy.clone());
        for arena in self.arenas.all() {
            arena.lock().set_policy(policy.clone());
        }
        self.refresh_ages(allowed);
        self.configure_hardened(settings);
    }

    /// Gives up what new settings do not keep. Runs observers, which may change settings themselves.
    pub(crate) fn follow_settings(&self) {
        self.reduce_quarantine(&Call::PLAIN);
        self.tell_trackers();
        self.tell_crossings();
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

    /// What came straight from the driver.
    pub(crate) fn uncached(&self) -> &Uncached {
        &self.uncached
    }

    /// Whom it tells and asks.
    pub(crate) fn observers(&self) -> &Observers {
        &self.observers
    }

    /// Why the driver may not be called any more, if that is so.
    pub(crate) fn edge(&self) -> Option<Edge> {
        self.attention.edge()
    }

    /// The driver is never called again.
    pub(crate) fn abandon(&self) {
        self.attention.set(Reason::DRIVER_GONE, true);
    }

    /// Ends without a word to the driver: what is held is lost to it, and no destructor runs.
    pub(crate) fn leak(self) {
        if self.edge() != Some(Edge::Forked) {
            edges::take_back(self.attention);
        }
        std::mem::forget(self);
    }

    /// Looks at what an operation that called the driver came to: was it that the driver is unloading?
    pub(crate) fn noticing<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(AllocError::Backend(error)) = &outcome {
            edges::notice(self.attention, &*self.backend, error);
        }
        outcome
    }
}

impl std::fmt::Debug for DeviceAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAllocator")
            .field("backend", &self.backend.name())
            .field("device", &self.device)
            .field("policy", &self.arenas.traits().name)
            .finish_non_exhaustive()
    }
}

impl Drop for DeviceAllocator {
    /// Gives everything back to the device that is not in the program's hands.
    fn drop(&mut self) {
        let scopes = self.pools.lock().abandon_all();
        self.foreign.end(Arc::unwrap_or_clone(scopes));
        self.record_history(&HistoryOptions::default());
        if let Err(error) = self.noticing(self.release_everything()) {
            tracing::warn!(%error, device = %self.device, "cached memory could not be given back");
        }
        self.exchange.imports().orphan();
        edges::take_back(self.attention);
    }
}
