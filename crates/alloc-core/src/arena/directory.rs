//! Directory of a device's arenas: found by number, or by pool and stream, without a lock once they are there.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::arena::{ArenaPool, ArenaShared, ArenaState, Binding, Vacated};
use crate::base::steps::Counted;
use crate::config::PolicyName;
use crate::error::{AllocError, Result};
use crate::memory::address_map::AddressMap;
use crate::policy::Policy;
use crate::sync::{Arc, AtomicU64, Guard, Mutex, OnceLock, Ordering, Rank};
use crate::types::{DeviceIndex, Stream};
use crate::watch::history::HistoryTemplate;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};

pub(crate) use crate::arena::Arena;
pub(crate) use crate::base::ids::PoolSlot;

const CHUNK: usize = 256;
const CHUNKS: usize = 256;
/// Places in the stream table; a power of two.
const STREAM_TABLE: usize = if cfg!(any(loom, miri)) { 16 } else { 1024 };
/// Neighbouring places that are searched before the locked table.
const PROBES: usize = 8;

/// Arrays, not slices: their lengths are known, so that looking one up needs no bounds check.
type ArenaArray = Box<[OnceLock<Arc<Arena>>; CHUNK]>;

/// A place of the stream table: empty (0), left ([`LEFT`]), or the upper bits of a handle's hash, [`TAKEN`], and
/// the number of an arena.
type StreamPlace = AtomicU64;

/// An arena's number.
const NUMBER: u64 = 0xffff;
/// Set in a place that holds an arena.
const TAKEN: u64 = 0x1_0000;
/// A place whose stream was retired: the search goes on behind it.
const LEFT: u64 = 1;

/// Pool and stream that an arena serves.
type ArenaKey = (PoolSlot, u64);

fn key(slot: PoolSlot, stream: Stream) -> ArenaKey {
    (slot, stream.raw)
}

/// Configuration of a new arena; changed together with all existing arenas.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) policy: Arc<Policy>,
    pub(crate) ages: bool,
    pub(crate) history: HistoryTemplate,
}

#[derive(Debug)]
struct Registry {
    template: Template,
    count: usize,
    by_stream: FxHashMap<ArenaKey, u16>,
    /// The pools in which a stream has an arena, by its handle.
    pools_of: FxHashMap<u64, BTreeSet<PoolSlot>>,
    /// All arenas of each pool.
    by_pool: FxHashMap<PoolSlot, BTreeSet<u16>>,
    /// Arenas whose stream is retired, in that order.
    retired: FxHashMap<PoolSlot, VecDeque<u16>>,
    /// Arenas of pools that are gone, for new ones.
    vacant: Vec<u16>,
}

/// All arenas.
#[derive(Debug)]
pub(crate) struct Directory {
    device: DeviceIndex,
    policy: PolicyName,
    map: Arc<AddressMap>,
    /// Most devices have no more arenas than those of the first chunk.
    first: ArenaArray,
    /// All chunks but the first.
    further: Box<[OnceLock<ArenaArray>; CHUNKS]>,
    /// Open addressing by stream handle, changed under the registry's lock. It only points at a likely arena: lock
    /// that, then ask if it serves the stream.
    streams: Box<[StreamPlace; STREAM_TABLE]>,
    registry: Mutex<Registry>,
    shared: Arc<ArenaShared>,
}

fn new_chunk() -> ArenaArray {
    Box::new(std::array::from_fn(|_| OnceLock::new()))
}

impl Directory {
    pub(crate) fn new(device: DeviceIndex, map: Arc<AddressMap>, template: Template) -> Self {
        let policy = template.policy.name();
        let registry = Registry {
            template,
            count: 0,
            by_stream: FxHashMap::default(),
            pools_of: FxHashMap::default(),
            by_pool: FxHashMap::default(),
            retired: FxHashMap::default(),
            vacant: Vec::new(),
        };
        Self {
            device,
            policy,
            map,
            first: new_chunk(),
            further: Box::new(std::array::from_fn(|_| OnceLock::new())),
            streams: Box::new(std::array::from_fn(|_| StreamPlace::new(0))),
            registry: Mutex::new(Rank::Registry, registry),
            shared: Arc::default(),
        }
    }

    /// Policy by which all arenas decide.
    pub(crate) fn policy(&self) -> PolicyName {
        self.policy
    }

