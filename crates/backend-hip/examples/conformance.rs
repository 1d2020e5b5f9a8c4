//! The conformance kit over this machine's HIP, or over the library that `GRANULE_HIP_LIBRARY` names.

use backend_api::{Backend, Result};
use backend_hip::Hip;
use std::process::ExitCode;
use std::sync::Arc;

fn open() -> Result<Arc<dyn Backend>> {
    Ok(Hip::load()?)
}

fn main() -> ExitCode {
    granule_conformance::main("hip", open)
}
