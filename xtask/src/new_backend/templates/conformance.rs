//! The device contract, checked: `cargo run --example conformance`, with `--json` for machines.

fn main() -> std::process::ExitCode {
    conformance::main("NAME", || Ok(backend_NAME::NAME_TYPE::new()?))
}
