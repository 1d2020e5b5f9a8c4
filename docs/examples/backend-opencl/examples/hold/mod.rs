//! Holds a stream still without a thread that waits: its queue waits for a command that the host completes.

use backend_api::{HostFunction, Result, types::Stream};
use backend_opencl::OpenClBackend;
use opencl3::event::{CL_COMPLETE, Event, create_user_event, set_user_event_status};

/// The stream goes on when the answer is called.
pub fn hold(backend: &OpenClBackend, stream: Stream) -> Result<HostFunction> {
    let mut held = None;
    backend.submit("hold", stream, |queue| {
        let opened = Event::new(create_user_event(backend.context.get())?);
        // SAFETY: the event is alive.
        let barrier = unsafe { queue.enqueue_barrier_with_wait_list(&[opened.get()]) }?;
        held = Some(opened);
        Ok(barrier)
    })?;
    Ok(Box::new(move || {
        if let Some(opened) = held {
            let _ = set_user_event_status(opened.get(), CL_COMPLETE);
        }
    }))
}
