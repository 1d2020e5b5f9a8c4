//! The conformance kit over the backend of `example.c`.

fn main() -> std::process::ExitCode {
    granule_conformance::main("example (C table)", c_backend::open)
}
