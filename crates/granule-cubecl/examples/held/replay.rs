//! A recorded program on CubeCL's memory management.

use crate::memory::{Memory, Pools};
use cubecl_environment::backtrace::BackTrace;
use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use granule::backend::{Backend, Result};
use granule::config::Settings;
use granule::files::trace::{Event, Trace};
use granule::labelled::{CachingAllocator, Device, Label};
use granule::openreg::{OpenReg, OpenRegConfig};
use granule::types::{DeviceIndex, GIB};
use granule_cubecl::Storage;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Bytes of the simulated device, as of the one that the programs were recorded on.
const CAPACITY: u64 = 80 * GIB;

/// The simulated accelerator, one device without bytes.
#[derive(Clone, Copy, Debug)]
struct Simulated;

impl Label for Simulated {
    fn backend() -> Result<Arc<dyn Backend>> {
        static STARTED: Mutex<Option<Arc<OpenReg>>> = Mutex::new(None);
        let mut started = STARTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(machine) = &*started {
            return Ok(machine.clone());
        }
        let machine = OpenReg::new(OpenRegConfig::default().devices(1).capacity(CAPACITY))?;
        Ok(started.insert(machine).clone())
    }
}

/// What a driver has given out, at the moment and at most: to all streams of a program.
#[derive(Clone, Debug, Default)]
struct Driver(Arc<Mutex<(u64, u64)>>);

/// CubeCL's own storage, as far as bytes are concerned: each page is one of the driver's.
struct Plain {
    driver: Driver,
    pages: HashMap<StorageId, u64>,
}

impl Plain {
    fn count(&self, change: impl Fn(u64) -> u64) -> u64 {
        let mut figures = self.driver.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        figures.0 = change(figures.0);
        figures.1 = figures.1.max(figures.0);
        figures.0
    }
}

impl ComputeStorage for Plain {
    type Resource = ();

    fn alignment(&self) -> usize {
        512
    }

    fn get(&mut self, _: &StorageHandle) -> std::result::Result<(), IoError> {
        Ok(())
    }

    fn alloc(&mut self, size: u64) -> std::result::Result<StorageHandle, IoError> {
        if self.count(|held| held) + size > CAPACITY {
            return Err(IoError::OutOfMemory { size, backtrace: BackTrace::capture() });
        }
        self.count(|held| held + size);
        let id = StorageId::new();
        self.pages.insert(id, size);
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        if let Some(size) = self.pages.remove(&id) {
            self.count(|held| held - size);
        }
    }

    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.pages.values().sum()
    }
}

/// The most bytes that a program held of the device, over a driver's own memory.
pub(crate) fn over_the_driver(trace: &Trace, pools: Pools) -> std::result::Result<u64, IoError> {
    let driver = Driver::default();
    run(trace, || Memory::over(Plain { driver: driver.clone(), pages: HashMap::new() }, pools, CAPACITY))?;
    let figures = driver.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(figures.1)
}

/// The same over Granule with these settings.
pub(crate) fn over_granule(trace: &Trace, pools: Pools, settings: &str) -> anyhow::Result<u64> {
    let device = Device::<Simulated>::new(0)?;
    let granule = CachingAllocator::new(Settings::parse(settings)?)?;
    run(trace, || {
        let stream = device.create_stream(0).expect("the simulated device makes streams");
        Memory::over(Storage::new(&granule, &stream), pools, CAPACITY)
    })?;
    let peak = granule.stats(DeviceIndex(0))?.reserved_bytes.all.peak;
    granule.empty_cache()?;
    Ok(u64::try_from(peak)?)
}

/// The most bytes that were live at a time, as requested.
pub(crate) fn live(trace: &Trace) -> u64 {
    let (mut sizes, mut now, mut peak) = (HashMap::new(), 0, 0);
    for event in &trace.events {
        match *event {
            Event::Alloc { id, size, .. } => {
                sizes.insert(id, size);
                now += size;
                peak = peak.max(now);
            }
            Event::Free { id } => now -= sizes.remove(&id).unwrap_or(0),
            Event::RecordStream { .. } | Event::EmptyCache | Event::Iteration { .. } => {}
        }
    }
    peak
}

/// Does what the program did: one memory management for each stream, as CubeCL has it. A use on another stream is over
/// at once: CubeCL keeps a handle until then.
fn run<S: ComputeStorage>(
    trace: &Trace,
    mut memory: impl FnMut() -> Memory<S>,
) -> std::result::Result<(), IoError> {
    let mut streams: HashMap<u32, Memory<S>> = HashMap::new();
    let mut buffers = HashMap::new();
    for event in &trace.events {
        match *event {
            Event::Alloc { id, size, stream } => {
                let memory = streams.entry(stream).or_insert_with(&mut memory);
                buffers.insert(id, memory.reserve(size)?);
            }
            Event::Free { id } => drop(buffers.remove(&id)),
            Event::EmptyCache => streams.values_mut().for_each(Memory::clean),
            Event::RecordStream { .. } | Event::Iteration { .. } => {}
        }
    }
    Ok(())
}
