//! The fault loop over sleep and wake: every driver call of a program fails in turn. What failed works when it is made again,
//! addresses and contents stay, nothing is lost.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, CopyKind};
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::fault_loop::{Machine, Simulated, kind_of};
use granule_tests::policy::Policy;
use granule_tests::quiet::Sleeps;
use granule_tests::rig::DEVICE;
use std::cell::Cell;
use std::fmt::Debug;

const TAG: &[&str] = &["weights"];

struct Program<'m> {
    machine: &'m Simulated,
    allocator: CachingAllocator,
    stream: Stream,
    struck: Cell<bool>,
}

impl Program<'_> {
    fn again<T, E: Debug>(&self, what: impl Fn() -> Result<T, E>) -> T {
        what().unwrap_or_else(|error| {
            assert!(!self.struck.replace(true), "one failing call fails one operation: {error:?}");
            self.allocator.check_invariants();
            what().unwrap_or_else(|again| {
                panic!("the call after a failed one works: {error:?}, then {again:?}")
            })
        })
    }

    fn check(&self, blocks: &[(DevicePtr, u64, u64)]) {
        for (ptr, bytes, seed) in blocks {
            let read = self.again(|| {
                let mut contents = vec![0; *bytes as usize];
                let to = DevicePtr(contents.as_mut_ptr() as u64);
                // SAFETY: rule 2: a live block, and a vector that lives during the call.
                unsafe { self.machine.device.copy(to, *ptr, *bytes, CopyKind::DeviceToHost) }
                    .map(|()| contents)
            });
            assert!(read == pattern(*seed, *bytes), "the contents of {bytes} bytes at {ptr}");
        }
    }

    fn cycles(&self, backup: &Backup, blocks: &[(DevicePtr, u64, u64)], spares: [DevicePtr; 2]) {
        let allocator = &self.allocator;
        let held = self.machine.used();
        let slept = self.again(|| allocator.put_to_sleep(Tags::Only(TAG), backup));
        if !self.struck.get() {
            assert_eq!(slept.slept, held);
        }
        assert_eq!(self.machine.used(), 0, "all of it sleeps");
        for (ptr, ..) in blocks {
            assert_eq!(allocator.sleep_mode().is_asleep(*ptr), Some(true), "its address is kept");
        }
        for spare in spares {
            allocator.free(spare).expect("free never fails");
        }
        let woken = self.again(|| allocator.sleep_mode().wake(Tags::All));
        if !self.struck.get() {
            assert_eq!(woken.dropped, 2 * MIB, "what was freed is not woken");
        }
        allocator.check_invariants();
        self.check(blocks);
        self.again(|| allocator.put_to_sleep(Tags::All, backup));
        self.again(|| allocator.sleep_mode().wake(Tags::Only(TAG)));
        self.check(blocks);
    }
}

/// Runs the program with call `k` failing (0: none); returns its calls.
fn run<P: Policy>(k: u64, backup: &Backup) -> (u64, bool) {
    let config = OpenRegConfig::default().devices(1).capacity(64 * MIB).memory(MemoryMode::Mapped);
    let machine = Simulated { device: OpenReg::new(config).unwrap(), lag: 0 };
    let allocator = granule_tests::made::<P>(machine.backend(), Settings::default()).unwrap();
    let stream = machine.device.default_stream(DEVICE);
    let pool = PoolId::fresh();
    allocator.pools().create(DEVICE, pool, None).unwrap();
    allocator.sleep_mode().set_tag(DEVICE, pool, Some(SleepTag::new("weights"))).unwrap();
    allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
    // Small ones, on granules of 2 MiB: the second granule is the spares' alone.
    let malloc = |bytes| allocator.malloc(bytes, stream).unwrap();
    let mut blocks: Vec<_> = [1, 2].map(|seed| (malloc(MIB), MIB, seed)).into();
    let spares = [malloc(MIB), malloc(MIB)];
    blocks.push((malloc(700), 700, 3));
    allocator.pools().end(DEVICE, pool).unwrap();
    for (ptr, bytes, seed) in &blocks {
        Bytes(&*machine.device).write(*ptr, &pattern(*seed, *bytes));
    }
    let before = machine.calls();
    machine.fail(k, kind_of(k));
    let program = Program { machine: &machine, allocator, stream, struck: Cell::new(false) };
    program.cycles(backup, &blocks, spares);
    machine.fail(0, kind_of(k));
    let calls = machine.calls() - before;
    let Program { allocator, struck, stream, .. } = program;
    let again = allocator.malloc(MIB, stream).unwrap();
    for ptr in blocks.iter().map(|(ptr, ..)| *ptr).chain([again]) {
        allocator.free(ptr).unwrap();
    }
    for _ in 0..2 {
        allocator.pools().release(DEVICE, pool).unwrap();
    }
    allocator.empty_cache().unwrap();
    allocator.sleep_mode().drop_backups();
    allocator.check_invariants();
    assert_eq!(allocator.sleep_mode().backup_bytes(), 0, "call {k}: no backup is left");
    assert_eq!(machine.used(), 0, "call {k}: nothing is lost");
    assert_eq!(machine.traps(), 0, "call {k}: no work was disturbed");
    (calls, struck.get())
}

fn every_call<P: Policy>(backup: &Backup) {
    let (calls, _) = run::<P>(0, backup);
    let mut struck = 0;
    for k in 1..=calls {
        struck += u64::from(run::<P>(k, backup).1);
    }
    println!("{backup:?}: {calls} calls, {struck} failures reached the program");
    assert!(calls > 40 && struck > calls / 4, "the loop reaches the driver: {calls} calls, {struck} struck");
}

fn sleep_and_wake_survive_every_driver_call_failing<P: Policy>() {
    let directory = tempfile::tempdir().unwrap();
    every_call::<P>(&Backup::HostPinned(Retention::Release));
    every_call::<P>(&Backup::HostPinned(Retention::Keep));
    every_call::<P>(&Backup::File(directory.path().to_owned()));
}

granule_tests::for_each_policy!(sleep_and_wake_survive_every_driver_call_failing,);
