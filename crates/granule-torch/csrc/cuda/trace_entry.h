#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "granule.h"

namespace granule_torch {

// `time` as the receiver wants it: ticks of the approximate clock for trackers, microseconds in snapshots.
c10::CachingDeviceAllocator::TraceEntry trace_entry(
    const granule_trace_entry& from,
    c10::CachingDeviceAllocator::trace_time_ time);

} // namespace granule_torch
