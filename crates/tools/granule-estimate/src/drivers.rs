//! The simulated drivers, built for one PyTorch and kept.

use crate::error::{EstimateError, end_of};
use crate::signals::Signals;
use crate::started;
use crate::torch::Torch;
use alloc_core::own;
use include_dir::{Dir, include_dir};
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

static RIG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/rig");
/// The simulated driver, built with this crate.
#[cfg(not(has_driver))]
static DRIVER: &[u8] = &[];
/// The simulated driver, built with this crate.
#[cfg(has_driver)]
static DRIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libcuda.so.1"));
static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/python");

/// Built simulated drivers, the recorder, and the Python module that starts it.
#[derive(Clone, Debug)]
pub struct Drivers {
    folder: PathBuf,
    modules: PathBuf,
}

/// Where built drivers are kept: `granule/estimate` in the user's cache.
///
/// # Errors
/// [`EstimateError::NoCache`] where the environment does not say where that is; [`EstimateError::File`] where others could
/// change what is kept there.
pub fn cache() -> Result<PathBuf, EstimateError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let ours = cache.ok_or(EstimateError::NoCache)?.join("granule");
    own::make_folder(&ours).map_err(EstimateError::file(&ours))?;
    Ok(ours.join("estimate"))
}

impl Drivers {
    /// Those for this PyTorch, from `cache`, or built now, which takes half a minute; `building` is called before that.
    /// Of two processes that do this at once, one waits for the other. What `signals` gives ends the build.
    ///
    /// # Errors
    /// [`EstimateError::Build`] says what is missing; [`EstimateError::File`] for the cache;
    /// [`EstimateError::Interrupted`].
    pub fn prepare(
        cache: &Path,
        torch: &Torch,
        signals: &mut Signals<'_>,
        building: impl FnOnce(),
    ) -> Result<Self, EstimateError> {
        let folder = cache.join(key(torch));
        let modules = cache.join(format!("python-{:016x}", hash_of(&PYTHON)));
        let ours = own::make_folder(cache).map_err(EstimateError::file(cache))?;
        if !folder.is_dir() || !modules.is_dir() {
            lock(&ours, cache, signals)?;
            sweep(cache);
            make(&folder, |unfinished| {
                building();
                build(unfinished, torch, signals)
            })?;
            make(&modules, |unfinished| PYTHON.extract(unfinished).map_err(EstimateError::file(unfinished)))?;
        }
        Ok(Self { folder, modules })
    }

    /// The libraries.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// The recorder.
    pub(crate) fn watcher(&self) -> PathBuf {
        self.libraries().join("libgranule_watcher.so")
    }

    /// The script that runs a command on them.
    pub(crate) fn runner(&self) -> PathBuf {
        self.folder.join("rig/fakegpu-run")
    }

    /// The folder of the module that PyTorch loads.
    pub(crate) fn modules(&self) -> &Path {
        &self.modules
    }
}

/// What a folder is called until it is whole.
const UNFINISHED: &str = ".unfinished-";

/// Waits until nobody else builds in this folder. The system lets go of the lock where this process is killed.
fn lock(folder: &File, cache: &Path, signals: &mut Signals<'_>) -> Result<(), EstimateError> {
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(20)),
            Err(TryLockError::Error(error)) => {
                return Err(EstimateError::File { path: cache.to_owned(), error });
            }
        }
        if let Some(received) = signals().first() {
            return Err(EstimateError::Interrupted { signal: received.number });
        }
    }
}

/// Fills a folder of the cache, if it is not there yet.
fn make(folder: &Path, fill: impl FnOnce(&Path) -> Result<(), EstimateError>) -> Result<(), EstimateError> {
    if folder.is_dir() {
        return Ok(());
    }
    let cache = folder.parent().unwrap_or(folder);
    let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(cache);
    let unfinished = unfinished.map_err(EstimateError::file(cache))?;
    fill(unfinished.path())?;
    fs::rename(unfinished.path(), folder).map_err(EstimateError::file(folder))
}

