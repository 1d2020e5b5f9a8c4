// The order of work on a stream, and the places in it that events stand for.
#pragma once
#include "fakegpu.h"
#include <chrono>
#include <deque>
#include <thread>

namespace fakegpu {

extern std::atomic<int> busy;                         // queues with something in them
extern std::atomic<uint64_t> next_mark;
extern std::atomic<uint64_t> passed[MAX_DEVICES];     // marks made before a synchronisation of the device

// The order of one stream. A thread works the list off, and ends with it.
struct Queue : std::enable_shared_from_this<Queue> {
  std::mutex lock;
  struct Item { std::function<void()> work; bool instant; };
  std::deque<Item> list;
  bool running = false;
  size_t unfinished = 0;            // without what takes no time: who waited for a mark finds nothing left
  std::atomic<uint64_t> passed{0};  // marks made before a synchronisation of the stream

  bool idle() {
    std::lock_guard<std::mutex> g(lock);
    return !running;
  }
  bool finished() {
    std::lock_guard<std::mutex> g(lock);
    return !unfinished;
  }
  void push(std::function<void()> work, bool instant = false) {
    std::lock_guard<std::mutex> g(lock);
    list.push_back({std::move(work), instant});
    unfinished += !instant;
    if (running) return;
    running = true;
    busy++;
    std::thread([self = shared_from_this()] { self->work_off(); }).detach();
  }
  void work_off() {
    std::unique_lock<std::mutex> g(lock);
    while (!list.empty()) {
      Item item = std::move(list.front());
      list.pop_front();
      g.unlock();
      item.work();
      item.work = nullptr;
      g.lock();
      unfinished -= !item.instant;
    }
    running = false;
    busy--;
  }
};

// A place in a stream's order, which an event stands for.
struct Mark {
  std::mutex lock;
  std::condition_variable changed;
  bool done = false;
  bool waited = false;               // someone waited for it: no lag any more
  uint64_t number = next_mark++;
  uint64_t launches = counter(C_LAUNCH);
  int device = 0;
  std::shared_ptr<Queue> queue;
  std::chrono::steady_clock::time_point at;

  void finish() {
    std::lock_guard<std::mutex> g(lock);
    done = true;
    at = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> g(lock);
    changed.wait(g, [this] { return done; });
    waited = true;
  }
  // With FAKE_GPU_EVENT_LAG=n an event completes n kernel launches after it was recorded, which makes the frees
  // that record_stream defers last as on a busy device.
  bool complete() {
    std::lock_guard<std::mutex> g(lock);
    if (!done) return false;
    return waited || counter(C_LAUNCH) >= launches + settings().event_lag || number < queue->passed ||
           number < passed[device];
  }
};

std::shared_ptr<Mark> mark_on(Stream*);

}  // namespace fakegpu
