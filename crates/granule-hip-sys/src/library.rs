//! Finding and opening libamdhip64 at run time.

use crate::Version;
use crate::abi6::{hipRuntimeGetVersion_t, hipSuccess};
use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use libloading::os::unix::{self, RTLD_LOCAL, RTLD_NOW};
use std::error::Error;
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// Names the library to load; nothing else is tried then.
pub const LIBRARY_VARIABLE: &str = "GRANULE_HIP_LIBRARY";

/// Folders to look in before the system's own search, in this order.
const FOLDER_VARIABLES: [&str; 2] = ["ROCM_PATH", "HIP_PATH"];

/// Where ROCm's packages put it, which the system's search does not always know.
const USUAL_FOLDER: &str = "/opt/rocm/lib";

/// Older ones have other layouts and numbers.
const OLDEST: u32 = 6;

/// Newest first. A runtime package has no unversioned name; a development package adds it. The last one is opened to be
/// refused by its version, where a machine has no other.
const SONAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
const UNVERSIONED: &str = "libamdhip64.so";

/// An open HIP library.
///
/// It stays open for the rest of the process: the driver below it starts threads that run its code, so unloading it
/// would pull the code from under them.
#[derive(Debug)]
pub struct Library {
    handle: ManuallyDrop<unix::Library>,
    path: PathBuf,
    version: Version,
}

impl Library {
    /// Opens the first library that loads and says which version it is.
    ///
    /// Tried in turn: the file named by `GRANULE_HIP_LIBRARY` and, if that is set, nothing else; `$ROCM_PATH/lib`, then
    /// `$HIP_PATH/lib`, with sonames 7, 6 and 5 in each; the same sonames and the unversioned name by the system's search;
    /// the sonames in `/opt/rocm/lib`.
    /// Needs no device, prints nothing, and may take as long as the driver's own start-up code does.
    ///
    /// # Errors
    ///
    /// [`LoadError`] lists every attempt with its reason.
    pub fn open() -> Result<Library, LoadError> {
        Self::open_first(candidates(|name| std::env::var_os(name)))
    }

    /// Opens this one file, whatever the environment says. A bare name is found by the system's search.
    ///
    /// # Errors
    ///
    /// [`LoadError`] with the one attempt.
    pub fn open_file(path: &Path) -> Result<Library, LoadError> {
        Self::open_first(vec![path.to_owned()])
    }

    fn open_first(candidates: Vec<PathBuf>) -> Result<Library, LoadError> {
        let mut attempts = Vec::new();
        for path in candidates {
            match Self::open_one(&path) {
                Ok(library) => return Ok(library),
                Err(reason) => attempts.push(Attempt { path, reason }),
            }
        }
        Err(LoadError { attempts })
    }

    fn open_one(path: &Path) -> Result<Library, String> {
        // SAFETY: opening runs the library's initialisers. They are those of a HIP runtime, which any HIP program
        // runs, by the names tried or by the word of whoever set the variable.
        let handle = unsafe { unix::Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let handle = ManuallyDrop::new(handle.map_err(|error| dlopen_message(&error))?);
        let version = version(&handle)?;
        if version.major < OLDEST {
            return Err(format!(
                "HIP {version} is ROCm {}'s, which is not served: install ROCm 6 or 7 (libamdhip64.so.6 or libamdhip64.so.7)",
                version.major
            ));
        }
        Ok(Library { handle, path: path.to_owned(), version })
    }

    /// What it was opened as: a path, or a bare name that the system's search found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version that the library reports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The address of a function, if the library has one of that name. It is valid until the process ends.
    ///
    /// Made to be given to `Functions::load` of [`abi6`](crate::abi6), or of [`abi7`](crate::abi7).
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        symbol(&self.handle, name)
    }
}

fn symbol(handle: &unix::Library, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the symbol is only asked for as an address; nothing is called or read through it here.
    let symbol = unsafe { handle.get::<*mut c_void>(name) };
    symbol.ok().map(unix::Symbol::as_raw_ptr).filter(|address| !address.is_null())
}

