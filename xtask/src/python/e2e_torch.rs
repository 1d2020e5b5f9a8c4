//! PyTorch on Granule, from end to end: the real CUDA wheel on the GPU-less rig, each program once with PyTorch's own
//! allocator and once with Granule's.
//!
//! Everything it needs is made here: a Python environment with the pinned packages, the rig, the package
//! `granule-torch`. The tests are those of `tests/torch`.

use crate::process::{self, command, disk, files, root, target};
use crate::python::venv::Venv;
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

/// How the tests are run.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Every workload under all settings, at its full length; else a bounded part, as in CI
    #[arg(long)]
    long: bool,
    /// Another release of torch than the one that is pinned, such as 2.12.1, in an environment of its own
    #[arg(long, value_name = "VERSION")]
    torch: Option<String>,
    /// Passed on to pytest, after `--`
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) const TESTS: &str = "tests/torch";
const RIG: &str = "crates/tools/granule-estimate/rig";
/// Minutes that a slice may take, installation aside, and a long run. They only end what hangs: each program has
/// a limit of its own.
const SLICE_BUDGET: u64 = 60;
const LONG_BUDGET: u64 = 240;
/// What `timeout` ends with where it asked a program to stop, and where it made it.
const STOPPED: [i32; 2] = [124, 137];

/// Bytes on disk that the first run wants: the packages as they are downloaded and as they are installed, and builds.
pub(crate) const ROOM: u64 = 16 << 30;
/// The same for both releases one after the other: 8 GB each once installed, and 4 GB while one is downloaded.
const ROOM_FOR_BOTH: u64 = 21 << 30;

/// The oldest release that the shim fits, and which tests CI runs there.
pub(crate) const OLDEST: (&str, &str) = ("2.11.0", "test_allocation or test_stats");

pub(crate) fn run(options: &Options) -> Result<()> {
    test(&place(options)?, options)
}

/// Some tests on the oldest release. Its environment is as large as the newest's: see [`Place::remove`].
pub(crate) fn oldest() -> Result<Place> {
    let (version, names) = OLDEST;
    let rest = ["-k", names].map(String::from).into();
    let options = Options { torch: Some(version.to_owned()), rest, ..Options::default() };
    let place = place(&options)?;
    test(&place, &options)?;
    Ok(place)
}

/// Begins to install torch, the oldest and the newest release: pip waits for the network and for the disk while others
/// compute. Nothing where the disk does not hold both beside what is built.
pub(crate) fn install_ahead() -> Result<Option<JoinHandle<Result<()>>>> {
    if !disk::has_room(&target(), ROOM_FOR_BOTH)? {
        return Ok(None);
    }
    let releases = [Some(OLDEST.0), None];
    let install = move || releases.into_iter().try_for_each(|torch| environment(torch).map(drop));
    Ok(Some(thread::spawn(install)))
}

/// Where the tests of these options run: installs, builds, or finds everything there, `granule-torch`, too.
pub(crate) fn place(options: &Options) -> Result<Place> {
    let place = Place::prepare(options.torch.as_deref())?;
    println!("building granule-torch");
    forget_old_package()?;
    process::run(
        command(place.venv.python())
            .args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet"])
            .args(["--no-build-isolation", "--no-deps", "--force-reinstall", "./crates/granule-torch"])
            // Else setuptools-rust builds in the folder of the crate.
            .env("CARGO_TARGET_DIR", target())
            // What tests have built serves again; a long run takes what is handed out.
            .env("SETUPTOOLS_RUST_CARGO_PROFILE", if options.long { "dist" } else { "dev" })
            // The build imports torch, which would load the package that is being replaced.
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"),
    )?;
    Ok(place)
}

