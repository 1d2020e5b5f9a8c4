//! What sleeping and waking costs. Run by `cargo xtask bench sleep`.
//!
//! `sleep-cost modelled BYTES FILE_BYTES LINK`: simulated devices whose memory has no bytes, and the time that their cost model
//! gives the driver calls, and copies on links of LINK bytes a second.
//! `sleep-cost bytes BYTES`: real bytes, each kind of backup; the contents are compared, and the clock is the machine's.

use alloc_core::backend::{Backend, CopyKind};
use alloc_core::config::Settings;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, SleepReport, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Clock, Links, MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::quiet::Sleeps;
use granule_tests::sleepers::{MEASURED_BLOCK, modelled_cycles};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Bytes of each block.
const BLOCK: u64 = MEASURED_BLOCK;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["modelled", bytes, file_bytes, link] => {
            let parsed = (bytes.parse(), file_bytes.parse(), link.parse());
            if let (Ok(bytes), Ok(file_bytes), Ok(link)) = parsed {
                Some(modelled(bytes, file_bytes, link))
            } else {
                None
            }
        }
        ["bytes", bytes] => bytes.parse().ok().map(real),
        _ => None,
    };
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: sleep-cost modelled BYTES FILE_BYTES LINK | sleep-cost bytes BYTES");
            ExitCode::from(2)
        }
    }
}

struct Program {
    machine: Arc<OpenReg>,
    allocator: Arc<CachingAllocator>,
    /// Keeps the blocks' pool.
    _pool: MemoryPool,
    blocks: Vec<DevicePtr>,
}

impl Program {
    /// With real bytes, which streams copy while the program goes on. The device's memory is there all the time.
    fn new(bytes: u64) -> Result<Self, AllocError> {
        let config = OpenRegConfig::default().devices(1).capacity(bytes + 4 * GIB).resident(bytes + 4 * GIB);
        let config = config.memory(MemoryMode::Mapped).clock(Clock::Workers);
        let machine = OpenReg::new(config)?;
        let allocator = Arc::new(CachingAllocator::new(machine.clone(), Settings::default())?);
        let (pool, blocks) = blocks(&machine, &allocator, "weights", bytes / BLOCK)?;
        Ok(Self { machine, allocator, _pool: pool, blocks })
    }

    /// Puts the blocks to sleep. Another pool then takes as much memory, writes over it and gives it back: what wakes
    /// finds nothing of its own there.
    fn sleep(&self, backup: &Backup) -> Result<SleepReport, AllocError> {
        let slept = self.allocator.put_to_sleep(Tags::All, backup)?;
        assert_eq!(self.machine.used(DEVICE), 0, "all of it sleeps");
        let (pool, guests) = blocks(&self.machine, &self.allocator, "guests", self.blocks.len() as u64)?;
        let stream: Stream = self.machine.default_stream(DEVICE);
        for guest in guests {
            // SAFETY: rule 2: a live block of `BLOCK` bytes, which is freed in the order of the stream.
            unsafe { self.machine.memset_async(guest, 0xEE, BLOCK, stream) }?;
            self.allocator.free(guest)?;
        }
        self.machine.synchronize_stream(stream)?;
        drop(pool);
        self.allocator.empty_cache()?;
        assert_eq!(self.machine.used(DEVICE), 0, "the guests are gone");
        Ok(slept)
    }

    fn copy(&self, dst: DevicePtr, src: DevicePtr, kind: CopyKind) -> Result<(), AllocError> {
        // SAFETY: rule 2: one side is a live block of `BLOCK` bytes, the other a vector of that length.
        Ok(unsafe { self.machine.copy(dst, src, BLOCK, kind) }?)
    }
}

/// A pool with a tag, and so many blocks in it.
fn blocks(
    machine: &OpenReg,
    allocator: &Arc<CachingAllocator>,
    tag: &str,
    count: u64,
) -> Result<(MemoryPool, Vec<DevicePtr>), AllocError> {
    let options = PoolOptions { sleep_tag: Some(SleepTag::new(tag)), ..PoolOptions::default() };
    let pool = MemoryPool::new(allocator, DEVICE, options)?;
    let scope = pool.enter(Filter::Always)?;
    let stream: Stream = machine.default_stream(DEVICE);
    let blocks = (0..count).map(|_| allocator.malloc(BLOCK, stream)).collect::<Result<_, _>>()?;
    drop(scope);
    Ok((pool, blocks))
}

