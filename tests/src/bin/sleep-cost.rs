//! What sleeping and waking costs. Run by `cargo xtask bench sleep`.
//!
//! `sleep-cost modelled GIB`: a simulated device whose memory has no bytes, and the time that its cost model gives the driver calls.
//! `sleep-cost bytes GIB`: real bytes, each kind of backup; the contents are compared, and the clock is the machine's.

use alloc_core::backend::{Backend, CopyKind};
use alloc_core::config::Settings;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::quiet::Sleeps;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Bytes of each block: no multiple of a granule.
const BLOCK: u64 = 193 * MIB;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["modelled", gib] => gib.parse().ok().map(modelled),
        ["bytes", gib] => gib.parse().ok().map(bytes),
        _ => None,
    };
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: sleep-cost modelled|bytes GIB");
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
    fn new(gib: u64, memory: MemoryMode) -> Result<Self, AllocError> {
        let bytes = gib * GIB;
        let config = OpenRegConfig::default().devices(1).capacity(bytes + 4 * GIB).memory(memory);
        let machine = OpenReg::new(config)?;
        let allocator = Arc::new(CachingAllocator::new(machine.clone(), Settings::default())?);
        let options = PoolOptions { sleep_tag: Some(SleepTag::new("weights")), ..PoolOptions::default() };
        let pool = MemoryPool::new(&allocator, DEVICE, options)?;
        let scope = pool.enter(Filter::Always)?;
        let stream: Stream = machine.default_stream(DEVICE);
        let blocks = (0..bytes / BLOCK).map(|_| allocator.malloc(BLOCK, stream)).collect::<Result<_, _>>()?;
        drop(scope);
        Ok(Self { machine, allocator, _pool: pool, blocks })
    }

    fn copy(&self, dst: DevicePtr, src: DevicePtr, kind: CopyKind) -> Result<(), AllocError> {
        // SAFETY: rule 2: one side is a live block of `BLOCK` bytes, the other a vector of that length.
        Ok(unsafe { self.machine.copy(dst, src, BLOCK, kind) }?)
    }
}

fn modelled(gib: u64) -> Result<(), AllocError> {
    let program = Program::new(gib, MemoryMode::Reserved)?;
    let held = program.machine.used(DEVICE);
    program.machine.reset_calls();
    let slept = program.allocator.put_to_sleep(Tags::All, &Backup::Discard)?;
    let (sleep_ns, sleep_calls) = (program.machine.modelled_driver_time(), program.machine.calls().total());
    assert_eq!((program.machine.used(DEVICE), slept.slept), (0, held), "all of it sleeps");
    program.machine.reset_calls();
    program.allocator.sleep_mode().wake(Tags::All)?;
    let (wake_ns, wake_calls) = (program.machine.modelled_driver_time(), program.machine.calls().total());
    assert_eq!(program.machine.used(DEVICE), held, "all of it is back");
    println!("| backup | slept | sleep, modelled | driver calls | wake, modelled | driver calls |");
    println!("|---|---|---|---|---|---|");
    println!(
        "| discard | {} MiB | {:.1} ms | {sleep_calls} | {:.1} ms | {wake_calls} |",
        slept.slept / MIB,
        milliseconds(sleep_ns),
        milliseconds(wake_ns),
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The most memory this process ever had, in bytes.
fn peak_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn bytes(gib: u64) -> Result<(), AllocError> {
    let directory = std::env::temp_dir();
    println!("| backup | slept | sleep | wake | contents | held by the backup | process peak |");
    println!("|---|---|---|---|---|---|---|");
    for (name, backup) in [
        ("discard", Backup::Discard),
        ("host pinned, released", Backup::HostPinned(Retention::Release)),
        ("host pinned, kept (2nd cycle)", Backup::HostPinned(Retention::Keep)),
        ("mapped file", Backup::File(directory)),
    ] {
        let program = Program::new(gib, MemoryMode::Mapped)?;
        let mut contents = vec![0u8; BLOCK as usize];
        let fill = |contents: &mut Vec<u8>, seed: u64| {
            for (n, word) in (0u64..).zip(contents.chunks_exact_mut(8)) {
                word.copy_from_slice(&(n ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            }
        };
        for (seed, ptr) in (1..).zip(&program.blocks) {
            fill(&mut contents, seed);
            program.copy(*ptr, DevicePtr(contents.as_ptr() as u64), CopyKind::HostToDevice)?;
        }
        if backup == Backup::HostPinned(Retention::Keep) {
            program.allocator.put_to_sleep(Tags::All, &backup)?;
            program.allocator.sleep_mode().wake(Tags::All)?;
        }
        let start = Instant::now();
        let slept = program.allocator.put_to_sleep(Tags::All, &backup)?;
        let sleep_time = start.elapsed();
        assert_eq!(program.machine.used(DEVICE), 0, "all of it sleeps");
        let start = Instant::now();
        program.allocator.sleep_mode().wake(Tags::All)?;
        let wake_time = start.elapsed();
        let mut read = vec![0u8; BLOCK as usize];
        let mut same = true;
        for (seed, ptr) in (1..).zip(&program.blocks) {
            fill(&mut contents, seed);
            program.copy(DevicePtr(read.as_mut_ptr() as u64), *ptr, CopyKind::DeviceToHost)?;
            same &= read == contents;
        }
        let verdict = match (same, &backup) {
            (true, _) => "equal",
            (false, Backup::Discard) => "given up",
            (false, _) => "DIFFERENT",
        };
        println!(
            "| {name} | {} MiB | {:.0} ms | {:.0} ms | {verdict} | {} MiB | {} MiB |",
            slept.slept / MIB,
            sleep_time.as_secs_f64() * 1e3,
            wake_time.as_secs_f64() * 1e3,
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
