//! Plain or gzip'd input behind one reader, with a guard against archives that unpack without end.

use crate::pickle::Limits;
use flate2::read::MultiGzDecoder;
use std::io::{self, Chain, Cursor, Read};

/// Unpacked bytes that are always allowed, whatever the archive's size: two million events, which take no second.
const ALWAYS_ALLOWED: u64 = 4 << 20;

/// What to do about a limit.
pub(crate) const LARGER: &str =
    "if you trust the file, read it with larger limits (`--trust`, `pickle::Limits::trusting`)";

/// Peeked bytes, then the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// Plain bytes of a plain or a gzip'd input.
#[derive(Debug)]
pub struct Input<R: Read>(Kind<R>);

#[derive(Debug)]
enum Kind<R: Read> {
    Plain(Whole<R>),
    Gzip { unpacked: u64, expansion: u64, decoder: Box<MultiGzDecoder<Counted<Whole<R>>>> },
}

impl<R: Read> Input<R> {
    /// Looks at the first two bytes to tell which it is. Of an archive, no more is unpacked than
    /// [`Limits::expansion`] allows.
    ///
    /// # Errors
    /// What `reader` reports. Reading beyond the limit is [`io::ErrorKind::FileTooLarge`].
    pub fn new(mut reader: R, limits: &Limits) -> io::Result<Self> {
        let mut magic = Vec::with_capacity(2);
        reader.by_ref().take(2).read_to_end(&mut magic)?;
        let packed = magic == [0x1f, 0x8b];
        let whole = Cursor::new(magic).chain(reader);
        Ok(Self(if packed {
            let counted = Counted { reader: whole, bytes: 0 };
            let decoder = Box::new(MultiGzDecoder::new(counted));
            Kind::Gzip { unpacked: 0, expansion: limits.expansion, decoder }
        } else {
            Kind::Plain(whole)
        }))
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(reader) => reader.read(buffer),
            Kind::Gzip { unpacked, expansion, decoder } => {
                let count = decoder.read(buffer)?;
                *unpacked += count as u64;
                let packed = decoder.get_ref().bytes;
                if *unpacked > ALWAYS_ALLOWED.saturating_add(packed.saturating_mul(*expansion)) {
                    return Err(io::Error::new(
                        io::ErrorKind::FileTooLarge,
                        format!("the gzip archive unpacks to more than {expansion} times its size; {LARGER}"),
                    ));
                }
                Ok(count)
            }
        }
    }
}

/// Counts the packed bytes taken so far.
#[derive(Debug)]
struct Counted<R> {
    reader: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}
