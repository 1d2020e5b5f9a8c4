//! The files of one device: calls become events, blocks get numbers, and files follow each other.

use super::RecordOptions;
use crate::trace::{Event, TraceHeader, TraceRecording, add_reason};
use alloc_core::history::ProgramCall;
use alloc_core::types::PoolId;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// The size at which a file is followed by the next, unless another one is asked for.
const ROTATE: u64 = 256 << 20;

/// A block that the program has.
#[derive(Clone, Copy, Debug)]
struct Live {
    id: u64,
    bytes: u64,
    stream: u32,
    /// 0 is the common one.
    pool: u32,
}

/// What a file holds.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    allocs: u64,
    iterations: u64,
    requested: u64,
    live: u64,
    peak_live: u64,
    live_before: u64,
    refused: u64,
    streams: FxHashSet<u32>,
}

/// The file that is being written.
#[derive(Debug)]
struct Current {
    recording: TraceRecording<File>,
    /// The pool that requests are for.
    pool: u32,
    counts: Counts,
}

impl Current {
    /// Whether the next file is due. One that mostly tells what was live goes on: the next would not be smaller.
    fn is_full(&self, limit: u64) -> bool {
        self.recording.bytes() >= limit && self.counts.events / 2 > self.counts.live_before
    }
}

/// All files of one device.
#[derive(Debug)]
pub(super) struct Series {
    options: RecordOptions,
    device: u16,
    conf: String,
    current: Option<Current>,
    files: VecDeque<PathBuf>,
    number: u32,
    /// By address.
    live: FxHashMap<u64, Live>,
    /// Other streams that use a block, by its address.
    uses: FxHashMap<u64, Vec<u32>>,
    next_id: u64,
    /// Stream numbers, by device and handle.
    streams: FxHashMap<(u16, u64), u32>,
    /// Pool numbers.
    pools: FxHashMap<PoolId, u32>,
    /// So many calls tell what was there before the recording.
    found: usize,
    /// The program had used the device before.
    is_late: bool,
    pub(super) events: u64,
}

impl Series {
    /// The first `found` calls tell what the program had before; `is_late`: it had used the device.
    pub(super) fn new(
        options: RecordOptions,
        device: u16,
        conf: String,
        found: usize,
        is_late: bool,
    ) -> Self {
        Self {
            options,
            device,
            conf,
            current: None,
            files: VecDeque::new(),
            number: 0,
            live: FxHashMap::default(),
            uses: FxHashMap::default(),
            next_id: 0,
            streams: FxHashMap::from_iter([((device, 0), 0)]),
            pools: FxHashMap::from_iter([(PoolId::DEFAULT, 0)]),
            found,
            is_late,
            events: 0,
        }
    }

