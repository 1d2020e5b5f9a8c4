//! Running other programs.

pub(crate) mod debian;
pub(crate) mod disk;
pub(crate) mod files;
pub(crate) mod targets;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The workspace's folder. Cargo says it when it runs this program; what it was at compile time may be another
/// checkout with the same build folder.
pub(crate) fn root() -> PathBuf {
    let compiled = || env!("CARGO_MANIFEST_DIR").into();
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(compiled, PathBuf::from);
    manifest.parent().unwrap_or(&manifest).to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command run at the workspace's root.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A command to which settings and backends of the caller's shell say nothing.
pub(crate) fn unset(command: &mut Command) -> &mut Command {
    for name in ["GRANULE_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"] {
        command.env_remove(name);
    }
    command.env_remove("GRANULE_BACKEND")
}

/// What was done, with the time it took: by the clock, and of processors.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, [Duration; 2])> {
    let (begun, used) = (Instant::now(), processor_time()?);
    let done = work()?;
    Ok((done, [begun.elapsed(), processor_time()?.saturating_sub(used)]))
}

/// Runs a command to its end; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let status = command.status().with_context(|| format!("could not start {line}"))?;
    if !status.success() {
        bail!("{line} ended with {status}");
    }
    Ok(())
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.output().with_context(|| format!("could not start {line}"))?;
    if !output.status.success() {
        bail!("{line} ended with {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command with all that it can do: what a quick first build leaves out is tested, too.
pub(crate) const ALL_COMMANDS: &[&str] = &["--features", "granule-cli/full"];

/// All packages. The driver of `granule estimate` is built for that one's build script; once more it would get the same file.
pub(crate) const WORKSPACE: &[&str] = &["--workspace", "--exclude", "granule-estimate-driver"];

/// Builds the libraries that other programs load.
pub(crate) fn libraries() -> Result<()> {
    build_as_tests(&["--lib"]).map(drop)
}

/// Builds the command, and says where it is.
pub(crate) fn granule() -> Result<PathBuf> {
    Ok(build_as_tests(&[])?.join("granule"))
}

/// Builds with the features that tests have, so that nothing is built twice, and says where. Cargo adds up the features of all
/// packages that it is told of, and those of tests where one is built; the test of the command brings the command.
pub(crate) fn build_as_tests(more: &[&str]) -> Result<PathBuf> {
    cargo(&[&["build"], WORKSPACE, ALL_COMMANDS, &["--test", "command"], more].concat())?;
    Ok(target().join("debug"))
}

/// Runs a command to its end and reads what it printed: JSON, and nothing else.
pub(crate) fn json(command: &mut Command) -> Result<Value> {
    serde_json::from_str(&output(command)?).with_context(|| format!("{command:?} printed no JSON"))
}

/// Writes a file for other programs.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(file, text).with_context(|| format!("{} could not be written", file.display()))
}

/// What `cargo fmt` makes of a text.
pub(crate) fn rustfmt(text: &str) -> Result<String> {
    let mut child = command("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("could not start rustfmt: add it with `rustup component add rustfmt`")?;
    // It reads all of its input before it writes, so this cannot block on a full pipe.
    child.stdin.take().context("rustfmt has no input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refused generated code");
    Ok(String::from_utf8(output.stdout)?)
}

/// The workspace's packages, as cargo describes them.
pub(crate) fn packages() -> Result<Vec<Value>> {
    let mut said = json(command("cargo").args(["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_value(said["packages"].take()).context("cargo metadata names no packages")
}

/// Does the work for all items, one on each core at a time, and gives the results in the order of the items.
pub(crate) fn side_by_side<'i, T: Sync, R: Send>(
    items: &'i [T],
    work: impl Fn(&'i T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let take = || {
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(at)
        {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| (0..cores()).for_each(|_| drop(scope.spawn(take))));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// How many cores this machine has.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    run(command("cargo").args(arguments))
}

/// Installs a cargo command from the registry unless it is there.
pub(crate) fn install_if_missing(name: &str) -> Result<()> {
    if answers(Command::new(name).arg("--version")) {
        return Ok(());
    }
    println!("installing {name}");
    cargo(&["install", "--locked", "--quiet", name])
}

/// What processors did for the programs that were run here and have ended.
fn processor_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    ended_children(&stat, rustix::param::clock_ticks_per_second()).context("/proc/self/stat has another form")
}

/// The user's and the system's time of children that were waited for: the 16th and 17th field, of which the second is a
/// name in parentheses that may have spaces.
fn ended_children(stat: &str, ticks_per_second: u64) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    Some(Duration::from_millis(ticks * 1000 / ticks_per_second))
}

/// Whether cargo-nextest is installed.
pub(crate) fn has_nextest() -> bool {
    answers(Command::new("cargo").args(["nextest", "--version"]))
}

/// Whether a program is there and ends well.
pub(crate) fn answers(program: &mut Command) -> bool {
    program.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::{ended_children, side_by_side};
    use anyhow::bail;
    use std::time::Duration;

    #[test]
    fn results_come_in_the_order_of_the_work() {
        let squares = side_by_side(&(0..50_u64).collect::<Vec<_>>(), |n| Ok(n * n)).unwrap();
        assert_eq!(squares, (0..50).map(|n| n * n).collect::<Vec<u64>>());
        let error = side_by_side(&[1, 2, 3], |n| if *n == 2 { bail!("no {n}") } else { Ok(*n) });
        assert_eq!(error.unwrap_err().to_string(), "no 2");
    }

    #[test]
    fn the_time_of_children_is_read_past_a_name_with_spaces() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4 90 80 0 0 11 12 250 50 20 0 1 0 99";
        assert_eq!(ended_children(stat, 100), Some(Duration::from_secs(3)));
        assert_eq!(ended_children("7 (cut", 100), None);
    }
}
