//! Streams by handle. 0 and 1 are the default ("legacy") stream of the current device, 2 is a stream that
//! every thread has of its own.
//!
//! The default stream and the streams made without the non-blocking flag wait for each other.

use crate::handles::Handles;
use crate::{Answer, Code};
use backend_api::Backend;
use backend_api::types::{DeviceIndex, Stream};
use backend_openreg::{Driver, OpenReg};
use std::cell::RefCell;
use std::sync::Arc;

/// The explicit handle of the default stream.
pub const LEGACY: usize = 1;
/// The handle of the calling thread's own stream.
pub const PER_THREAD: usize = 2;

/// What a stream's handle stands for.
#[derive(Clone, Copy, Debug)]
pub struct StreamInfo {
    /// The machine's stream.
    pub stream: Stream,
    /// As it was made: 1 is non-blocking.
    pub flags: u32,
    /// As it was made.
    pub priority: i32,
}

impl StreamInfo {
    /// Whether it is a default stream, or was made without the non-blocking flag.
    #[must_use]
    pub const fn is_blocking(&self) -> bool {
        self.flags & 1 == 0
    }
}

static STREAMS: Handles<StreamInfo, 0x6a00_0000_0000> = Handles::new();

struct Own {
    machine: Arc<OpenReg>,
    streams: Vec<Stream>,
}

impl Drop for Own {
    fn drop(&mut self) {
        for &stream in &self.streams {
            // SAFETY: rule 1: made in `own_stream`; the thread, and with it the only handle, ends.
            let _ = unsafe { self.machine.destroy_stream(stream) };
        }
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

fn own_stream(machine: &Arc<OpenReg>, device: DeviceIndex) -> Answer<Stream> {
    let find = |own: &RefCell<Option<Own>>| {
        let mut own = own.borrow_mut();
        let own = own.get_or_insert_with(|| Own { machine: Arc::clone(machine), streams: Vec::new() });
        if let Some(&known) = own.streams.iter().find(|stream| stream.device == device) {
            return Ok(known);
        }
        let made = machine.create_stream(device, 0)?;
        own.streams.push(made);
        Ok(made)
    };
    OWN.try_with(find).map_err(|_| Code::INVALID_HANDLE)?
}

/// Makes a stream; its handle.
///
/// # Errors
/// What the machine says.
pub fn create(machine: &OpenReg, device: DeviceIndex, flags: u32, priority: i32) -> Answer<usize> {
    let stream = machine.create_stream(device, priority)?;
    Ok(STREAMS.insert(StreamInfo { stream, flags, priority }))
}

/// Destroys a stream.
///
/// # Errors
/// `INVALID_HANDLE` for one that is not, for the default streams too; what the machine says.
pub fn destroy(machine: &OpenReg, handle: usize) -> Answer {
    let known = STREAMS.get(handle)?;
    // SAFETY: rule 1: the table says that it was made and not destroyed, and forgets it next.
    unsafe { machine.destroy_stream(known.stream) }?;
    STREAMS.remove(handle).map(drop)
}

/// Lets what a stream is given next wait for what its device's default stream has to do, or for what the others have
/// where it is itself the default stream. Non-blocking streams wait for nothing.
pub fn wait_by_default(machine: &OpenReg, known: &StreamInfo) {
    if !known.is_blocking() || !Driver(machine).is_busy() {
        return;
    }
    let default = machine.default_stream(known.stream.device);
    let others = if known.stream == default {
        let same = |other: &StreamInfo| other.is_blocking() && other.stream.device == default.device;
        STREAMS.all().into_iter().filter(same).map(|other| other.stream).collect()
    } else {
        vec![default]
    };
    for other in others {
        // A stream that is captured, or gone, has nothing to wait for.
        let _ = machine.order(other, known.stream);
    }
}

/// What a handle stands for while `current` is the thread's device.
///
/// # Errors
/// `INVALID_HANDLE`.
pub fn resolve(machine: &Arc<OpenReg>, current: DeviceIndex, handle: usize) -> Answer<StreamInfo> {
    match handle {
        0 | LEGACY => Ok(StreamInfo { stream: machine.default_stream(current), flags: 0, priority: 0 }),
        PER_THREAD => Ok(StreamInfo { stream: own_stream(machine, current)?, flags: 0, priority: 0 }),
        _ => STREAMS.get(handle),
    }
}
