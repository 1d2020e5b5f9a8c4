//! The recorder: threads that read what the program asked and write it.

use super::series::{Series, create};
use super::stopping::{Stoppable, at_exit};
use super::{BadRecordOptions, RecordOptions, VARIABLE};
use crate::pickle::{self, Protocol};
use alloc_core::config::{PolicyName, PytorchRelease, Settings};
use alloc_core::history::{CallLog, HistoryOptions};
use alloc_core::oom::OomReport;
use alloc_core::snapshot::Snapshot;
use alloc_core::stats::DeviceStats;
use alloc_core::types::DeviceIndex;
use alloc_core::{AllocError, CachingAllocator};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{env, fmt, fs};

/// What was asked longest ago and is in no file is at most this old.
const FLUSH_EVERY: Duration = Duration::from_millis(10);
/// How long anybody waits for the files. A disk that takes longer keeps what it has.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two dumps for want of memory: a program that tries sizes until one fits fails many times a second.
const BETWEEN_FAILURES: Duration = Duration::from_secs(10);

/// Why nothing is recorded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The variable's text is not understood.
    #[error("GRANULE_RECORD: {0}")]
    Options(#[from] BadRecordOptions),
    /// The directory cannot be made or written to, or no thread be started.
    #[error("{}: {error}; give a directory that can be made and written to", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// There is a recording of this allocator already.
    #[error("this allocator is being recorded already: stop that recording first")]
    AlreadyRecording,
    /// The allocator refuses.
    #[error("{0}")]
    Allocator(#[from] AllocError),
    /// Some calls are not in the files.
    #[error("the recording in {} is not complete: {reason}", directory.display())]
    Incomplete {
        /// The directory.
        directory: PathBuf,
        /// The first thing that went wrong.
        reason: String,
    },
}

/// As people read it, for `main` shows errors so.
impl fmt::Debug for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the recorder asks of an allocator, whatever its policy.
trait Recorded: Send + Sync {
    fn end_log(&self, device: &Device);
    fn stats(&self, device: DeviceIndex) -> Option<DeviceStats>;
    fn snapshot(&self) -> Option<Snapshot>;
}

impl Recorded for Weak<CachingAllocator> {
    fn end_log(&self, device: &Device) {
        if let Some(allocator) = self.upgrade() {
            let _ = allocator.history().end_call_log(device.index, &device.log);
        }
    }

    fn stats(&self, device: DeviceIndex) -> Option<DeviceStats> {
        self.upgrade()?.stats(device).ok()
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.upgrade()?.snapshot(true))
    }
}

/// How far a device's thread has come.
#[derive(Debug, Default)]
struct Progress {
    thread: Option<Thread>,
    /// Flushes that were asked for, and done.
    wanted: u64,
    done: u64,
    is_over: bool,
    files: Vec<PathBuf>,
    events: u64,
    /// The first thing that went wrong. From then on nothing is written.
    problem: Option<String>,
    /// Said at the end of the last file.
    about: Value,
}

/// One device's log and the thread that reads it.
#[derive(Debug)]
struct Device {
    index: DeviceIndex,
    log: Arc<CallLog>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Device {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything that was asked up to now is in the file.
    fn flush(&self) {
        let mut progress = self.lock();
        progress.wanted += 1;
        let wanted = progress.wanted;
        if let Some(thread) = &progress.thread {
            thread.unpark();
        }
        self.wait(progress, |progress| progress.done >= wanted || progress.is_over);
    }

    fn wait(&self, progress: MutexGuard<'_, Progress>, until: impl Fn(&Progress) -> bool) {
        let waited = self.changed.wait_timeout_while(progress, PATIENCE, |progress| !until(progress));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The thread's work.
    fn write(&self, mut series: Series) {
        /// However the thread ends, nobody waits for it.
        struct Over<'a>(&'a Device);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.log.end();
                self.0.lock().is_over = true;
                self.0.changed.notify_all();
            }
        }
        let _over = Over(self);
        let mut calls = Vec::new();
        let mut flushed = Instant::now();
        loop {
            self.log.sleep(FLUSH_EVERY);
            let (ended, wanted) = (self.log.has_ended(), self.lock().wanted);
            self.log.take(&mut calls);
            let mut written = calls.iter().try_for_each(|call| series.write(call));
            let is_due = ended || flushed.elapsed() >= FLUSH_EVERY || self.lock().done < wanted;
            if is_due && written.is_ok() {
                flushed = Instant::now();
                written = series.flush();
            }
            let about = self.lock().about.clone();
            if ended && written.is_ok() {
                written = series.end(&about);
            }
            let mut progress = self.lock();
            if let Err(error) = written {
                tracing::warn!(%error, device = self.index.0, "the recording ends here: it could not be written");
                progress.problem.get_or_insert(error.to_string());
            }
            progress.files = series.files().cloned().collect();
            progress.events = series.events;
            if is_due {
                progress.done = wanted;
            }
            let is_over = ended || progress.problem.is_some();
            drop(progress);
            self.changed.notify_all();
            if is_over {
                return;
            }
        }
    }
}

