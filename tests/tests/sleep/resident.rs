//! Copies of a device whose memory is there all the time: the second cycle of sleep and wake finds every page.

use alloc_core::config::Settings;
use alloc_core::sleep::{Backup, Retention, Tags};
use alloc_core::types::{DevicePtr, GIB, MIB};
use backend_openreg::{Clock, MemoryMode, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::alone::alone;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::Rig;
use granule_tests::sleepers::{malloc_in, tagged};

/// Bytes of a block, and how many there are.
const BLOCK: u64 = 20 * MIB;
const BLOCKS: u64 = 6;

/// What the system did for this process so far: pages it faulted in, and bytes that it read and wrote by calls.
fn system_work() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The seventh word behind the name, which may have spaces.
    let (_, words) = stat.rsplit_once(") ").unwrap();
    let faults = words.split(' ').nth(7).unwrap().parse().unwrap();
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let bytes = |name| io.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse::<u64>();
    (faults, bytes("rchar:").unwrap() + bytes("wchar:").unwrap())
}

/// Another pool takes as much memory, writes over it, and gives it back.
fn lend(rig: &Rig, allocator: &Allocator) {
    let pool = tagged(allocator, "guests");
    let guests: Vec<DevicePtr> =
        (0..BLOCKS).map(|_| malloc_in(&pool, allocator, BLOCK, rig.stream())).collect();
    for guest in guests {
        Bytes(&*rig.backend).fill(rig.stream(), guest, 0xEE, BLOCK);
        allocator.free(guest).unwrap();
    }
    rig.backend.synchronize_stream(rig.stream()).unwrap();
    drop(pool);
    allocator.empty_cache().unwrap();
    assert_eq!(rig.used(), 0, "the guests are gone");
}

#[test]
fn the_second_cycle_faults_no_pages_and_copies_without_the_system() {
    alone(|| {
        let config = OpenRegConfig::default().devices(1).capacity(GIB).resident(GIB);
        let rig = Rig::openreg(config.memory(MemoryMode::Mapped).clock(Clock::Workers));
        let allocator = rig.allocator(Settings::default());
        let pool = tagged(&allocator, "weights");
        let contents: Vec<Vec<u8>> = (0..BLOCKS).map(|seed| pattern(seed, BLOCK)).collect();
        let blocks: Vec<DevicePtr> =
            contents.iter().map(|_| malloc_in(&pool, &allocator, BLOCK, rig.stream())).collect();
        for (ptr, contents) in blocks.iter().zip(&contents) {
            Bytes(&*rig.backend).write(*ptr, contents);
        }
        for cycle in 1..=2 {
            let before = system_work();
            let slept = allocator.put_to_sleep(Tags::All, &Backup::HostPinned(Retention::Keep)).unwrap();
            let asleep = system_work();
            assert_eq!((slept.slept, rig.used()), (BLOCK * BLOCKS, 0), "all of it sleeps");
            lend(&rig, &allocator);
            let lent = system_work();
            allocator.sleep_mode().wake(Tags::All).unwrap();
            let woken = system_work();
            for (from, to) in [(before, asleep), (lent, woken)] {
                // Threads and tables take a few; the blocks have 30 720 pages, of which a fault brings 16 at most.
                let (faults, copied) = (to.0 - from.0, to.1 - from.1);
                assert!(cycle == 1 || faults < 400, "{faults} pages were faulted in");
                assert!(cycle == 1 || copied < MIB, "{copied} bytes were copied by system calls");
            }
        }
        for (ptr, contents) in blocks.iter().zip(&contents) {
            assert!(Bytes(&*rig.backend).read(*ptr, BLOCK) == *contents, "the contents at {ptr}");
            allocator.free(*ptr).unwrap();
        }
    });
}
