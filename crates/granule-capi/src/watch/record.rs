//! Recording what the program asks, as traces that Granule's tools read.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::given;
use crate::bytes::granule_bytes;
use crate::error::granule_status;
use granule_snapshot::record::{RecordError, RecordOptions, Recorder};
use serde_json::json;
use std::ffi::c_char;

/// Records what the program asks of all devices, from now on: `DIRECTORY[,rotate=SIZE][,keep=N][,max_entries=N][,on_oom=True]`, as
/// in the variable GRANULE_RECORD, which starts a recording when an allocator is made. Ends with granule_record_stop, with the
/// allocator, or with the process. GRANULE_RECORDING where there is one already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_start(
    a: *mut granule_allocator,
    options: *const c_char,
) -> granule_status {
    guard(|| {
        let (a, text) = (given!(handle a), given!(text options));
        let options: RecordOptions = text.parse().map_err(RecordError::Options)?;
        let mut recording = a.recording.lock();
        let recorder = Recorder::start(&a.engine, options)?;
        *recording = Some(recorder);
        Ok(())
    })
}

/// Says that an iteration begins: a training step, a decode step, a request. Without a recording, nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_mark(a: *mut granule_allocator, iteration: u64) -> granule_status {
    guard(|| {
        if let Some(recorder) = &*given!(handle a).recording.lock() {
            recorder.mark_iteration(iteration);
        }
        Ok(())
    })
}

/// Waits until everything that was asked up to now can be read in the files. Without a recording, nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_flush(a: *mut granule_allocator) -> granule_status {
    guard(|| {
        if let Some(recorder) = &*given!(handle a).recording.lock() {
            recorder.flush();
        }
        Ok(())
    })
}

/// Ends the recording; its files are whole then. GRANULE_RECORDING where something could not be written. Without a recording,
/// nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_stop(a: *mut granule_allocator) -> granule_status {
    guard(|| {
        let recording = given!(handle a).recording.lock();
        Ok(recording.as_ref().map_or(Ok(()), Recorder::stop)?)
    })
}

/// The recording, or the last one, as JSON:
/// `{"recording": bool, "directory": text, "files": [text], "events": n, "waits": n, "waited_ms": n}`. Calls of the program wait where they come faster than they can be written. `{"recording": false}` where there was
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_json(
    a: *mut granule_allocator,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let said = match &*a.recording.lock() {
            None => json!({ "recording": false }),
            Some(recorder) => {
                let (waits, waited) = recorder.waits();
                let files: Vec<String> =
                    recorder.files().iter().map(|path| path.to_string_lossy().into_owned()).collect();
                json!({
                    "recording": recorder.is_recording(),
                    "directory": recorder.directory().to_string_lossy(),
                    "files": files,
                    "events": recorder.events(),
                    "waits": waits,
                    "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                })
            }
        };
        out.set(granule_bytes::new(said.to_string()));
        Ok(())
    })
}
