//! Operations of a history, and how a seed chooses them.
//!
//! An operation names things by numbers that are taken modulo what there is, so that any list of operations is a program:
//! one that is cut out of another, too. What makes no sense at its moment does nothing.

use alloc_core::types::MIB;
use fastrand::Rng;

/// One operation. Fields name things as said above; bytes and MiB are what they say, lags are ticks.
#[allow(missing_docs)] // a sentence for each of them would say what its name says
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Memory of an allocator, for a stream.
    Alloc { at: u8, stream: u8, bytes: u64 },
    /// Memory of a private pool.
    AllocIn { pool: u8, stream: u8, bytes: u64 },
    /// A free, and the same memory again by its address.
    AllocAt { nth: u16 },
    /// A block goes back.
    Free { nth: u16 },
    /// Many blocks of an allocator go back.
    FreeMost { at: u8, keep: u8 },
    /// Work of a stream on a block; the engine is told, or the block's own stream waits for it.
    Use { nth: u16, stream: u8, told: bool },
    /// A free of what is no block.
    WrongFree { value: u64 },
    /// The cache goes back.
    Empty { at: u8 },
    /// Finished frees are noticed, or waited for.
    Settle { at: u8, device: u8, wait: bool },
    /// Time passes.
    Advance { ticks: u16 },
    /// A stream comes, or changes how late it is.
    Stream { process: u8, device: u8, lag: u16 },
    /// A stream becomes earlier or later.
    Lag { stream: u8, lag: u16 },
    /// A stream ends.
    EndStream { stream: u8 },
    /// A private pool comes. Bits: on shortage for all, blocks whole, can sleep.
    Pool { at: u8, device: u8, kind: u8 },
    /// A private pool ends.
    EndPool { pool: u8 },
    /// Requests for a stream go to a pool from here on.
    Scope { pool: u8, stream: u8 },
    /// The newest scope ends.
    EndScope,
    /// A capture begins, with a pool of its own or another one.
    Capture { at: u8, stream: u8, mode: u8, pool: u8 },
    /// Memory for the capture, which its graph writes.
    CaptureAlloc { bytes: u64 },
    /// Memory of the capture goes back within it.
    CaptureFree { nth: u8 },
    /// The capture ends well, or is given up.
    EndCapture { well: bool },
    /// A graph runs.
    Launch { graph: u8, stream: u8 },
    /// A graph ends.
    EndGraph { graph: u8 },
    /// Which blocks of a pool are live is saved.
    Checkpoint { pool: u8 },
    /// A pool's live blocks are again what was saved.
    Restore,
    /// Pools sleep. Backup: none, page-locked, page-locked and kept, a file.
    Sleep { at: u8, tag: u8, backup: u8 },
    /// Pools wake.
    Wake { at: u8, tag: u8 },
    /// A device reaches another's memory.
    Peer { at: u8, from: u8, to: u8 },
    /// A block is opened by another process.
    Share { nth: u16, process: u8 },
    /// The other process looks at what it opened.
    Look { nth: u8 },
    /// The other process closes it.
    Close { nth: u8 },
    /// A tenant comes or goes, or a pool joins or leaves it.
    Tenant { at: u8, device: u8, what: u8, mib: u16 },
    /// Limits of a device, or of a pool.
    Limit { at: u8, device: u8, pool: u8, mib: u16 },
    /// The share of the device that may be held, in percent.
    Fraction { at: u8, device: u8, percent: u8 },
    /// Other settings.
    Configure { at: u8, what: u8 },
    /// Caching goes off or on.
    Caching { at: u8, on: bool },
    /// Page-locked memory.
    HostAlloc { process: u8, bytes: u32, stream: u8 },
    /// A copy between a block and page-locked memory.
    HostCopy { host: u8, nth: u16, stream: u8, back: bool },
    /// Page-locked memory goes back.
    HostFree { host: u8 },
    /// Cached page-locked memory goes back, or completed uses are noticed.
    HostSettle { process: u8, empty: bool },
    /// A driver call fails, or takes long.
    Fault { process: u8, call: u8, nth: u8, effect: u8 },
    /// The driver works again.
    NoFaults { process: u8 },
    /// History on or off.
    History { at: u8, entries: u16, contexts: bool },
    /// A snapshot, compared with what the program has.
    Snapshot { at: u8, traces: bool },
    /// Peaks or sums begin anew.
    Reset { at: u8, device: u8, peaks: bool },
    /// Driver calls fail that belong together: again and again, and what would undo them, too.
    Failures { process: u8, what: u8, nth: u8 },
    /// A pool that has none gets a sleep tag.
    Tag { pool: u8, tag: u8 },
    /// The device is nearly full.
    Crowd { at: u8, stream: u8, leaves: u8 },
    /// A pool may hold little.
    Squeeze { pool: u8, mib: u8 },
    /// All that is live in a pool goes back.
    Clear { pool: u8 },
    /// The newest graph's device is nearly full.
    CrowdBeside { leaves: u8 },
    /// Memory of the newest graph's pool, for its stream.
    AllocBeside { bytes: u64 },
}

