//! Ranges over lookalikes of the profilers' libraries, compiled here.

use crate::support::{DEVICE, program};
use granule_export::metrics::ranges::{Markers, MemoryRange, Range, Vendor};
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the lookalike of a vendor's library.
fn lookalike(folder: &Path, vendor: Vendor) -> PathBuf {
    let (file, which) = match vendor {
        Vendor::Nvidia => ("libnvToolsExt.so.1", "-DNVTX"),
        Vendor::Amd => ("libroctx64.so.4", "-DROCTX"),
    };
    let library = folder.join(file);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metrics/lookalike.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", which, source, "-o"]).arg(&library).status().unwrap();
    assert!(compiled.success());
    library
}

/// What a lookalike has counted.
struct Counts(libloading::Library);

impl Counts {
    fn of(library: &Path) -> Self {
        // SAFETY: the library above, which has no initialisers.
        Self(unsafe { libloading::Library::new(library) }.unwrap())
    }

    fn get(&self, name: &str) -> c_int {
        // SAFETY: the source declares these functions with this type.
        let function =
            unsafe { self.0.get::<extern "C" fn() -> c_int>(format!("granule_test_{name}")) }.unwrap();
        function()
    }

    fn latest(&self) -> String {
        // SAFETY: the source declares this function with this type.
        let function =
            unsafe { self.0.get::<extern "C" fn() -> *const c_char>("granule_test_latest") }.unwrap();
        // SAFETY: the text is static and ends with a zero.
        unsafe { CStr::from_ptr(function()) }.to_str().unwrap().to_owned()
    }
}

#[test]
fn ranges_are_shown_by_every_library_and_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let files = Vendor::ALL.map(|vendor| (vendor, lookalike(folder.path(), vendor)));
    let markers = Markers::from_files(files.iter().map(|(vendor, path)| (*vendor, path.as_path())));
    assert_eq!(markers.found().collect::<Vec<_>>(), Vendor::ALL);
    assert!(markers.missing().is_empty());
    for (_, path) in &files {
        let counts = Counts::of(path);
        let outer = markers.push("outer");
        {
            let _inner = markers.push("inner\0 and more");
            assert_eq!((counts.latest().as_str(), counts.get("depth")), ("inner", 2));
        }
        assert_eq!(counts.get("depth"), 1);
        drop(outer);
        assert_eq!(counts.get("depth"), 0);
        assert_eq!(counts.get("pushes"), counts.get("pops"));
    }
}

#[test]
fn without_a_library_ranges_do_nothing_and_the_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere.so");
    // The other vendor's library has other functions.
    let other = lookalike(folder.path(), Vendor::Amd);
    let markers =
        Markers::from_files([(Vendor::Nvidia, nowhere.as_path()), (Vendor::Nvidia, other.as_path())]);
    assert_eq!(markers.found().count(), 0);
    let reasons: Vec<_> = markers.missing().iter().map(ToString::to_string).collect();
    assert!(
        reasons[0].starts_with("no NVTX library: ") && reasons[0].contains("nowhere.so"),
        "{}",
        reasons[0]
    );
    assert!(reasons[0].ends_with("GRANULE_NVTX_LIBRARY names another file"), "{}", reasons[0]);
    assert!(reasons[1].contains("nvtxRangePushA"), "{}", reasons[1]);
    drop(markers.push("nothing"));
}

/// The libraries of the process are found once, so this has a process of its own.
const INNER: &str = "ranges::in_a_process_with_the_variables_set";

#[test]
fn the_environment_names_the_libraries_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let [nvtx, roctx] = Vendor::ALL.map(|vendor| lookalike(folder.path(), vendor));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", INNER, "--ignored"]);
    command.env("GRANULE_NVTX_LIBRARY", &nvtx).env("GRANULE_ROCTX_LIBRARY", &roctx);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "needs the variables that another test sets"]
fn in_a_process_with_the_variables_set() {
    let nvtx = Counts::of(Path::new(&std::env::var_os("GRANULE_NVTX_LIBRARY").unwrap()));
    let roctx = Counts::of(Path::new(&std::env::var_os("GRANULE_ROCTX_LIBRARY").unwrap()));
    assert_eq!(Markers::of_process().found().count(), 2);
    let (allocator, kept) = program();
    let step = Range::push("step");
    let range = MemoryRange::begin(&allocator, DEVICE, "release").unwrap();
    assert_eq!((nvtx.latest().as_str(), roctx.latest().as_str()), ("release", "release"));
    assert_eq!((nvtx.get("depth"), roctx.get("depth")), (2, 2));
    allocator.free(kept).unwrap();
    assert_eq!(range.peaks().unwrap().num_frees, 1);
    let bytes = range.finish().unwrap().allocated_bytes;
    assert_eq!((bytes.begin, bytes.end, bytes.peak), (3 << 20, 0, 3 << 20));
    assert_eq!((nvtx.get("depth"), roctx.get("depth")), (1, 1));
    drop(step);
    assert_eq!((nvtx.get("depth"), roctx.get("depth")), (0, 0));
}
