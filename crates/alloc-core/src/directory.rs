//! A device's arenas: found by number or by stream, without a lock once they are there.

use crate::arena::{ArenaId, ArenaState};
use crate::error::{AllocError, Result};
use crate::history::Stamps;
use crate::policy::Policy;
use crate::sync::{Arc, AtomicU64, Mutex, OnceLock, Rank};
use crate::types::{DeviceIndex, Stream};
use rustc_hash::FxHashMap;

/// One arena.
pub(crate) type Arena<P> = Mutex<ArenaState<P>>;

const CHUNK: usize = 256;
const CHUNKS: usize = 256;
/// Places in the stream table; a power of two.
const STREAM_TABLE: usize = 1024;
/// How many neighbouring places are looked at before the locked table is asked.
const PROBES: usize = 8;

type Chunk<P> = Box<[OnceLock<Arc<Arena<P>>>]>;
/// A place of the stream table: the handle, and its arena.
type StreamPlace<P> = OnceLock<(u64, Arc<Arena<P>>)>;

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
}

/// All arenas of the default pool.
#[derive(Debug)]
pub(crate) struct Directory<P: Policy> {
    device: DeviceIndex,
    chunks: Box<[OnceLock<Chunk<P>>]>,
    /// Open addressing by stream handle; places are filled once and never emptied.
    streams: Box<[StreamPlace<P>]>,
    registry: Mutex<Registry<P>>,
    searches: Arc<[AtomicU64; 2]>,
}

impl<P: Policy> Directory<P> {
    pub(crate) fn new(device: DeviceIndex, template: Template<P>) -> Self {
        let registry = Registry { template, count: 0, by_stream: FxHashMap::default() };
        Self {
            device,
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            streams: (0..STREAM_TABLE).map(|_| OnceLock::new()).collect(),
            registry: Mutex::new(Rank::Registry, registry),
            searches: Arc::default(),
        }
    }

    /// The arena with a number, if there is one.
    #[inline]
    pub(crate) fn get(&self, number: u16) -> Option<&Arc<Arena<P>>> {
        self.chunks[number as usize / CHUNK].get()?[number as usize % CHUNK].get()
    }

    /// The arena of a stream, made on first use.
    #[inline]
    pub(crate) fn for_stream(&self, stream: Stream) -> Result<&Arc<Arena<P>>> {
        for place in Self::places(stream.raw) {
            match self.streams[place].get() {
                Some((raw, arena)) if *raw == stream.raw => return Ok(arena),
                Some(_) => {}
                None => break,
            }
        }
        self.make(stream)
    }

    fn places(raw: u64) -> impl Iterator<Item = usize> {
        // Fibonacci hashing: handles are pointers or small numbers, both regular in their low bits.
        let hash = (raw.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..PROBES).map(move |n| (hash + n) & (STREAM_TABLE - 1))
    }

    #[cold]
    fn make(&self, stream: Stream) -> Result<&Arc<Arena<P>>> {
        let mut registry = self.registry.lock();
        let number = match registry.by_stream.get(&stream.raw) {
            Some(number) => *number,
            None => {
                let number = u16::try_from(registry.count)
                    .map_err(|_| AllocError::Limit("more than 65536 streams were used on one device"))?;
                let id = ArenaId { device: self.device, number, stream };
                let template = &registry.template;
                let mut state = ArenaState::new(id, template.policy.clone(), Arc::clone(&self.searches));
                state.ages = template.ages;
                state.history.configure(template.history, &template.stamps);
                let arena = Arc::new(Mutex::new(Rank::Arena(number), state));
                let chunk = self.chunks[number as usize / CHUNK]
                    .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
                let _ = chunk[number as usize % CHUNK].set(Arc::clone(&arena));
                for place in Self::places(stream.raw) {
                    if self.streams[place].set((stream.raw, Arc::clone(&arena))).is_ok() {
                        break;
                    }
                }
                registry.count += 1;
                registry.by_stream.insert(stream.raw, number);
                number
            }
        };
        self.get(number).ok_or(AllocError::Limit("an arena was registered and not found"))
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
        self.searches[tier as usize].load(crate::sync::Ordering::Relaxed)
    }
}
