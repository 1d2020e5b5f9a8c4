//! The fault loop over shared memory: every driver call of the one who shares, and of the one who opens, fails in turn. What
//! failed works when it is made again, nothing is lost on either side, and no memory leaves under work.

use alloc_core::AllocError;
use alloc_core::config::Settings;
use alloc_core::types::{MIB, Stream};
use backend_openreg::{Clock, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::fault_loop::kind_of;
use granule_tests::policy::{GranulePolicy, Policy};
use granule_tests::rig::DEVICE;
use granule_tests::views::pieces;
use granule_tests::{Allocator, with_policy};
use std::cell::Cell;
use std::sync::Arc;

struct Side {
    machine: Arc<OpenReg>,
    allocator: Allocator,
    stream: Stream,
}

impl Side {
    fn new<P: Policy>(settings: &Settings) -> Self {
        let config = OpenRegConfig::default().devices(1).capacity(256 * MIB).memory(MemoryMode::Mapped);
        let (machine, allocator, stream) =
            with_policy::<P>(config.clock(Clock::Virtual { lag: 3 }), settings.clone());
        Self { machine, allocator, stream }
    }

    fn calls(&self) -> u64 {
        self.machine.calls().total()
    }
}

struct Program {
    owner: Side,
    user: Side,
    struck: Cell<u64>,
}

impl Program {
    fn again<T>(&self, what: impl Fn() -> Result<T, AllocError>) -> T {
        what().unwrap_or_else(|error| {
            assert!(matches!(error, AllocError::Backend(_) | AllocError::OutOfMemory(_)), "{error}");
            self.struck.set(self.struck.get() + 1);
            self.owner.allocator.check_invariants();
            self.user.allocator.check_invariants();
            what().unwrap_or_else(|again| panic!("the call after a failed one works: {error}, then {again}"))
        })
    }

    fn run(&self) {
        let (owner, user) = (&self.owner.allocator, &self.user.allocator);
        let blocks = [3 * MIB, 3 * MIB, 45 * MIB, MIB]
            .map(|bytes| self.again(|| owner.malloc(bytes, self.owner.stream)));
        let shared = blocks.map(|block| self.again(|| owner.sharing().share(block)));
        let [one, two, three, _] = &shared;
        let opened = [one, two, three].map(|one| self.again(|| user.sharing().open(DEVICE, &one.handle)));
        for (import, shared) in opened.iter().zip(&shared) {
            let at = import.base().add(shared.offset);
            let work = || Ok(self.user.machine.use_memory(self.user.stream, at, 512)?);
            self.again(work);
        }
        owner.free(blocks[0]).expect("free never fails");
        let [one, two, three] = opened;
        drop(one);
        self.again(|| owner.poll(DEVICE));
        for block in &blocks[1..] {
            owner.free(*block).expect("free never fails");
        }
        self.again(|| owner.empty_cache());
        drop((two, three));
        // What could not be closed is closed by the next call.
        self.again(|| user.poll(DEVICE));
        self.again(|| user.poll(DEVICE));
        self.again(|| owner.empty_cache());
        owner.empty_cache().expect("and once more: what a failure left behind goes now");
    }
}

/// Runs the program with call `k` of one side failing (0: none), where the owner has some pieces of free memory. Returns the
/// calls of both, and how many operations failed.
fn run<P: Policy>(settings: &Settings, count: u64, of_owner: bool, k: u64) -> ([u64; 2], u64) {
    let (owner, user) = (Side::new::<P>(settings), Side::new::<P>(settings));
    let between = if count > 0 { pieces(&owner.allocator, owner.stream, count, 12) } else { Vec::new() };
    let program = Program { owner, user, struck: Cell::new(0) };
    let (owner, user) = (&program.owner, &program.user);
    let before = [owner.calls(), user.calls()];
    let side = if of_owner { owner } else { user };
    if k > 0 {
        side.machine.set_faults(FaultPlan::none().fail_nth(k, kind_of(k)));
    }
    program.run();
    let calls = [owner.calls() - before[0], user.calls() - before[1]];
    side.machine.set_faults(FaultPlan::none());
    let what = format!("{}, {count} pieces, owner {of_owner}, call {k}, {settings:?}", P::NAME);
    if count > 0 {
        between.into_iter().for_each(|ptr| owner.allocator.free(ptr).expect("free never fails"));
        owner.allocator.empty_cache().unwrap();
    }
    assert_eq!(user.allocator.sharing().imported_bytes(DEVICE).unwrap(), 0, "all is closed: {what}");
    for side in [owner, user] {
        side.allocator.check_invariants();
        assert_eq!(side.machine.used(DEVICE), 0, "bytes return to the baseline: {what}");
        assert_eq!(side.machine.traps(), Vec::new(), "no memory left while work used it: {what}");
    }
    let held = owner.allocator.stats(DEVICE).unwrap();
    assert_eq!((held.reserved_bytes.all.current, held.active_bytes.all.current), (0, 0), "{what}");
    assert!(program.struck.get() <= 1, "one failing call fails one operation: {what}");
    (calls, program.struck.get())
}

fn every_call_may_fail<P: Policy>(settings: &Settings, count: u64) {
    let (calls, struck) = run::<P>(settings, count, true, 0);
    assert_eq!(struck, 0);
    for (of_owner, calls) in [true, false].into_iter().zip(calls) {
        let noticed: u64 = (1..=calls).map(|k| run::<P>(settings, count, of_owner, k).1).sum();
        let (policy, growable) = (P::NAME, settings.expandable_segments);
        println!(
            "{policy}, growable {growable}, {count} pieces, owner {of_owner}: {calls} calls failed in turn, {noticed} operations \
             noticed"
        );
        assert!(calls > 8 && noticed > 2, "failures reach the program");
    }
}

fn every_call_of_sharing_and_opening_may_fail<P: Policy>() {
    for growable in [false, true] {
        every_call_may_fail::<P>(&Settings { expandable_segments: growable, ..Settings::default() }, 0);
    }
}

#[test]
fn every_call_of_sharing_what_lies_in_a_view_may_fail() {
    every_call_may_fail::<GranulePolicy>(&Settings::default(), 3);
}

granule_tests::for_each_policy!(every_call_of_sharing_and_opening_may_fail);
