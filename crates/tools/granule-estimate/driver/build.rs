//! The library has the name that programs ask for, and stays where it was loaded once: its threads run on.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // It is part of each command, and lines for a debugger are five sixths of it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-all");
    println!("cargo::rerun-if-changed=build.rs");
}
