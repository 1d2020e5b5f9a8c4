// Those who are told: of memory that ran out, of requests refused beforehand, of every event.

#include <c10/util/ApproximateClock.h>

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

void rejected(void* user, int64_t device, uint64_t wanted, uint64_t held, uint64_t limit) {
  shielded("an observer of rejected allocations", 0, [&] {
    (*static_cast<native::OomRejectionObserver*>(user))(device, wanted, held, limit);
    return 0;
  });
}

void track(void* user, const granule_trace_entry* entry) {
  shielded("a tracker of allocator events", 0, [&] {
    c10::CachingDeviceAllocator::trace_time_ now{};
    now.approx_t_ = c10::getApproximateTime();
    (*static_cast<native::AllocatorTraceTracker*>(user))(trace_entry(*entry, now));
    return 0;
  });
}

} // namespace

void GranuleAllocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
  engine::when_made([user = for_ever(std::move(observer))](granule_allocator* granule) {
    check(granule_add_oom_observer(granule, out_of_memory, user));
  });
}

void GranuleAllocator::attachOomRejectionObserver(native::OomRejectionObserver observer) {
  engine::when_made([user = for_ever(std::move(observer))](granule_allocator* granule) {
    check(granule_add_rejection_observer(granule, rejected, user));
  });
}

void GranuleAllocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
  engine::when_made([user = for_ever(std::move(tracker))](granule_allocator* granule) {
    check(granule_add_trace_tracker(granule, track, user));
  });
}

} // namespace granule_torch
