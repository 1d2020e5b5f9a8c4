//! The simulated drivers, built for one PyTorch and kept.

use crate::error::{EstimateError, end_of};
use crate::torch::Torch;
use include_dir::{Dir, include_dir};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

static RIG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/rig");
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
        let folder = kept(cache, &key(torch), |unfinished| {
            building();
            build(unfinished, torch)
        })?;
        let modules = kept(cache, &format!("python-{:016x}", hash_of(&PYTHON)), |unfinished| {
            PYTHON.extract(unfinished).map_err(EstimateError::file(unfinished))
        })?;
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

/// A folder in the cache, which `make` fills if it is not there yet.
fn kept(
    cache: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), EstimateError>,
) -> Result<PathBuf, EstimateError> {
    let folder = cache.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(cache).map_err(EstimateError::file(cache))?;
    let unfinished = tempfile::Builder::new().prefix(".unfinished-").tempdir_in(cache);
    let unfinished = unfinished.map_err(EstimateError::file(cache))?;
    make(unfinished.path())?;
    match fs::rename(unfinished.path(), &folder) {
        // The first one stays, if somebody else was as quick.
        Err(error) if !folder.is_dir() => Err(EstimateError::File { path: folder, error }),
        _ => Ok(folder),
    }
}

/// Names a build: two builds of one name are interchangeable.
fn key(torch: &Torch) -> String {
    let mut hasher = DefaultHasher::new();
    torch.site.hash(&mut hasher);
    hash_of(&RIG).hash(&mut hasher);
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

fn build(into: &Path, torch: &Torch) -> Result<(), EstimateError> {
    let rig = into.join("rig");
    fs::create_dir_all(&rig).and_then(|()| RIG.extract(&rig)).map_err(EstimateError::file(&rig))?;
    let mut bash = Command::new("bash");
    bash.arg(rig.join("build.sh"))
        .env("TORCH_SITE", &torch.site)
        .env("PYTHON", &torch.python)
        .env("OUT", into.join("lib"))
        .env("WATCHER", "1")
        .stdin(Stdio::null());
    let output = bash.output().map_err(|error| EstimateError::Start { program: "bash".into(), error })?;
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
        for file in
            ["build.sh", "fakegpu-run", "src/memory.cpp", "src/crt/host_config.h", "watcher/watcher.cpp"]
        {
            assert!(RIG.get_file(file).is_some(), "{file}");
        }
    }

    #[test]
    fn a_build_says_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site-packages");
        let error = build(folder.path(), &torch("2.15.0", &site.to_string_lossy())).unwrap_err();
        let EstimateError::Build { said } = error else { panic!("{error}") };
        assert!(said.contains("no torch in") || said.contains("is missing"), "{said}");
    }
}
