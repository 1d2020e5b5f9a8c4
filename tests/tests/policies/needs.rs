//! What counts as in use, and what is taken for it, whatever a program needed before.

use alloc_core::config::Settings;
use alloc_core::types::{KIB, MIB, Stream};
use backend_openreg::OpenRegConfig;
use granule_tests::Allocator;
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, Rig};
use granule_tests::setup::{free_all, of};

const SIZES: [u64; 6] = [4 * KIB, 256 * KIB, 1_200_000, 4 * MIB, 12_000_000, 24 * MIB];

/// Needs a GiB for a while, on each stream its part, and gives it back.
fn needs_much(allocator: &Allocator, streams: &[Stream]) {
    let part = 1024 / streams.len() as u64;
    let blocks: Vec<_> = streams
        .iter()
        .flat_map(|stream| (0..8).map(|_| allocator.malloc(part * MIB / 8, *stream).unwrap()))
        .collect();
    free_all(allocator, blocks);
}

/// Hands blocks from stream to stream, one at a time, and returns the most that was live. The device is done with each at once.
fn crosses(allocator: &Allocator, streams: &[Stream]) -> u64 {
    let mut most = 0;
    for at in 0..600 {
        let (maker, user) = (streams[at % 6], streams[(at * 5 + 1 + at / 6) % 6]);
        let bytes = SIZES[(at * 7 + at / 6 * 5) % 6];
        let block = allocator.malloc(bytes, maker).unwrap();
        allocator.record_stream(block, user).unwrap();
        allocator.free(block).unwrap();
        let other = allocator.malloc(bytes, maker).unwrap();
        allocator.free(other).unwrap();
        most = most.max(bytes);
    }
    most
}

/// The peaks of active and requested bytes while memory crosses streams, and the most that was live and held.
fn figures<P: Policy>(config: OpenRegConfig, before: impl Fn(&Allocator, &[Stream])) -> ([i64; 3], i64) {
    let rig = Rig::openreg(config);
    let allocator = rig.with_policy::<P>(Settings::default());
    let streams: Vec<_> = (0..6).map(|_| rig.new_stream()).collect();
    before(&allocator, &streams);
    allocator.statistics().reset_peaks(DEVICE).unwrap();
    let live = i64::try_from(crosses(&allocator, &streams)).unwrap();
    let stats = allocator.stats(DEVICE).unwrap();
    rig.nothing_is_left(&allocator);
    ([stats.active_bytes.all.peak, stats.requested_bytes.all.peak, live], stats.reserved_bytes.all.peak)
}

#[test]
fn what_streams_are_done_with_raises_no_peak() {
    for config in [of(4096), of(4096).without_virtual_memory()] {
        for before in [|_: &_, _: &_| (), needs_much] {
            for (peaks, _) in [
                figures::<PytorchPolicy>(config.clone(), before),
                figures::<GranulePolicy>(config.clone(), before),
            ] {
                assert_eq!(peaks, [peaks[2]; 3], "active, requested, live");
            }
        }
    }
}

#[test]
fn an_emptied_cache_grows_by_what_is_needed_then() {
    for config in [of(4096), of(4096).without_virtual_memory()] {
        let (_, anew) = figures::<GranulePolicy>(config.clone(), |_, _| ());
        let (_, emptied) = figures::<GranulePolicy>(config, |allocator, streams| {
            needs_much(allocator, streams);
            allocator.empty_cache().unwrap();
        });
        assert_eq!(emptied, anew);
    }
}
