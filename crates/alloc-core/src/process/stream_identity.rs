//! Default streams under their several names.
//!
//! CUDA and HIP have names for default streams that are no handles of one stream each: 0 and 1 (`cudaStreamLegacy`) are
//! the same, and 2 (`cudaStreamPerThread`) is another stream in each thread. Inside the engine every stream has one
//! name: [`resolve`] is applied where a stream comes in, [`named`] where one is named to the driver, and [`shown`]
//! where people see one.

use crate::backend::{BackendError, ErrorKind, Result};
use crate::sync::thread_number;
use crate::types::{DeviceKind, Stream};

const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
/// Upper bits of a thread's default stream, above the thread's number: no pointer has them, and no number that counts.
const OF_THREAD: u64 = 0x8000 << 48;

/// Bits of a handle that make [`resolve`] necessary, on devices of this kind. Handles that are pointers have none.
pub(crate) fn alias_bits(kind: DeviceKind) -> u64 {
    if has_aliases(kind) { LEGACY | PER_THREAD } else { 0 }
}

fn has_aliases(kind: DeviceKind) -> bool {
    matches!(kind, DeviceKind::Cuda | DeviceKind::Hip)
}

/// Unique name of a stream that the calling thread knows as `stream`.
#[cold]
pub(crate) fn resolve(stream: Stream, kind: DeviceKind) -> Stream {
    if !has_aliases(kind) {
        return stream;
    }
    match stream.raw {
        LEGACY => Stream { raw: 0, ..stream },
        PER_THREAD => Stream { raw: of_this_thread(), ..stream },
        _ => stream,
    }
}

/// Driver's name of the stream, in the calling thread.
///
/// # Errors
/// Another thread's default stream has no name here.
pub(crate) fn named(stream: Stream) -> Result<Stream> {
    if !is_of_thread(stream.raw) {
        return Ok(stream);
    }
    if stream.raw == of_this_thread() {
        return Ok(Stream { raw: PER_THREAD, ..stream });
    }
    let detail = "another thread's default stream cannot be named here; only waiting for the whole device covers its work";
    Err(BackendError::new(ErrorKind::InvalidValue, 0, "stream", stream.device, detail))
}

/// The stream as its own thread knows it.
pub(crate) fn shown(stream: Stream) -> Stream {
    Stream { raw: shown_raw(stream.raw), ..stream }
}

/// [`shown`], of a handle.
pub(crate) fn shown_raw(raw: u64) -> u64 {
    if is_of_thread(raw) { PER_THREAD } else { raw }
}

fn is_of_thread(raw: u64) -> bool {
    raw >> 48 == OF_THREAD >> 48 && raw & 3 == PER_THREAD
}

fn of_this_thread() -> u64 {
    OF_THREAD | thread_number() << 2 | PER_THREAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BackendId, DeviceIndex};

    fn stream(raw: u64) -> Stream {
        Stream { raw, device: DeviceIndex(0), backend: BackendId(1) }
    }

    fn of(raw: u64, kind: DeviceKind) -> Stream {
        let stream = stream(raw);
        if stream.raw & alias_bits(kind) != 0 { resolve(stream, kind) } else { stream }
    }

    #[test]
    fn the_legacy_stream_has_one_name_and_each_thread_a_default_stream_of_its_own() {
        for kind in [DeviceKind::Cuda, DeviceKind::Hip] {
            assert_eq!(of(0, kind), of(1, kind));
            let mine = of(2, kind);
            assert_eq!(mine, of(2, kind));
            assert_eq!(mine, of(mine.raw, kind), "a name is its own name");
            let other = std::thread::spawn(move || of(2, kind)).join().unwrap();
            assert_ne!(mine, other);
            assert_eq!((named(mine), shown(mine), shown(other)), (Ok(stream(2)), stream(2), stream(2)));
            assert_eq!(named(other).unwrap_err().kind, ErrorKind::InvalidValue);
        }
    }

    #[test]
    fn handles_are_left_alone() {
        for raw in [0, 3, 5, 0x7fff_dead_bee8, 1 << 32 | 2, u64::MAX, u64::MAX - 1] {
            assert_eq!(of(raw, DeviceKind::Cuda), stream(raw));
            assert_eq!((named(stream(raw)), shown(stream(raw))), (Ok(stream(raw)), stream(raw)));
        }
        for raw in 0..5 {
            assert_eq!(of(raw, DeviceKind::PrivateUse1), stream(raw));
        }
    }
}
