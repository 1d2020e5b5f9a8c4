//! Handles of shared blocks: any bytes may be sent to a process, which opens them or says why not.
//!
//! An input is two bytes and a handle. The first byte says which block is shared really, the second which parts of its handle
//! stand in the one that is opened: a handle of nothing but guesses fails at the first check.

use crate::cursor::Cursor;
use crate::in_words;
use alloc_core::CachingAllocator;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::share::SharedBlock;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, Stream};
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Granule's own part, at the end.
const OWN: usize = 98;
/// Parts of that, from its begin: the checksum is the last.
const PARTS: [Range<usize>; 6] = [8..32, 32..40, 40..52, 52..62, 62..66, 66..90];
const PROCESS: usize = 32;
const SUM: Range<usize> = 90..98;
/// Bits of the second byte.
const HEAD: u8 = 1;
const WRONG_SUM: u8 = 1 << 7;
/// No process has this number, or a higher one.
const NOBODY: u32 = 1 << 22;

/// Two machines of this process stand for two processes.
#[derive(Debug)]
struct Pair {
    owner: CachingAllocator,
    user: CachingAllocator,
    machine: Arc<OpenReg>,
    shared: [(DevicePtr, SharedBlock); 3],
}

static PAIR: LazyLock<Mutex<Pair>> = LazyLock::new(|| Mutex::new(Pair::new()));

impl Pair {
    fn new() -> Self {
        let machine = || {
            let config = OpenRegConfig::default().devices(1).capacity(256 * MIB).memory(MemoryMode::Mapped);
            OpenReg::new(config.clock(Clock::Virtual { lag: 0 })).expect("a machine")
        };
        let allocator = |machine: &Arc<OpenReg>| {
            let settings = Settings { expandable_segments: true, ..Settings::default() };
            CachingAllocator::new(Arc::clone(machine) as Arc<dyn Backend>, settings).expect("an allocator")
        };
        let (home, machine) = (machine(), machine());
        let (owner, user) = (allocator(&home), allocator(&machine));
        let stream = Stream { raw: 0, device: DEVICE, backend: home.id() };
        let share = |bytes| {
            let block = owner.malloc(bytes, stream).expect("it fits");
            (block, owner.sharing().share(block).expect("it can be shared"))
        };
        let growable = [share(MIB / 2), share(30 * MIB)];
        owner.configure(Settings::default()).expect("they are good");
        let [one, other] = growable;
        let shared = [one, other, share(3 * MIB)];
        Self { owner, user, machine, shared }
    }

    fn open(&self, which: usize, parts: u8, guess: &[u8]) {
        let (block, truth) = &self.shared[which];
        let handle = handle(&truth.handle, parts, guess);
        match self.user.sharing().open(DEVICE, &handle) {
            Ok(memory) => {
                assert!(memory.bytes() > 0 && memory.base() != DevicePtr::NULL, "nothing was opened");
                let same = self.user.sharing().open(DEVICE, &handle).expect("it is open");
                assert_eq!(same.base(), memory.base(), "the same handle gives the same memory");
            }
            Err(error) => {
                in_words(&error, 2000);
                assert_ne!(handle, truth.handle, "what was shared can be opened: {error}");
            }
        }
        assert_eq!(self.user.sharing().imported_bytes(DEVICE).ok(), Some(0), "what was opened is closed");
        assert_eq!(self.machine.traps(), Vec::new());
        assert_eq!(self.owner.sharing().share(*block).ok().as_ref(), Some(truth), "the block is what it was");
    }
}

/// The handle that is opened: a guess with parts of the truth in it.
fn handle(truth: &[u8], parts: u8, guess: &[u8]) -> Vec<u8> {
    let true_own = &truth[truth.len() - OWN..];
    if guess.len() < OWN && parts & HEAD == 0 {
        return guess.to_vec();
    }
    let (head, own) = guess.split_at(guess.len().saturating_sub(OWN));
    let head = if parts & HEAD == 0 { head } else { &truth[..truth.len() - OWN] };
    let mut own = own.to_vec();
    own.resize(OWN, 0);
    for (bit, part) in PARTS.into_iter().enumerate() {
        if parts & (2 << bit) != 0 {
            own[part.clone()].copy_from_slice(&true_own[part]);
        }
    }
    // Nobody's process is looked into but this one.
    let process: [u8; 4] = own[PROCESS..PROCESS + 4].try_into().expect("four bytes");
    if process != true_own[PROCESS..PROCESS + 4] {
        let nobody = u32::from_le_bytes(process) | NOBODY;
        own[PROCESS..PROCESS + 4].copy_from_slice(&nobody.to_le_bytes());
    }
    if parts & HEAD != 0 {
        own[..8].copy_from_slice(&true_own[..8]);
    }
    let mut handle = [head, &own].concat();
    if parts & WRONG_SUM == 0 {
        let end = handle.len() - OWN + SUM.start;
        let sum = sum(&handle[..end]);
        handle[end..].copy_from_slice(&sum.to_le_bytes());
    }
    handle
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Opens a handle.
///
/// # Panics
/// Where a promise is broken.
pub fn run(input: &[u8]) {
    let mut input = Cursor::new(input);
    let (which, parts) = (input.byte() as usize % 3, input.byte());
    // A run that failed before has said so.
    PAIR.lock().unwrap_or_else(PoisonError::into_inner).open(which, parts, input.rest());
}

/// Each block's own handle, and guesses with some of its parts.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let heads: [&[u8]; 4] = [
        b"\x03c",
        b"\x03e\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0",
        b"\x03v\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\x05\0\0\0",
        b"\x03e\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
    ];
    let own = [&b"granule1"[..], &[0; OWN - 8]].concat();
    let mut seeds = Vec::new();
    for which in 0..3 {
        for parts in [0x7f, 0x7d, 0x3f, 0x5f, 0x6f, 0x77, 0x7b] {
            seeds.push([&[which, parts][..], &own].concat());
        }
        for head in heads {
            let fabric = if head.ends_with(b"\x02\0\0\0\0\0\0\0") || head == b"\x03c" { 64 } else { 0 };
            seeds.push([&[which, 0x3e][..], head, &vec![0; fabric], &own].concat());
        }
    }
    seeds.push(vec![0, 0]);
    seeds.push([&[0, 0][..], &[0; 64]].concat());
    seeds
}
