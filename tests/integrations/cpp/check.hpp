// What the programs share: checks that say where, figures, and streams that wait until they are let go.
#pragma once

#include <granule/cuda_resource.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      std::fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition,         \
                   granule_last_error());                                                                  \
      std::exit(1);                                                                                        \
    }                                                                                                      \
  } while (0)

#define OK(call) CHECK((call) == GRANULE_OK)

// The text of what a call throws, which is of this type; the program ends where it does not.
template <class Thrown, class Call>
std::string thrown_by(Call&& call) {
  try {
    call();
  } catch (const Thrown& thrown) {
    return thrown.what();
  }
  std::fprintf(stderr, "nothing was thrown\n");
  std::exit(1);
}

inline granule_device_stats stats_of(granule_allocator* a, int device = 0) {
  granule_device_stats stats{};
  stats.size = sizeof stats;
  OK(granule_stats(a, device, &stats));
  return stats;
}

// Bytes that a program has.
inline std::int64_t live_in(granule_allocator* a, int device = 0) { return stats_of(a, device).allocated_bytes.all.current; }

inline cuda::stream_ref as_stream(std::uint64_t handle) {
  return cuda::stream_ref{reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(handle))};
}

inline std::uint64_t stream_of(granule_allocator* a) {
  std::uint64_t made = 0;
  OK(granule_stream_create(a, 0, 0, &made));
  return made;
}

// A stream that goes no further until it is let go.
class Held {
 public:
  Held(granule_allocator* a, std::uint64_t stream) { OK(granule_stream_launch_host(a, 0, stream, wait, this)); }
  void let_go() { go_ = true; }
  bool is_over() const { return over_; }

 private:
  static void wait(void* self) {
    auto* held = static_cast<Held*>(self);
    while (!held->go_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    held->over_ = true;
  }
  std::atomic<bool> go_{false}, over_{false};
};
