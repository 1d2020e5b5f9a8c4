//! A device's arenas: found by number or by stream, without a lock once they are there.

use crate::arena::{ArenaId, ArenaState};
use crate::error::{AllocError, Result};
use crate::history::Stamps;
use crate::policy::Policy;
use crate::sync::{Arc, AtomicU64, Guard, Mutex, OnceLock, Ordering, Rank};
use crate::types::{DeviceIndex, Stream};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// One arena.
pub(crate) type Arena<P> = Mutex<ArenaState<P>>;

const CHUNK: usize = 256;
const CHUNKS: usize = 256;
/// Places in the stream table; a power of two.
const STREAM_TABLE: usize = 1024;
/// How many neighbouring places are looked at before the locked table is asked.
const PROBES: usize = 8;

/// Arrays, not slices: their lengths are known, so that looking one up needs no bounds check.
type Chunk<P> = Box<[OnceLock<Arc<Arena<P>>>; CHUNK]>;

/// A place of the stream table: empty (0), left ([`LEFT`]), or the upper bits of a handle's hash, [`TAKEN`], and
/// the number of an arena.
type StreamPlace = AtomicU64;

/// An arena's number.
const NUMBER: u64 = 0xffff;
/// Set in a place that holds an arena.
const TAKEN: u64 = 0x1_0000;
/// A place whose stream was retired: the search goes on behind it.
const LEFT: u64 = 1;

/// What a new arena starts with; changed together with all existing arenas.
#[derive(Debug)]
pub(crate) struct Template<P> {
    pub(crate) policy: P,
    pub(crate) ages: bool,
    pub(crate) history: usize,
    pub(crate) stamps: Arc<Stamps>,
}

#[derive(Debug)]
struct Registry<P> {
    template: Template<P>,
    count: usize,
    by_stream: FxHashMap<u64, u16>,
    /// Arenas whose stream is retired, in that order.
    retired: VecDeque<u16>,
}

/// All arenas of the default pool.
#[derive(Debug)]
pub(crate) struct Directory<P: Policy> {
    device: DeviceIndex,
    chunks: Box<[OnceLock<Chunk<P>>; CHUNKS]>,
    /// Open addressing by stream handle, changed under the registry's lock. It only points at a likely arena: whoever
    /// has locked that asks it whether it serves the stream.
    streams: Box<[StreamPlace; STREAM_TABLE]>,
    registry: Mutex<Registry<P>>,
    searches: Arc<[AtomicU64; 2]>,
}

impl<P: Policy> Directory<P> {
    pub(crate) fn new(device: DeviceIndex, template: Template<P>) -> Self {
        let registry =
            Registry { template, count: 0, by_stream: FxHashMap::default(), retired: VecDeque::new() };
        Self {
            device,
            chunks: Box::new(std::array::from_fn(|_| OnceLock::new())),
            streams: Box::new(std::array::from_fn(|_| StreamPlace::new(0))),
            registry: Mutex::new(Rank::Registry, registry),
            searches: Arc::default(),
        }
    }

