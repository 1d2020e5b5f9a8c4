//! Sleep and wake over the real backends on their lookalike drivers; with `GRANULE_REAL_DRIVERS`, over the drivers that the
//! machine has. What the other tests show on the simulated machine itself goes through the driver's C functions here.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::MIB;
use backend_cuda::Cuda;
use backend_hip::Hip;
use granule_masquerade::{Masquerade, Policy as Presents};
use granule_tests::alone::over_drivers;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::lookalike::real_drivers;
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::DEVICE;
use std::path::Path;
use std::sync::Arc;

#[test]
fn sleep_and_wake_over_drivers() {
    over_drivers("devices=1,capacity=256MiB,memory=mapped", || {
        let directory = tempfile::tempdir().unwrap();
        let mut found = 0;
        // One owner of a label at a time.
        match Cuda::load() {
            Ok(cuda) => {
                cycles::<PytorchPolicy>(cuda.clone(), directory.path());
                cycles::<GranulePolicy>(cuda, directory.path());
                found += 1;
            }
            Err(error) => println!("cuda: {error}"),
        }
        match Hip::load() {
            Ok(hip) => {
                cycles::<PytorchPolicy>(hip.clone(), directory.path());
                cycles::<GranulePolicy>(hip.clone(), directory.path());
                cycles::<PytorchPolicy>(
                    Masquerade::new(hip.clone(), Presents::Flip).unwrap(),
                    directory.path(),
                );
                cycles::<GranulePolicy>(Masquerade::new(hip, Presents::Flip).unwrap(), directory.path());
                found += 1;
            }
            Err(error) => println!("hip: {error}"),
        }
        assert!(found == 2 || real_drivers(), "the lookalikes are always there");
        assert!(found > 0, "no driver was found; unset GRANULE_REAL_DRIVERS");
    });
}

fn cycles<P: Policy>(backend: Arc<dyn Backend>, directory: &Path) {
    let allocator = Arc::new(granule_tests::made::<P>(backend.clone(), Settings::default()).unwrap());
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let options = PoolOptions { sleep_tag: Some(SleepTag::new("weights")), ..PoolOptions::default() };
    let pool = MemoryPool::new(&allocator, DEVICE, options).unwrap();
    let bytes = Bytes(&*backend);
    let scope = pool.enter(Filter::Always).unwrap();
    let blocks = [3 * MIB, 700, 33 * MIB].map(|bytes| (allocator.malloc(bytes, stream).unwrap(), bytes));
    drop(scope);
    for (seed, (ptr, size)) in (1..).zip(blocks) {
        bytes.write(ptr, &pattern(seed, size));
    }
    let held = allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs();
    assert!(P::NAME != "pytorch" || held == 42 * MIB, "whole granules of PyTorch's: {held}");
    let backups = [
        Backup::HostPinned(Retention::Release),
        Backup::HostPinned(Retention::Keep),
        Backup::File(directory.to_owned()),
    ];
    for backup in backups {
        let slept = allocator.put_to_sleep(Tags::All, &backup).unwrap();
        allocator.check_invariants();
        assert_eq!((slept.slept, slept.kept.len()), (held, 0), "{}: {backup:?}", backend.name());
        if !real_drivers() {
            assert_eq!(slept.device_free_gained, slept.freed as i64, "{}", backend.name());
        }
        assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
        let woken = allocator.sleep_mode().wake(Tags::Only(&["weights"])).unwrap();
        assert_eq!((woken.woken, woken.restored), (slept.slept, slept.slept));
        for (seed, (ptr, size)) in (1..).zip(blocks) {
            assert!(
                bytes.read(ptr, size) == pattern(seed, size),
                "{}: {size} bytes at {ptr}",
                backend.name()
            );
        }
    }
    for (ptr, _) in blocks {
        allocator.free(ptr).unwrap();
    }
    drop(pool);
    allocator.sleep_mode().drop_backups();
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
}
