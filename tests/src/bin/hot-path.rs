//! The hot path, to be counted: allocate and free from a warm cache, over a HIP-labelled backend or over the
//! masquerade before it.
//!
//! `hot-path bare|masquerade PAIRS`; `cargo xtask bench --masquerade` runs it under callgrind.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::types::{DeviceIndex, DeviceKind};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use conformance::interpose::{Hook, Interposed};
use masquerade::{Masquerade, Policy};
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
    let [subject, pairs] = arguments.as_slice() else { return usage() };
    let Ok(pairs) = pairs.parse() else { return usage() };
    let config = OpenRegConfig::default().devices(1).capacity(1 << 30);
    let machine = match OpenReg::new(config) {
        Ok(machine) => machine,
        Err(error) => return failed(&error),
    };
    let hip: Arc<dyn Backend> = Arc::new(Interposed::new(machine, AsHip));
    let backend = match subject.as_str() {
        "bare" => hip,
        "masquerade" => match Masquerade::new(hip, Policy::Flip) {
            Ok(masquerade) => masquerade,
            Err(error) => return failed(&error),
        },
        _ => return usage(),
    };
    match churn(backend, pairs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: hot-path bare|masquerade PAIRS");
    ExitCode::from(2)
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// Sizes from 512 bytes to 4 MiB, sixteen of which are live at a time.
fn churn(backend: Arc<dyn Backend>, pairs: usize) -> Result<(), AllocError> {
    let stream = backend.default_stream(DeviceIndex(0));
    let allocator: CachingAllocator = CachingAllocator::new(backend, Settings::default())?;
    let size = |n: usize| 512_u64 << (n * 7 % 14);
    let mut live = Vec::with_capacity(16);
    for n in 0..16 {
        live.push(allocator.malloc(size(n), stream)?);
    }
    for n in 0..pairs {
        allocator.free(live[n % 16])?;
        live[n % 16] = allocator.malloc(size(n + 3), stream)?;
    }
    Ok(())
}
