//! Devices that reach each other's memory: what is mapped for whom, and which copy is taken.

use alloc_core::AllocError;
use alloc_core::backend::{Access, BackendError, ErrorKind, HostFlags, PinnedHost};
use alloc_core::config::Settings;
use alloc_core::device::SegmentChange;
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, PoolId};
use backend_openreg::{Call, Clock, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{both, free_all, growable};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

const OTHER: DeviceIndex = DeviceIndex(1);

fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(GIB).memory(MemoryMode::Mapped)
}

fn access(rig: &Rig, ptr: DevicePtr, device: DeviceIndex) -> Access {
    rig.backend.virtual_memory().unwrap().access(ptr, device).unwrap()
}

/// Copies 1 MiB from a block of the first device to one of the second on a stream of `on`; returns how many plain and peer
/// copies the driver was asked for.
fn copied(rig: &Rig, allocator: &Allocator, on: DeviceIndex) -> (u64, u64) {
    let [from, to] = [DEVICE, OTHER].map(|device| {
        let stream = rig.backend.default_stream(device);
        (device, allocator.malloc(30 * MIB, stream).unwrap())
    });
    let bytes = Bytes(&*rig.backend);
    bytes.write(from.1, &pattern(5, MIB));
    bytes.write(to.1, &pattern(6, MIB));
    let count = || [Call::CopyAsync, Call::CopyPeerAsync].map(|call| rig.device.calls().get(call));
    let before = count();
    let stream = rig.backend.default_stream(on);
    // SAFETY: two live blocks, freed after the wait.
    unsafe { allocator.peers().copy_async(to, from, MIB, stream) }.unwrap();
    rig.backend.synchronize_stream(stream).unwrap();
    let after = count();
    assert!(bytes.read(to.1, MIB) == pattern(5, MIB), "{}: the contents arrived", rig.name);
    allocator.free(from.1).unwrap();
    allocator.free(to.1).unwrap();
    (after[0] - before[0], after[1] - before[1])
}

#[test]
fn a15_copies_take_the_way_that_works() {
    // Only this one: fixed segments are reached without being mapped.
    type P = PytorchPolicy;
    on_each(&machine(), |rig| {
        let fixed = rig.with_policy::<P>(Settings::default());
        assert_eq!(copied(rig, &fixed, DEVICE), (1, 0), "plain between what the driver's malloc gave");
        let growing = rig.with_policy::<P>(growable());
        assert_eq!(copied(rig, &growing, DEVICE), (0, 1), "the driver's peer copy for mapped memory");
        growing.peers().enable(DEVICE, OTHER).unwrap();
        assert_eq!(copied(rig, &growing, DEVICE), (1, 0), "plain once the stream's device reaches both");
        assert_eq!(copied(rig, &growing, OTHER), (0, 1), "which is not so the other way round");
        assert!(growing.peers().is_enabled(DEVICE, OTHER).unwrap());
        assert!(!growing.peers().is_enabled(OTHER, DEVICE).unwrap());
        drop(fixed);
        growing.empty_cache().unwrap();
    });
    let apart = machine().without_peer(DEVICE, OTHER).without_peer(OTHER, DEVICE);
    on_each(&apart, |rig| {
        for (settings, ways) in both().into_iter().zip([(1, 0), (0, 1)]) {
            let allocator = rig.with_policy::<P>(settings);
            assert_eq!(copied(rig, &allocator, DEVICE), ways);
            rig.nothing_is_left(&allocator);
        }
    });
}

fn peers_reach_what_is_mapped_what_will_be_and_what_wakes<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        allocator.sleep_mode().set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap();
        let before = allocator.malloc(30 * MIB, rig.stream()).unwrap();
        assert_eq!(access(rig, before, OTHER), Access::None);
        assert!(allocator.peers().can_access(OTHER, DEVICE).unwrap());
        for _ in 0..2 {
            allocator.peers().enable(OTHER, DEVICE).unwrap();
        }
        let after = allocator.malloc(100 * MIB, rig.stream()).unwrap();
        for ptr in [before, before.add(29 * MIB), after, after.add(99 * MIB)] {
            assert_eq!(access(rig, ptr, OTHER), Access::ReadWrite, "{ptr}");
        }
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        allocator.sleep_mode().wake(Tags::All).unwrap();
        assert_eq!(access(rig, after, OTHER), Access::ReadWrite, "also once it has slept");
        free_all(&allocator, [before, after]);
        rig.nothing_is_left(&allocator);
    });
}

