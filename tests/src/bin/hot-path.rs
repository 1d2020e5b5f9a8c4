//! The hot path, to be counted: allocate and free from a warm cache, over a HIP-labelled backend or over the
//! masquerade before it. Says what the driver would have taken for it, by the simulated device's cost model.
//!
//! `hot-path bare|granule|masquerade PAIRS [BYTES]`; `cargo xtask bench masquerade` runs it under callgrind.

use alloc_core::backend::Backend;
use alloc_core::config::{PolicyName, Settings};
use alloc_core::types::{DeviceIndex, DeviceKind};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_masquerade::{Masquerade, Policy};
use std::process::ExitCode;
use std::sync::Arc;

/// The simulated machine says that it is HIP.
#[derive(Debug)]
struct AsHip;

impl Hook for AsHip {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Hip
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (subject, pairs, bytes) = match arguments.as_slice() {
        [subject, pairs] => (subject, pairs, None),
        [subject, pairs, bytes] => (subject, pairs, Some(bytes)),
        _ => return usage(),
    };
    let (Ok(pairs), Ok(bytes)) = (pairs.parse(), bytes.map(|bytes| bytes.parse()).transpose()) else {
        return usage();
    };
    let config = OpenRegConfig::default().devices(1).capacity(1 << 30);
    let machine = match OpenReg::new(config) {
        Ok(machine) => machine,
        Err(error) => return failed(&error),
    };
    let hip: Arc<dyn Backend> = Arc::new(Interposed::new(machine.clone(), AsHip));
    let settings = match subject.as_str() {
        "granule" => Settings { policy: Some(PolicyName::Granule), ..Settings::default() },
        _ => Settings::default(),
    };
    let backend = match subject.as_str() {
        "bare" | "granule" => hip,
        "masquerade" => match Masquerade::new(hip, Policy::Flip) {
            Ok(masquerade) => masquerade,
            Err(error) => return failed(&error),
        },
        _ => return usage(),
    };
    match churn(&machine, backend, settings, (pairs, bytes)) {
        Ok(nanoseconds) => {
            println!("{:.1} ns of driver time a pair", nanoseconds as f64 / pairs as f64);
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: hot-path bare|granule|masquerade PAIRS [BYTES]");
    ExitCode::from(2)
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// Blocks of 512 bytes and of 64 KiB in turn, or all of one size; sixteen are live at a time. Returns the driver's
/// time for the pairs in nanoseconds.
fn churn(
    machine: &OpenReg,
    backend: Arc<dyn Backend>,
    settings: Settings,
    (pairs, bytes): (usize, Option<u64>),
) -> Result<u64, AllocError> {
    let stream = backend.default_stream(DeviceIndex(0));
    let allocator = CachingAllocator::new(backend, settings)?;
    let size = |n: usize| bytes.unwrap_or(512 << (n * 7 % 14));
    let mut live = Vec::with_capacity(16);
    for n in 0..16 {
        live.push(allocator.malloc(size(n), stream)?);
    }
    machine.reset_calls();
    for n in 0..pairs {
        allocator.free(live[n % 16])?;
        live[n % 16] = allocator.malloc(size(n + 3), stream)?;
    }
    Ok(machine.modelled_driver_time())
}
