//! Contents of blocks: work of streams writes a pattern of the block's own into its memory and looks whether it is still
//! there. Memory that two users have shows at once, through whatever address.

use crate::verdict::Verdict;
use alloc_core::types::{DevicePtr, Stream};
use backend_openreg::OpenReg;
use std::sync::Arc;

/// How much of a place is written.
const PLACE: u64 = 16;

/// What a block's memory has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The block's number; never used twice.
    pub tag: u64,
    /// How often it was written.
    pub version: u32,
}

/// The bytes of a pattern at one place.
fn bytes_of(pattern: Pattern, at: u64) -> [u8; PLACE as usize] {
    let mut bytes = [0; PLACE as usize];
    bytes[..6].copy_from_slice(&pattern.tag.to_le_bytes()[..6]);
    bytes[6..10].copy_from_slice(&pattern.version.to_le_bytes());
    bytes[10..].copy_from_slice(&at.to_le_bytes()[..6]);
    bytes
}

/// Backups are copied in pieces of this many bytes.
const PIECE: u64 = 16 << 20;

/// Where in a block of `bytes` a pattern is: its beginning, its end, and where its number says, in each piece of a backup.
fn places(tag: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let last = bytes.saturating_sub(PLACE);
    let spread = move |n: u64, within: u64| {
        (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(n as u32 * 16) % within.max(1)) & !511
    };
    let pieces = bytes.div_ceil(PIECE);
    let inside = (0..pieces).map(move |n| n * PIECE + spread(n % 4, bytes.min(PIECE)));
    // A place that is looked at twice in one go would be found changed.
    let inside = inside.filter(move |at| bytes >= 1 << 21 && *at >= PLACE && *at < last - PLACE);
    let ends = [(0, bytes >= PLACE), (last, last >= PLACE)].into_iter().filter(|(_, room)| *room);
    ends.map(|(at, _)| at).chain(inside)
}

/// Memory of a block, as a stream is to use it.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The machine.
    pub machine: &'a OpenReg,
    /// The stream that does the work.
    pub stream: Stream,
    /// Where it is.
    pub ptr: DevicePtr,
    /// How long.
    pub bytes: u64,
}

impl Span<'_> {
    /// Queues work that finds `old` there, if it is known, and leaves `new`, if that is given.
    pub fn work(self, verdict: &Arc<Verdict>, tag: u64, old: Option<Pattern>, new: Option<Pattern>) {
        let Self { machine, stream, ptr, bytes } = self;
        for place in places(tag, bytes) {
            let at = ptr.add(place);
            let (old, new) = (old.map(|old| bytes_of(old, place)), new.map(|new| bytes_of(new, place)));
            let verdict = Arc::clone(verdict);
            let seen = Arc::clone(&verdict);
            let kernel = move |bytes: &mut [u8], _: &[u8]| {
                if let Some(old) = old
                    && bytes != old
                {
                    let bytes = &*bytes;
                    seen.find(
                        "bytes",
                        format!("block {tag} at {ptr}+{place}: found {bytes:02x?}, not {old:02x?}"),
                    );
                }
                if let Some(new) = new {
                    bytes.copy_from_slice(&new);
                }
            };
            if let Err(error) = machine.launch_kernel(stream, (at, PLACE), (at, 0), kernel) {
                verdict.find("use", format!("block {tag} at {ptr}+{place}: {error}"));
            }
        }
    }
}
