//! A device, and what tests do with its memory.

use granule::backend::CopyKind;
use granule::config::Settings;
use granule::labelled::{CachingAllocator, Device, Label, Stream};
use granule::types::{DeviceIndex, DevicePtr};
use granule_cubecl::Resource;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Bytes of the device.
pub(crate) const CAPACITY: u64 = 64 << 20;

/// Runs a test over the lookalike drivers, in a process of its own.
pub(crate) fn over_drivers(test: impl FnOnce()) {
    granule_tests::alone::over_lookalikes("devices=1,capacity=64MiB", test);
}

/// A device of 64 MiB, and an allocator for it.
pub(crate) struct Machine<L: Label> {
    pub(crate) device: Device<L>,
    pub(crate) granule: CachingAllocator<L>,
}

impl<L: Label> Machine<L> {
    pub(crate) fn start() -> Self {
        let settings = Settings::parse("expandable_segments:True").unwrap();
        Self { device: Device::new(0).unwrap(), granule: CachingAllocator::new(settings).unwrap() }
    }

    pub(crate) fn stream(&self) -> Stream<L> {
        self.device.create_stream(0).unwrap()
    }

    /// Bytes in use by storages.
    pub(crate) fn live_bytes(&self) -> i64 {
        self.granule.stats(DeviceIndex(0)).unwrap().allocated_bytes.all.current
    }

    /// Bytes that the allocator has of the device.
    pub(crate) fn reserved(&self) -> i64 {
        self.granule.stats(DeviceIndex(0)).unwrap().reserved_bytes.all.current
    }
}

/// Queues a write of all of `place` with the bytes, and waits.
pub(crate) fn write<L: Label>(stream: &Stream<L>, place: &Resource, bytes: &[u8]) {
    assert_eq!(bytes.len() as u64, place.bytes);
    copy(stream, DevicePtr(place.address), host(bytes), place.bytes, CopyKind::HostToDevice);
}

/// All bytes of `place`.
pub(crate) fn read<L: Label>(stream: &Stream<L>, place: &Resource) -> Vec<u8> {
    let bytes = vec![0xee; place.bytes as usize];
    copy(stream, host(&bytes), DevicePtr(place.address), place.bytes, CopyKind::DeviceToHost);
    bytes
}

fn host(bytes: &[u8]) -> DevicePtr {
    DevicePtr(bytes.as_ptr().expose_provenance() as u64)
}

fn copy<L: Label>(stream: &Stream<L>, to: DevicePtr, from: DevicePtr, bytes: u64, kind: CopyKind) {
    if bytes > 0 {
        // SAFETY: rule 2: a live buffer of that length, and host memory that stays until the stream was waited for.
        unsafe { L::backend().unwrap().copy_async(to, from, bytes, kind, stream.handle()).unwrap() };
        stream.synchronize().unwrap();
    }
}

/// Stops a stream until it is opened.
pub(crate) struct Gate(Sender<()>);

impl Gate {
    pub(crate) fn on<L: Label>(stream: &Stream<L>) -> Self {
        let (open, gate) = channel();
        // Opened by itself where a test waits for the stream in vain: what it then looks at is wrong.
        let wait = move || assert!(gate.recv_timeout(Duration::from_secs(10)).is_err(), "nothing is sent");
        stream.launch_host_function(Box::new(wait)).unwrap();
        Self(open)
    }

    pub(crate) fn open(self) {
        drop(self.0);
    }
}
