//! How fast contents go away and come back, by the cost model with links.

use alloc_core::sleep::{Backup, Retention};
use alloc_core::types::GIB;
use backend_openreg::Links;
use granule_tests::sleepers::{Modelled, modelled_cycles};

const KEPT: Backup = Backup::HostPinned(Retention::Keep);

/// What part of the link was used: by the sleep, and by the wake.
#[allow(clippy::cast_precision_loss)]
fn shares(cycle: &Modelled, devices: u16, rate: u64) -> [f64; 2] {
    let at_best = cycle.bytes as f64 * 1e9 / (rate as f64 * f64::from(devices));
    [cycle.sleep_ns, cycle.wake_ns].map(|ns| at_best / ns as f64)
}

fn last(devices: u16, bytes: u64, links: Links, backup: &Backup, cycles: usize) -> Modelled {
    modelled_cycles(devices, bytes, links, backup, cycles).unwrap().pop().unwrap()
}

#[test]
fn kept_memory_is_copied_at_the_links_speed_by_all_devices_at_once_after_one_wait_each() {
    for (devices, rate) in [(1, 25_000_000_000), (2, 25_000_000_000), (1, 60_000_000_000)] {
        let links = Links { to_device: rate, to_host: rate };
        let cycle = last(devices, 60_000_000_000, links, &KEPT, 2);
        let [sleep, wake] = shares(&cycle, devices, rate);
        assert!(sleep >= 0.9 && wake >= 0.9, "{devices} devices, {rate} B/s: {sleep:.3}, {wake:.3}");
        assert!(cycle.waits[0] <= u64::from(devices), "{devices} devices: {:?} waits", cycle.waits);
        assert_eq!(cycle.waits[1], 0, "what wakes is used by nobody");
    }
}

#[test]
fn each_way_has_its_own_speed() {
    let links = Links { to_device: 10_000_000_000, to_host: 20_000_000_000 };
    let cycle = last(1, 8 * GIB, links, &KEPT, 2);
    let [sleep, _] = shares(&cycle, 1, links.to_host);
    let [_, wake] = shares(&cycle, 1, links.to_device);
    assert!((0.9..=1.0).contains(&sleep) && (0.9..=1.0).contains(&wake), "{sleep:.3}, {wake:.3}");
}

#[test]
fn the_ring_to_a_file_keeps_up_with_the_link() {
    // On a disk, where the file takes real room (in memory it would take as much of that). Two GiB are there on any
    // machine; over a slower link they take as long as many do, so that the ring's own start counts as little.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let links = Links { to_device: 8_000_000_000, to_host: 8_000_000_000 };
    let cycle = last(1, 2 * GIB, links, &Backup::File(directory.path().to_owned()), 1);
    let [sleep, wake] = shares(&cycle, 1, links.to_host);
    assert!(sleep >= 0.9 && wake >= 0.9, "{sleep:.3}, {wake:.3}");
    assert!(cycle.waits[0] <= 1, "{:?} waits", cycle.waits);
}
