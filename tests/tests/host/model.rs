//! Pinned host memory against a model that knows what is in use, and under many threads.

use alloc_core::backend::{Backend, CopyKind, EventFlags};
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostBlock, HostOptions, HostSizing};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, KIB, MIB, Stream};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};
use granule_tests::bytes::first_other;
use granule_tests::quiet::Retires;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Free(prop::sample::Index),
    Copy(prop::sample::Index, usize, bool),
    Work(u64),
    Empty,
    Settings(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![1u64..5000, 4000u64..70_000, 60_000u64..(2 << 20)];
    let threshold = || prop_oneof![Just(u64::MAX), Just(64 * KIB), Just(KIB)];
    let step = prop_oneof![
        6 => size.prop_map(Step::Allocate),
        5 => any::<prop::sample::Index>().prop_map(Step::Free),
        5 => (any::<prop::sample::Index>(), 0usize..3, any::<bool>()).prop_map(|(b, s, i)| Step::Copy(b, s, i)),
        3 => (1u64..30).prop_map(Step::Work),
        1 => Just(Step::Empty),
        1 => (threshold(), threshold()).prop_map(|(round, cache)| Step::Settings(round, cache)),
    ];
    prop::collection::vec(step, 1..150)
}

/// What the model knows of the world.
struct Model {
    machine: Arc<OpenReg>,
    streams: Vec<Stream>,
    device: [DevicePtr; 2],
    /// When the work that uses an address is done, by that address.
    uses: BTreeMap<DevicePtr, Vec<Event>>,
    live: Vec<HostBlock>,
}

impl Model {
    fn new(lag: u64) -> Self {
        let config = OpenRegConfig::default().devices(2).clock(Clock::Virtual { lag });
        let machine = OpenReg::new(config).unwrap();
        let devices = [DeviceIndex(0), DeviceIndex(1)];
        let streams = [0, 0, 1].map(|n| machine.create_stream(devices[n], 0).unwrap()).to_vec();
        let device = devices.map(|device| machine.malloc(device, 4 * MIB).unwrap());
        Self { machine, streams, device, uses: BTreeMap::new(), live: Vec::new() }
    }

    /// Nobody else has the block, and no device uses it.
    fn check_new(&mut self, block: HostBlock) {
        for other in &self.live {
            assert!(block.ptr.0 + block.size <= other.ptr.0 || other.ptr.0 + other.size <= block.ptr.0);
        }
        assert!(block.size >= block.bytes);
        let end = block.ptr.add(block.size);
        for (_, events) in self.uses.range(block.ptr..end) {
            let done = |event: &Event| self.machine.query_event(*event).unwrap().is_ready();
            assert!(events.iter().all(done), "work still uses it");
        }
        self.uses.retain(|ptr, _| !(block.ptr..end).contains(ptr));
        self.live.push(block);
    }
}

