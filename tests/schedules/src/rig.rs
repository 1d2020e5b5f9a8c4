//! A machine, an allocator, and what the program holds of it: nothing overlaps, nothing comes back too early.

use alloc_core::CachingAllocator;
use alloc_core::backend::{self, Attribute, Backend, EventFlags};
use alloc_core::config::Settings;
use alloc_core::error::Result;
use alloc_core::host::{HostAllocator, HostOptions};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(crate) const DEVICE: DeviceIndex = DeviceIndex(0);

/// Memory in a thread's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) ptr: DevicePtr,
    bytes: u64,
}

impl Block {
    fn overlaps(self, other: Self) -> bool {
        self.ptr.0 < other.ptr.0 + other.bytes && other.ptr.0 < self.ptr.0 + self.bytes
    }
}

/// No thread is switched while its locks are held, so these need not be seen by the scheduler.
#[derive(Default)]
struct Held {
    blocks: Mutex<BTreeMap<u64, Block>>,
    /// Work of other streams on blocks, and the event behind it.
    uses: Mutex<Vec<(Block, Event)>>,
}

/// A machine whose device says that its memory is the host's.
#[derive(Debug)]
struct Integrated;

impl Hook for Integrated {
    fn attribute(
        &self,
        inner: &dyn Backend,
        device: DeviceIndex,
        attribute: Attribute,
    ) -> backend::Result<i64> {
        if attribute == Attribute::Integrated { Ok(1) } else { inner.attribute(device, attribute) }
    }
}

pub(crate) struct Rig {
    pub(crate) device: Arc<OpenReg>,
    /// The device, as the allocator knows it.
    backend: Arc<dyn Backend>,
    pub(crate) allocator: Arc<CachingAllocator>,
    held: Held,
}

impl Rig {
    pub(crate) fn new(machine: OpenRegConfig, settings: Settings) -> Self {
        // Work is done a few calls later than it is queued, as far as the program can tell.
        let config = machine.devices(1).clock(Clock::Virtual { lag: 4 });
        let device = OpenReg::new(config).unwrap();
        Self::over(device.clone(), device, settings)
    }

    /// On a device that shares the host's memory.
    pub(crate) fn integrated(machine: OpenRegConfig, settings: Settings) -> Self {
        let device = OpenReg::new(machine.devices(1).clock(Clock::Virtual { lag: 4 })).unwrap();
        Self::over(Arc::new(Interposed::new(device.clone(), Integrated)), device, settings)
    }

    fn over(backend: Arc<dyn Backend>, device: Arc<OpenReg>, settings: Settings) -> Self {
        let allocator = Arc::new(CachingAllocator::new(Arc::clone(&backend), settings).unwrap());
        Self { device, backend, allocator, held: Held::default() }
    }

    /// An allocator of pinned memory.
    pub(crate) fn pinning(&self, settings: &Settings) -> HostAllocator {
        HostAllocator::new(Arc::clone(&self.backend), settings, HostOptions::default()).unwrap()
    }

    pub(crate) fn home(&self) -> Stream {
        self.device.default_stream(DEVICE)
    }

    pub(crate) fn stream(&self) -> Stream {
        self.device.create_stream(DEVICE, 0).unwrap()
    }

    /// Asks for memory and uses it.
    pub(crate) fn try_take(&self, bytes: u64, stream: Stream) -> Result<Block> {
        let block = Block { ptr: self.allocator.malloc(bytes, stream)?, bytes };
        self.hold(block);
        self.device.use_memory(stream, block.ptr, bytes).unwrap();
        Ok(block)
    }

    /// [`try_take`](Self::try_take) where there is enough.
    pub(crate) fn take(&self, bytes: u64, stream: Stream) -> Block {
        self.try_take(bytes, stream).unwrap_or_else(|error| panic!("there is memory: {error}"))
    }

    /// A block is in the program's hands from here on.
    pub(crate) fn hold(&self, block: Block) {
        let mut blocks = self.held.blocks.lock().unwrap();
        let other = blocks.values().find(|other| other.overlaps(block));
        assert_eq!(other, None, "given out already: {block:?}");
        blocks.insert(block.ptr.0, block);
        let uses = self.held.uses.lock().unwrap();
        for (used, event) in uses.iter().filter(|(used, _)| used.overlaps(block)) {
            let ready = self.device.query_event(*event).unwrap().is_ready();
            assert!(ready, "{used:?} came back while another stream uses it");
        }
    }

    /// A block is in the program's hands no more.
    pub(crate) fn let_go(&self, block: Block) {
        assert_eq!(self.held.blocks.lock().unwrap().remove(&block.ptr.0), Some(block), "was held");
    }

    /// Work of another stream uses the block.
    pub(crate) fn use_on(&self, block: Block, stream: Stream) {
        self.allocator.record_stream(block.ptr, stream).unwrap();
        self.device.use_memory(stream, block.ptr, block.bytes).unwrap();
        let event = self.device.create_event(DEVICE, EventFlags::empty()).unwrap();
        self.device.record_event(event, stream).unwrap();
        self.held.uses.lock().unwrap().push((block, event));
    }

    pub(crate) fn give(&self, block: Block) {
        self.let_go(block);
        self.allocator.free(block.ptr).unwrap();
    }

    /// Takes and gives back.
    pub(crate) fn churn(&self, bytes: u64, stream: Stream) {
        self.give(self.take(bytes, stream));
    }

    /// Runs threads to their ends.
    pub(crate) fn together(&self, threads: &[&(dyn Fn() + Sync)]) {
        thread::scope(|scope| {
            for thread in threads {
                scope.spawn(thread);
            }
        });
    }

    /// Nothing is held: all memory goes back, and nobody's work was disturbed.
    pub(crate) fn end(&self) {
        assert!(self.held.blocks.lock().unwrap().is_empty(), "the scenario gives all back");
        self.allocator.check_invariants();
        self.allocator.empty_cache().unwrap();
        self.allocator.check_invariants();
        let stats = self.allocator.stats(DEVICE).unwrap();
        let figures = [&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes, &stats.active];
        assert_eq!(figures.map(|figure| figure.all.current), [0; 4], "all is accounted for");
        assert_eq!(self.device.used(DEVICE), 0, "all memory is given back");
        assert_eq!(self.device.traps(), Vec::new(), "no memory left while work used it");
    }
}
