//! The kit for a machine with a GPU that has no Rust, no network and little time (`tests/gpu`): made here, tried on the simulated
//! drivers, and its results made a page.

mod pack;

use crate::process::{self, command, files, root, target};
use crate::python::e2e_torch::{self, Place};
use anyhow::{Context, Result, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use pack::pack;
use std::path::{Path, PathBuf};

/// What is done.
#[derive(Args)]
#[group(skip)]
#[command(group(ArgGroup::new("work").required(true)))]
pub(crate) struct Options {
    /// Make the kit: run.sh, VERSION, ARCH and kit.tar.gz in this folder, which is what travels
    #[arg(long, value_name = "FOLDER", group = "work")]
    pack: Option<PathBuf>,
    /// Run the kit of this folder on the simulated drivers
    #[arg(long = "try", value_name = "FOLDER", group = "work")]
    try_out: Option<PathBuf>,
    /// Write docs/results/gpu-CARD.md from the results in this folder
    #[arg(long, value_name = "FOLDER", group = "work")]
    page: Option<PathBuf>,
    /// With --pack: the project's tests over real drivers, too
    #[arg(long, requires = "pack")]
    tests: bool,
    /// With --pack: the profile of cargo; `dev` takes what the tests have built
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,
    /// With --try: what is run
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Plan::Main)]
    plan: Plan,
    /// An environment with torch: --pack compiles the shim for its release, --try runs in it. Default: the one that `e2e-torch --torch 2.11.0` makes
    #[arg(long, value_name = "FOLDER")]
    venv: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Plan {
    /// All steps, in the order of their value
    Main,
    /// The project's own tests
    More,
    /// A little of each kind, which CI runs
    Slice,
}

/// The kit's programs.
const KIT: &str = "tests/gpu";
/// The release that a borrowed machine has: the oldest one that the shim fits.
const TORCH: &str = e2e_torch::OLDEST.0;

pub(crate) fn run(options: &Options) -> Result<()> {
    let venv = options.venv.as_deref();
    if let Some(folder) = &options.pack {
        let at_hand = e2e_torch::made(TORCH);
        return pack(folder, &options.profile, options.tests, venv.or(at_hand.as_deref()));
    }
    if let Some(folder) = &options.try_out {
        let program = folder.join("run.sh");
        ensure!(program.is_file(), "there is no {}: make the kit with --pack", program.display());
        let place = venv.map_or_else(|| Place::prepare(Some(TORCH)), Place::over)?;
        return try_out(folder, options.plan, &place);
    }
    options.page.as_deref().map_or(Ok(()), page)
}

/// What CI runs, where PyTorch is at hand: the kit of what the tests have built, and a little of each of its steps.
pub(crate) fn slice(place: &Place) -> Result<()> {
    let folder = target().join("gpukit-slice");
    pack(&folder, "dev", false, Some(place.venv()))?;
    try_out(&folder, Plan::Slice, place)
}

/// Runs a kit on the simulated drivers.
fn try_out(folder: &Path, plan: Plan, place: &Place) -> Result<()> {
    let plan = plan.to_possible_value().context("a plan has a name")?;
    let program = files::named(folder)?.join("run.sh");
    let out = target().join("gpukit-try");
    files::remove(&out)?;
    let ended = command("bash")
        .arg(program)
        .args(["--plan", plan.get_name(), "--seconds", "3000"])
        .env("OUT", &out)
        .env("KIT_PYTHON", place.venv().join("bin/python"))
        .env("KIT_RIG", root().join("crates/tools/granule-estimate/rig/fakegpu-run"))
        .env("FAKE_GPU_LIB", place.rig())
        .env("GRANULE_CUDA_LIBRARY", place.rig().join("libcuda.so.1"))
        .status()?;
    let summary = out.join("summary.md");
    ensure!(
        ended.success() || !summary.is_file(),
        "a step did not end well: {} says which",
        summary.display()
    );
    ensure!(ended.success(), "the kit did not run ({ended}): see above");
    Ok(())
}

fn page(results: &Path) -> Result<()> {
    let mut page = command("python3");
    page.arg(root().join(KIT).join("page.py")).arg(files::named(results)?);
    process::run(page.arg(root().join("docs/results")))?;
    println!("link it from docs/performance.md, under Results");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::KIT;
    use crate::process::{self, command};

    #[test]
    fn steps_keep_their_limits_and_the_page_trusts_no_result() {
        process::run(command("python3").args(["-B", "-m", "unittest", "discover", "-q", "-s", KIT])).unwrap();
    }
}