/// Removes what builds that were killed have left: whoever has the lock is the only one who builds.
fn sweep(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            // The next one removes what cannot be removed now.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Names a build: two builds of one name are interchangeable.
fn key(torch: &Torch) -> String {
    let mut hasher = DefaultHasher::new();
    torch.site.hash(&mut hasher);
    hash_of(&RIG).hash(&mut hasher);
    DRIVER.hash(&mut hasher);
    format!("torch-{}-{:016x}", torch.version.replace('/', "_"), hasher.finish())
}

/// Of names and contents. May change from one compiler to the next, which costs a build.
fn hash_of(dir: &Dir<'_>) -> u64 {
    fn add(dir: &Dir<'_>, hasher: &mut DefaultHasher) {
        for file in dir.files() {
            file.path().hash(hasher);
            file.contents().hash(hasher);
        }
        dir.dirs().for_each(|dir| add(dir, hasher));
    }
    let mut hasher = DefaultHasher::new();
    add(dir, &mut hasher);
    hasher.finish()
}

fn build(into: &Path, torch: &Torch, signals: &mut Signals<'_>) -> Result<(), EstimateError> {
    let rig = into.join("rig");
    fs::create_dir_all(&rig).and_then(|()| RIG.extract(&rig)).map_err(EstimateError::file(&rig))?;
    if DRIVER.is_empty() {
        return Err(EstimateError::NoDriver);
    }
    let driver = rig.join("libcuda.so.1");
    fs::write(&driver, DRIVER).map_err(EstimateError::file(&driver))?;
    let mut said = tempfile::tempfile().map_err(EstimateError::file(std::env::temp_dir()))?;
    let started = |error| EstimateError::Start { program: "bash".into(), error };
    let mut bash = Command::new("bash");
    bash.arg(rig.join("build.sh"))
        .env("TORCH_SITE", &torch.site)
        .env("PYTHON", &torch.python)
        .env("OUT", into.join("lib"))
        .env("DRIVER", driver)
        .env("WATCHER", "1")
        // What a compiler that was killed leaves goes with the folder.
        .env("TMPDIR", into)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.try_clone().map_err(started)?);
    started::adopt_orphans();
    let mut child = bash.spawn().map_err(started)?;
    let status = loop {
        let status = child.try_wait().map_err(started)?;
        // Before a build is called broken that was interrupted: a terminal's keys end it, too.
        if let Some(received) = signals().first() {
            started::kill_all();
            return Err(EstimateError::Interrupted { signal: received.number });
        }
        match status {
            Some(status) => break status,
            None => sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        let mut text = Vec::new();
        let read = said.rewind().and_then(|()| said.read_to_end(&mut text));
        read.map_err(EstimateError::file(std::env::temp_dir()))?;
        return Err(EstimateError::Build { said: end_of(&text) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{RIG, build, key};
    use crate::error::EstimateError;
    use crate::torch::Torch;

    fn torch(version: &str, site: &str) -> Torch {
        Torch { python: "python3".into(), site: site.into(), version: version.into() }
    }

    #[test]
    fn every_pytorch_has_a_build_of_its_own() {
        let one = key(&torch("2.15.0+cu132", "/a"));
        assert!(one.starts_with("torch-2.15.0+cu132-"), "{one}");
        assert_eq!(one, key(&torch("2.15.0+cu132", "/a")));
        assert_ne!(one, key(&torch("2.15.0+cu132", "/b")));
        assert_ne!(one, key(&torch("2.15.1+cu132", "/a")));
    }

    #[test]
    fn everything_that_a_build_needs_comes_along() {
        for file in [
            "build.sh",
            "fakegpu-run",
            "src/runtime_memory.cpp",
            "src/crt/host_config.h",
            "watcher/watcher.cpp",
        ] {
            assert!(RIG.get_file(file).is_some(), "{file}");
        }
    }

    #[test]
    #[cfg(has_driver)]
    fn the_driver_is_a_library_with_cudas_functions() {
        let has = |text: &[u8]| super::DRIVER.windows(text.len()).any(|found| found == text);
        assert_eq!(&super::DRIVER[..4], b"\x7fELF");
        assert!(has(b"\0cuMemAlloc_v2\0") && has(b"\0libcuda.so.1\0") && has(b"\0fakegpu_counter_named\0"));
    }

    #[test]
    #[cfg(not(has_driver))]
    fn a_build_without_the_driver_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = build(folder.path(), &torch("2.15.0", "/"), &mut Vec::new).unwrap_err();
        assert!(matches!(error, EstimateError::NoDriver), "{error}");
    }

    #[test]
    #[cfg(has_driver)]
    fn a_build_says_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site-packages");
        let error =
            build(folder.path(), &torch("2.15.0", &site.to_string_lossy()), &mut Vec::new).unwrap_err();
        let EstimateError::Build { said } = error else { panic!("{error}") };
        assert!(said.contains("no torch in") || said.contains("is missing"), "{said}");
    }
}