    /// The arena with a number, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, number: u16) -> Option<&Arc<Arena>> {
        let number = number as usize;
        if number < CHUNK {
            return self.first[number].get();
        }
        self.further[number / CHUNK].get()?[number % CHUNK].get()
    }

    /// The arena that a stream most likely has in a pool, without a lock.
    #[inline(always)]
    pub(crate) fn hint(&self, slot: PoolSlot, stream: Stream) -> Option<&Arc<Arena>> {
        let hash = hash(key(slot, stream));
        for place in places(hash) {
            let value = self.streams[place].load(Ordering::Acquire);
            if value | NUMBER == hash | TAKEN | NUMBER {
                return self.get((value & NUMBER) as u16);
            }
            if value == 0 {
                break;
            }
        }
        None
    }

    /// The arena of a stream in a pool, if it has one.
    pub(crate) fn of_stream(&self, slot: PoolSlot, stream: Stream) -> Option<&Arc<Arena>> {
        let number = self.registry.lock().by_stream.get(&key(slot, stream)).copied()?;
        self.get(number)
    }

    /// The arenas of a stream in all pools, by number.
    pub(crate) fn all_of_stream(&self, stream: Stream) -> Vec<(PoolSlot, &Arc<Arena>)> {
        let registry = self.registry.lock();
        let slots = registry.pools_of.get(&stream.raw).into_iter().flatten().counted();
        let number = |slot: &PoolSlot| Some((*registry.by_stream.get(&key(*slot, stream))?, *slot));
        let mut mine: Vec<(u16, PoolSlot)> = slots.filter_map(number).collect();
        drop(registry);
        mine.sort_unstable();
        mine.into_iter().filter_map(|(number, slot)| Some((slot, self.get(number)?))).collect()
    }

    /// Arenas of a pool whose streams are retired, one by one: the one retired for longest has place 0.
    pub(crate) fn retired_in_line(&self, slot: PoolSlot, place: usize) -> Option<&Arc<Arena>> {
        let registry = self.registry.lock();
        let number = *registry.retired.get(&slot)?.get(place)?;
        drop(registry);
        self.get(number)
    }

    /// Makes an arena for a stream that has none in this pool. One caller at a time, and none while arenas are
    /// recycled.
    #[cold]
    pub(crate) fn make(&self, pool: &ArenaPool, stream: Stream) -> Result<&Arc<Arena>> {
        let vacant = self.registry.lock().vacant.last().copied();
        if let Some(arena) = vacant.and_then(|number| self.get(number)) {
            let mut state = arena.lock();
            // It stops being vacant in the moment in which it is found: nobody sees it as neither. A later change of
            // the template finds it, and changes it, too, once it is unlocked.
            let policy = {
                let mut registry = self.registry.lock();
                registry.vacant.pop();
                self.register(&mut registry, pool.slot, stream, state.binding().number());
                registry.template.policy.clone()
            };
            state.serve_another(pool.clone(), stream, policy);
            return Ok(arena);
        }
        let mut registry = self.registry.lock();
        let number = u16::try_from(registry.count)
            .map_err(|_| AllocError::Limit("more than 65536 streams were used on one device"))?;
        let template = &registry.template;
        let binding = Binding::new(self.device, number, stream, pool.clone(), template.policy.clone());
        let owner = binding.owner();
        let mut state = ArenaState::new(binding, Arc::clone(&self.map), Arc::clone(&self.shared));
        state.heap_mut().count_ages(template.ages);
        state.ledger_mut().history_mut().configure(&template.history, owner, false);
        let arena = Arc::new(Arena::new(state));
        let chunk = match number as usize / CHUNK {
            0 => &self.first,
            further => self.further[further].get_or_init(new_chunk),
        };
        let _ = chunk[number as usize % CHUNK].set(arena);
        registry.count += 1;
        self.register(&mut registry, pool.slot, stream, number);
        drop(registry);
        self.get(number).ok_or(AllocError::Limit("an arena was registered and not found"))
    }

    /// Takes the arenas of a pool that is gone, if none of them holds anything; `None` where one does. Drop the remains
    /// without a lock: that may call the driver, or foreign code.
    pub(crate) fn recycle(&self, slot: PoolSlot) -> Option<Vec<Vacated>> {
        let mut mine = Vec::new();
        for arena in self.of_pool(slot) {
            let state = arena.lock();
            if !state.layout().blocks().is_empty() {
                return None;
            }
            mine.push(state);
        }
        let mut registry = self.registry.lock();
        for arena in &mine {
            let (number, stream) = (arena.binding().number(), arena.binding().stream());
            if arena.binding().retired().is_none() {
                self.unbind(&mut registry, slot, stream, number);
            }
            registry.vacant.push(number);
        }
        registry.retired.remove(&slot);
        registry.by_pool.remove(&slot);
        drop(registry);
        Some(mine.iter_mut().map(|arena| arena.end_binding()).collect())
    }

    /// Registers an arena that serves a pool from here on.
    fn register(&self, registry: &mut Registry, slot: PoolSlot, stream: Stream, number: u16) {
        registry.by_pool.entry(slot).or_default().insert(number);
        self.bind(registry, slot, stream, number);
    }

    /// Makes an arena findable by its pool and stream.
    fn bind(&self, registry: &mut Registry, slot: PoolSlot, stream: Stream, number: u16) {
        registry.by_stream.insert(key(slot, stream), number);
        registry.pools_of.entry(stream.raw).or_default().insert(slot);
        let hash = hash(key(slot, stream));
        let vacant = places(hash).find(|place| self.streams[*place].load(Ordering::Relaxed) & TAKEN == 0);
        if let Some(place) = vacant {
            let value = hash & !NUMBER | TAKEN | u64::from(number);
            self.streams[place].store(value, Ordering::Release);
        }
    }

    /// Notes a retired stream: its arena, locked by the caller, is found by number only.
    pub(crate) fn retired(&self, slot: PoolSlot, stream: Stream, number: u16) {
        let mut registry = self.registry.lock();
        registry.retired.entry(slot).or_default().push_back(number);
        self.unbind(&mut registry, slot, stream, number);
    }

    /// Makes an arena findable by number only.
    fn unbind(&self, registry: &mut Registry, slot: PoolSlot, stream: Stream, number: u16) {
        registry.by_stream.remove(&key(slot, stream));
        if let Entry::Occupied(mut slots) = registry.pools_of.entry(stream.raw) {
            slots.get_mut().remove(&slot);
            if slots.get().is_empty() {
                slots.remove();
            }
        }
        let hash = hash(key(slot, stream));
        let value = hash & !NUMBER | TAKEN | u64::from(number);
        if let Some(place) = places(hash).find(|place| self.streams[*place].load(Ordering::Relaxed) == value)
        {
            self.streams[place].store(LEFT, Ordering::Release);
        }
    }

    /// Notes that a retired arena, locked by the caller, serves `stream` from here on.
    pub(crate) fn adopted(&self, slot: PoolSlot, stream: Stream, number: u16) {
        let mut registry = self.registry.lock();
        if let Some(line) = registry.retired.get_mut(&slot) {
            // Mostly it is the first.
            let at = line.iter().counted().position(|retired| *retired == number);
            at.and_then(|at| line.remove(at));
        }
        self.bind(&mut registry, slot, stream, number);
    }

    /// All arenas, by number.
    pub(crate) fn all(&self) -> Vec<&Arc<Arena>> {
        let count = self.registry.lock().count;
        (0..count).counted().filter_map(|n| self.get(u16::try_from(n).ok()?)).collect()
    }

    /// Number of arenas.
    pub(crate) fn count(&self) -> usize {
        self.registry.lock().count
    }

    /// All arenas of a pool, by number. They serve other pools once this one is gone.
    pub(crate) fn of_pool(&self, slot: PoolSlot) -> Vec<&Arc<Arena>> {
        let registry = self.registry.lock();
        let mine = registry.by_pool.get(&slot).into_iter().flatten().counted();
        mine.filter_map(|number| self.get(*number)).collect()
    }

    /// Changes the configuration of new arenas; the caller changes the existing ones after.
    pub(crate) fn with_template<R>(&self, change: impl FnOnce(&mut Template) -> R) -> R {
        change(&mut self.registry.lock().template)
    }

    /// State that all arenas share.
    pub(crate) fn shared(&self) -> &ArenaShared {
        &self.shared
    }

    /// Panics where the registry and the arenas, all locked by the caller, contradict each other.
    pub(crate) fn check(&self, arenas: &[Guard<'_, ArenaState>]) {
        let registry = self.registry.lock();
        for arena in arenas {
            let binding = arena.binding();
            let (number, stream, slot) = (binding.number(), binding.stream(), binding.pool().slot);
            if registry.vacant.contains(&number) {
                assert!(arena.layout().blocks().is_empty(), "an arena that serves nobody holds nothing");
                continue;
            }
            let serves = registry.by_stream.get(&key(slot, stream)) == Some(&number);
            assert_eq!(
                serves,
                arena.binding().retired().is_none(),
                "a stream has its arena until it is retired"
            );
            let waits = registry.retired.get(&slot).is_some_and(|line| line.contains(&number));
            assert_eq!(waits, !serves, "retired arenas wait to be adopted");
            let of_pool = registry.by_pool.get(&slot).is_some_and(|mine| mine.contains(&number));
            assert!(of_pool, "a pool knows its arenas");
            let of_stream = registry.pools_of.get(&stream.raw).is_some_and(|slots| slots.contains(&slot));
            assert!(of_stream || !serves, "a stream's pools are known");
        }
        let retired: usize = registry.retired.values().map(VecDeque::len).sum();
        let known = registry.by_stream.len() + retired + registry.vacant.len();
        let of_pools: usize = registry.by_pool.values().map(BTreeSet::len).sum();
        assert_eq!(of_pools + registry.vacant.len(), registry.count, "and no other pool's");
        assert_eq!(known, registry.count, "no arena is lost");
    }
}

/// Fibonacci hashing: handles are pointers or small numbers, both regular in their low bits. The upper bits tell
/// handles apart; those above the middle choose the place.
#[inline(always)]
fn hash((slot, raw): ArenaKey) -> u64 {
    let of_pool = u64::from(slot.number()).wrapping_mul(0xd6e8_feb8_6659_fd93);
    raw.wrapping_add(of_pool).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let first = (hash >> 32) as usize;
    (0..PROBES).map(move |n| (first + n) & (STREAM_TABLE - 1))
}
