//! The conformance kit over the simulated device: the program that a vendor writes for a backend.

use backend_api::{Backend, Result};
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
use std::sync::Arc;

fn open() -> Result<Arc<dyn Backend>> {
    let config = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
    Ok(OpenReg::new(config)?)
}

fn main() -> std::process::ExitCode {
    granule_conformance::main("openreg", open)
}
