//! Finds the simulated driver that cargo has built for this script, so that it can be embedded.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

const NAME: &str = "libgranule_estimate_driver";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_driver)");
    if std::env::var_os("CARGO_FEATURE_DRIVER").is_none() {
        return;
    }
    if machine("HOST") != machine("TARGET") {
        println!("cargo::warning=no simulated driver in a build for another machine than this one");
        return;
    }
    let library = built().unwrap_or_else(|| panic!("cargo has built no {NAME} beside this script"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder")).join("libcuda.so.1");
    std::fs::copy(&library, out).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    println!("cargo::rustc-cfg=has_driver");
    println!("cargo::rerun-if-changed={}", library.display());
}

/// The processor and the system of a target. The C library does not matter: PyTorch loads the driver, not the command, and so
/// the command may be a static program.
fn machine(variable: &str) -> Option<(String, bool)> {
    let target = std::env::var(variable).ok()?;
    Some((target.split('-').next()?.to_owned(), target.contains("-linux-")))
}

/// The newest library of that name: cargo adds a hash where the sources are from a registry, and may have kept others.
fn built() -> Option<PathBuf> {
    let script = std::env::current_exe().ok()?;
    // target/<profile>/build/granule-estimate-<hash>/build-script-build
    let folder = script.ancestors().nth(3)?.join("deps");
    let changed =
        |path: &Path| path.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let entries = folder.read_dir().ok()?.flatten().map(|entry| entry.path());
    let libraries = entries.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(NAME) && name.ends_with(".so")
    });
    libraries.max_by_key(|path| changed(path))
}