fn check(settings: Settings, sizing: HostSizing, lag: u64, steps: Vec<Step>) {
    let mut model = Model::new(lag);
    let options = HostOptions { sizing, ..HostOptions::default() };
    let host = HostAllocator::new(model.machine.clone(), &settings, options).unwrap();
    for step in steps {
        match step {
            Step::Allocate(bytes) => model.check_new(host.allocate(bytes).unwrap()),
            Step::Free(which) if !model.live.is_empty() => {
                let block = model.live.swap_remove(which.index(model.live.len()));
                host.free(block.id).unwrap();
            }
            Step::Copy(which, stream, inside) if !model.live.is_empty() => {
                let (block, stream) = (model.live[which.index(model.live.len())], model.streams[stream]);
                let at = if inside { block.ptr.add(block.bytes - 1) } else { block.ptr };
                let to = model.device[usize::from(stream.device.0)];
                // SAFETY: rule 2: the block waits for the copy, which is what this test is about.
                unsafe { host.copy_async(to, at, 1, CopyKind::HostToDevice, stream) }.unwrap();
                let event = model.machine.create_event(stream.device, EventFlags::empty()).unwrap();
                model.machine.record_event(event, stream).unwrap();
                model.uses.entry(at).or_default().push(event);
            }
            Step::Work(ticks) => model.machine.advance(ticks),
            Step::Empty => host.empty_cache().unwrap(),
            Step::Settings(max_round, max_cached) => host
                .configure(&Settings {
                    pinned_max_round_threshold: max_round,
                    pinned_max_cached_size: max_cached,
                    ..settings.clone()
                })
                .unwrap(),
            Step::Free(_) | Step::Copy(..) => {}
        }
        let stats = host.stats();
        let (mut requested, mut bytes) = (0, 0);
        model
            .live
            .iter()
            .for_each(|block| (requested, bytes) = (requested + block.bytes, bytes + block.size));
        assert_eq!(stats.active_bytes.current, bytes as i64 + stats.granule.pending_bytes);
        assert!(stats.granule.requested_bytes >= requested as i64);
        assert!(stats.allocated_bytes.current >= stats.active_bytes.current);
        assert!(stats.active_bytes.peak >= stats.granule.active_bytes.peak);
    }
    model.live.drain(..).for_each(|block| host.free(block.id).unwrap());
    host.synchronise().unwrap();
    host.empty_cache().unwrap();
    let stats = host.stats();
    assert_eq!((stats.active_requests.current, stats.allocated_bytes.current), (0, 0));
    assert_eq!((stats.granule.pending_bytes, stats.granule.requested_bytes), (0, 0));
    assert_eq!(stats.granule.reserve_free_bytes, stats.granule.reserve_bytes);
    assert!(stats.buckets.iter().all(|bucket| bucket.active_bytes.current == 0));
    drop(host);
    let calls = model.machine.calls();
    assert_eq!(calls.get(Call::HostMalloc), calls.get(Call::HostFree));
    assert_eq!(calls.get(Call::RegisterHost), calls.get(Call::UnregisterHost));
    assert_eq!(model.machine.traps(), Vec::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn n02_what_devices_copy_is_nobody_elses(
        steps in steps(),
        lag in 0u64..40,
        granule in any::<bool>(),
        register in any::<bool>(),
        reserve in prop_oneof![Just(0), Just(256 * KIB)],
    ) {
        let sizing = if granule { HostSizing::Granule } else { HostSizing::Pytorch };
        let settings = Settings {
            pinned_use_host_register: register,
            pinned_reserve_segment_size: reserve,
            ..Settings::default()
        };
        check(settings, sizing, lag, steps);
    }
}

/// Threads that take, stamp, share and give back at once, with and without a thread that watches.
#[test]
fn threads_get_memory_of_their_own() {
    for background in [false, true] {
        let machine = OpenReg::new(OpenRegConfig::default().devices(2).clock(Clock::Workers)).unwrap();
        let settings = Settings { pinned_use_background_threads: background, ..Settings::default() };
        let host = HostAllocator::new(machine.clone(), &settings, HostOptions::default()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0u8..6 {
                let (host, machine) = (&host, &machine);
                scope.spawn(move || {
                    let stream = machine.create_stream(DeviceIndex(u16::from(thread) % 2), 0).unwrap();
                    for round in 0..300u64 {
                        let block =
                            host.allocate(1 + (round * 997 + u64::from(thread) * 131) % (16 * KIB)).unwrap();
                        let at = std::ptr::with_exposed_provenance_mut::<u8>(block.ptr.0 as usize);
                        // SAFETY: the whole of a block that this thread has.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(at, block.bytes as usize) };
                        bytes.fill(thread);
                        if round % 3 == 0 {
                            assert!(host.record_event(block.ptr, block.id, stream).unwrap());
                        }
                        std::thread::yield_now();
                        assert!(first_other(bytes, thread).is_none(), "another thread wrote here");
                        host.free(block.id).unwrap();
                        if round % 97 == 0 {
                            host.empty_cache().unwrap();
                        }
                    }
                    machine.synchronize_stream(stream).unwrap();
                    host.retire(stream).unwrap();
                });
            }
        });
        host.synchronise().unwrap();
        let stats = host.stats();
        assert_eq!((stats.active_requests.current, stats.active_requests.allocated), (0, 1800));
        drop(host);
        let calls = machine.calls();
        assert_eq!(calls.get(Call::HostMalloc), calls.get(Call::HostFree), "background: {background}");
        assert_eq!(machine.traps(), Vec::new());
    }
}
