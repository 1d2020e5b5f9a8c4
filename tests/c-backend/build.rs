//! Compiles the backend against the header that vendors get.

fn main() {
    println!("cargo::rerun-if-changed=example.c");
    println!("cargo::rerun-if-changed=layout.c");
    println!("cargo::rerun-if-changed=../../crates/backend-c/include");
    cc::Build::new()
        .file("example.c")
        .file("layout.c")
        .include("../../crates/backend-c/include")
        .std("c11")
        .define("_GNU_SOURCE", None)
        .warnings_into_errors(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-unused-parameter")
        .compile("example");
    println!("cargo::rustc-link-lib=pthread");
}