/// Runs the tests; their closing lines are the last.
pub(crate) fn test(place: &Place, options: &Options) -> Result<()> {
    println!("building granule");
    let granule = process::granule()?;
    let minutes = if options.long { LONG_BUDGET } else { SLICE_BUDGET };
    let python = place.python();
    // Pytest is asked to stop, so that it stops what it started and says how far it came; then it is made to.
    let mut timeout = command("timeout");
    timeout.args(["--foreground", "--signal=INT", "--kill-after=20s", &format!("{minutes}m")]);
    let mut pytest = behind(timeout, &python);
    pytest.env("GRANULE_COMMAND", granule);
    pytest.args(["-m", "pytest", TESTS, "-p", "no:cacheprovider", "-q", "-ra", "--durations=10"]);
    if options.long {
        pytest.arg("--long");
    }
    pytest.args(&options.rest);
    let status = pytest.status()?;
    if status.code().is_some_and(|code| STOPPED.contains(&code)) {
        bail!("the tests were stopped after {minutes} minutes");
    }
    if !status.success() {
        // Without a word of our own: pytest's closing line stays the last.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}

/// An environment with torch, and the rig built for it.
pub(crate) struct Place {
    venv: Venv,
    rig: PathBuf,
}

impl Place {
    /// An environment with torch, and the rig.
    pub(crate) fn prepare(torch: Option<&str>) -> Result<Self> {
        Self::of(environment(torch)?, &named("rig", torch))
    }

    /// An environment that has torch, as it is, and a rig for it.
    pub(crate) fn over(venv: &Path) -> Result<Self> {
        Self::of(Venv::existing(venv)?, &named("rig", Some("given")))
    }

    fn of(venv: Venv, rig: &str) -> Result<Self> {
        println!("building the rig");
        let rig = target().join(rig);
        // In the environment itself, or in its base where that has the release.
        let find = "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parents[1])";
        let site = process::output(command(venv.python()).args(["-c", find]))?;
        process::output(
            command(root().join(RIG).join("build.sh")).env("TORCH_SITE", site.trim()).env("OUT", &rig),
        )?;
        Ok(Self { venv, rig })
    }

    /// Takes the environment away: the disk does not hold many.
    pub(crate) fn remove(self) -> Result<()> {
        files::remove(self.venv())
    }

    /// The environment's folder.
    pub(crate) fn venv(&self) -> &Path {
        self.venv.folder()
    }

    /// Where the rig's libraries are.
    pub(crate) fn rig(&self) -> &Path {
        &self.rig
    }

    /// The environment's Python, with what the tests want to know.
    pub(crate) fn python(&self) -> Command {
        let mut python = command(self.venv.python());
        python
            .env("TORCH_VENV", self.venv.folder())
            .env("FAKE_GPU_LIB", &self.rig)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }

    /// The same, with the rig in front of NVIDIA's libraries.
    pub(crate) fn python_on_rig(&self) -> Command {
        let mut on_rig = command(root().join(RIG).join("fakegpu-run"));
        on_rig.arg("--");
        behind(on_rig, &self.python())
    }
}

/// A program that starts another one, in that one's environment.
fn behind(mut starter: Command, program: &Command) -> Command {
    starter.arg(program.get_program());
    starter.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    starter
}

/// The environment of a release, where it was made.
pub(crate) fn made(torch: &str) -> Option<PathBuf> {
    let folder = target().join(named("venv", Some(torch)));
    folder.is_dir().then_some(folder)
}

/// The environment with torch: over the one that a variable names, whose packages are used and which is not changed.
fn environment(torch: Option<&str>) -> Result<Venv> {
    let base = std::env::var_os("GRANULE_TORCH_VENV").map(|folder| files::named(Path::new(&folder)));
    let pinned = files::read(Path::new(TESTS).join("requirements.txt"))?;
    let requirements = match torch {
        Some(version) => for_torch(&pinned, version)?,
        None => pinned,
    };
    Venv::prepare(&named("venv", torch), &requirements, base.transpose()?.as_deref())
}

/// Removes what an earlier build collected: setuptools packs everything there, also files that are no longer in the tree.
fn forget_old_package() -> Result<()> {
    let built = files::in_folder("crates/granule-torch/build", "").unwrap_or_default();
    let mut old = built.iter().filter(|path| files::stem(path).starts_with("lib"));
    old.try_for_each(|path| files::remove(path))
}

/// The folder of the environment or of the rig: each release has its own, since a rig is of one CUDA.
fn named(what: &str, torch: Option<&str>) -> String {
    torch.map_or_else(|| format!("e2e-torch/{what}"), |version| format!("e2e-torch/{what}-{version}"))
}

/// The pinned packages with another torch, and whatever torchvision and setuptools belong to it.
fn for_torch(pinned: &str, version: &str) -> Result<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+');
    if version.is_empty() || !version.chars().all(valid) {
        bail!("'{version}' is not a release of torch, such as 2.15.0");
    }
    let lines = pinned.lines().map(|line| match line.split_once("==") {
        Some(("torch", _)) => format!("torch=={version}\n"),
        // Earlier releases want others.
        Some(("torchvision", _)) => "torchvision\n".to_owned(),
        // An environment comes with one that is too old for our own package, which names the same bound.
        Some(("setuptools", _)) => "setuptools>=77\n".to_owned(),
        _ => format!("{line}\n"),
    });
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::{for_torch, named};

    #[test]
    fn another_torch_comes_with_its_own_torchvision() {
        let pinned = "# why\ntorch==2.15.0\ntorchvision==0.29.2\nsetuptools==84.2.1\npytest==9.2.0\n";
        let other = for_torch(pinned, "2.14.1+cu130").unwrap();
        assert_eq!(other, "# why\ntorch==2.14.1+cu130\ntorchvision\nsetuptools>=77\npytest==9.2.0\n");
        for wrong in ["", "2.15 --index-url=x", "a;b"] {
            assert!(for_torch(pinned, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_release_has_its_own_environment_and_rig() {
        assert_eq!([named("venv", None), named("rig", None)], ["e2e-torch/venv", "e2e-torch/rig"]);
        assert_eq!(named("rig", Some("2.12.1")), "e2e-torch/rig-2.12.1");
    }
}