/// Makes a history's operations, one after another.
#[derive(Clone, Debug)]
pub struct Dealer {
    random: Rng,
    /// What the next operations are, each as often as it is in here.
    mood: Vec<u8>,
    left: u32,
    /// What is dealt before anything else is chosen, the last first.
    scene: Vec<Op>,
    /// Chooses what was thought of later, so that other histories stay what they were; `None` in those.
    later: Option<Rng>,
}

/// [`Op::Failures`] of the release of physical memory, as often as it is tried in one go, and no more.
pub const THRICE: u8 = 255;

/// How often each kind of operation is meant to be, beside the others.
const WEIGHTS: [u16; KINDS] = [
    300, 70, 6, 300, 3, 160, 4, 6, 14, 40, 8, 4, 6, 8, 5, 4, 4, 8, 30, 12, 12, 16, 5, 3, 3, 6, 12, 3, 4, 6,
    5, 5, 3, 2, 4, 3, 12, 14, 12, 3, 5, 12, 1, 2, 2, 8, 6, 2,
];
const KINDS: usize = 48;

impl Dealer {
    /// The operations that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut later = Rng::with_seed(seed ^ 0x006c_6174_6572);
        let later = (later.u8(0..3) > 0).then_some(later);
        Self {
            random: Rng::with_seed(seed ^ 0x6e69_6768_7473),
            mood: Vec::new(),
            left: 0,
            scene: Vec::new(),
            later,
        }
    }

    /// Some kinds are common for a while, and others rare or absent.
    fn change_mood(&mut self) {
        self.left = self.random.u32(40..600);
        self.mood.clear();
        for (kind, weight) in (0..).zip(WEIGHTS) {
            let times = [0, 1, 1, 2, 4][self.random.usize(0..5)];
            // Time passes, and memory comes and goes, in every mood.
            let times = if matches!(kind, 0 | 3 | 9) { times.max(1) } else { times };
            self.mood.extend(std::iter::repeat_n(kind, usize::from(weight * times).div_ceil(2)));
        }
    }

    fn bytes(&mut self) -> u64 {
        let r = &mut self.random;
        match r.u8(0..20) {
            0..8 => r.u64(1..4096),
            8..13 => r.u64(4096..MIB),
            13..15 => MIB * [1, 2, 4, 8, 10, 20][r.usize(0..6)],
            15..18 => r.u64(MIB..12 * MIB),
            _ => r.u64(12 * MIB..60 * MIB),
        }
    }

    /// The next one.
    pub fn deal(&mut self) -> Op {
        if let Some(op) = self.scene.pop() {
            return op;
        }
        if let Some(later) = &mut self.later {
            match later.u16(0..640) {
                0..2 => {
                    self.scene = scene(later);
                    return self.deal();
                }
                2..20 => return of_later(later),
                _ => {}
            }
        }
        if self.left == 0 {
            self.change_mood();
        }
        self.left -= 1;
        let kind = self.mood[self.random.usize(0..self.mood.len())];
        let bytes = self.bytes();
        let r = &mut self.random;
        if kind < 24 { of_memory(kind, bytes, r) } else { of_features(kind, r) }
    }
}

fn of_memory(kind: u8, bytes: u64, r: &mut Rng) -> Op {
    let mut small = || r.u8(..);
    let [at, stream, pool, device] = [small(), small(), small(), small()];
    let nth = r.u16(..);
    match kind {
        0 => Op::Alloc { at, stream, bytes },
        1 => Op::AllocIn { pool, stream, bytes },
        2 => Op::AllocAt { nth },
        3 => Op::Free { nth },
        4 => Op::FreeMost { at, keep: r.u8(1..12) },
        5 => Op::Use { nth, stream, told: r.u8(0..4) > 0 },
        6 => Op::WrongFree { value: r.u64(..) >> r.u32(0..50) },
        7 => Op::Empty { at },
        8 => Op::Settle { at, device, wait: r.u8(0..4) == 0 },
        9 => Op::Advance { ticks: [1, 3, 10, 50, 400][r.usize(0..5)] },
        10 => Op::Stream { process: at, device, lag: lag(r) },
        11 => Op::Lag { stream, lag: lag(r) },
        12 => Op::EndStream { stream },
        13 => Op::Pool { at, device, kind: r.u8(0..8) },
        14 => Op::EndPool { pool },
        15 => Op::Scope { pool, stream },
        16 => Op::EndScope,
        17 => Op::Capture { at, stream, mode: r.u8(0..3), pool },
        18 => Op::CaptureAlloc { bytes },
        19 => Op::CaptureFree { nth: at },
        20 => Op::EndCapture { well: r.u8(0..6) > 0 },
        21 => Op::Launch { graph: at, stream },
        22 => Op::EndGraph { graph: at },
        _ => Op::Checkpoint { pool },
    }
}

