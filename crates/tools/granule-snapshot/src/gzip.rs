//! Plain or packed input behind one reader, with a guard against archives that unpack without end.

use crate::limits::{LARGER, Limits};
use flate2::read::{DeflateDecoder, MultiGzDecoder};
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Unpacked bytes that are always allowed, whatever the archive's size: two million events, which take no second.
const ALWAYS_ALLOWED: u64 = 4 << 20;

/// Archives inside each other that are opened.
const MAX_LAYERS: usize = 4;
/// Bytes that tell what a file is.
const HEAD: usize = 512;

/// Plain bytes of a plain or a packed input, the first of them known.
pub struct Input<'r> {
    pub(crate) head: Vec<u8>,
    /// How many of the first bytes were read.
    at: usize,
    /// What came instead of more of them.
    pub(crate) failed: Option<io::Error>,
    rest: Box<dyn Read + 'r>,
}

impl<'r> Input<'r> {
    fn of(mut rest: Box<dyn Read + 'r>) -> Self {
        let mut head = Vec::with_capacity(HEAD);
        let failed = rest.by_ref().take(HEAD as u64).read_to_end(&mut head).err();
        Self { head, at: 0, failed, rest }
    }

    /// What lies inside archives (gzip, zip) that may lie inside each other, without a byte order mark. What comes out of all of
    /// them is measured by the bytes that went into the outermost: [`Limits::expansion`].
    ///
    /// # Errors
    /// A zip archive that has several files, or whose first cannot be read. Other damage shows where it is read; so does the
    /// limit, as [`io::ErrorKind::FileTooLarge`].
    pub fn new(reader: impl Read + 'r, limits: &Limits) -> io::Result<Self> {
        let bytes = Arc::default();
        let mut input = Self::of(Box::new(Counted { reader, bytes: Arc::clone(&bytes) }));
        for _ in 0..MAX_LAYERS {
            let bytes = Arc::clone(&bytes);
            input = if input.head.starts_with(&[0x1f, 0x8b]) {
                Self::of(Box::new(Bounded::new(MultiGzDecoder::new(input), bytes, limits)))
            } else if input.head.starts_with(b"PK\x03\x04") {
                Self::of(only_file(input, bytes, limits)?)
            } else {
                break;
            };
        }
        if input.head.starts_with(b"\xef\xbb\xbf") {
            input.head.drain(..3);
        }
        Ok(input)
    }
}

impl fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.head[self.at..]).read(buffer)?;
        self.at += count;
        if count > 0 || buffer.is_empty() {
            return Ok(count);
        }
        self.failed.take().map_or_else(|| self.rest.read(buffer), Err)
    }
}

/// What stands before a file in a zip archive.
struct Entry {
    name: String,
    method: u16,
    encrypted: bool,
    /// Packed; `None` where the writer could not go back, and said it behind the file. Both kinds of files say where they end.
    size: Option<u64>,
}

impl Entry {
    /// The next one; `None` where no file begins.
    fn read(zip: &mut impl Read) -> io::Result<Option<Self>> {
        let mut header = [0; 30];
        zip.read_exact(&mut header)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Ok(None);
        }
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let size = u32::from_le_bytes([header[18], header[19], header[20], header[21]]);
        let mut names = vec![0; usize::from(half(26)) + usize::from(half(28))];
        zip.read_exact(&mut names)?;
        let name = names.get(..half(26).into()).unwrap_or_default();
        Ok(Some(Self {
            name: String::from_utf8_lossy(name).into_owned(),
            method: half(8),
            encrypted: half(6) & 1 != 0,
            size: Some(size.into()).filter(|_| half(6) & 8 == 0 && size != u32::MAX),
        }))
    }

    /// Whether it is no recording: a folder, its packer's own, or a text beside one.
    fn is_aside(&self) -> bool {
        const OTHERS: [&str; 8] = ["/", ".txt", ".md", ".log", ".json", ".html", ".py", ".csv"];
        let last = self.name.rsplit('/').next().unwrap_or_default();
        self.name.starts_with("__MACOSX/")
            || last.starts_with('.')
            || OTHERS.iter().any(|end| self.name.ends_with(end))
    }
}

/// The only file of a zip archive that may be a recording, as far as it says where they end; of one by `torch.save` the first.
fn only_file<'r>(
    mut zip: Input<'r>,
    bytes: Arc<AtomicU64>,
    limits: &Limits,
) -> io::Result<Box<dyn Read + 'r>> {
    let wrong = || {
        io::Error::other(
            "this zip archive cannot be read: unpack the zip archive first, and give the file inside it",
        )
    };
    let unpacked = |method, file: Box<dyn Read + 'r>| match method {
        0 => file,
        _ => Box::new(Bounded::new(DeflateDecoder::new(file), bytes, limits)),
    };
    let (mut names, mut aside, mut found) = (Vec::new(), Vec::new(), None);
    loop {
        let entry = match Entry::read(&mut zip) {
            Ok(Some(entry)) => entry,
            // What ends before an entry does was cut.
            Err(_) if found.is_none() => return Err(wrong()),
            _ => break,
        };
        if found.is_none() && (entry.encrypted || ![0, 8].contains(&entry.method)) {
            return Err(wrong());
        }
        let is_aside = entry.is_aside();
        let is_saved = entry.name.ends_with("/data.pkl");
        if is_aside { &mut aside } else { &mut names }.push(entry.name);
        let mut file = zip.by_ref().take(entry.size.unwrap_or(u64::MAX));
        if found.is_some() || is_aside {
            let end = entry.size.ok_or_else(wrong);
            match end.and_then(|_| io::copy(&mut file, &mut io::sink())) {
                Err(_) if found.is_some() => break,
                passed => passed?,
            };
        } else if is_saved || entry.size.is_none() {
            return Ok(unpacked(entry.method, Box::new(zip.take(entry.size.unwrap_or(u64::MAX)))));
        } else {
            let mut head = Vec::new();
            let failed = file.read_to_end(&mut head).err();
            found = Some((entry.method, Input { head, at: 0, failed, rest: Box::new(io::empty()) }));
        }
    }
    if names.len() > 1 {
        let names = names.join(", ");
        let what = format!("this zip archive has several files ({names}): unpack it, and give one");
        return Err(io::Error::other(what));
    }
    let (method, file) = found.ok_or_else(|| {
        let what = "this zip archive has neither a trace nor a snapshot";
        io::Error::other(format!("{what}: it has {}", aside.join(", ")))
    })?;
    Ok(unpacked(method, Box::new(file)))
}

/// A decoder that ends with an error where far more comes out than goes in.
struct Bounded<D> {
    decoder: Box<D>,
    packed: Arc<AtomicU64>,
    unpacked: u64,
    expansion: u64,
}

impl<D> Bounded<D> {
    fn new(decoder: D, packed: Arc<AtomicU64>, limits: &Limits) -> Self {
        Self { decoder: Box::new(decoder), packed, unpacked: 0, expansion: limits.expansion }
    }
}

impl<D: Read> Read for Bounded<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.unpacked += count as u64;
        let packed = self.packed.load(Ordering::Relaxed);
        let expansion = self.expansion;
        if self.unpacked > ALWAYS_ALLOWED.saturating_add(packed.saturating_mul(expansion)) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the archive unpacks to more than {expansion} times its size; {LARGER}"),
            ));
        }
        Ok(count)
    }
}

/// Counts the packed bytes taken so far.
struct Counted<R> {
    reader: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
