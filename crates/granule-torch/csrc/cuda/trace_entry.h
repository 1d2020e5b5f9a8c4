#pragma once

#include "granule.h"
#include "release.h"

namespace granule_torch {

// `time` as the receiver wants it: ticks of the approximate clock for trackers, microseconds in snapshots.
history_types::TraceEntry trace_entry(
    const granule_trace_entry& from,
    history_types::trace_time_ time);

} // namespace granule_torch
