//! Compiles the part that must be C++, and names the library.
//!
//! The workspace promises to build with a C compiler alone. Where no C++ compiler is found, the library is
//! built without `openreg::addTaskToStream`, with a warning: programs that queue tasks will not link.

use std::process::{Command, Stdio};

const SOURCE: &str = "src/function.cpp";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rustc-check-cfg=cfg(openreg_cxx)");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libopenreg.so");
    // Stream workers run code of this library until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    let mut build = cc::Build::new();
    build.cpp(true).std("c++11").warnings_into_errors(true).extra_warnings(true).flag("-fvisibility=hidden");
    let compiler = build.get_compiler();
    let runs = Command::new(compiler.path())
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !runs {
        println!(
            "cargo::warning=no C++ compiler ({}; set CXX): libopenreg.so lacks openreg::addTaskToStream",
            compiler.path().display()
        );
        return;
    }
    build.file(SOURCE).compile("openreg_function");
    println!("cargo::rustc-cfg=openreg_cxx");
    println!("cargo::rustc-env=OPENREG_CXX={}", compiler.path().display());
}
