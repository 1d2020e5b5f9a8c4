//! Streams by handle. 0 and 1 are the default ("legacy") stream of the current device, 2 is a stream that
//! every thread has of its own.
//!
//! The default stream and the streams made without the non-blocking flag wait for each other.

use crate::argument::Out;
use crate::callback::Callback;
use crate::events::{self, lag};
use crate::handles::Handles;
use crate::{Answer, Code, Here, contexts, graphs};
use backend_api::types::{DeviceIndex, Stream};
use backend_api::{Backend, Readiness};
use backend_openreg::{Driver, OpenReg};
use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::ptr::without_provenance_mut;
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

impl Here {
    /// What a stream's handle stands for.
    ///
    /// # Errors
    /// `INVALID_HANDLE`, or what its context answers.
    pub fn stream<T>(&self, handle: *mut T) -> Answer<StreamInfo> {
        let known = resolve(self.machine, self.device, handle.addr())?;
        contexts::usable(known.stream.device)?;
        Ok(known)
    }

    /// A stream to queue work on.
    ///
    /// # Errors
    /// As [`Here::stream`]; `CAPTURE_IMPLICIT` for a default stream that a captured stream waits for.
    pub fn work_stream<T>(&self, handle: *mut T) -> Answer<Stream> {
        let known = self.stream(handle)?;
        graphs::default_stream_is_free(self.machine, known.stream)?;
        wait_by_default(self.machine, &known);
        Ok(known.stream)
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

/// Makes a stream with flags and a priority, of which the driver has those of `priorities`; the machine has fewer, and
/// clamps.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags; what the machine says.
pub fn create<T>(
    here: Here,
    place: &Out<*mut T>,
    flags: u32,
    priority: i32,
    priorities: &RangeInclusive<i32>,
) -> Answer {
    place.wanted()?;
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let priority = priority.clamp(*priorities.start(), *priorities.end());
    let stream = here.machine.create_stream(here.device, priority)?;
    place.put(without_provenance_mut(STREAMS.insert(StreamInfo { stream, flags, priority })))
}

/// Destroys a stream; what is queued still runs.
///
/// # Errors
/// `INVALID_HANDLE` for one that is not, for the default streams too; what the machine says.
pub fn destroy<T>(here: Here, handle: *mut T) -> Answer {
    here.stream(handle)?;
    let known = STREAMS.get(handle.addr())?;
    // SAFETY: rule 1: the table says that it was made and not destroyed, and forgets it next.
    unsafe { here.machine.destroy_stream(known.stream) }?;
    STREAMS.remove(handle.addr()).map(drop)
}

/// Asks whether everything queued is done.
///
/// # Errors
/// `NOT_READY` where not; `INVALID_HANDLE`; what the machine says.
pub fn query<T>(here: Here, handle: *mut T) -> Answer {
    match here.machine.query_stream(here.work_stream(handle)?)? {
        Readiness::Ready => Ok(()),
        Readiness::NotReady => Err(Code::NOT_READY),
    }
}

/// Waits until everything queued is done.
pub fn synchronize<T>(here: Here, handle: *mut T) -> Answer {
    let stream = here.work_stream(handle)?;
    here.machine.synchronize_stream(stream)?;
    lag::stream_waited_for(stream);
    Ok(())
}

/// Lets later work wait for an event. The one flag there is changes nothing.
///
/// # Errors
/// `INVALID_HANDLE`, `INVALID_VALUE`; what the machine says.
pub fn wait_event<T, E>(here: Here, handle: *mut T, event: *mut E, flags: u32) -> Answer {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let event = events::resolve(event)?.event;
    Ok(here.machine.wait_event(here.work_stream(handle)?, event)?)
}

/// A number that no other stream of the process ever has.
pub fn id<T>(here: Here, handle: *mut T) -> Answer<u64> {
    let stream = here.stream(handle)?.stream;
    // Default streams have no number in the machine: theirs come from the device.
    Ok(if stream.raw == 0 { u64::MAX - u64::from(stream.device.0) } else { stream.raw })
}

/// Queues a function of the program.
pub fn call<T>(here: Here, handle: *mut T, function: Callback) -> Answer {
    let stream = here.work_stream(handle)?;
    Ok(Driver(here.machine).host_call(stream, move || function.run())?)
}

/// A function that is told its stream and a status.
pub type StreamFunction<T> = unsafe extern "C" fn(*mut T, u32, *mut c_void);

/// Queues a function of the older form, which captures refuse.
///
/// # Errors
/// `INVALID_VALUE` for flags, of which there are none, and without a function; `CAPTURE_UNSUPPORTED`; `INVALID_HANDLE`.
pub fn add_callback<T: 'static>(
    here: Here,
    handle: *mut T,
    function: Option<StreamFunction<T>>,
    data: *mut c_void,
    flags: u32,
) -> Answer {
    let called = function.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
    let stream = here.work_stream(handle)?;
    if graphs::info(here.machine, stream)?.status != 0 {
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    let (handle, data) = (handle.addr(), data.expose_provenance());
    let function = move || {
        let (stream, data) = (without_provenance_mut(handle), std::ptr::with_exposed_provenance_mut(data));
        // SAFETY: the caller promises a function that may be called with its data, on a thread of the driver.
        unsafe { called(stream, 0, data) };
    };
    Ok(here.machine.launch_host_function(stream, Box::new(function))?)
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
pub fn resolve(machine: &Arc<OpenReg>, current: DeviceIndex, handle: usize) -> Answer<StreamInfo> {
    match handle {
        0 | LEGACY => Ok(StreamInfo { stream: machine.default_stream(current), flags: 0, priority: 0 }),
        PER_THREAD => Ok(StreamInfo { stream: own_stream(machine, current)?, flags: 0, priority: 0 }),
        _ => STREAMS.get(handle),
    }
}
