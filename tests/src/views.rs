//! Programs that leave free memory in pieces, so that views show it; and a proof by contents that no memory is handed out
//! twice.

use crate::Allocator;
use crate::bytes::{Bytes, first_other};
use crate::made;
use crate::policy::{GranulePolicy, Policy};
use crate::rig::{DEVICE, Rig};
use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, BackendError, ErrorKind, EventFlags, Result, VirtualMemory};
use alloc_core::config::Settings;
use alloc_core::types::{DevicePtr, MIB, PhysicalHandle, Stream};
use backend_openreg::OpenReg;
use granule_conformance::interpose::{Hook, Interposed};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An allocator with the policy that has views.
///
/// # Panics
/// Where the settings are refused.
#[must_use]
pub fn allocator(rig: &Rig) -> Allocator {
    rig.with_policy::<GranulePolicy>(Settings::default())
}

/// The first growth, at which memory in two places is tried, is over; nothing is held, and driver calls are counted anew.
///
/// # Panics
/// Where the machine has not 6 MiB.
pub fn settle(device: &OpenReg, allocator: &CachingAllocator, stream: Stream) {
    let ptr = allocator.malloc(2 * MIB, stream).expect("there is room");
    allocator.free(ptr).expect("it is live");
    allocator.empty_cache().expect("the cache can be emptied");
    device.reset_calls();
}

/// What comes now is no load of what is kept, for which granules are larger.
///
/// # Panics
/// Where the machine has not 2 MiB.
pub fn is_no_load(allocator: &Allocator, stream: Stream) {
    for _ in 0..20 {
        let ptr = allocator.malloc(2 * MIB, stream).expect("there is room");
        allocator.free(ptr).expect("it is live");
    }
}

/// Leaves `count` free pieces of `mib` MiB between as many live blocks, which it returns. They are whole granules where `mib`
/// is a multiple of 4 and all of them have less than 128 MiB.
///
/// # Panics
/// Where the machine has not twice that.
pub fn pieces(allocator: &Allocator, stream: Stream, count: u64, mib: u64) -> Vec<DevicePtr> {
    is_no_load(allocator, stream);
    let blocks = (0..2 * count).map(|_| allocator.malloc(mib * MIB, stream).expect("there is room"));
    let (free, live): (Vec<_>, Vec<_>) = blocks.enumerate().partition(|(n, _)| n % 2 == 0);
    free.into_iter().for_each(|(_, ptr)| allocator.free(ptr).expect("it is live"));
    live.into_iter().map(|(_, ptr)| ptr).collect()
}

/// What a driver does with memory that it is to map a second time.
#[derive(Clone, Copy, Debug, Default)]
enum Second {
    #[default]
    Maps,
    Refuses,
    /// Shows other memory there, and lies about it.
    Swaps,
}

/// Looks for memory that is mapped a second time: counts that, refuses it as some drivers may, or lies as some do.
#[derive(Debug, Default)]
pub struct Aliases {
    second: Mutex<Second>,
    /// What was to be mapped, by address, and its bytes.
    mapped: Mutex<BTreeMap<u64, (PhysicalHandle, u64)>>,
    count: AtomicU64,
}

impl Aliases {
    /// A driver that maps nothing twice.
    #[must_use]
    pub fn refused() -> Self {
        Self { second: Mutex::new(Second::Refuses), ..Self::default() }
    }

    /// A driver that shows other memory in the second place: some that is in use, where it has as many bytes.
    #[must_use]
    pub fn swapped() -> Self {
        Self { second: Mutex::new(Second::Swaps), ..Self::default() }
    }

    /// From here on it maps nothing twice.
    pub fn refuse(&self) {
        *self.second() = Second::Refuses;
    }

    /// How often it happened, or was asked for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn second(&self) -> MutexGuard<'_, Second> {
        self.second.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, (PhysicalHandle, u64)>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Aliases {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        let all: Vec<_> = self.mapped().values().copied().collect();
        let mut shown = handle;
        if all.iter().any(|(known, _)| *known == handle) {
            self.count.fetch_add(1, Ordering::Relaxed);
            let other = all.iter().find(|(known, size)| *known != handle && *size == bytes);
            match (*self.second(), other) {
                (Second::Refuses, _) => {
                    let detail = "it is mapped already";
                    return Err(BackendError::new(ErrorKind::InvalidValue, 1, "map", DEVICE, detail));
                }
                (Second::Swaps, Some((other, _))) => shown = *other,
                _ => {}
            }
        }
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; what is shown instead is mapped and has this size.
        unsafe { inner.map(at, bytes, shown) }?;
        self.mapped().insert(at.0, (handle, bytes));
        Ok(())
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes) }?;
        self.mapped().retain(|known, _| !(at.0..at.0 + bytes).contains(known));
        Ok(())
    }
}

/// Small deterministic numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one under `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A block, and the byte that fills it.
#[derive(Clone, Copy, Debug)]
struct Filled {
    ptr: DevicePtr,
    bytes: u64,
    stream: usize,
    with: u8,
}