/// What happened for want of memory.
#[derive(Debug, Default)]
struct Failures {
    last: Option<Instant>,
    number: u32,
    files: Vec<PathBuf>,
}

struct Shared {
    options: RecordOptions,
    /// The process that records; a forked child does nothing.
    process: u32,
    allocator: Box<dyn Recorded>,
    devices: Vec<Arc<Device>>,
    failures: Mutex<Failures>,
    is_stopped: Mutex<bool>,
}

/// A recording of an allocator, until it is stopped or dropped, or the process ends.
pub struct Recorder(Arc<Shared>);

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// The settings as a text that a replay reads: with the policy and the release, where settings made in code name them.
fn conf(settings: &Settings) -> String {
    let release = settings.pytorch_release();
    if settings.policy_name() == PolicyName::Pytorch
        && release != PytorchRelease::default()
        && !settings.text.contains("pytorch_release:")
    {
        let comma = if settings.text.is_empty() { "" } else { "," };
        return format!("{}{comma}pytorch_release:{release}", settings.text);
    }
    match settings.policy {
        None | Some(PolicyName::Pytorch) => settings.text.clone(),
        Some(_) if settings.text.contains("policy:") => settings.text.clone(),
        Some(policy) if settings.text.is_empty() => format!("policy:{policy}"),
        Some(policy) => format!("{},policy:{policy}", settings.text),
    }
}

impl Recorder {
    /// Records the program's calls on all devices of `allocator`, from now on. The recording begins with requests for
    /// the blocks that the program has already.
    ///
    /// # Errors
    /// [`RecordError`]; nothing is recorded then.
    pub fn start(allocator: &Arc<CachingAllocator>, options: RecordOptions) -> Result<Self, RecordError> {
        let directory = options.directory.clone();
        let failed = |error| RecordError::Directory { directory: directory.clone(), error };
        fs::create_dir_all(&options.directory).map_err(failed)?;
        // Programs change their directory.
        let directory = options.directory.canonicalize().map_err(failed)?;
        let options = RecordOptions { directory, ..options };
        if let Some(entries) = options.max_entries.filter(|_| !allocator.history().is_enabled()) {
            allocator.history().record(&HistoryOptions::newest(entries));
        }
        let settings = allocator.settings();
        let conf = conf(&settings);
        let weak = Arc::downgrade(allocator);
        let mut devices: Vec<Arc<Device>> = Vec::new();
        let undo = |devices: &[Arc<Device>]| devices.iter().for_each(|device| weak.end_log(device));
        for index in (0..allocator.device_count()).map(DeviceIndex) {
            let begun = allocator.history().log_calls(index);
            let Some(log) = begun.inspect_err(|_| undo(&devices))? else {
                undo(&devices);
                return Err(RecordError::AlreadyRecording);
            };
            let progress = Mutex::new(Progress::default());
            let device = Arc::new(Device { index, log, progress, changed: Condvar::new() });
            devices.push(Arc::clone(&device));
            let is_late = allocator.stats(index).is_ok_and(|stats| stats.allocation.all.allocated > 0);
            let series = Series::new(options.clone(), index.0, conf.clone(), device.log.found(), is_late);
            let of_thread = Arc::clone(&device);
            let started = thread::Builder::new()
                .name(format!("granule-record-{}", index.0))
                .spawn(move || of_thread.write(series));
            match started {
                Ok(thread) => device.lock().thread = Some(thread.thread().clone()),
                Err(error) => {
                    undo(&devices);
                    return Err(RecordError::Directory { directory: options.directory, error });
                }
            }
        }
        let shared = Arc::new(Shared {
            options,
            process: std::process::id(),
            allocator: Box::new(weak),
            devices,
            failures: Mutex::default(),
            is_stopped: Mutex::new(false),
        });
        let observer = Arc::downgrade(&shared);
        allocator.hooks().on_out_of_memory(move |report| {
            if let Some(shared) = observer.upgrade() {
                shared.out_of_memory(report);
            }
        });
        let stoppable: Arc<dyn Stoppable> = Arc::clone(&shared) as _;
        at_exit(Arc::downgrade(&stoppable));
        Ok(Self(shared))
    }