/// A row for each kind of backup that the model has a speed for.
fn modelled(bytes: u64, file_bytes: u64, link: u64) -> Result<(), AllocError> {
    let links = Links { to_device: link, to_host: link };
    let (kept, file) = (Backup::HostPinned(Retention::Keep), Backup::File(std::env::temp_dir()));
    println!(
        "| backup | slept | sleep | GB/s | of the link | calls, waits | wake | GB/s | of the link | calls, waits |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, devices, bytes, backup, cycles) in [
        ("discard", 1, bytes, &Backup::Discard, 1),
        ("host pinned, kept, first cycle", 1, bytes, &kept, 1),
        ("host pinned, kept, second cycle", 1, bytes, &kept, 2),
        ("the same, two devices", 2, bytes, &kept, 2),
        ("mapped file, through the ring", 1, file_bytes, &file, 1),
    ] {
        let Some(cycle) = modelled_cycles(devices, bytes, links, backup, cycles)?.pop() else { continue };
        let side = |ns: u64, number: usize| {
            let (rate, waits) = (rate(cycle.bytes, ns), cycle.waits[number]);
            let share = rate * 1e11 / (link * u64::from(devices)) as f64;
            let speed =
                if *backup == Backup::Discard { " | ".into() } else { format!("{rate:.1} | {share:.0} %") };
            format!("{:.0} ms | {speed} | {}, {waits}", milliseconds(ns), cycle.calls[number])
        };
        let slept = cycle.bytes / MIB;
        println!("| {name} | {slept} MiB | {} | {} |", side(cycle.sleep_ns, 0), side(cycle.wake_ns, 1));
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// GB/s.
#[allow(clippy::cast_precision_loss)]
fn rate(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / ns.max(1) as f64
}

/// The most memory this process ever had, in bytes.
fn peak_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Copies as many bytes within the host, all of which were touched before; nanoseconds of the fastest of three.
fn plain_copy(bytes: u64) -> u64 {
    let (from, mut to) = (vec![1u8; bytes as usize], vec![2u8; bytes as usize]);
    let once = || {
        let start = Instant::now();
        to.copy_from_slice(&from);
        std::hint::black_box(&to);
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    };
    std::iter::repeat_with(once).take(3).min().unwrap_or(u64::MAX)
}

/// Contents that belong to `seed`.
fn fill(contents: &mut [u8], seed: u64) {
    for (n, word) in (0u64..).zip(contents.chunks_exact_mut(8)) {
        word.copy_from_slice(&(n ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
}

fn verdict(same: bool, backup: &Backup) -> &'static str {
    match (same, backup) {
        (true, _) => "equal",
        (false, Backup::Discard) => "given up",
        (false, _) => "DIFFERENT",
    }
}

fn real(bytes: u64) -> Result<(), AllocError> {
    let directory = std::env::temp_dir();
    let kept = Backup::HostPinned(Retention::Keep);
    println!(
        "| backup | slept | sleep | of a plain copy | wake | of a plain copy | contents | held by the backup | process peak |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, backup, cycles) in [
        ("discard", Backup::Discard, 1),
        ("host pinned, released", Backup::HostPinned(Retention::Release), 1),
        ("host pinned, kept, first cycle", kept.clone(), 1),
        ("host pinned, kept, second cycle", kept, 2),
        ("mapped file", Backup::File(directory), 1),
    ] {
        let program = Program::new(bytes)?;
        let mut contents = vec![0u8; BLOCK as usize];
        for (seed, ptr) in (1..).zip(&program.blocks) {
            fill(&mut contents, seed);
            program.copy(*ptr, DevicePtr(contents.as_ptr() as u64), CopyKind::HostToDevice)?;
        }
        for _ in 1..cycles {
            program.sleep(&backup)?;
            program.allocator.sleep_mode().wake(Tags::All)?;
        }
        let slept = program.sleep(&backup)?;
        let woken = program.allocator.sleep_mode().wake(Tags::All)?;
        let plain = plain_copy(slept.slept);
        let mut read = vec![0u8; BLOCK as usize];
        let mut same = true;
        for (seed, ptr) in (1..).zip(&program.blocks) {
            fill(&mut contents, seed);
            program.copy(DevicePtr(read.as_mut_ptr() as u64), *ptr, CopyKind::DeviceToHost)?;
            same &= read == contents;
        }
        let verdict = verdict(same, &backup);
        let share = |took: Duration| match backup {
            Backup::Discard => String::new(),
            _ => format!("{:.0} %", milliseconds(plain) / (took.as_secs_f64() * 10.0)),
        };
        println!(
            "| {name} | {} MiB | {:.0} ms | {} | {:.0} ms | {} | {verdict} | {} MiB | {} MiB |",
            slept.slept / MIB,
            slept.took.as_secs_f64() * 1e3,
            share(slept.took),
            woken.took.as_secs_f64() * 1e3,
            share(woken.took),
            slept.backup_held / MIB,
            peak_resident() / MIB,
        );
        if verdict == "DIFFERENT" {
            return Err(AllocError::Limit("contents changed while they slept"));
        }
        for ptr in &program.blocks {
            program.allocator.free(*ptr)?;
        }
    }
    Ok(())
}
