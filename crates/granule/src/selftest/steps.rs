//! The steps of the self-test.

use alloc_core::backend::{self, Backend, BackendError, CopyKind, ErrorKind, EventFlags};
use alloc_core::config::Settings;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator, DeviceBuffer};
use std::sync::Arc;

/// A step: it needs a started backend and leaves nothing behind.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) run: fn(&Tested, DeviceIndex) -> Result<(), Stop>,
}

/// What is tested.
pub(super) struct Tested {
    pub(super) backend: Arc<dyn Backend>,
    /// Those of the program's own allocators.
    pub(super) settings: Settings,
}

/// So much of a device is free where every step can run.
pub(super) const NEEDED: u64 = 80 * MIB;

pub(super) const ALL: [Step; 5] = [
    Step { name: "a request, as settings say", run: as_settings_say },
    Step { name: "bytes to the device and back", run: bytes_there_and_back },
    Step { name: "allocate, free, allocate again", run: allocate_and_free },
    Step { name: "two streams", run: two_streams },
    Step { name: "growable segments", run: growable_segments },
];

/// Why a step ended early.
pub(super) enum Stop {
    Failed(String),
    Skipped(String),
    /// No failure where little is free.
    NoMemory(String),
}

impl From<AllocError> for Stop {
    fn from(error: AllocError) -> Self {
        match error {
            AllocError::Backend(error) => error.into(),
            error if error.is_out_of_memory() => Self::NoMemory(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<BackendError> for Stop {
    fn from(error: BackendError) -> Self {
        match error.kind {
            ErrorKind::OutOfMemory => Self::NoMemory(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

fn ensure(sound: bool, otherwise: &str) -> Result<(), Stop> {
    if sound { Ok(()) } else { Err(Stop::Failed(otherwise.to_owned())) }
}

fn allocator(backend: &Arc<dyn Backend>, settings: Settings) -> Result<Arc<CachingAllocator>, Stop> {
    Ok(Arc::new(CachingAllocator::new(Arc::clone(backend), settings)?))
}

/// Bytes that differ from their neighbours and, by `seed`, from those of other steps.
fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed).to_le_bytes()[0]).collect()
}

fn write(backend: &dyn Backend, to: &DeviceBuffer, bytes: &[u8]) -> backend::Result<()> {
    let host = DevicePtr(bytes.as_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: callers give a live buffer of that length, and the call waits for the copy.
    unsafe { backend.copy(to.ptr(), host, bytes.len() as u64, CopyKind::HostToDevice) }
}

fn read(backend: &dyn Backend, from: &DeviceBuffer) -> backend::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(from.len()).unwrap_or(0)];
    let host = DevicePtr(bytes.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: the buffer is live and as long as the host's bytes, and the call waits for the copy.
    unsafe { backend.copy(host, from.ptr(), from.len(), CopyKind::DeviceToHost)? };
    Ok(bytes)
}

/// An allocator as the program makes it: settings that it refuses, and limits that leave nothing, show here.
fn as_settings_say(tested: &Tested, device: DeviceIndex) -> Result<(), Stop> {
    let allocator = allocator(&tested.backend, tested.settings.clone())?;
    let block = allocator.malloc(MIB, tested.backend.default_stream(device))?;
    Ok(allocator.free(block)?)
}

fn bytes_there_and_back(Tested { backend, .. }: &Tested, device: DeviceIndex) -> Result<(), Stop> {
    let allocator = allocator(backend, Settings::default())?;
    let stream = backend.default_stream(device);
    let buffers = [4 * MIB, 65_537].map(|bytes| DeviceBuffer::new(&allocator, bytes, stream));
    for (seed, buffer) in (1..).zip(buffers) {
        let buffer = buffer?;
        let sent = pattern(buffer.len(), seed);
        write(&**backend, &buffer, &sent)?;
        let came = read(&**backend, &buffer)?;
        let differs = sent.iter().zip(&came).position(|(sent, came)| sent != came);
        if let Some(at) = differs {
            let (len, sent, came) = (buffer.len(), sent[at], came[at]);
            return Err(Stop::Failed(format!(
                "byte {at} of {len} went as {sent:#04x} and came back as {came:#04x}"
            )));
        }
    }
    Ok(())
}

fn allocate_and_free(Tested { backend, .. }: &Tested, device: DeviceIndex) -> Result<(), Stop> {
    let allocator = allocator(backend, Settings::default())?;
    let stream = backend.default_stream(device);
    let sizes = [512, 3 * MIB, 24 * MIB];
    let first: Vec<_> =
        sizes.iter().map(|bytes| allocator.malloc(*bytes, stream)).collect::<Result<_, _>>()?;
    let mut places: Vec<_> = first.iter().zip(sizes).map(|(ptr, bytes)| (ptr.0, ptr.0 + bytes)).collect();
    places.sort_unstable();
    ensure(places.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two live blocks overlap")?;
    for ptr in &first {
        allocator.free(*ptr)?;
    }
    let again: Vec<_> =
        sizes.iter().map(|bytes| allocator.malloc(*bytes, stream)).collect::<Result<_, _>>()?;
    ensure(first == again, "freed memory did not serve the same requests again")?;
    for ptr in again {
        allocator.free(ptr)?;
    }
    allocator.empty_cache()?;
    let left = allocator.stats(device)?.reserved_bytes.all.current;
    ensure(left == 0, &format!("{left} bytes stayed reserved after the cache was emptied"))
}

/// Streams of a step, destroyed at its end. What may still name them is dropped before.
struct Streams<'a> {
    backend: &'a dyn Backend,
    made: Vec<Stream>,
}

impl Streams<'_> {
    fn another(&mut self, device: DeviceIndex) -> backend::Result<Stream> {
        let stream = self.backend.create_stream(device, 0)?;
        self.made.push(stream);
        Ok(stream)
    }
}

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        for stream in self.made.drain(..) {
            // SAFETY: rule 1: it was made here, and leaves the list of those that are used.
            if let Err(error) = unsafe { self.backend.destroy_stream(stream) } {
                tracing::debug!(%error, "a stream of the self-test stays");
            }
        }
    }
}

/// One stream writes, another copies when the first is done, and the source is freed before that.
fn two_streams(Tested { backend, .. }: &Tested, device: DeviceIndex) -> Result<(), Stop> {
    let mut streams = Streams { backend: &**backend, made: Vec::new() };
    let (writer, reader) = (streams.another(device)?, streams.another(device)?);
    let allocator = allocator(backend, Settings::default())?;
    let bytes = 8 * MIB;
    let source = DeviceBuffer::new(&allocator, bytes, writer)?;
    let copy = DeviceBuffer::new(&allocator, bytes, reader)?;
    // SAFETY: rule 2: all of a live buffer, in the order of its own stream.
    unsafe { backend.memset_async(source.ptr(), 0xa7, bytes, writer)? };
    let written = backend.create_event(device, EventFlags::empty())?;
    let ordered = backend.record_event(written, writer).and_then(|()| backend.wait_event(reader, written));
    // SAFETY: rule 1: it was made here and is not used again; waits that are queued still hold.
    unsafe { backend.destroy_event(written)? };
    ordered?;
    // SAFETY: rule 2: two live buffers of that length; the source is not reused before the reader is done with it.
    unsafe { backend.copy_async(copy.ptr(), source.ptr(), bytes, CopyKind::DeviceToDevice, reader)? };
    source.record_stream(reader)?;
    drop(source);
    backend.synchronize_stream(reader)?;
    let came = read(&**backend, &copy)?;
    ensure(
        came.iter().all(|byte| *byte == 0xa7),
        "a copy on one stream did not see what another wrote before",
    )
}

fn growable_segments(Tested { backend, .. }: &Tested, device: DeviceIndex) -> Result<(), Stop> {
    backend.virtual_memory().map_err(|absent| Stop::Skipped(absent.to_string()))?;
    let allocator = allocator(backend, Settings { expandable_segments: true, ..Settings::default() })?;
    let stream = backend.default_stream(device);
    let pieces = [12, 16, 40].map(|mib| DeviceBuffer::new(&allocator, mib * MIB, stream));
    let pieces = pieces.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (seed, piece) in (1..).zip(&pieces) {
        write(&**backend, piece, &pattern(64 * 1024, seed))?;
    }
    for (seed, piece) in (1..).zip(&pieces) {
        let came = read(&**backend, piece)?;
        ensure(came.starts_with(&pattern(64 * 1024, seed)), "mapped memory lost its contents")?;
    }
    let grown = allocator.snapshot(false).segments.iter().any(|segment| segment.is_expandable);
    ensure(grown, "no segment grows, though virtual memory is offered")?;
    drop(pieces);
    allocator.empty_cache()?;
    let left = allocator.stats(device)?.reserved_bytes.all.current;
    ensure(left == 0, &format!("{left} bytes stayed mapped after the cache was emptied"))
}
