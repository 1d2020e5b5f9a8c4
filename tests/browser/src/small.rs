//! Pictures for the book: those of the browser with a palette, which is a third of the bytes.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::collections::HashMap;
use std::io::{Read, Write};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
type Colour = [u8; 3];

/// The same picture in at most 256 colours: those that it has most of, each other one as the nearest of these.
///
/// # Panics
/// Where it is not as browsers make them: 8 bits a channel, not interlaced.
pub(crate) fn small(png: &[u8]) -> Vec<u8> {
    let (mut at, mut packed, mut head) = (SIGNATURE.len(), Vec::new(), Vec::new());
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes")) as usize;
        let content = &png[at + 8..at + 8 + length];
        match &png[at + 4..at + 8] {
            b"IHDR" => head = content.to_vec(),
            b"IDAT" => packed.extend_from_slice(content),
            _ => {}
        }
        at += length + 12;
    }
    let width = u32::from_be_bytes(head[..4].try_into().expect("four bytes")) as usize;
    let channels = match head[8..] {
        [8, 2, 0, 0, 0] => 3,
        [8, 6, 0, 0, 0] => 4,
        _ => panic!("another kind of picture: {head:?}"),
    };
    let mut filtered = Vec::new();
    ZlibDecoder::new(&packed[..]).read_to_end(&mut filtered).expect("the picture unpacks");
    let mut above = vec![0; width * channels];
    let mut pixels: Vec<Colour> = Vec::new();
    for row in filtered.chunks(1 + width * channels) {
        let mut line = row[1..].to_vec();
        for x in 0..line.len() {
            let left = if x < channels { 0 } else { line[x - channels] };
            let corner = if x < channels { 0 } else { above[x - channels] };
            let by = match row[0] {
                0 => 0,
                1 => left,
                2 => above[x],
                3 => left.midpoint(above[x]),
                _ => {
                    let far = |one: u8| {
                        (i32::from(left) + i32::from(above[x]) - i32::from(corner) - i32::from(one)).abs()
                    };
                    [left, above[x], corner].into_iter().min_by_key(|one| far(*one)).unwrap_or(0)
                }
            };
            line[x] = line[x].wrapping_add(by);
        }
        pixels.extend(line.chunks(channels).map(|one| [one[0], one[1], one[2]]));
        above = line;
    }
    let (palette, numbers) = palette(&pixels);
    head[8..10].copy_from_slice(&[8, 3]);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for row in pixels.chunks(width) {
        let row: Vec<u8> = std::iter::once(0).chain(row.iter().map(|pixel| numbers[pixel])).collect();
        encoder.write_all(&row).expect("memory");
    }
    let packed = encoder.finish().expect("memory");
    let chunks: [(&[u8], &[u8]); 4] =
        [(b"IHDR", &head), (b"PLTE", palette.as_flattened()), (b"IDAT", &packed), (b"IEND", &[])];
    let mut made = SIGNATURE.to_vec();
    for (kind, content) in chunks {
        let mut sum = flate2::Crc::new();
        sum.update(kind);
        sum.update(content);
        made.extend(u32::try_from(content.len()).expect("a small picture").to_be_bytes());
        made.extend([kind, content].concat());
        made.extend(sum.sum().to_be_bytes());
    }
    made
}

/// The colours that are kept, and which of them each one becomes.
fn palette(pixels: &[Colour]) -> (Vec<Colour>, HashMap<Colour, u8>) {
    let mut counts: HashMap<Colour, usize> = HashMap::new();
    for pixel in pixels {
        *counts.entry(*pixel).or_default() += 1;
    }
    let mut colours: Vec<_> = counts.into_iter().collect();
    colours.sort_by_key(|(colour, count)| (usize::MAX - count, *colour));
    let kept: Vec<Colour> = colours.iter().take(256).map(|(colour, _)| *colour).collect();
    let far = |one: &Colour, other: &Colour| -> u32 {
        one.iter().zip(other).map(|(one, other)| u32::from(one.abs_diff(*other)).pow(2)).sum()
    };
    let number = |colour: &Colour| (0..=u8::MAX).zip(&kept).min_by_key(|(_, one)| far(one, colour));
    let numbers = colours.iter().map(|(colour, _)| (*colour, number(colour).map_or(0, |found| found.0)));
    (kept.clone(), numbers.collect())
}
