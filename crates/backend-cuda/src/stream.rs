//! Streams and events.

use crate::library::CudaDriver;
use backend_api::types::{Event, Stream};
use backend_api::{EventFlags, PriorityRange, Readiness, Result};
use backend_support::{HostEntry, Site, call, event_flags, number, pointer, query, stream_and_event_calls};
use cudarc::driver::sys::{CUevent_flags, CUstream_flags};
use std::ffi::{c_uint, c_void};
use std::ptr;

const _: () = {
    assert!(CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint == 1);
    assert!(CUevent_flags::CU_EVENT_DEFAULT as c_uint == 0);
    assert!(CUevent_flags::CU_EVENT_BLOCKING_SYNC as c_uint == 1);
    assert!(CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint == 2);
};

stream_and_event_calls!(CudaDriver {
    streams: cuStreamCreateWithPriority, cuStreamDestroy_v2, cuCtxGetStreamPriorityRange, cuStreamQuery,
        cuStreamSynchronize, cuStreamWaitEvent, cuLaunchHostFunc;
    events: cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventQuery, cuEventSynchronize, cuEventElapsedTime;
});