    /// [`start`](Self::start) as the variable `GRANULE_RECORD` asks for it; `None` where it is not set.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn from_env(allocator: &Arc<CachingAllocator>) -> Result<Option<Self>, RecordError> {
        match env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => Self::start(allocator, text.parse::<RecordOptions>()?).map(Some),
            _ => Ok(None),
        }
    }

    /// Says that an iteration of the program begins (a training step, a decode step, a request).
    pub fn mark_iteration(&self, n: u64) {
        if !self.0.is_foreign() {
            self.0.devices.iter().for_each(|device| device.log.mark_iteration(n));
        }
    }

    /// Waits until all calls up to now are in the files. The files can then be read that far. Does not wait longer than
    /// 30 s.
    pub fn flush(&self) {
        if !self.0.is_foreign() {
            self.0.devices.iter().for_each(|device| device.flush());
        }
    }

    /// Whether the recording goes on.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        !self.0.is_foreign() && !*self.0.is_stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        &self.0.options.directory
    }

    /// The files that there are: those about failures first, then traces by device, oldest first.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        if self.0.is_foreign() {
            return Vec::new();
        }
        let mut files = self.0.failures().files.clone();
        files.extend(self.0.devices.iter().flat_map(|device| device.lock().files.clone()));
        files
    }

    /// Events written so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        if self.0.is_foreign() { 0 } else { self.0.devices.iter().map(|device| device.lock().events).sum() }
    }

    /// How many calls of the program had to wait because they came faster than they could be written, and how long they
    /// waited in all.
    #[must_use]
    pub fn waits(&self) -> (u64, Duration) {
        let waits = self.0.devices.iter().map(|device| device.log.waits());
        waits.fold((0, Duration::ZERO), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Ends the recording and its files. Does not take longer than 30 s. A second call does nothing.
    ///
    /// # Errors
    /// [`RecordError::Incomplete`] where something could not be written.
    pub fn stop(&self) -> Result<(), RecordError> {
        self.0.stop();
        if self.0.is_foreign() {
            return Ok(());
        }
        for device in &self.0.devices {
            let progress = device.lock();
            let late = (!progress.is_over).then(|| "the files were not written in 30 s".to_owned());
            if let Some(reason) = progress.problem.clone().or(late) {
                return Err(RecordError::Incomplete { directory: self.0.options.directory.clone(), reason });
            }
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Stoppable for Shared {
    fn stop(&self) {
        if self.is_foreign() {
            return;
        }
        let mut is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_stopped, true) {
            return;
        }
        for device in &self.devices {
            let about = self.about(device);
            device.lock().about = about;
            self.allocator.end_log(device);
            device.log.end();
        }
        for device in &self.devices {
            device.wait(device.lock(), |progress| progress.is_over);
        }
        if self.options.on_oom && self.failures().files.is_empty() {
            for device in &self.devices {
                device.lock().files.drain(..).for_each(|path| drop(fs::remove_file(path)));
            }
        }
    }
}

impl Shared {
    /// Whether this is a forked child, where no thread writes and locks may be held for ever.
    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the allocator itself did, for the last file's header.
    fn about(&self, device: &Device) -> Value {
        let (waits, waited) = device.log.waits();
        let mut about =
            json!({ "waits": waits, "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX) });
        if let Some(stats) = self.allocator.stats(device.index) {
            about["allocator"] = json!({
                "requested_bytes_peak": stats.requested_bytes.all.peak,
                "allocated_bytes_peak": stats.allocated_bytes.all.peak,
                "active_bytes_peak": stats.active_bytes.all.peak,
                "reserved_bytes_peak": stats.reserved_bytes.all.peak,
                "num_device_alloc": stats.num_device_alloc,
                "num_device_free": stats.num_device_free,
                "num_alloc_retries": stats.num_alloc_retries,
                "num_ooms": stats.num_ooms,
            });
        }
        about
    }

    /// Writes everything out, and what the allocator looks like. Whatever fails is a warning.
    fn out_of_memory(&self, report: &OomReport) {
        if self.is_foreign() || *self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        self.devices.iter().for_each(|device| device.flush());
        let mut failures = self.failures();
        if failures.last.is_some_and(|last| last.elapsed() < BETWEEN_FAILURES) {
            return;
        }
        match self.dump(report, &mut failures.number) {
            Ok(files) => failures.files.extend(files),
            Err(error) => tracing::warn!(%error, "no snapshot could be written for an out-of-memory error"),
        }
        // A snapshot and a report each.
        while self.options.keep > 0 && failures.files.len() > 2 * self.options.keep {
            let _ = fs::remove_file(failures.files.remove(0));
        }
        failures.last = Some(Instant::now());
    }

    fn dump(&self, report: &OomReport, number: &mut u32) -> io::Result<[PathBuf; 2]> {
        let device = report.device.0;
        let (path, file) = create(&self.options, device, number, "-oom.pickle")?;
        if let Some(snapshot) = self.allocator.snapshot() {
            let mut file = io::BufWriter::new(file);
            pickle::write(&snapshot, &mut file, Protocol::default())?;
            file.flush()?;
        }
        let text = path.with_extension("txt");
        fs::write(&text, format!("{report}\n"))?;
        Ok([path, text])
    }
}
