//! Memory that two and three real processes share, over every backend that can: what is seen, and what happens when one of
//! them frees, closes, or dies.

use alloc_core::types::MIB;
use granule_tests::peer::{Opened, Peer, Shared, unhex};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ipc-peer");

/// Every backend that shares with other processes; `fabric` is CUDA where growable memory goes by fabric handles.
const BACKENDS: [&str; 5] = ["openreg", "masquerade", "cuda", "fabric", "hip"];

const MODES: [Mode; 5] = [
    Mode { name: "fixed", pieces: 0, mib: 3 },
    Mode { name: "growable", pieces: 0, mib: 3 },
    Mode { name: "uncached", pieces: 0, mib: 3 },
    Mode { name: "granule", pieces: 0, mib: 3 },
    // Blocks lie in views of free memory.
    Mode { name: "granule", pieces: 4, mib: 20 },
];

/// How a process allocates: what `ipc-peer` calls it, how many free pieces of memory it has, and the size of the blocks that
/// are shared.
#[derive(Clone, Copy, Debug)]
struct Mode {
    name: &'static str,
    pieces: u64,
    mib: u64,
}

impl Mode {
    fn bytes(self) -> u64 {
        self.mib * MIB
    }

    fn start(self, backend: &str) -> Peer {
        Peer::start(PROGRAM, backend, self.name)
    }
}

/// With `GRANULE_REAL_DRIVERS=cuda`, over that one on the machine's own driver.
fn each(behaviour: impl Fn(&str, Mode)) {
    let only = std::env::var("GRANULE_REAL_DRIVERS").ok();
    for backend in BACKENDS.into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name)) {
        for mode in MODES {
            println!("{backend}, {mode:?}");
            behaviour(backend, mode);
        }
    }
}

/// Two processes: one shares a block, the other has it open.
fn pair(backend: &str, mode: Mode) -> (Peer, u64, Shared, Peer, Opened) {
    let mut owner = mode.start(backend);
    // Not at the beginning of its segment.
    let _first = owner.malloc(2 * MIB);
    if mode.pieces > 0 {
        owner.leave_pieces(mode.pieces, 12);
    }
    let used = owner.device_bytes();
    let block = owner.malloc(mode.bytes());
    assert!(mode.pieces == 0 || owner.device_bytes() == used, "what was free in pieces serves it");
    owner.write(block, 1);
    owner.write(block + mode.bytes() - 64, 1);
    let shared = owner.share(block);
    let mut user = mode.start(backend);
    let opened = user.open(&shared);
    (owner, block, shared, user, opened)
}

#[test]
fn e03_both_see_what_the_other_writes_and_closing_takes_nothing_away() {
    each(|backend, mode| {
        let (mut owner, block, shared, mut user, opened) = pair(backend, mode);
        let there = opened.base + shared.offset;
        let last = mode.bytes() - 64;
        assert!(user.holds(there, 1) && user.holds(there + last, 1));
        user.write(there, 2);
        user.write(there + last, 6);
        assert!(owner.holds(block, 2) && owner.holds(block + last, 6));
        let again = user.open(&shared);
        assert_eq!(again.base, opened.base, "opened once");
        let bytes = user.imported_bytes();
        assert!((mode.bytes()..=40 * MIB).contains(&bytes), "{bytes}");
        user.close(opened);
        assert!(user.holds(there, 2), "the other opening is still there");
        user.close(again);
        assert_eq!(user.imported_bytes(), 0);
        assert!(owner.holds(block, 2));
        owner.free(block);
        owner.ask("check");
    });
}

/// Bytes 1 and from 26 on of a handle: its kind, and the way in which granules go.
#[test]
fn growable_memory_goes_by_fabric_handles_where_there_is_a_fabric() {
    for (backend, way) in [("cuda", [1, 0, 0, 0]), ("fabric", [2, 0, 0, 0])] {
        let mut owner = Peer::start(PROGRAM, backend, "growable");
        let block = owner.malloc(3 * MIB);
        let handle = unhex(&owner.share(block).handle).unwrap();
        assert_eq!((handle[1], &handle[26..30]), (b'e', &way[..]), "{backend}");
    }
    let mut owner = Peer::start(PROGRAM, "fabric", "growable");
    let block = owner.malloc(3 * MIB);
    let shared = owner.share(block);
    let without = Peer::start(PROGRAM, "cuda", "growable").refusal(&shared);
    assert!(without.contains("goes by a fabric handle, and device 0 has no fabric"), "{without}");
    let pytorchs = "expandable_segments IPC: received FABRIC handle from producer but consumer device 0 does not support";
    assert!(without.contains(pytorchs), "{without}");
}

