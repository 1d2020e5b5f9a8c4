//! Running the program.

use crate::drivers::Drivers;
use crate::error::EstimateError;
use crate::recorded::Recorded;
use crate::signals::Signals;
use crate::started;
use crate::torch::{Torch, find_program};
use rustix::process::Signal;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a program that was interrupted may take to end.
const GRACE: Duration = Duration::from_secs(20);

/// A command, and the machine that it is to find.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command and its arguments; not empty.
    pub command: Vec<OsString>,
    /// Memory of each simulated device, in bytes.
    pub capacity: u64,
    /// Simulated devices.
    pub devices: u32,
    /// Bytes that are taken on each device before the first request.
    pub context: u64,
    /// Iterations after which the program is ended.
    pub iterations: Option<u64>,
    /// Time after which it is interrupted.
    pub timeout: Option<Duration>,
    /// What it prints goes to standard error.
    pub quiet: bool,
}

/// Who ended a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It ended by itself, or after the iterations it was given.
    No,
    /// Its time was over.
    Timeout,
    /// A person or a job manager.
    Interrupted,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Whether it was made to.
    pub stopped: Stopped,
    /// What was recorded until then; empty if no device memory was asked for.
    pub recorded: Vec<Recorded>,
}

impl Program {
    /// Runs it to its end and reads what was recorded. What `signals` gives is the program's.
    ///
    /// # Errors
    /// [`EstimateError`]; a program that fails is no error.
    pub fn run(
        &self,
        drivers: &Drivers,
        torch: &Torch,
        signals: &mut Signals<'_>,
    ) -> Result<Ended, EstimateError> {
        let name = self.command.first().map(OsString::as_os_str).unwrap_or_default();
        let failed = |error| EstimateError::Start { program: name.to_string_lossy().into_owned(), error };
        if find_program(name).is_none() {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "no such program")));
        }
        let folder = tempfile::Builder::new().prefix("granule-estimate-").tempdir();
        let folder = folder.map_err(EstimateError::file(std::env::temp_dir()))?;
        started::adopt_orphans();
        let mut child = self.on_rig(drivers, torch, folder.path()).spawn().map_err(failed)?;
        let (status, stopped) = wait(&mut child, self.timeout, signals).map_err(failed)?;
        let recorded = Recorded::all(folder.path())?;
        Ok(Ended { status, stopped, recorded })
    }

    fn on_rig(&self, drivers: &Drivers, torch: &Torch, folder: &Path) -> Command {
        let mib = |bytes: u64| (bytes >> 20).to_string();
        let mut command = Command::new("bash");
        command
            .arg(drivers.runner())
            .arg("--")
            .args(&self.command)
            .env("FAKE_GPU_LIB", drivers.libraries())
            .env("FAKE_GPU_MEM_GB", gib(self.capacity))
            .env("FAKE_GPU_CTX_MB", mib(self.context))
            .env("FAKE_GPU_COUNT", self.devices.to_string())
            .env("PYTHONPATH", prepended(drivers.modules(), std::env::var_os("PYTHONPATH")))
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
            // The requests are recorded; whose they are in the end is asked afterwards.
            .env("GRANULE_TORCH", "0")
            .env("GRANULE_ESTIMATE_FOLDER", folder)
            .env("GRANULE_ESTIMATE_WATCHER", drivers.watcher())
            .env("GRANULE_ESTIMATE_TORCH", &torch.version)
            .env("GRANULE_ESTIMATE_ITERATIONS", self.iterations.unwrap_or(0).to_string());
        if self.quiet {
            command.stdout(Stdio::from(io::stderr()));
        }
        command
    }
}

/// In GiB, exact to a MiB.
fn gib(bytes: u64) -> String {
    let mib = bytes >> 20;
    #[allow(clippy::cast_precision_loss)]
    let gib = mib as f64 / 1024.0;
    gib.to_string()
}

fn prepended(first: &Path, rest: Option<OsString>) -> OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        path.push(OsStr::new(":"));
        path.push(rest);
    }
    path
}

/// Waits for its end. When its time is over it is interrupted, as Ctrl-C would; what a person sends it gets; and what of it does
/// not end by that is killed, with all that it has started.
fn wait(
    child: &mut Child,
    timeout: Option<Duration>,
    signals: &mut Signals<'_>,
) -> io::Result<(ExitStatus, Stopped)> {
    // What is beyond the end of time is no limit.
    let mut end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut stopped = Stopped::No;
    loop {
        if let Some(status) = child.try_wait()? {
            if stopped != Stopped::No {
                started::kill_all();
            }
            return Ok((status, stopped));
        }
        for received in signals() {
            if let Some(signal) = Signal::from_named_raw(received.number).filter(|_| !received.shared) {
                started::signal_all(signal);
            }
            if stopped == Stopped::No {
                (stopped, end) = (Stopped::Interrupted, Some(Instant::now() + GRACE));
            }
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            if stopped == Stopped::No {
                started::signal_all(Signal::INT);
                (stopped, end) = (Stopped::Timeout, Some(Instant::now() + GRACE));
            } else {
                started::kill_all();
            }
        }
        sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, gib, prepended};

    #[test]
    fn capacities_are_given_in_gib() {
        assert_eq!(gib(24 << 30), "24");
        assert_eq!(gib((1 << 30) + (512 << 20)), "1.5");
    }

    #[test]
    fn modules_of_the_user_stay_in_the_path() {
        assert_eq!(prepended(Path::new("/a"), None), "/a");
        assert_eq!(prepended(Path::new("/a"), Some("/b:/c".into())), "/a:/b:/c");
        assert_eq!(prepended(Path::new("/a"), Some("".into())), "/a");
    }
}
