//! Plain or gzip'd input behind one reader, with a guard against archives that unpack without end.

use flate2::read::MultiGzDecoder;
use std::io::{self, Chain, Cursor, Read};

/// Unpacked bytes that are always allowed, whatever the archive's size.
const ALWAYS_ALLOWED: u64 = 64 << 20;
/// Unpacked bytes allowed for each packed byte beyond that. Real traces and snapshots reach 20; deflate's
/// own limit is 1032, and only an archive made to fill memory comes near it.
const MAX_EXPANSION: u64 = 200;

/// Peeked bytes, then the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// Plain bytes of a plain or a gzip'd input.
#[derive(Debug)]
pub struct Input<R: Read>(Kind<R>);

#[derive(Debug)]
enum Kind<R: Read> {
    Plain(Whole<R>),
    Gzip { unpacked: u64, decoder: Box<MultiGzDecoder<Counted<Whole<R>>>> },
}

/// Looks at the first two bytes to tell which it is.
pub(crate) fn open<R: Read>(mut reader: R) -> io::Result<Input<R>> {
    let mut magic = Vec::with_capacity(2);
    reader.by_ref().take(2).read_to_end(&mut magic)?;
    let packed = magic == [0x1f, 0x8b];
    let whole = Cursor::new(magic).chain(reader);
    Ok(Input(if packed {
        let counted = Counted { reader: whole, bytes: 0 };
        Kind::Gzip { unpacked: 0, decoder: Box::new(MultiGzDecoder::new(counted)) }
    } else {
        Kind::Plain(whole)
    }))
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(reader) => reader.read(buffer),
            Kind::Gzip { unpacked, decoder } => {
                let count = decoder.read(buffer)?;
                *unpacked += count as u64;
                let packed = decoder.get_ref().bytes;
                if *unpacked > ALWAYS_ALLOWED.saturating_add(packed.saturating_mul(MAX_EXPANSION)) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!(
                            "the gzip archive unpacks to more than {MAX_EXPANSION} times its size; \
                             if you trust it, unpack it with gunzip first"
                        ),
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