/// A program each of whose blocks is full of a byte of its own, written by the streams that use it.
struct Contents {
    backend: Arc<dyn Backend>,
    allocator: CachingAllocator,
    streams: Vec<Stream>,
    live: Vec<Filled>,
    numbers: Numbers,
    next: u8,
}

impl Contents {
    fn byte(&mut self) -> u8 {
        self.next = self.next % 251 + 1;
        self.next
    }

    fn allocate(&mut self) {
        let bytes = match self.numbers.below(4) {
            0 => 1 + self.numbers.below(MIB),
            1 | 2 => MIB + self.numbers.below(5 * MIB),
            _ => 4 * MIB + self.numbers.below(14 * MIB),
        };
        let stream = usize::from(self.numbers.below(5) == 0);
        match self.allocator.malloc(bytes, self.streams[stream]) {
            Ok(ptr) => {
                let with = self.byte();
                Bytes(&*self.backend).fill(self.streams[stream], ptr, with, bytes);
                self.live.push(Filled { ptr, bytes, stream, with });
            }
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
    }

    /// The other stream fills a block next; the allocator is told.
    fn use_elsewhere(&mut self, nth: usize) {
        let with = self.byte();
        let block = &mut self.live[nth];
        block.with = with;
        let (home, other) = (self.streams[block.stream], self.streams[1 - block.stream]);
        let event = self.backend.create_event(DEVICE, EventFlags::empty()).expect("an event can be made");
        self.backend.record_event(event, home).expect("it can be recorded");
        self.backend.wait_event(other, event).expect("it can be waited for");
        // SAFETY: rule 1: made above and not used again.
        unsafe { self.backend.destroy_event(event) }.expect("it can be destroyed");
        Bytes(&*self.backend).fill(other, block.ptr, with, block.bytes);
        self.allocator.record_stream(block.ptr, other).expect("the block is live");
    }

    fn check(&self, block: &Filled) {
        for stream in &self.streams {
            self.backend.synchronize_stream(*stream).expect("the stream can be waited for");
        }
        let found = Bytes(&*self.backend).read(block.ptr, block.bytes);
        let wrong = first_other(&found, block.with);
        assert_eq!(wrong, None, "somebody wrote into {block:?}");
    }

    fn step(&mut self) {
        let count = self.live.len() as u64;
        match self.numbers.below(16) {
            0..7 => self.allocate(),
            7..13 if count > 0 => {
                let nth = usize::try_from(self.numbers.below(count)).expect("few blocks");
                let block = self.live.swap_remove(nth);
                self.check(&block);
                self.allocator.free(block.ptr).expect("the block is live");
            }
            13 if count > 0 => {
                let nth = usize::try_from(self.numbers.below(count)).expect("few blocks");
                self.use_elsewhere(nth);
            }
            14 if self.numbers.below(6) == 0 => {
                self.allocator.empty_cache().expect("the cache can be emptied");
            }
            _ => {}
        }
        self.allocator.check_invariants();
    }
}

/// Random requests on the first device of a machine with real bytes and little memory; returns how often memory was
/// mapped a second time. Every block is written as a whole, by one stream or two, and read back as a whole when it is
/// freed.
///
/// # Panics
/// Where a block lost its contents, or an invariant is broken.
pub fn contents_survive<P: Policy>(
    backend: Arc<dyn Backend>,
    settings: Settings,
    seed: u64,
    steps: usize,
) -> u64 {
    contents_survive_over::<P>(backend, Aliases::default(), settings, (seed, steps))
}

/// The same on a machine with these aliases.
///
/// # Panics
/// As above.
pub fn contents_survive_over<P: Policy>(
    backend: Arc<dyn Backend>,
    aliases: Aliases,
    settings: Settings,
    (seed, steps): (u64, usize),
) -> u64 {
    let counted = Arc::new(Interposed::new(backend, aliases));
    let backend: Arc<dyn Backend> = counted.clone();
    let allocator = made::<P>(backend.clone(), settings).expect("the settings are valid");
    let streams = (0..2).map(|_| backend.create_stream(DEVICE, 0).expect("a stream can be made")).collect();
    let (live, numbers) = (Vec::new(), Numbers(seed));
    let mut program = Contents { backend, allocator, streams, live, numbers, next: 0 };
    for _ in 0..steps {
        program.step();
    }
    for block in std::mem::take(&mut program.live) {
        program.check(&block);
        program.allocator.free(block.ptr).expect("the block is live");
    }
    program.allocator.empty_cache().expect("the cache can be emptied");
    program.allocator.check_invariants();
    let Contents { backend, allocator, streams, .. } = program;
    drop(allocator);
    for stream in streams {
        // SAFETY: rule 1: made above, and nothing uses it any more.
        unsafe { backend.destroy_stream(stream) }.expect("a stream can be destroyed");
    }
    counted.hook().count()
}
