//! What streams do: operations, and the memory they use.

use crate::machine::memo::{Memo, Place};
use crate::memory::Extent;
use crate::os::SharedFlag;
use crate::space::Span;
use backend_api::HostFunction;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A position in a stream: the operation with this number and all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: u64,
    pub(crate) sequence: u64,
}

/// The ranges one operation uses.
pub(crate) type Spans = [Span; 2];

/// A host function.
#[derive(Clone)]
pub(crate) enum HostCall {
    /// It runs once, however often a graph that holds it is launched.
    Once(Arc<Mutex<Option<HostFunction>>>),
    /// It runs with every launch.
    Always(Arc<dyn Fn() + Send + Sync>),
}

impl HostCall {
    pub(crate) fn new(function: HostFunction) -> Self {
        Self::Once(Arc::new(Mutex::new(Some(function))))
    }

    /// True where it returned, or had run before.
    fn run(&self) -> bool {
        let call = || match self {
            Self::Once(function) => {
                let function = function.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(function) = function {
                    function();
                }
            }
            Self::Always(function) => function(),
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_ok()
    }
}

impl std::fmt::Debug for HostCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostCall")
    }
}

/// It is given the bytes that it writes, as they were, and those that it only reads.
type KernelBody = dyn Fn(&mut [u8], &[u8]) + Send + Sync;

/// What a kernel does.
#[derive(Clone)]
pub(crate) struct Kernel(Arc<KernelBody>);

impl Kernel {
    pub(crate) fn new(body: impl Fn(&mut [u8], &[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(body))
    }

    fn run(&self, to: &[Extent], from: &[Extent]) -> io::Result<()> {
        let bytes_of = |extents: &[Extent]| {
            let mut bytes = vec![0; extents.iter().map(|extent| extent.bytes as usize).sum()];
            gather(extents, 0, &mut bytes).map(|()| bytes)
        };
        let (mut written, read) = (bytes_of(to)?, bytes_of(from)?);
        (self.0)(&mut written, &read);
        each_chunk(to, |extent, skip, length, done| {
            extent.file.write(&written[done as usize..done as usize + length], extent.offset + skip)
        })
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

/// One side of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Host(u64),
    /// Bytes that the copy brings along.
    Kept(Arc<[u8]>),
    Device(Vec<Extent>),
}

/// What a fill repeats: 1, 2, 4 or 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    bytes: [u8; 8],
    length: usize,
}

impl Pattern {
    /// Nothing beyond 8 bytes.
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let length = pattern.len().clamp(1, 8);
        Self { bytes: std::array::from_fn(|at| pattern.get(at % length).copied().unwrap_or(0)), length }
    }

    fn fill(self, to: &[Extent]) -> io::Result<()> {
        let all: u64 = to.iter().map(|extent| extent.bytes).sum();
        let most = usize::try_from(all).map_or(CHUNK, |all| all.min(CHUNK));
        // From any phase on.
        let chunk = self.bytes.repeat(most / 8 + 2);
        each_chunk(to, |extent, skip, length, done| {
            let phase = done as usize % self.length;
            extent.file.write(&chunk[phase..phase + length], extent.offset + skip)
        })
    }
}

/// What an operation does when its stream reaches it.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Nothing but take its place: memory operations on reserved memory.
    Touch,
    /// A kernel: keeps the device busy for that long.
    Kernel(Duration),
    /// A kernel with results.
    Compute {
        to: Vec<Extent>,
        from: Vec<Extent>,
        kernel: Kernel,
    },
    Copy {
        to: Side,
        from: Side,
        bytes: u64,
    },
    Fill {
        to: Vec<Extent>,
        pattern: Pattern,
    },
    /// A copy from or to memory that has no bytes.
    Recall {
        to: Place,
        from: Place,
        bytes: u64,
        memo: Arc<Memo>,
    },
    Host(HostCall),
    Record {
        event: u64,
        version: u64,
    },
    Wait(Point),
    WaitShared {
        flag: Arc<SharedFlag>,
        record: u64,
    },
    PoolFree(u64),
}

/// How many bytes move at a time between two memory files.
const CHUNK: usize = 1 << 18;

impl Work {
    /// The same work on the memory that is at its addresses now: `uses` are what it writes, and what it reads.
    pub(crate) fn at_addresses(&self, uses: Spans, memory_at: impl Fn(Span) -> Vec<Extent>) -> Self {
        let [written, read] = uses;
        let side = |side: &Side, used: Span| match side {
            Side::Host(_) | Side::Kept(_) => side.clone(),
            Side::Device(_) => Side::Device(memory_at(used)),
        };
        match self {
            Self::Copy { to, from, bytes } => {
                Self::Copy { to: side(to, written), from: side(from, read), bytes: *bytes }
            }
            Self::Fill { pattern, .. } => Self::Fill { to: memory_at(written), pattern: *pattern },
            Self::Compute { kernel, .. } => {
                Self::Compute { to: memory_at(written), from: memory_at(read), kernel: kernel.clone() }
            }
            other => other.clone(),
        }
    }

