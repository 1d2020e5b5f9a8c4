//! The `granule` policy on a full device: what one stream has free serves another, through an unmap and a map, or in a view,
//! while the threads of both go on. Whoever the machine runs first, nothing is given out twice, moves under work, or is lost;
//! and what fits is not refused.

use crate::explore::explore_granules;
use crate::rig::{Block, DEVICE, Rig};
use alloc_core::types::{MIB, Stream};
use backend_openreg::Call;
use std::sync::atomic::{AtomicU64, Ordering};

/// In how many orders memory was mapped that was mapped before: somewhere else, or in a view.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// Runs the threads, and notes whether memory moved.
fn together(rig: &Rig, threads: &[&(dyn Fn() + Sync)]) {
    let before = rig.device.calls();
    rig.together(threads);
    let calls = rig.device.calls().since(&before);
    MOVED.fetch_add(u64::from(calls.get(Call::Map) > calls.get(Call::CreatePhysical)), Ordering::Relaxed);
}

fn explore(mebibytes: u64, scenario: fn(&Rig)) {
    MOVED.store(0, Ordering::Relaxed);
    explore_granules(mebibytes, scenario);
    let moved = MOVED.load(Ordering::Relaxed);
    assert!(moved > 0 || std::env::var_os("GRANULE_SCHEDULE").is_some(), "memory moves in some orders");
    println!("memory moved in {moved} orders");
}

/// Free pieces of 12 MiB of a stream between live ones, which are returned. The device is done with all of it.
fn pieces(rig: &Rig, stream: Stream) -> Vec<Block> {
    // What comes now is no load of what is kept, for which granules are larger.
    for _ in 0..20 {
        rig.churn(2 * MIB, stream);
    }
    let blocks: Vec<_> = (0..6).map(|_| rig.take(12 * MIB, stream)).collect();
    let (free, live): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    free.into_iter().for_each(|(_, block)| rig.give(block));
    rig.device.advance(64);
    live.into_iter().map(|(_, block)| block).collect()
}

/// The owner allocates and frees on its idle stream while another stream's request takes what it has free.
#[test]
fn the_owner_goes_on_while_its_granules_leave() {
    explore(120, |rig| {
        let (home, other) = (rig.stream(), rig.stream());
        let live = pieces(rig, home);
        let owner = || {
            rig.churn(12 * MIB, home);
            rig.churn(5 * MIB, home);
        };
        let needs = || {
            rig.churn(24 * MIB, other);
            rig.churn(30 * MIB, other);
        };
        together(rig, &[&owner, &needs]);
        live.into_iter().for_each(|block| rig.give(block));
    });
}

/// Its live blocks go in the meantime, and its cache is emptied.
#[test]
fn blocks_beside_the_granules_that_leave_are_freed() {
    explore(120, |rig| {
        let (home, other) = (rig.stream(), rig.stream());
        let live = pieces(rig, home);
        let frees = || live.iter().for_each(|block| rig.give(*block));
        let needs = || rig.churn(30 * MIB, other);
        let empties = || {
            rig.device.advance(8);
            rig.allocator.empty_cache().unwrap();
        };
        together(rig, &[&frees, &needs, &empties]);
    });
}

/// A request of the owner's own wants the pieces in a view at the moment at which another stream wants them.
#[test]
fn a_view_and_another_stream_want_the_same_granules() {
    explore(120, |rig| {
        let (home, other) = (rig.stream(), rig.stream());
        let live = pieces(rig, home);
        let shows = || {
            let view = rig.take(28 * MIB, home);
            rig.churn(4 * MIB, home);
            rig.give(view);
        };
        let needs = || rig.churn(20 * MIB, other);
        let polls = || {
            rig.device.advance(8);
            rig.allocator.poll(DEVICE).unwrap();
        };
        together(rig, &[&shows, &needs, &polls]);
        live.into_iter().for_each(|block| rig.give(block));
    });
}

/// Two streams want what a third has free.
#[test]
fn two_streams_want_what_a_third_has() {
    explore(100, |rig| {
        let (home, others) = (rig.stream(), [rig.stream(), rig.stream()]);
        let live = pieces(rig, home);
        let needs = |stream| move || rig.churn(24 * MIB, stream);
        together(rig, &[&needs(others[0]), &needs(others[1])]);
        live.into_iter().for_each(|block| rig.give(block));
    });
}
