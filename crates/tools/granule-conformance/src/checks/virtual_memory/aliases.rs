//! One handle at several addresses at once. Drivers may refuse that; then allocators do without, and nothing is left to check.

use super::SAMPLE;
use crate::check::ensure_eq;
use crate::checks::room::Room;
use crate::context::pattern;
use crate::{Context, Stop, Verdict};
use backend_api::types::PhysicalHandle;
use backend_api::{Access, ErrorKind};

/// Three slots of which the first two show one handle. A refusal that changes something is a failure.
fn twice(cx: &Context) -> Result<(Room, PhysicalHandle), Stop> {
    let device = cx.device()?;
    let mut room = Room::reserve(cx, device, 3)?;
    let handle = room.furnish(0)?;
    cx.write(room.at(0), &pattern(20, SAMPLE))?;
    if let Err(error) = room.map(1, handle) {
        ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(20, SAMPLE), "the bytes after a refusal");
        room.close()?;
        return Err(match error.kind {
            ErrorKind::OutOfMemory => Stop::Failed(format!("a second mapping takes memory: {error}")),
            _ => Stop::Skipped(format!("this driver maps a handle at one address only: {error}")),
        });
    }
    room.set_access(1, &[device], Access::ReadWrite)?;
    Ok((room, handle))
}

pub(super) fn agree(cx: &Context) -> Verdict {
    let (room, _) = twice(cx)?;
    ensure_eq!(
        cx.read(room.at(1), SAMPLE)?,
        pattern(20, SAMPLE),
        "what was written before it was mapped twice"
    );
    cx.write(room.at(1), &pattern(21, SAMPLE))?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(21, SAMPLE), "what was written at the other address");
    let stream = cx.stream()?;
    let half = room.granule() / 2;
    cx.fill(room.at(0), 0x21, room.granule(), stream.handle)?;
    cx.fill(room.at(1), 0x22, half, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let sample = SAMPLE.min(usize::try_from(half).unwrap_or(SAMPLE));
    for slot in [0, 1] {
        let (first, second) = (room.at(slot), room.at(slot).add(half));
        ensure_eq!(cx.read(first, sample)?, vec![0x22; sample], "what was filled last, at slot {slot}");
        ensure_eq!(cx.read(second, sample)?, vec![0x21; sample], "what was filled first, at slot {slot}");
    }
    room.close()
}

pub(super) fn are_alone(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let (mut room, handle) = twice(cx)?;
    room.set_access(0, &[device], Access::None)?;
    ensure_eq!(room.access(1, device)?, Access::ReadWrite, "access to the other mapping");
    room.set_access(0, &[device], Access::ReadWrite)?;
    room.unmap(0)?;
    // Whoever got the memory by mistake would write over it.
    room.furnish(2)?;
    cx.write(room.at(2), &[0xee; SAMPLE])?;
    ensure_eq!(cx.read(room.at(1), SAMPLE)?, pattern(20, SAMPLE), "the bytes at the mapping that is left");
    room.map(0, handle)?;
    room.set_access(0, &[device], Access::ReadWrite)?;
    room.unmap(1)?;
    ensure_eq!(cx.read(room.at(0), SAMPLE)?, pattern(20, SAMPLE), "the bytes at the first address again");
    room.close()
}