fn what_cannot_be_reached_is_said_and_a_refused_grant_can_be_tried_again<P: Policy>() {
    on_each(&machine().devices(3).without_peer(OTHER, DEVICE), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        assert!(!allocator.peers().can_access(OTHER, DEVICE).unwrap());
        allocator.peers().enable(OTHER, DEVICE).unwrap_err();
        assert!(!allocator.peers().is_enabled(OTHER, DEVICE).unwrap());
        let ptr = allocator.malloc(50 * MIB, rig.stream()).unwrap();
        let third = DeviceIndex(2);
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::SetAccess, 2, ErrorKind::Other));
        allocator.peers().enable(third, DEVICE).unwrap_err();
        rig.device.set_faults(FaultPlan::none());
        assert!(!allocator.peers().is_enabled(third, DEVICE).unwrap(), "not half of it");
        allocator.check_invariants();
        allocator.peers().enable(third, DEVICE).unwrap();
        for offset in [0, 20 * MIB, 49 * MIB] {
            assert_eq!(access(rig, ptr.add(offset), third), Access::ReadWrite);
        }
        allocator.free(ptr).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// pytorch 196257: a block that a stream of another device still writes was unmapped, or reused, because only its own
/// device was waited for.
fn pytorch_196257_memory_waits_for_writers_on_other_devices<P: Policy>() {
    for settings in both() {
        on_each(&machine().clock(Clock::Workers), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            allocator.peers().enable(OTHER, DEVICE).unwrap();
            let writer = rig.backend.create_stream(OTHER, 0).unwrap();
            let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            let gate = rig.hold(writer);
            rig.use_memory(writer, ptr, 40 * MIB);
            allocator.record_stream(ptr, writer).unwrap();
            allocator.free(ptr).unwrap();
            let next = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            assert_ne!(next, ptr, "{}: the writer is not done", rig.name);
            allocator.free(next).unwrap();
            let (done, emptied) = mpsc::channel();
            std::thread::scope(|scope| {
                scope.spawn(|| done.send(allocator.empty_cache()).unwrap());
                assert!(emptied.recv_timeout(Duration::from_millis(50)).is_err(), "unmapping waits for it");
                gate.open();
                emptied.recv().unwrap().unwrap();
            });
            rig.nothing_is_left(&allocator);
        });
    }
}

/// Holds a thread up in the middle of taking memory until what is returned is dropped.
fn hold_up_growth(allocator: &Allocator) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (taking, takes) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    allocator.hooks().on_segment(move |_| {
        let _ = taking.send(());
        let _ = gate.lock().unwrap().recv();
    });
    (takes, open)
}

fn wait_until_known(allocator: &Allocator) {
    while !allocator.peers().is_enabled(OTHER, DEVICE).unwrap() {
        std::thread::yield_now();
    }
}

fn who_opens_a_device_that_another_thread_is_opening_returns_once_it_is_open<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        let ptr = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        let (takes, open) = hold_up_growth(&allocator);
        let other = rig.new_stream();
        let (opened, opens) = mpsc::channel();
        std::thread::scope(|scope| {
            let allocator = &allocator;
            scope.spawn(move || allocator.malloc(3 * MIB, other).unwrap());
            takes.recv().unwrap();
            scope.spawn(|| allocator.peers().enable(OTHER, DEVICE).unwrap());
            wait_until_known(allocator);
            scope.spawn(move || {
                allocator.peers().enable(OTHER, DEVICE).unwrap();
                let _ = opened.send(access(rig, ptr, OTHER));
            });
            let early = opens.recv_timeout(Duration::from_millis(50));
            drop(open);
            assert_eq!(early.or_else(|_| opens.recv()), Ok(Access::ReadWrite));
        });
    });
}