#[test]
fn memory_that_another_process_holds_is_not_reused_until_that_has_closed_it() {
    each(|backend, mode| {
        let (mut owner, block, shared, mut user, opened) = pair(backend, mode);
        let used = owner.device_bytes();
        owner.free(block);
        owner.ask("poll");
        let other = owner.malloc(mode.bytes());
        assert_ne!(other, block, "another process reads it");
        owner.write(other, 9);
        owner.free(other);
        owner.ask("empty");
        owner.ask("check");
        assert!(owner.device_bytes() >= mode.bytes() && owner.device_bytes() <= used, "the rest may go");
        let there = opened.base + shared.offset;
        assert!(user.holds(there, 1) && user.holds(there + mode.bytes() - 64, 1));
        user.close(opened);
        assert!(comes_back(&mut owner, block, mode), "nobody has it any more");
    });
}

/// Whether the next request gets the block's memory; uncached memory has gone back to the device.
fn comes_back(owner: &mut Peer, block: u64, mode: Mode) -> bool {
    owner.ask("poll");
    owner.ask("check");
    if mode.name == "uncached" {
        return owner.device_bytes() == 2 * MIB;
    }
    let at = owner.malloc(mode.bytes());
    owner.free(at);
    at == block
}

#[test]
fn a_block_that_was_freed_is_not_opened_any_more_and_its_successor_has_other_bytes() {
    each(|backend, mode| {
        let (mut owner, block, shared, mut user, opened) = pair(backend, mode);
        assert_eq!(owner.share(block), shared, "the same bytes on every call");
        user.close(opened);
        owner.free(block);
        owner.ask("poll");
        assert!(user.refusal(&shared).starts_with("the block was freed since this handle was made"));
        let next = owner.malloc(mode.bytes());
        let other = owner.share(next);
        assert_ne!(other.handle, shared.handle);
        let opened = user.open(&other);
        assert!(user.refusal(&shared).starts_with("the block was freed since this handle was made"));
        owner.write(next, 5);
        assert!(user.holds(opened.base + other.offset, 5));
    });
}

#[test]
fn a_killed_user_holds_nothing() {
    each(|backend, mode| {
        let (mut owner, block, _shared, user, _opened) = pair(backend, mode);
        owner.free(block);
        owner.ask("poll");
        // Also before its parent has asked for its end.
        let _zombie = user.kill_unnoticed();
        let ended = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            comes_back(&mut owner, block, mode)
        });
        assert!(ended, "{backend}, {mode:?}: the block does not come back");
    });
}

/// A request that needs the memory asks who is alive before it is refused.
#[test]
fn memory_of_a_killed_user_is_found_before_running_out() {
    let mut owner = Peer::start(PROGRAM, "openreg", "fixed");
    let block = owner.malloc(200 * MIB);
    let shared = owner.share(block);
    let mut user = Peer::start(PROGRAM, "openreg", "fixed");
    user.open(&shared);
    owner.free(block);
    assert!(owner.try_ask(format_args!("malloc {}", 200 * MIB)).unwrap_err().contains("out of memory"));
    user.kill();
    assert_eq!(owner.malloc(200 * MIB), block);
}

#[test]
fn a_killed_owner_leaves_the_memory_to_those_who_have_it_and_to_nobody_else() {
    each(|backend, mode| {
        let (owner, _block, shared, mut user, opened) = pair(backend, mode);
        let mut late = mode.start(backend);
        owner.kill();
        let there = opened.base + shared.offset;
        assert!(user.holds(there, 1), "what is open stays");
        user.write(there, 7);
        assert!(user.holds(there, 7));
        assert!(late.refusal(&shared).contains("has ended"), "new openings are refused");
        assert_eq!(late.imported_bytes(), 0);
        user.close(opened);
        assert!(user.refusal(&shared).contains("has ended"));
        user.ask("check");
    });
}

