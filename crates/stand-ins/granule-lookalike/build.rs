//! The files of personalities are part of the library.

fn main() {
    println!("cargo:rerun-if-changed=personalities");
}