fn of_features(kind: u8, r: &mut Rng) -> Op {
    let mut small = || r.u8(..);
    let [at, stream, process, device] = [small(), small(), small(), small()];
    let nth = r.u16(..);
    match kind {
        24 => Op::Restore,
        // Contents that are kept are copied, which takes long.
        25 => Op::Sleep { at, tag: r.u8(0..3), backup: if r.u8(0..4) == 0 { r.u8(1..4) } else { 0 } },
        26 => Op::Wake { at, tag: r.u8(0..3) },
        27 => Op::Peer { at, from: device, to: stream },
        28 => Op::Share { nth, process },
        29 => Op::Look { nth: at },
        30 => Op::Close { nth: at },
        31 => Op::Tenant { at, device, what: r.u8(0..5), mib: r.u16(2..300) },
        32 => Op::Limit { at, device, pool: stream, mib: if r.bool() { 0 } else { r.u16(40..400) } },
        33 => Op::Fraction { at, device, percent: if r.bool() { 100 } else { r.u8(20..100) } },
        34 => Op::Configure { at, what: r.u8(0..9) },
        35 => Op::Caching { at, on: r.u8(0..4) > 0 },
        36 => {
            let most = 1 << r.u32(6..22);
            Op::HostAlloc { process, bytes: r.u32(1..most), stream }
        }
        37 => Op::HostCopy { host: at, nth, stream, back: r.bool() },
        38 => Op::HostFree { host: at },
        39 => Op::HostSettle { process, empty: r.bool() },
        40 => Op::Fault { process, call: at, nth: r.u8(1..6), effect: r.u8(0..5) },
        41 => Op::NoFaults { process },
        42 => Op::History { at, entries: [0, 10, 1000][r.usize(0..3)], contexts: r.bool() },
        43 => Op::Snapshot { at, traces: r.bool() },
        44 => Op::Reset { at, device, peaks: r.bool() },
        // In the place of kinds that are gone: so the histories of kept seeds stay what they were.
        45 | 46 => Op::Settle { at, device, wait: false },
        _ => Op::Settle { at, device, wait: r.u8(0..5) == 0 },
    }
}

fn of_later(r: &mut Rng) -> Op {
    let mut small = || r.u8(..);
    let [at, pool, stream, process, tag] = [small(), small(), small(), small(), small()];
    match r.u8(0..24) {
        0..3 => Op::Failures { process, what: r.u8(..), nth: r.u8(1..4) },
        3..6 => Op::NoFaults { process },
        6..8 => Op::Tag { pool, tag },
        8..12 => Op::Crowd { at, stream, leaves: r.u8(..) },
        12..14 => Op::Squeeze { pool, mib: r.u8(..) },
        14 => Op::Capture { at, stream, mode: r.u8(0..3), pool: pool / 3 * 3 },
        15 => Op::CaptureAlloc { bytes: MIB * r.u64(1..48) },
        16..18 => Op::CaptureFree { nth: at },
        18 => Op::EndCapture { well: true },
        19 => Op::Launch { graph: at, stream },
        20 => Op::Settle { at, device: process, wait: true },
        21 => Op::EndStream { stream },
        22 => Op::AllocIn { pool, stream, bytes: MIB * r.u64(1..48) },
        _ => Op::Stream { process, device: at, lag: lag(r) },
    }
}

/// Operations that show little alone, the last first.
fn scene(r: &mut Rng) -> Vec<Op> {
    let mut small = || r.u8(..);
    let [at, pool, stream, process] = [small(), small(), small(), small()];
    let bytes = MIB * r.u64(33..48);
    let mut ops = match r.u8(0..3) {
        // Memory that the driver does not take back in a flush, however often that tries.
        0 => vec![
            Op::Failures { process, what: THRICE, nth: r.u8(1..6) },
            Op::FreeMost { at, keep: 11 },
            Op::Settle { at, device: 0, wait: true },
            Op::Empty { at },
            Op::NoFaults { process },
        ],
        // A pool's memory goes, and comes back where it was.
        1 => vec![
            Op::AllocIn { pool, stream, bytes: bytes / 2 },
            Op::Checkpoint { pool },
            Op::Clear { pool },
            Op::Squeeze { pool, mib: 48 },
            Op::AllocIn { pool, stream, bytes },
            Op::Squeeze { pool, mib: 0 },
            Op::AllocIn { pool, stream, bytes: bytes / 2 },
            Op::Restore,
        ],
        // A graph's pool is asked for more than the device has beside it.
        _ => vec![
            Op::Configure { at, what: 9 },
            Op::Pool { at, device: process, kind: 0 },
            Op::Stream { process: at, device: process, lag: 0 },
            Op::Capture { at, stream, mode: 0, pool: pool / 3 * 3 },
            Op::CaptureAlloc { bytes },
            Op::CaptureFree { nth: at },
            Op::EndCapture { well: true },
            Op::CrowdBeside { leaves: r.u8(0..64) },
            Op::AllocBeside { bytes: MIB * r.u64(12..30) },
            Op::Launch { graph: at, stream },
        ],
    };
    ops.reverse();
    ops
}

fn lag(r: &mut Rng) -> u16 {
    [0, 1, 3, 8, 30, 200, 2000][r.usize(0..7)]
}
