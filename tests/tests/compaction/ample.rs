//! Requests that would take more than the program needs compact first, with `compaction:True`; also granules that are mapped in a
//! second place, where nobody uses them.

use crate::programs::{Sparse, last_resort};
use alloc_core::config::{Compact, Settings};
use alloc_core::policy::GranulePolicy;
use alloc_core::types::MIB;
use backend_openreg::FaultPlan;
use granule_tests::fault_loop::kind_of;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{free_all, mapped};

/// More than lies free in pieces.
const WIDE: u64 = 200 * MIB;

/// A program with free memory between live blocks, which may be mapped elsewhere, too.
type Begin = fn(&Rig, Settings) -> Sparse;

/// Views show all that is free, and serve nobody any more.
fn shown(rig: &Rig, settings: Settings) -> Sparse {
    let program = Sparse::new(rig, settings);
    // Each is the end of one granule and the beginning of another.
    let views: Vec<_> = (0..8).map(|_| program.allocator.malloc(10 * MIB, program.stream).unwrap()).collect();
    free_all(&program.allocator, views);
    program
}

/// Another stream had all of it before.
fn handed_over(rig: &Rig, settings: Settings) -> Sparse {
    let (allocator, first, second) =
        (rig.with_policy::<GranulePolicy>(settings), rig.stream(), rig.new_stream());
    let all = allocator.malloc(256 * MIB, first).unwrap();
    allocator.free(all).unwrap();
    rig.backend.synchronize_stream(first).unwrap();
    let large = allocator.malloc(128 * MIB, second).unwrap();
    Sparse::between(rig, allocator, second, large)
}

/// What is held beside a request that is served, and how often memory was compacted.
fn held(rig: &Rig, begin: Begin, compaction: Compact) -> (u64, i64) {
    let program = begin(rig, Settings { compaction, ..last_resort() });
    let wide = program.allocator.malloc(WIDE, program.stream).unwrap();
    program.check(rig, "beside the request");
    let (held, stats) = (rig.used(), program.allocator.stats(DEVICE).unwrap().granule);
    program.allocator.free(wide).unwrap();
    program.end(rig);
    (held, stats.compactions)
}

#[test]
fn memory_is_compacted_before_more_is_taken() {
    on_each(&mapped(4000), |rig| {
        let programs =
            [("plain", Sparse::new as Begin, 16), ("shown", shown, 48), ("handed over", handed_over, 24)];
        for (what, begin, mib) in programs {
            let (ample, never) = held(rig, begin, Compact::LastResort);
            assert_eq!(never, 0, "{} {what}: there is memory enough", rig.name);
            let (less, compactions) = held(rig, begin, Compact::Always);
            assert!(compactions > 0, "{} {what}", rig.name);
            assert!(less + mib * MIB <= ample, "{} {what}: {less} instead of {ample}", rig.name);
        }
    });
}

/// Makes the request with call `k` failing (0: none). Returns its calls.
fn run(k: u64, begin: Begin) -> u64 {
    let rig = Rig::openreg(mapped(2000));
    let program = begin(&rig, Settings { compaction: Compact::Always, ..last_resort() });
    let before = rig.device.calls().total();
    if k > 0 {
        rig.device.set_faults(FaultPlan::none().fail_nth(k, kind_of(k)));
    }
    let wide = program.allocator.malloc(WIDE, program.stream);
    let calls = rig.device.calls().total() - before;
    rig.device.set_faults(FaultPlan::none());
    program.check(&rig, &format!("call {k} failed"));
    wide.into_iter().for_each(|ptr| program.allocator.free(ptr).unwrap());
    program.end(&rig);
    calls
}

#[test]
fn contents_survive_every_driver_call_failing_there() {
    for begin in [shown as Begin, handed_over] {
        let calls = run(0, begin);
        for k in 1..=calls {
            run(k, begin);
        }
        println!("{calls} calls");
        assert!(calls > 30, "the loop reaches the driver: {calls}");
    }
}
