//! Sleep and wake against a model: any order of requests, frees, sleeps, wakes and flushes.

use alloc_core::config::Settings;
use alloc_core::pool::MemoryPool;
use alloc_core::sleep::{Backup, Retention, Tags};
use alloc_core::types::{DevicePtr, GIB, MIB};
use backend_openreg::{Clock, MemoryMode, OpenRegConfig};
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::Rig;
use granule_tests::sleepers::{malloc_in, tagged};
use proptest::prelude::*;

fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(4 * GIB).memory(MemoryMode::Mapped).clock(Clock::Workers)
}

#[derive(Clone, Debug)]
enum Step {
    Malloc { pool: usize, stream: usize, bytes: u64 },
    Free(usize),
    Sleep { tags: u8, backup: bool },
    Wake { tags: u8 },
    EmptyCache,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3usize, 0..2usize, prop_oneof![1..4096u64, MIB..30 * MIB])
            .prop_map(|(pool, stream, bytes)| Step::Malloc { pool, stream, bytes }),
        4 => (0..64usize).prop_map(Step::Free),
        2 => (1..8u8, any::<bool>()).prop_map(|(tags, backup)| Step::Sleep { tags, backup }),
        2 => (1..8u8).prop_map(|tags| Step::Wake { tags }),
        1 => Just(Step::EmptyCache),
    ]
}

const TAGS: [&str; 3] = ["a", "b", "c"];

struct Live {
    ptr: DevicePtr,
    bytes: u64,
    seed: u64,
    pool: usize,
    /// Some of it slept without a backup.
    lost: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn any_order_of_sleeping_waking_and_freeing(steps in prop::collection::vec(step(), 1..60)) {
        play::<PytorchPolicy>(steps)?;
    }

    #[test]
    fn any_order_with_the_granule_policy(steps in prop::collection::vec(step(), 1..60)) {
        play::<GranulePolicy>(steps)?;
    }
}

/// Whatever sleeps and wakes in whatever order: blocks that are awake have their contents unless these were given up.
fn play<P: Policy>(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let rig = Rig::openreg(machine());
    let allocator = rig.with_policy::<P>(Settings::default());
    let sleep_mode = allocator.sleep_mode();
    let pools: Vec<MemoryPool> = TAGS.iter().map(|tag| tagged(&allocator, tag)).collect();
    let streams = [rig.stream(), rig.new_stream()];
    let bytes_of = Bytes(&*rig.backend);
    let mut live: Vec<Live> = Vec::new();
    // Ends of each block carry its seed: enough to notice another's contents.
    let edge = |bytes: u64| bytes.min(600);
    let meant = |tags| -> Vec<&str> { (0..3).filter(|n| tags >> n & 1 == 1).map(|n| TAGS[n]).collect() };
    for (seed, step) in (1u64..).zip(steps) {
        match step {
            Step::Malloc { pool, stream, bytes } => {
                let ptr = malloc_in(&pools[pool], &allocator, bytes, streams[stream]);
                bytes_of.write(ptr, &pattern(seed, edge(bytes)));
                bytes_of.write(ptr.add(bytes - edge(bytes)), &pattern(seed, edge(bytes)));
                live.push(Live { ptr, bytes, seed, pool, lost: bytes <= 1200 });
            }
            Step::Free(n) if !live.is_empty() => {
                allocator.free(live.swap_remove(n % live.len()).ptr).unwrap();
            }
            Step::Free(_) => {}
            Step::Sleep { tags, backup } => {
                for block in live.iter_mut().filter(|block| tags >> block.pool & 1 == 1) {
                    block.lost |= !backup && sleep_mode.is_asleep(block.ptr) == Some(false);
                }
                let backup = if backup { Backup::HostPinned(Retention::Keep) } else { Backup::Discard };
                let report = allocator.put_to_sleep(Tags::Only(&meant(tags)), &backup).unwrap();
                prop_assert_eq!(report.kept_bytes(), 0);
                for block in live.iter().filter(|block| tags >> block.pool & 1 == 1) {
                    prop_assert_eq!(sleep_mode.is_asleep(block.ptr), Some(true));
                }
            }
            Step::Wake { tags } => {
                sleep_mode.wake(Tags::Only(&meant(tags))).unwrap();
                for block in live.iter().filter(|block| tags >> block.pool & 1 == 1) {
                    prop_assert_eq!(sleep_mode.is_asleep(block.ptr), Some(false));
                }
            }
            Step::EmptyCache => allocator.empty_cache().unwrap(),
        }
        allocator.check_invariants();
        for block in live.iter().filter(|block| !block.lost && sleep_mode.is_asleep(block.ptr) == Some(false))
        {
            let expected = pattern(block.seed, edge(block.bytes));
            prop_assert!(bytes_of.read(block.ptr, edge(block.bytes)) == expected);
            let end = block.ptr.add(block.bytes - edge(block.bytes));
            prop_assert!(bytes_of.read(end, edge(block.bytes)) == expected);
        }
    }
    for block in live {
        allocator.free(block.ptr).unwrap();
    }
    drop(pools);
    sleep_mode.drop_backups();
    prop_assert_eq!(sleep_mode.backup_bytes(), 0);
    rig.nothing_is_left(&allocator);
    Ok(())
}