    /// Files that there are, oldest first.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter()
    }

    /// Takes in what the program had before the recording.
    fn find(&mut self, call: &ProgramCall) {
        match *call {
            ProgramCall::Alloc { addr, bytes, stream, pool } => {
                let (stream, pool) = (self.stream(self.device, stream), self.pool(pool));
                let id = self.number();
                self.live.insert(addr, Live { id, bytes, stream, pool });
            }
            ProgramCall::Use { addr, stream, device } => {
                let stream = self.stream(device, stream);
                self.uses.entry(addr).or_default().push(stream);
            }
            // An arena that was made while the recording began.
            ProgramCall::Free { addr } => {
                self.live.remove(&addr);
                self.uses.remove(&addr);
            }
            _ => {}
        }
    }

    /// Writes a call. The first begins the first file: a device that nobody uses has none.
    pub(super) fn write(&mut self, call: &ProgramCall) -> io::Result<()> {
        if self.found > 0 {
            self.found -= 1;
            self.find(call);
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|current| current.is_full(self.limit())) {
            self.end_file(&Value::Null)?;
            self.begin_file()?;
        }
        match *call {
            ProgramCall::Alloc { addr, bytes, stream, pool } => {
                let (stream, pool) = (self.stream(self.device, stream), self.pool(pool));
                let block = Live { id: self.number(), bytes, stream, pool };
                if let Some(lost) = self.live.insert(addr, block) {
                    self.free(addr, &lost)?;
                }
                self.request(&block)
            }
            ProgramCall::Free { addr } => match self.live.remove(&addr) {
                Some(block) => self.free(addr, &block),
                None => Ok(()),
            },
            ProgramCall::Use { addr, stream, device } => {
                let stream = self.stream(device, stream);
                let Some(id) = self.live.get(&addr).map(|block| block.id) else { return Ok(()) };
                let uses = self.uses.entry(addr).or_default();
                if !uses.contains(&stream) {
                    uses.push(stream);
                }
                self.event(&Event::RecordStream { id, stream })
            }
            ProgramCall::Refused { bytes, stream } => {
                let (stream, id) = (self.stream(self.device, stream), self.number());
                if let Some(current) = &mut self.current {
                    current.counts.refused += 1;
                }
                self.event(&Event::Alloc { id, size: bytes, stream })?;
                self.event(&Event::Refused { id, limit: 0 })
            }
            ProgramCall::PoolEnds { pool } => {
                let pool = self.pool(pool);
                if let Some(current) = &mut self.current {
                    current.pool = if current.pool == pool { 0 } else { current.pool };
                }
                self.event(&Event::PoolEnds { pool })
            }
            ProgramCall::EmptyPool { pool } => {
                let pool = self.pool(pool);
                self.event(&Event::EmptyPool { pool })
            }
            ProgramCall::EmptyCache => self.event(&Event::EmptyCache),
            ProgramCall::Iteration { n } => {
                if let Some(current) = &mut self.current {
                    current.counts.iterations += 1;
                }
                self.event(&Event::Iteration { n })
            }
        }
    }

    /// Puts everything into the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.current.as_mut().map_or(Ok(()), |current| current.recording.flush())
    }

    /// Ends the last file. `about` is what else there is to say about the recording, as an object.
    pub(super) fn end(&mut self, about: &Value) -> io::Result<()> {
        self.end_file(about)
    }

    fn limit(&self) -> u64 {
        self.options.rotate.unwrap_or(ROTATE)
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn stream(&mut self, device: u16, handle: u64) -> u32 {
        let next = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        *self.streams.entry((device, handle)).or_insert(next)
    }

    fn pool(&mut self, pool: PoolId) -> u32 {
        let next = u32::try_from(self.pools.len()).unwrap_or(u32::MAX);
        *self.pools.entry(pool).or_insert(next)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.counts.events += 1;
        self.events += 1;
        if let Event::Alloc { stream, .. } | Event::RecordStream { stream, .. } = event {
            current.counts.streams.insert(*stream);
        }
        current.recording.write(event)
    }

    fn request(&mut self, block: &Live) -> io::Result<()> {
        if let Some(Current { counts, .. }) = &mut self.current {
            counts.allocs += 1;
            counts.requested = counts.requested.saturating_add(block.bytes);
            counts.live = counts.live.saturating_add(block.bytes);
            counts.peak_live = counts.peak_live.max(counts.live);
        }
        let entered = self.current.as_mut().map(|current| std::mem::replace(&mut current.pool, block.pool));
        if entered.is_some_and(|entered| entered != block.pool) {
            self.event(&Event::Pool { pool: block.pool })?;
        }
        self.event(&Event::Alloc { id: block.id, size: block.bytes, stream: block.stream })
    }

    fn free(&mut self, addr: u64, block: &Live) -> io::Result<()> {
        self.uses.remove(&addr);
        if let Some(Current { counts, .. }) = &mut self.current {
            counts.live = counts.live.saturating_sub(block.bytes);
        }
        self.event(&Event::Free { id: block.id })
    }

    fn begin_file(&mut self) -> io::Result<()> {
        let is_window = self.is_late || self.number > 0;
        let (path, file) = create(&self.options, self.device, &mut self.number, "trace.gz")?;
        let mut header = TraceHeader { source: Some("Granule".into()), ..TraceHeader::default() };
        header.workload = program();
        header.extra.insert("device".into(), self.device.into());
        header.extra.insert("exact".into(), true.into());
        header.extra.insert("pools".into(), true.into());
        header.extra.insert("conf".into(), self.conf.as_str().into());
        if is_window {
            add_reason(
                &mut header,
                "earlier history is missing (the recording began later, or goes on from another file): peaks and the smallest \
                 device are those of the recorded window, which are lower bounds",
            );
        }
        let about = json!({ "process": std::process::id(), "number": self.number, "window": is_window });
        let recording = TraceRecording::new(file, header, about)?;
        self.current = Some(Current { recording, pool: 0, counts: Counts::default() });
        self.files.push_back(path);
        while self.options.keep > 0 && self.files.len() > self.options.keep {
            self.files.pop_front().into_iter().for_each(remove);
        }
        // In the order in which they were asked for, and numbered anew: a file's numbers begin with 0.
        let mut live: Vec<(u64, Live)> = self.live.iter().map(|(addr, block)| (*addr, *block)).collect();
        live.sort_unstable_by_key(|(_, block)| block.id);
        self.next_id = 0;
        for (addr, block) in &live {
            let block = Live { id: self.number(), ..*block };
            self.live.insert(*addr, block);
            self.request(&block)?;
            for stream in self.uses.get(addr).cloned().unwrap_or_default() {
                self.event(&Event::RecordStream { id: block.id, stream })?;
            }
        }
        if let Some(current) = &mut self.current {
            current.counts.live_before = live.len() as u64;
        }
        Ok(())
    }

    fn end_file(&mut self, said: &Value) -> io::Result<()> {
        let Some(Current { recording, counts, .. }) = self.current.take() else { return Ok(()) };
        let bytes = recording.bytes();
        recording.finish(|header, about| {
            header.events = Some(counts.events);
            header.allocs = Some(counts.allocs + counts.refused);
            header.streams = Some(counts.streams.len().max(1) as u64);
            header.iterations = Some(counts.iterations);
            header.peak_live_requested = Some(counts.peak_live);
            header.live_at_end = Some(counts.live);
            header.bytes_requested_in_all = Some(counts.requested);
            about["live_before"] = counts.live_before.into();
            for (count, what) in [
                (
                    counts.live_before,
                    "blocks were live before the history began; the replay begins by requesting them",
                ),
                (
                    counts.refused,
                    "requests were refused when it was recorded; a replay asks again, and gives back at once",
                ),
            ] {
                if count > 0 {
                    add_reason(header, &format!("{count} {what}"));
                }
            }
            for (key, value) in said.as_object().into_iter().flatten() {
                about[key] = value.clone();
            }
        })?;
        tracing::debug!(bytes, "a file of the recording has ended");
        Ok(())
    }
}

/// Makes a file that was not there, with the next number that gives one.
pub(super) fn create(
    options: &RecordOptions,
    device: u16,
    number: &mut u32,
    ending: &str,
) -> io::Result<(PathBuf, File)> {
    let rank = std::env::var("RANK").ok().filter(|rank| rank.parse::<u32>().is_ok());
    let rank = rank.map_or_else(String::new, |rank| format!("-r{rank}"));
    loop {
        *number += 1;
        let name = format!("granule{rank}-p{}-d{device}-{number:04}", std::process::id());
        let separator = if ending.starts_with('-') { "" } else { "." };
        let path = options.directory.join(format!("{name}{separator}{ending}"));
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file that is gone already is no loss.
fn remove(path: PathBuf) {
    let _ = fs::remove_file(path);
}

/// What the process runs: its script where it is Python's.
fn program() -> Option<String> {
    let line = fs::read("/proc/self/cmdline").ok()?;
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let first = words.next()?;
    let script = words.find(|word| word.ends_with(".py")).unwrap_or(first);
    Some(PathBuf::from(script.as_ref()).file_name()?.to_string_lossy().into_owned())
}