/// Each of two threads that take memory is what the other would wait for.
fn observers_that_open_devices_are_refused_rather_than_made_to_wait_for_each_other<P: Policy>() {
    on_each(&machine().devices(3), |rig| {
        let allocator = rig.with_policy::<P>(growable());
        let weak = Arc::downgrade(&allocator);
        let both = Barrier::new(2);
        let next = AtomicU16::new(1);
        let (said, says) = mpsc::channel();
        allocator.hooks().on_segment(move |event| {
            let Some(allocator) = weak.upgrade().filter(|_| event.change == SegmentChange::Attached) else {
                return;
            };
            let peer = DeviceIndex(next.fetch_add(1, Ordering::SeqCst));
            both.wait();
            let _ = said.send(allocator.peers().enable(peer, DEVICE));
        });
        std::thread::scope(|scope| {
            for stream in [rig.stream(), rig.new_stream()] {
                let allocator = &allocator;
                scope.spawn(move || allocator.malloc(3 * MIB, stream).unwrap());
            }
        });
        assert_eq!(says.try_iter().filter(|said| matches!(said, Err(AllocError::Limit(_)))).count(), 2);
    });
}

/// Has no host memory for backups, once it is told so.
#[derive(Debug)]
struct NoBackups {
    asked: Mutex<mpsc::Sender<()>>,
    answer: Mutex<mpsc::Receiver<()>>,
}

impl Hook for NoBackups {
    fn host_malloc(
        &self,
        _: &dyn PinnedHost,
        _: u64,
        _: HostFlags,
    ) -> alloc_core::backend::Result<DevicePtr> {
        self.asked.lock().unwrap().send(()).unwrap();
        let _ = self.answer.lock().unwrap().recv();
        Err(BackendError::new(ErrorKind::ResourceLimit, 0, "host malloc", DEVICE, "no backups"))
    }
}

fn what_was_to_sleep_and_stays_awake_is_open_to_a_device_that_came_meanwhile<P: Policy>() {
    let (asked, asks) = mpsc::channel();
    let (say, answer) = mpsc::channel();
    let device = OpenReg::new(machine()).unwrap();
    let hook = NoBackups { asked: Mutex::new(asked), answer: Mutex::new(answer) };
    let rig = Rig { name: "openreg", backend: Arc::new(Interposed::new(device.clone(), hook)), device };
    let allocator = rig.with_policy::<P>(growable());
    allocator.sleep_mode().set_tag(DEVICE, PoolId::DEFAULT, Some(SleepTag::new("all"))).unwrap();
    let ptr = allocator.malloc(50 * MIB, rig.stream()).unwrap();
    let (takes, open) = hold_up_growth(&allocator);
    let other = rig.new_stream();
    std::thread::scope(|scope| {
        let allocator = &allocator;
        scope.spawn(move || allocator.malloc(3 * MIB, other).unwrap());
        takes.recv().unwrap();
        let opening = scope.spawn(|| allocator.peers().enable(OTHER, DEVICE).unwrap());
        wait_until_known(allocator);
        // It waits for the growth, and not for what begins later.
        std::thread::sleep(Duration::from_millis(50));
        let backup = Backup::HostPinned(Retention::Release);
        let sleeping = scope.spawn(move || allocator.put_to_sleep(Tags::All, &backup));
        asks.recv().unwrap();
        drop(open);
        opening.join().unwrap();
        drop(say);
        sleeping.join().unwrap().unwrap_err();
    });
    assert_eq!(allocator.sleep_mode().is_asleep(ptr), Some(false));
    assert_eq!(access(&rig, ptr, OTHER), Access::ReadWrite);
}

granule_tests::for_each_policy!(
    peers_reach_what_is_mapped_what_will_be_and_what_wakes,
    what_cannot_be_reached_is_said_and_a_refused_grant_can_be_tried_again,
    pytorch_196257_memory_waits_for_writers_on_other_devices,
    who_opens_a_device_that_another_thread_is_opening_returns_once_it_is_open,
    observers_that_open_devices_are_refused_rather_than_made_to_wait_for_each_other,
    what_was_to_sleep_and_stays_awake_is_open_to_a_device_that_came_meanwhile,
);
