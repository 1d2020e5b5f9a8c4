//! The device contract, checked: `cargo run --example conformance`, with `--json` for machines.

mod hold;

use backend_api::{Backend, HostFunction, Result, types::Stream};
use backend_opencl::OpenClBackend;
use granule_conformance::Subject;
use std::sync::{Arc, OnceLock};

static BACKEND: OnceLock<Arc<OpenClBackend>> = OnceLock::new();

fn main() -> std::process::ExitCode {
    // PoCL calls host functions on the threads that do all work, and may have one of them.
    granule_conformance::main_over(&Subject::new("opencl", open).held_by(hold))
}

fn open() -> Result<Arc<dyn Backend>> {
    let backend = OpenClBackend::new()?;
    Ok(BACKEND.get_or_init(|| backend).clone())
}

fn hold(stream: Stream) -> Result<HostFunction> {
    hold::hold(BACKEND.get().expect("it is open"), stream)
}
