//! The simulated drivers, built for one PyTorch and kept.

use crate::error::{EstimateError, end_of};
use crate::torch::Torch;
use include_dir::{Dir, include_dir};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

static RIG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/rig");
static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/python");

/// Built simulated drivers, the recorder, and the Python module that starts it.
#[derive(Clone, Debug)]
pub struct Drivers {
    folder: PathBuf,
}

/// Where built drivers are kept: `granule/estimate` in the user's cache.
///
/// # Errors
/// [`EstimateError::NoCache`] where the environment does not say where that is.
pub fn cache() -> Result<PathBuf, EstimateError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(cache.ok_or(EstimateError::NoCache)?.join("granule/estimate"))
}

impl Drivers {
    /// Those for this PyTorch, from `cache`, or built now, which takes half a minute; `building` is called before that.
    /// Two processes may do this at once.
    ///
    /// # Errors
    /// [`EstimateError::Build`] says what is missing; [`EstimateError::File`] for the cache.
    pub fn prepare(cache: &Path, torch: &Torch, building: impl FnOnce()) -> Result<Self, EstimateError> {
        let folder = cache.join(key(torch));
        let drivers = Self { folder };
        if drivers.folder.is_dir() {
            return Ok(drivers);
        }
        building();
        fs::create_dir_all(cache).map_err(EstimateError::file(cache))?;
        let unfinished =
            tempfile::Builder::new().prefix(".building-").tempdir_in(cache).map_err(EstimateError::file(cache))?;
        build(&unfinished, torch)?;
        // The first one stays, if somebody else was as quick.
        if let Err(error) = fs::rename(unfinished.path(), &drivers.folder)
            && !drivers.folder.is_dir()
        {
            return Err(EstimateError::File { path: drivers.folder, error });
        }
        Ok(drivers)
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
    pub(crate) fn modules(&self) -> PathBuf {
        self.folder.join("python")
    }
}

/// Names a build: two builds of one name are interchangeable.
fn key(torch: &Torch) -> String {
    // Its answers may change from one compiler to the next, which costs a build.
    let mut hasher = DefaultHasher::new();
    torch.site.hash(&mut hasher);
    for dir in [&RIG, &PYTHON] {
        hash(dir, &mut hasher);
    }
    format!("torch-{}-{:016x}", torch.version.replace('/', "_"), hasher.finish())
}

fn hash(dir: &Dir<'_>, hasher: &mut DefaultHasher) {
    for file in dir.files() {
        file.path().hash(hasher);
        file.contents().hash(hasher);
    }
    dir.dirs().for_each(|dir| hash(dir, hasher));
}

fn build(into: &TempDir, torch: &Torch) -> Result<(), EstimateError> {
    for (name, dir) in [("rig", &RIG), ("python", &PYTHON)] {
        let folder = into.path().join(name);
        fs::create_dir_all(&folder)
            .and_then(|()| dir.extract(&folder))
            .map_err(EstimateError::file(&folder))?;
    }
    let mut bash = Command::new("bash");
    bash.arg(into.path().join("rig/build.sh"))
        .env("TORCH_SITE", &torch.site)
        .env("PYTHON", &torch.python)
        .env("OUT", into.path().join("lib"))
        .env("WATCHER", "1")
        .stdin(Stdio::null());
    let output =
        bash.output().map_err(|error| EstimateError::Start { program: "bash".into(), error })?;
    if !output.status.success() {
        return Err(EstimateError::Build { said: end_of(&output.stderr) });
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
        for file in ["build.sh", "fakegpu-run", "src/memory.cpp", "src/crt/host_config.h", "watcher/watcher.cpp"] {
            assert!(RIG.get_file(file).is_some(), "{file}");
        }
    }

    #[test]
    fn a_build_says_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site-packages");
        let error = build(&folder, &torch("2.15.0", &site.to_string_lossy())).unwrap_err();
        let EstimateError::Build { said } = error else { panic!("{error}") };
        assert!(said.contains("no torch in") || said.contains("is missing"), "{said}");
    }
}