#[test]
fn three_processes_share_one_block_and_the_last_to_close_it_gives_it_back() {
    each(|backend, mode| {
        let (mut owner, block, shared, mut one, opened) = pair(backend, mode);
        let mut other = mode.start(backend);
        let also = other.open(&shared);
        one.write(opened.base + shared.offset, 3);
        assert!(other.holds(also.base + shared.offset, 3) && owner.holds(block, 3));
        owner.free(block);
        one.close(opened);
        owner.ask("poll");
        let elsewhere = owner.malloc(mode.bytes());
        assert_ne!(elsewhere, block, "the other one still has it");
        owner.free(elsewhere);
        other.kill();
        assert!(comes_back(&mut owner, block, mode));
    });
}

/// One process shares and frees, two others open, close and die, in an order made from a seed: whatever one of them has open
/// is what it was when it was shared.
#[test]
fn in_any_order_what_is_open_stays_what_it_was() {
    let rounds = if std::env::var_os("GRANULE_LONG").is_some() { 20 } else { 2 };
    for seed in 0..rounds {
        for mode in ["fixed", "growable", "uncached", "granule"] {
            Disorder::new(mode, seed).run(400);
        }
    }
}

/// A block of the owner's, with the byte that it is filled with.
struct Block {
    at: u64,
    value: u8,
    shared: Shared,
}

/// What a user has open, where, and what must be there.
type Open = (Opened, u64, u8);

struct Disorder {
    mode: &'static str,
    random: u64,
    owner: Peer,
    blocks: Vec<Block>,
    users: Vec<(Peer, Vec<Open>)>,
}

impl Disorder {
    fn new(mode: &'static str, seed: u64) -> Self {
        let start = || Peer::start(PROGRAM, "openreg", mode);
        let users = vec![(start(), Vec::new()), (start(), Vec::new())];
        Self { mode, random: seed + 1, owner: start(), blocks: Vec::new(), users }
    }

    fn below(&mut self, bound: usize) -> usize {
        // Xorshift: good enough to mix things up.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound
    }

    fn run(mut self, steps: usize) {
        for step in 0..steps {
            let user = self.below(2);
            match self.below(12) {
                0..=2 if self.blocks.len() < 12 => self.share(step as u8),
                3..=5 if !self.blocks.is_empty() => self.open(user),
                6..=7 if !self.blocks.is_empty() => {
                    let block = self.below(self.blocks.len());
                    let at = self.blocks.swap_remove(block).at;
                    self.owner.free(at);
                }
                8..=9 if !self.users[user].1.is_empty() => {
                    let open = self.below(self.users[user].1.len());
                    let (opened, ..) = self.users[user].1.swap_remove(open);
                    self.users[user].0.close(opened);
                }
                10 if self.below(6) == 0 => {
                    let fresh = (Peer::start(PROGRAM, "openreg", self.mode), Vec::new());
                    std::mem::replace(&mut self.users[user], fresh).0.kill();
                }
                11 => {
                    self.owner.ask("empty");
                }
                _ => {
                    self.owner.ask("check");
                }
            }
            self.look(user);
        }
        for block in std::mem::take(&mut self.blocks) {
            self.owner.free(block.at);
        }
        for (mut user, open) in std::mem::take(&mut self.users) {
            open.into_iter().for_each(|(opened, ..)| user.close(opened));
            assert_eq!(user.imported_bytes(), 0);
        }
        self.owner.ask("poll");
        self.owner.ask("empty");
        self.owner.ask("check");
        assert_eq!(self.owner.device_bytes(), 0, "nothing is lost");
    }

    fn share(&mut self, value: u8) {
        let bytes = [MIB / 2, 3 * MIB, 12 * MIB, 20 * MIB][self.below(4)];
        // What the others hold may leave no room.
        let Ok(at) = self.owner.try_ask(format_args!("malloc {bytes}")) else { return };
        let at = u64::from_str_radix(&at, 16).unwrap();
        self.owner.write(at, value);
        let shared = self.owner.share(at);
        self.blocks.push(Block { at, value, shared });
    }

    fn open(&mut self, user: usize) {
        let block = self.below(self.blocks.len());
        let Block { value, shared, .. } = &self.blocks[block];
        let opened = self.users[user].0.open(shared);
        self.users[user].1.push((opened, opened.base + shared.offset, *value));
    }

    fn look(&mut self, user: usize) {
        let (peer, open) = &mut self.users[user];
        for (_, at, value) in open.iter() {
            assert!(peer.holds(*at, *value), "memory that is open became another block's");
        }
    }
}
