//! Streams and events.

use crate::library::HipDriver;
use backend_api::types::{Event, Stream};
use backend_api::{EventFlags, PriorityRange, Readiness, Result};
use backend_support::{HostEntry, Site, call, event_flags, number, pointer, query, stream_and_event_calls};
use granule_hip_sys::abi6::{
    hipEventBlockingSync, hipEventDefault, hipEventDisableTiming, hipStreamNonBlocking,
};
use std::ffi::{c_uint, c_void};
use std::ptr;

const _: () = {
    assert!(hipStreamNonBlocking == 1);
    assert!(hipEventDefault == 0);
    assert!(hipEventBlockingSync == 1);
    assert!(hipEventDisableTiming == 2);
};

stream_and_event_calls!(HipDriver {
    streams: hipStreamCreateWithPriority, hipStreamDestroy, hipDeviceGetStreamPriorityRange, hipStreamQuery,
        hipStreamSynchronize, hipStreamWaitEvent, hipLaunchHostFunc;
    events: hipEventCreateWithFlags, hipEventDestroy, hipEventRecord, hipEventQuery, hipEventSynchronize,
        hipEventElapsedTime;
});
