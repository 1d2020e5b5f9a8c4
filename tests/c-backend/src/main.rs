//! The conformance kit over the backend of `example.c`.

use alloc_core::types::DeviceKind;
use backend_c::CBackend;

fn main() -> std::process::ExitCode {
    granule_conformance::main("example (C table)", || {
        // SAFETY: a static table, compiled with this version's header, whose functions keep what it says.
        Ok(unsafe { CBackend::from_table(None, DeviceKind::PrivateUse1, c_backend::table())? })
    })
}
