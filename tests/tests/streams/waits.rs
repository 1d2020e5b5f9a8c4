//! Whose memory a stream waits for on the device, and that it can be told not to.

use alloc_core::config::{CrossStream, Settings};
use alloc_core::policy::GranulePolicy;
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::{Call, Clock};
use granule_tests::Allocator;
use granule_tests::rig::Rig;
use granule_tests::setup::of;
use granule_tests::views::is_no_load;
use std::time::{Duration, Instant};

use CrossStream::{Completed, Never, Wait};

/// How long a stream is watched that is expected not to go on.
const BLOCKED: Duration = Duration::from_millis(150);
/// How long a stream has that is expected to.
const FREE: Duration = Duration::from_secs(20);

/// A device whose streams work by themselves, and an allocator that is past loading.
fn world(cross_stream: CrossStream, min_age: u64) -> (Rig, Allocator, Stream, Stream) {
    let rig = Rig::openreg(of(800).clock(Clock::Workers));
    let settings = Settings { cross_stream, cross_stream_min_age: min_age, ..Settings::default() };
    let allocator = rig.with_policy::<GranulePolicy>(settings);
    let (older, younger) = (rig.stream(), rig.new_stream());
    is_no_load(&allocator, older);
    (rig, allocator, older, younger)
}

/// Whether a stream's work is done before the time is out.
fn ends(rig: &Rig, stream: Stream, within: Duration) -> bool {
    let start = Instant::now();
    loop {
        if rig.backend.query_stream(stream).unwrap().is_ready() {
            return true;
        }
        if start.elapsed() > within {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What streams are told.
type Told = fn(&Allocator, Stream, Stream);
const NOTHING: Told = |_, _, _| {};

/// The older stream is held up by the host, which goes on once the younger one has run: whether that comes to an end. The
/// younger one asks for memory that the older one has freed.
fn the_younger_runs_first(cross_stream: CrossStream, tell: Told) -> bool {
    let (rig, allocator, older, younger) = world(cross_stream, 0);
    tell(&allocator, older, younger);
    let first = allocator.malloc(60 * MIB, older).unwrap();
    let gate = rig.hold(older);
    rig.use_memory(older, first, 60 * MIB);
    allocator.free(first).unwrap();
    let second = allocator.malloc(48 * MIB, younger).unwrap();
    rig.use_memory(younger, second, 48 * MIB);
    comes_to_an_end(&rig, younger, gate, &allocator, second)
}

/// The same with a block of the younger stream that the older one uses, and that was freed.
fn the_younger_takes_its_own(cross_stream: CrossStream, tell: Told) -> bool {
    let (rig, allocator, older, younger) = world(cross_stream, 0);
    tell(&allocator, older, younger);
    let first = allocator.malloc(60 * MIB, younger).unwrap();
    let gate = rig.hold(older);
    rig.use_memory(older, first, 60 * MIB);
    allocator.record_stream(first, older).unwrap();
    // The one that is told of ages sees the free.
    let other = allocator.malloc(100 * MIB, younger).unwrap();
    allocator.free(other).unwrap();
    allocator.free(first).unwrap();
    let mut taken = Vec::new();
    for _ in 0..3 {
        let ptr = allocator.malloc(60 * MIB, younger).unwrap();
        rig.use_memory(younger, ptr, 60 * MIB);
        taken.push(ptr);
    }
    let last = taken.pop().unwrap_or(DevicePtr::NULL);
    let ended = comes_to_an_end(&rig, younger, gate, &allocator, last);
    taken.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    ended
}

fn comes_to_an_end(
    rig: &Rig,
    younger: Stream,
    gate: impl Sized,
    allocator: &Allocator,
    block: DevicePtr,
) -> bool {
    let ended = ends(rig, younger, BLOCKED);
    drop(gate);
    assert!(ends(rig, younger, FREE), "nothing holds it up any more");
    allocator.free(block).unwrap();
    assert_eq!(rig.device.traps(), []);
    ended
}

#[test]
fn a_stream_that_the_host_releases_after_the_younger_one_hangs_with_wait_alone() {
    for scenario in [the_younger_runs_first, the_younger_takes_its_own] {
        assert!(!scenario(Wait, NOTHING), "the wait that nobody wrote is blocked");
        assert!(scenario(Completed, NOTHING));
        assert!(scenario(Never, NOTHING));
        for how in [Completed, Never] {
            let told: [Told; 2] = match how {
                Never => [
                    |allocator, older, _| allocator.set_cross_stream(older, Some(Never)).unwrap(),
                    |allocator, _, younger| allocator.set_cross_stream(younger, Some(Never)).unwrap(),
                ],
                _ => [
                    |allocator, older, _| allocator.set_cross_stream(older, Some(Completed)).unwrap(),
                    |allocator, _, younger| allocator.set_cross_stream(younger, Some(Completed)).unwrap(),
                ],
            };
            for tell in told {
                assert!(scenario(Wait, tell), "one stream was told: {how:?}");
            }
        }
        let allowed: Told = |allocator, _, younger| {
            allocator.set_cross_stream(younger, Some(Wait)).unwrap();
        };
        assert!(!scenario(Completed, allowed), "one stream may wait where others do not");
        let careful: Told = |allocator, older, younger| {
            allocator.set_cross_stream(younger, Some(Wait)).unwrap();
            allocator.set_cross_stream(older, Some(Completed)).unwrap();
        };
        assert!(scenario(Wait, careful), "the more careful of the two counts");
        let taken_back: Told = |allocator, older, _| {
            allocator.set_cross_stream(older, Some(Never)).unwrap();
            allocator.set_cross_stream(older, None).unwrap();
        };
        assert!(!scenario(Wait, taken_back), "what was taken back counts no more");
    }
}

/// Waits for memory of another stream that was freed so many requests and frees ago, where only older is waited for than `min_age`.
fn waits(min_age: u64, events: u64) -> u64 {
    let (rig, allocator, older, younger) = world(Wait, min_age);
    let first = allocator.malloc(60 * MIB, older).unwrap();
    let gate = rig.hold(older);
    rig.use_memory(older, first, 60 * MIB);
    allocator.free(first).unwrap();
    // A miss that marks the older stream, and finds nothing old enough unless any age will do.
    let other = allocator.malloc(200 * MIB, younger).unwrap();
    let before = rig.device.calls();
    for _ in 0..events / 2 {
        let small = allocator.malloc(512, older).unwrap();
        allocator.free(small).unwrap();
    }
    let second = allocator.malloc(48 * MIB, younger).unwrap();
    let waits = rig.device.calls().since(&before).get(Call::WaitEvent);
    drop(gate);
    for ptr in [other, second] {
        allocator.free(ptr).unwrap();
    }
    rig.nothing_is_left(&allocator);
    waits
}

#[test]
fn only_memory_of_an_age_is_waited_for() {
    assert_eq!(waits(20, 10), 0, "it is too young");
    assert_eq!(waits(20, 40), 1);
    assert_eq!(waits(200, 40), 0);
}
