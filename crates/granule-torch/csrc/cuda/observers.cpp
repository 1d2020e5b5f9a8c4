// Those who are told: of memory that ran out, of requests refused beforehand, of every event.

#include <c10/util/ApproximateClock.h>

#include <thread>
#include <utility>

#include "granule_allocator.h"
#include "trace_entry.h"

namespace granule_torch {
namespace {

// Observers cannot be removed, so what they need is never freed.
template <typename Observer>
void* for_ever(Observer&& observer) {
  return new std::decay_t<Observer>(std::forward<Observer>(observer));
}

// What an observer throws reaches whoever asked for the memory, in place of the out-of-memory error.
void out_of_memory(void* user, int64_t device, uint64_t tried, uint64_t total_or_allowed, uint64_t free) {
  try {
    (*static_cast<native::OutOfMemoryObserver*>(user))(device, tried, total_or_allowed, free);
  } catch (...) {
    keep_exception();
  }
}

// On a thread of its own, as PyTorch does it: whoever asked for the memory does not wait for it.
GRANULE_SINCE_2_12(void rejected(void* user, int64_t device, uint64_t wanted, uint64_t held, uint64_t /*limit*/) {
  shielded("an observer of rejected allocations", 0, [&] {
    std::thread([=] {
      shielded("an observer of rejected allocations", 0, [&] {
        uint64_t free = 0;
        uint64_t total = 0;
        check(granule_device_memory_info(engine::get(static_cast<int>(device)), static_cast<int32_t>(device), &free, &total));
        (*static_cast<native::OomRejectionObserver*>(user))(device, wanted, held, total);
        return 0;
      });
    }).detach();
    return 0;
  });
})

bool is_of_segment(int32_t action) {
  return action == GRANULE_ACTION_SEGMENT_ALLOC || action == GRANULE_ACTION_SEGMENT_FREE ||
      action == GRANULE_ACTION_SEGMENT_MAP || action == GRANULE_ACTION_SEGMENT_UNMAP;
}

history_types::trace_time_ now() {
  history_types::trace_time_ time{};
  time.approx_t_ = c10::getApproximateTime();
  return time;
}

// Entries come when the call is over. That is too late for segments: who registers memory elsewhere (NCCL) has to know before
// it is used, and before it goes. They come from `track_segment`.
void track(void* user, const granule_trace_entry* entry) {
  if (is_of_segment(entry->action)) {
    return;
  }
  shielded("a tracker of allocator events", 0, [&] {
    (*static_cast<native::AllocatorTraceTracker*>(user))(trace_entry(*entry, now()));
    return 0;
  });
}

void track_segment(void* user, const granule_segment_event* event) {
  using history_types::TraceEntry;
  shielded("a tracker of allocator events", 0, [&] {
    const auto action = event->growable ? (event->added ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP)
                                        : (event->added ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE);
    (*static_cast<native::AllocatorTraceTracker*>(user))(TraceEntry(
        action,
        static_cast<DeviceIndex>(event->device),
        event->addr,
        event->bytes,
        reinterpret_cast<decltype(TraceEntry::stream_)>(event->stream),
        pool_id(event->pool),
        now().approx_t_,
        nullptr,
        "N/A"));
    return 0;
  });
}

} // namespace

void GranuleAllocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
  engine::when_made([user = for_ever(std::move(observer))](granule_allocator* granule) {
    check(granule_add_oom_observer(granule, out_of_memory, user));
  });
}

GRANULE_SINCE_2_12(void GranuleAllocator::attachOomRejectionObserver(native::OomRejectionObserver observer) {
  engine::when_made([user = for_ever(std::move(observer))](granule_allocator* granule) {
    check(granule_add_rejection_observer(granule, rejected, user));
  });
})

void GranuleAllocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
  engine::when_made([user = for_ever(std::move(tracker))](granule_allocator* granule) {
    check(granule_add_trace_tracker(granule, track, user));
    check(granule_add_segment_observer(granule, track_segment, user));
  });
}

} // namespace granule_torch
