//! A profiler's library, loaded at run time.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::fmt;
use std::path::Path;

/// Whose profilers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// NVIDIA's: NVTX.
    Nvidia,
    /// AMD's: roctx.
    Amd,
}

impl Vendor {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Nvidia, Self::Amd];

    /// Where the library may be. CUDA has another one from 12.9 on; of AMD's two, the newer one comes first.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Nvidia => &["libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"],
            Self::Amd => &["librocprofiler-sdk-roctx.so.1", "libroctx64.so.4"],
        }
    }

    /// The environment variable that names another file.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Nvidia => "GRANULE_NVTX_LIBRARY",
            Self::Amd => "GRANULE_ROCTX_LIBRARY",
        }
    }

    /// Its functions: push, pop.
    const fn functions(self) -> [&'static str; 2] {
        match self {
            Self::Nvidia => ["nvtxRangePushA", "nvtxRangePop"],
            Self::Amd => ["roctxRangePushA", "roctxRangePop"],
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvidia => "NVTX",
            Self::Amd => "roctx",
        })
    }
}

/// Why a profiler's library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Whose it is.
    pub vendor: Vendor,
    /// What was tried, and what the loader said.
    pub reason: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = self.vendor.variable();
        write!(f, "no {} library: {}; {variable} names another file", self.vendor, self.reason)
    }
}

impl std::error::Error for LoadError {}

/// The functions of both vendors have these types.
type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;

#[derive(Debug)]
pub(super) struct Library {
    vendor: Vendor,
    push: Push,
    pop: Pop,
    /// Never unloaded while the functions can be called.
    _library: libloading::Library,
}

impl Library {
    /// The file that the environment names, else the first of the usual ones that is there.
    pub(super) fn find(vendor: Vendor) -> Result<Self, LoadError> {
        let named: Option<OsString> = std::env::var_os(vendor.variable()).filter(|name| !name.is_empty());
        if let Some(name) = named {
            return Self::open(vendor, Path::new(&name));
        }
        let mut reasons = Vec::new();
        for file in vendor.files() {
            match Self::open(vendor, Path::new(file)) {
                Ok(library) => return Ok(library),
                Err(error) => reasons.push(error.reason),
            }
        }
        Err(LoadError { vendor, reason: reasons.join("; ") })
    }

    pub(super) fn open(vendor: Vendor, path: &Path) -> Result<Self, LoadError> {
        let failed = |error: libloading::Error| {
            // What the loader said is the error's source.
            let said = std::error::Error::source(&error).map(|said| format!(": {said}")).unwrap_or_default();
            LoadError { vendor, reason: format!("{error}{said}") }
        };
        // SAFETY: initialisers of profilers' libraries may run at any time: programs link them or load them like this.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        let [push, pop] = vendor.functions();
        // SAFETY: the vendors' headers declare this function with this type.
        let push = *unsafe { library.get::<Push>(push) }.map_err(failed)?;
        // SAFETY: as above.
        let pop = *unsafe { library.get::<Pop>(pop) }.map_err(failed)?;
        Ok(Self { vendor, push, pop, _library: library })
    }

    pub(super) fn vendor(&self) -> Vendor {
        self.vendor
    }

    pub(super) fn push(&self, name: &CStr) {
        // SAFETY: the library is loaded, and the name is a C text that lives during the call.
        unsafe { (self.push)(name.as_ptr()) };
    }

    pub(super) fn pop(&self) {
        // SAFETY: the library is loaded. Where this thread has no range, the functions answer with an error.
        unsafe { (self.pop)() };
    }
}