/// What the system said; libloading's own text leaves it to the error below.
fn dlopen_message(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Asks the library for its version, which needs no device.
fn version(handle: &unix::Library) -> Result<Version, String> {
    let address = symbol(handle, c"hipRuntimeGetVersion").ok_or("it has no hipRuntimeGetVersion")?;
    // SAFETY: the name belongs to this signature in every version.
    let get_version = unsafe { core::mem::transmute::<*mut c_void, hipRuntimeGetVersion_t>(address) };
    let mut packed: c_int = 0;
    // SAFETY: the only argument is a place for an integer, which lives through the call.
    let status = unsafe { get_version(&raw mut packed) };
    if status != hipSuccess {
        return Err(format!("hipRuntimeGetVersion answered {status}"));
    }
    Version::from_packed(packed).ok_or_else(|| format!("hipRuntimeGetVersion reported {packed}"))
}

/// What to try, in order, under these environment variables. An empty variable counts as not set.
fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = path(LIBRARY_VARIABLE) {
        return vec![file];
    }
    let folders = FOLDER_VARIABLES.into_iter().filter_map(path);
    let in_folders = folders.flat_map(|folder| SONAMES.map(|name| folder.join("lib").join(name)));
    let by_search = SONAMES.into_iter().chain([UNVERSIONED]).map(PathBuf::from);
    let in_usual_folder = SONAMES.map(|name| Path::new(USUAL_FOLDER).join(name));
    in_folders.chain(by_search).chain(in_usual_folder).collect()
}

/// No HIP library could be used.
#[derive(Clone, Debug, thiserror::Error)]
pub struct LoadError {
    attempts: Vec<Attempt>,
}

impl LoadError {
    /// What was tried, in order.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AMD's HIP runtime was not found; tried ")?;
        let mut attempts = self.attempts.iter().peekable();
        while let Some(attempt) = attempts.next() {
            write!(formatter, "{}", attempt.path.display())?;
            match attempts.peek() {
                // What several have in common is said once, after the last of them.
                Some(next) if next.why() == attempt.why() => write!(formatter, ", ")?,
                Some(_) => write!(formatter, ": {}; ", attempt.why())?,
                None => write!(formatter, ": {}", attempt.why())?,
            }
        }
        write!(formatter, ". Install ROCm's HIP runtime package, or name the library in {LIBRARY_VARIABLE}")
    }
}

/// One library that was tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// A path, or a bare name for the system's search.
    pub path: PathBuf,
    /// The system's message, or what the library lacks.
    pub reason: String,
}

impl Attempt {
    /// The reason without the name, with which the system's words begin.
    fn why(&self) -> &str {
        let path = self.path.to_string_lossy();
        self.reason.strip_prefix(&*path).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(variables: &[(&str, &str)]) -> Vec<String> {
        let found = candidates(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        });
        found.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn bare_names_are_tried_newest_first() {
        let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
        let last = [
            "/opt/rocm/lib/libamdhip64.so.7",
            "/opt/rocm/lib/libamdhip64.so.6",
            "/opt/rocm/lib/libamdhip64.so.5",
        ];
        assert_eq!(tried(&[]), [&names[..], &last].concat());
        assert_eq!(tried(&[(LIBRARY_VARIABLE, ""), ("ROCM_PATH", "")]), tried(&[]));
    }

    #[test]
    fn folders_come_before_the_search() {
        let tried = tried(&[("HIP_PATH", "/hip"), ("ROCM_PATH", "/rocm")]);
        assert_eq!(tried.len(), 13);
        assert_eq!(tried[0], "/rocm/lib/libamdhip64.so.7");
        assert_eq!(tried[2], "/rocm/lib/libamdhip64.so.5");
        assert_eq!(tried[3], "/hip/lib/libamdhip64.so.7");
        assert_eq!(tried[6], "libamdhip64.so.7");
    }

    #[test]
    fn a_named_file_is_the_only_one_tried() {
        assert_eq!(tried(&[(LIBRARY_VARIABLE, "/a/driver.so"), ("ROCM_PATH", "/rocm")]), ["/a/driver.so"]);
    }

    #[test]
    fn error_names_every_attempt_and_says_what_to_do() {
        let paths = ["/nowhere/libamdhip64.so.7", "/nowhere/libamdhip64.so.6"];
        let error = Library::open_first(paths.map(PathBuf::from).to_vec()).unwrap_err();
        assert_eq!(error.attempts().len(), 2);
        let text = error.to_string();
        assert!(text.contains(&format!("{}, {}: ", paths[0], paths[1])), "{text}");
        assert!(error.attempts().iter().all(|attempt| attempt.reason.contains("No such file")), "{text}");
        assert!(text.contains(LIBRARY_VARIABLE) && text.contains("Install"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_hip_is_refused() {
        let name = if cfg!(target_os = "macos") { "libSystem.dylib" } else { "libc.so.6" };
        let error = Library::open_first(vec![PathBuf::from(name)]).unwrap_err();
        assert_eq!(error.attempts()[0].reason, "it has no hipRuntimeGetVersion");
    }
}
