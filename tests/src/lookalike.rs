//! The lookalike drivers as cargo builds them beside the tests, and their controls.

use std::ffi::{OsStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A lookalike driver. This crate depends on them, so cargo builds them into the folder of every test's binary.
///
/// # Panics
/// Where it is not there.
fn driver(file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let path = test.with_file_name(file);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

/// The lookalike of NVIDIA's driver.
///
/// # Panics
/// Where it was not built.
#[must_use]
pub fn cuda_library() -> PathBuf {
    driver("liblookalike_cuda.so")
}

/// The lookalike of AMD's runtime.
///
/// # Panics
/// Where it was not built.
#[must_use]
pub fn hip_library() -> PathBuf {
    driver("liblookalike_hip.so")
}

/// A copy of a lookalike, in `folder`, that does not export these functions.
///
/// # Panics
/// Where it does not export one of them anyway, or the copy cannot be written.
#[must_use]
pub fn without(library: &Path, functions: &[&str], folder: &Path) -> PathBuf {
    let mut image = std::fs::read(library).expect("the lookalike can be read");
    let absent = lookalike::absence::hide(&mut image, functions);
    assert!(absent.is_empty(), "{} has no {absent:?}", library.display());
    let copy =
        folder.join(format!("{}-{}", functions.join("-"), library.file_name().unwrap_or_default().display()));
    std::fs::write(&copy, image).expect("the copy can be written");
    copy
}

/// Whether tests that can are to run over the machine's own drivers (`GRANULE_REAL_DRIVERS`).
#[must_use]
pub fn real_drivers() -> bool {
    std::env::var_os("GRANULE_REAL_DRIVERS").is_some()
}

/// A command that finds lookalikes instead of drivers, on the machine that `machine` describes
/// (`GRANULE_LOOKALIKE`).
pub fn with_lookalikes(program: impl AsRef<OsStr>, machine: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("GRANULE_LOOKALIKE", machine)
        .env("GRANULE_CUDA_LIBRARY", cuda_library())
        .env("GRANULE_HIP_LIBRARY", hip_library());
    command
}

/// The same, and code that looks for `libcuda.so` by its name finds the same library.
///
/// # Panics
/// Where the folder that has the name cannot be made.
pub fn with_named_lookalikes(program: impl AsRef<OsStr>, machine: &str) -> Command {
    let library = cuda_library();
    let folder = library.with_file_name("lookalike-by-name");
    std::fs::create_dir_all(&folder).expect("a folder can be made beside the tests");
    let named = folder.join("libcuda.so");
    match std::os::unix::fs::symlink(&library, &named) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}: {named:?}"),
        _ => {}
    }
    let mut command = with_lookalikes(program, machine);
    command.env("LD_LIBRARY_PATH", folder);
    command
}

/// What a test can ask and order of a loaded lookalike driver.
#[derive(Debug)]
pub struct Controls(libloading::Library);

impl Controls {
    /// The controls of a driver that the backend has loaded, too: the same library, so the same machine.
    ///
    /// # Panics
    /// Where the library cannot be opened.
    #[must_use]
    pub fn of(library: &Path) -> Self {
        // SAFETY: a library of this workspace whose initialisers do nothing.
        let opened = unsafe { libloading::Library::new(library) };
        Self(opened.expect("the lookalike can be opened"))
    }

    fn symbol<T>(&self, name: &str) -> libloading::Symbol<'_, T> {
        // SAFETY: the callers below give the types with which the lookalikes declare these functions.
        let found = unsafe { self.0.get::<T>(name) };
        found.expect("a lookalike exports its controls")
    }

    /// Calls of entry points so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.symbol::<extern "C" fn() -> u64>("granule_lookalike_calls")()
    }

    /// Lets the `k`-th call from now fail with the driver's `code`; 0 takes that back.
    pub fn fail(&self, k: u64, code: i32) {
        self.symbol::<extern "C" fn(u64, i32)>("granule_lookalike_fail")(k, code);
    }

    /// The same for the `nth` call of one function.
    pub fn fail_function(&self, name: &std::ffi::CStr, nth: u64, code: i32) {
        type FailFunction = unsafe extern "C" fn(*const c_char, u64, i32);
        let fail = self.symbol::<FailFunction>("granule_lookalike_fail_function");
        // SAFETY: a C text that lives during the call.
        unsafe { fail(name.as_ptr(), nth, code) };
    }

    /// Bytes in use on a device.
    #[must_use]
    pub fn used(&self, device: u16) -> u64 {
        self.symbol::<extern "C" fn(u16) -> u64>("granule_lookalike_used")(device)
    }

    /// Loses a device: later calls about it fail as after a fatal error.
    pub fn lose_device(&self, device: u16) {
        self.symbol::<extern "C" fn(u16)>("granule_lookalike_lose_device")(device);
    }

    /// Wrong uses of memory so far.
    #[must_use]
    pub fn traps(&self) -> u64 {
        self.symbol::<extern "C" fn() -> u64>("granule_lookalike_traps")()
    }
}
