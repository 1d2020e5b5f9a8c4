//! The device contract, checked: `cargo run --example conformance`, with `--json` for machines.

fn main() -> std::process::ExitCode {
    granule_conformance::main("opencl", || Ok(backend_opencl::OpenClBackend::new()?))
}
