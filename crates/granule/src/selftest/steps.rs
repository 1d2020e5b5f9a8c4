//! The steps of the self-test.

use alloc_core::backend::{self, Backend, BackendError, ErrorKind, EventFlags};
use alloc_core::config::Settings;
use alloc_core::types::{DeviceIndex, MIB, Stream};
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
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed).to_le_bytes()[0]).collect()
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
    let buffers = [4 << 20, 65_537].map(|bytes| DeviceBuffer::<u8>::new(&allocator, bytes, stream));
    for (seed, buffer) in (1..).zip(buffers) {
        let mut buffer = buffer?;
        let sent = pattern(buffer.len(), seed);
        let mut came = vec![0; sent.len()];
        buffer.write(&sent)?;
        buffer.read(&mut came)?;
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
    let mut source = DeviceBuffer::<u8>::new(&allocator, 8 << 20, writer)?;
    let mut copy = DeviceBuffer::<u8>::new(&allocator, 8 << 20, reader)?;
    source.fill_bytes(0xa7)?;
    let written = backend.create_event(device, EventFlags::empty())?;
    let ordered = backend.record_event(written, writer).and_then(|()| backend.wait_event(reader, written));
    // SAFETY: rule 1: it was made here and is not used again; waits that are queued still hold.
    unsafe { backend.destroy_event(written)? };
    ordered?;
    // SAFETY: the reader waits for what the writer does, and neither is given more for the two.
    unsafe { copy.copy_from(&source, reader)? };
    drop(source);
    let mut came = vec![0; copy.len()];
    copy.read(&mut came)?;
    ensure(
        came.iter().all(|byte| *byte == 0xa7),
        "a copy on one stream did not see what another wrote before",
    )
}

fn growable_segments(Tested { backend, .. }: &Tested, device: DeviceIndex) -> Result<(), Stop> {
    backend.virtual_memory().map_err(|absent| Stop::Skipped(absent.to_string()))?;
    let allocator = allocator(backend, Settings { expandable_segments: true, ..Settings::default() })?;
    let stream = backend.default_stream(device);
    let pieces = [12, 16, 40].map(|mib| DeviceBuffer::new(&allocator, mib << 20, stream));
    let mut pieces = pieces.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (seed, piece) in (1..).zip(&mut pieces) {
        piece.write(&pattern(64 << 10, seed))?;
    }
    for (seed, piece) in (1..).zip(&pieces) {
        let mut came = vec![0; 64 << 10];
        piece.read(&mut came)?;
        ensure(came == pattern(64 << 10, seed), "mapped memory lost its contents")?;
    }
    let grown = allocator.snapshot(false).segments.iter().any(|segment| segment.is_expandable);
    ensure(grown, "no segment grows, though virtual memory is offered")?;
    drop(pieces);
    allocator.empty_cache()?;
    let left = allocator.stats(device)?.reserved_bytes.all.current;
    ensure(left == 0, &format!("{left} bytes stayed mapped after the cache was emptied"))
}
