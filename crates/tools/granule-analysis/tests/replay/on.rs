//! Replays on a device whose memory is given.

use backend_openreg::{OpenReg, OpenRegConfig};
use granule_analysis::replay::{Replay, ReplayError, ReplayOptions, replay_on};
use granule_snapshot::trace::{Event, Trace};

const MIB: u64 = 1 << 20;

/// Four blocks of 100 MiB, all alive at once, on a device of 1 GiB.
fn replayed(devices: u16, capacity: Option<u64>) -> Result<Replay, ReplayError> {
    let events = (0..4).map(|id| Event::Alloc { id, size: 100 * MIB, stream: 0 }).collect();
    let config = OpenRegConfig::default().devices(devices).capacity(1024 * MIB);
    let options = ReplayOptions { capacity, ..ReplayOptions::default() };
    let trace = Trace { events, ..Trace::default() };
    replay_on(OpenReg::new(config)?, &trace, &options, |_| {})
}

#[test]
fn no_more_than_the_capacity_is_used_of_a_device() {
    let all = replayed(1, None).unwrap().result;
    assert_eq!((all.refused, all.capacity), (0, 1024 * MIB));
    let part = replayed(1, Some(250 * MIB)).unwrap().result;
    assert_eq!((part.refused, part.capacity), (2, 250 * MIB));
    assert!(part.reserved_bytes_peak <= 250 * MIB as i64);
}

#[test]
fn a_device_that_is_too_small_or_absent_is_told() {
    let small = replayed(1, Some(2048 * MIB)).unwrap_err();
    let ReplayError::DeviceTooSmall { asked, total } = small else { panic!("{small}") };
    assert_eq!((asked, total), (2048 * MIB, 1024 * MIB));
    let absent = replayed(0, None).unwrap_err();
    assert!(matches!(absent, ReplayError::NoDevice("openreg")), "{absent}");
}