    /// The arena with a number, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, number: u16) -> Option<&Arc<Arena<P>>> {
        self.chunks[number as usize / CHUNK].get()?[number as usize % CHUNK].get()
    }

    /// The arena that a stream most likely has, without a lock.
    #[inline(always)]
    pub(crate) fn hint(&self, stream: Stream) -> Option<&Arc<Arena<P>>> {
        let hash = hash(stream.raw);
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

    /// The arena of a stream, if it has one.
    pub(crate) fn of_stream(&self, stream: Stream) -> Option<&Arc<Arena<P>>> {
        let number = self.registry.lock().by_stream.get(&stream.raw).copied()?;
        self.get(number)
    }

    /// The arena whose stream has been retired for longest.
    pub(crate) fn longest_retired(&self) -> Option<&Arc<Arena<P>>> {
        let number = self.registry.lock().retired.front().copied()?;
        self.get(number)
    }

    /// A new arena for a stream that has none.
    #[cold]
    pub(crate) fn make(&self, stream: Stream) -> Result<&Arc<Arena<P>>> {
        let mut registry = self.registry.lock();
        let number = u16::try_from(registry.count)
            .map_err(|_| AllocError::Limit("more than 65536 streams were used on one device"))?;
        let id = ArenaId { device: self.device, number, stream };
        let template = &registry.template;
        let mut state = ArenaState::new(id, template.policy.clone(), Arc::clone(&self.searches));
        state.ages = template.ages;
        state.history.configure(template.history, &template.stamps);
        let arena = Arc::new(Mutex::new(Rank::Arena(number), state));
        let chunk = self.chunks[number as usize / CHUNK]
            .get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
        let _ = chunk[number as usize % CHUNK].set(arena);
        registry.count += 1;
        self.bind(&mut registry, stream, number);
        drop(registry);
        self.get(number).ok_or(AllocError::Limit("an arena was registered and not found"))
    }

    /// Makes an arena findable by its stream.
    fn bind(&self, registry: &mut Registry<P>, stream: Stream, number: u16) {
        registry.by_stream.insert(stream.raw, number);
        let hash = hash(stream.raw);
        let vacant = places(hash).find(|place| self.streams[*place].load(Ordering::Relaxed) & TAKEN == 0);
        if let Some(place) = vacant {
            let value = hash & !NUMBER | TAKEN | u64::from(number);
            self.streams[place].store(value, Ordering::Release);
        }
    }

    /// A stream is retired: its arena, locked by the caller, is found by number only.
    pub(crate) fn retired(&self, stream: Stream, number: u16) {
        let mut registry = self.registry.lock();
        registry.by_stream.remove(&stream.raw);
        registry.retired.push_back(number);
        let hash = hash(stream.raw);
        let value = hash & !NUMBER | TAKEN | u64::from(number);
        if let Some(place) = places(hash).find(|place| self.streams[*place].load(Ordering::Relaxed) == value)
        {
            self.streams[place].store(LEFT, Ordering::Release);
        }
    }

    /// A retired arena, locked by the caller, serves `stream` from here on.
    pub(crate) fn adopted(&self, stream: Stream, number: u16) {
        let mut registry = self.registry.lock();
        registry.retired.retain(|retired| *retired != number);
        self.bind(&mut registry, stream, number);
    }

    /// All arenas, by number.
    pub(crate) fn all(&self) -> Vec<&Arc<Arena<P>>> {
        let count = self.registry.lock().count;
        (0..count).filter_map(|n| self.get(u16::try_from(n).ok()?)).collect()
    }

    /// Changes what new arenas start with; the caller changes the existing ones after.
    pub(crate) fn with_template<R>(&self, change: impl FnOnce(&mut Template<P>) -> R) -> R {
        change(&mut self.registry.lock().template)
    }

    /// Searches so far in a tier: the clock of block ages.
    pub(crate) fn searches(&self, tier: crate::block::Tier) -> u64 {
        self.searches[tier as usize].load(Ordering::Relaxed)
    }

    /// Panics where the registry and the arenas, all locked by the caller, contradict each other.
    pub(crate) fn check(&self, arenas: &[Guard<'_, ArenaState<P>>]) {
        let registry = self.registry.lock();
        for arena in arenas {
            let ArenaId { number, stream, .. } = arena.id;
            let serves = registry.by_stream.get(&stream.raw) == Some(&number);
            assert_eq!(serves, arena.retired.is_none(), "a stream has its arena until it is retired");
            assert_eq!(registry.retired.contains(&number), !serves, "retired arenas wait to be adopted");
        }
        assert_eq!(registry.by_stream.len() + registry.retired.len(), registry.count, "no arena is lost");
    }
}

/// Fibonacci hashing: handles are pointers or small numbers, both regular in their low bits. The upper bits tell
/// handles apart, those above the middle choose the place.
#[inline(always)]
fn hash(raw: u64) -> u64 {
    raw.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let first = (hash >> 32) as usize;
    (0..PROBES).map(move |n| (first + n) & (STREAM_TABLE - 1))
}