    /// Whether it takes one of the device's places for running work.
    pub(crate) const fn occupies_device(&self) -> bool {
        matches!(
            self,
            Self::Touch
                | Self::Kernel(_)
                | Self::Compute { .. }
                | Self::Copy { .. }
                | Self::Fill { .. }
                | Self::Recall { .. }
        )
    }

    /// Whether [`run`](Self::run) does anything, and so must not run under the machine's lock.
    pub(crate) const fn runs_unlocked(&self) -> bool {
        matches!(
            self,
            Self::Kernel(_)
                | Self::Compute { .. }
                | Self::Copy { .. }
                | Self::Fill { .. }
                | Self::Recall { .. }
                | Self::Host(_)
        )
    }

    /// Does it. False where a host function panicked.
    pub(crate) fn run(&self) -> bool {
        let moved = match self {
            Self::Host(call) => return call.run(),
            Self::Copy { to, from, bytes } => copy(to, from, *bytes),
            Self::Compute { to, from, kernel } => kernel.run(to, from),
            Self::Fill { to, pattern } => pattern.fill(to),
            Self::Recall { to, from, bytes, memo } => {
                memo.copy(*to, *from, *bytes);
                Ok(())
            }
            Self::Touch
            | Self::Kernel(_)
            | Self::Record { .. }
            | Self::Wait(_)
            | Self::WaitShared { .. }
            | Self::PoolFree(_) => Ok(()),
        };
        // A memory file that is open and long enough takes every read and write; a full disk is no concern
        // of memory. What cannot be moved stays as it was, as on a device that lost a transfer.
        debug_assert!(moved.is_ok(), "device memory could not be moved: {moved:?}");
        true
    }
}

/// Calls `visit(extent, skip, length, done)` for every chunk of the extents, in order.
fn each_chunk(
    extents: &[Extent],
    mut visit: impl FnMut(&Extent, u64, usize, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    for extent in extents {
        let mut skip = 0;
        while skip < extent.bytes {
            let length = (extent.bytes - skip).min(CHUNK as u64) as usize;
            visit(extent, skip, length, done)?;
            skip += length as u64;
            done += length as u64;
        }
    }
    Ok(())
}

fn copy(to: &Side, from: &Side, bytes: u64) -> io::Result<()> {
    match (to, from) {
        (to, Side::Kept(kept)) => copy(to, &Side::Host(kept.as_ptr().expose_provenance() as u64), bytes),
        // Nobody copies to what a copy brings along.
        (Side::Kept(_), _) => Ok(()),
        (Side::Host(to), Side::Host(from)) => {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(*to as usize);
            // SAFETY: rule 2, and the caller of the copy promised that the ranges do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(host(*from), to, bytes as usize) };
            Ok(())
        }
        (Side::Device(to), Side::Host(from)) => each_chunk(to, |extent, skip, length, done| {
            // SAFETY: rule 2: the host range is valid and not written while the copy is queued.
            let bytes = unsafe { std::slice::from_raw_parts(host(from + done), length) };
            extent.file.write(bytes, extent.offset + skip)
        }),
        (Side::Host(to), Side::Device(from)) => each_chunk(from, |extent, skip, length, done| {
            let at = std::ptr::with_exposed_provenance_mut::<u8>((to + done) as usize);
            // SAFETY: rule 2: the host range is valid and no one else's while the copy is queued.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at, length) };
            extent.file.read(bytes, extent.offset + skip)
        }),
        (Side::Device(to), Side::Device(from)) => {
            let mut chunk = vec![0; CHUNK];
            each_chunk(to, |extent, skip, length, done| {
                let chunk = &mut chunk[..length];
                gather(from, done, chunk)?;
                extent.file.write(chunk, extent.offset + skip)
            })
        }
    }
}

/// Reads what lies `skip` bytes into the extents.
fn gather(extents: &[Extent], mut skip: u64, into: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    for extent in extents {
        if filled == into.len() {
            break;
        }
        if skip >= extent.bytes {
            skip -= extent.bytes;
            continue;
        }
        let length = (extent.bytes - skip).min((into.len() - filled) as u64) as usize;
        extent.file.read(&mut into[filled..filled + length], extent.offset + skip)?;
        filled += length;
        skip = 0;
    }
    Ok(())
}

fn host(at: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(at as usize)
}
