// Streams. Nothing on this device takes time, so work is done when it is asked for, unless a function of the program
// still runs on the stream or an event is waited for that is behind one: then it queues.
#include "queue.h"
#include <set>

namespace fakegpu {

std::atomic<int> busy{0};
std::atomic<uint64_t> next_mark{1};
std::atomic<uint64_t> passed[MAX_DEVICES];

namespace {

struct Known {
  std::mutex lock;
  std::set<Stream*> streams;
  std::vector<std::pair<int, std::shared_ptr<Queue>>> orphans;  // of destroyed streams, with their devices
};
Known& known() {
  static auto* k = new Known;
  return *k;
}

// Behind what is in a queue now.
std::shared_ptr<Mark> mark_behind(const std::shared_ptr<Queue>& queue) {
  auto mark = std::make_shared<Mark>();
  mark->queue = queue;
  queue->push([mark] { mark->finish(); }, true);
  return mark;
}

// The legacy stream and blocking streams of a device wait for each other.
std::vector<std::shared_ptr<Mark>> implied(Stream* s) {
  std::vector<std::shared_ptr<Mark>> before;
  if (!busy || (s->flags & CU_STREAM_NON_BLOCKING)) return before;
  each_stream([&](Stream* other) {
    bool pair = other != s && other->device == s->device && other->legacy != s->legacy;
    if (!pair || (other->flags & CU_STREAM_NON_BLOCKING) || other->queue->finished()) return;
    before.push_back(mark_behind(other->queue));
  });
  return before;
}

void wait_for(const std::vector<std::shared_ptr<Mark>>& marks) {
  for (auto& mark : marks) mark->wait();
}

Stream* make(int device, int priority, unsigned flags) {
  static std::atomic<int> next{1};
  return new Stream{next++, device, priority, flags, false, std::make_shared<Queue>()};
}

Stream* default_stream(int device, bool legacy) {
  static Stream* const* all = [] {
    auto* made = new Stream*[MAX_DEVICES];
    for (int i = 0; i < MAX_DEVICES; i++) {
      made[i] = make(i, 0, 0);
      made[i]->legacy = true;
      std::lock_guard<std::mutex> g(known().lock);
      known().streams.insert(made[i]);
    }
    return made;
  }();
  if (legacy) return all[device];
  static thread_local Stream* own[MAX_DEVICES];
  if (!own[device]) {
    own[device] = make(device, 0, 0);
    std::lock_guard<std::mutex> g(known().lock);
    known().streams.insert(own[device]);
  }
  return own[device];
}

}  // namespace

std::shared_ptr<Mark> mark_on(Stream* s) {
  auto mark = std::make_shared<Mark>();
  mark->device = s->device;
  mark->queue = s->queue;
  auto before = implied(s);
  if (!before.empty()) s->queue->push([before] { wait_for(before); });
  if (!busy || s->queue->idle()) mark->finish();
  else s->queue->push([mark] { mark->finish(); }, true);
  return mark;
}

void each_stream(const std::function<void(Stream*)>& f) {
  std::vector<Stream*> all;
  {
    std::lock_guard<std::mutex> g(known().lock);
    all.assign(known().streams.begin(), known().streams.end());
  }
  for (Stream* s : all) f(s);
}

CUresult stream_of(CUstream handle, Stream** out) {
  uintptr_t value = (uintptr_t)handle;
  if (value <= 2) {
    int device;
    CUresult r = need_context(&device);
    if (r) return r;
    *out = default_stream(device, value != 2);
    return CUDA_SUCCESS;
  }
  std::lock_guard<std::mutex> g(known().lock);
  if (!known().streams.count((Stream*)handle)) return bad_call(CUDA_ERROR_INVALID_HANDLE);
  *out = (Stream*)handle;
  return CUDA_SUCCESS;
}

void submit(Stream* s, std::function<void()> work, bool slow) {
  auto before = implied(s);
  if (!slow && before.empty() && (!busy || s->queue->idle())) return work();
  s->queue->push([before, work = std::move(work)] {
    wait_for(before);
    work();
  });
}

CUresult stream_synchronize(Stream* s) {
  auto mark = mark_on(s);
  mark->wait();
  s->queue->passed = mark->number;
  pools_trim(s->device);
  return CUDA_SUCCESS;
}

void device_synchronize(int device) {
  uint64_t now = next_mark++;
  if (busy) {
    each_stream([&](Stream* s) {
      if (s->device == device) mark_on(s)->wait();
    });
    decltype(Known::orphans) orphans;
    {
      std::lock_guard<std::mutex> g(known().lock);
      orphans.swap(known().orphans);
    }
    for (auto& [of, queue] : orphans) {
      if (of == device) mark_behind(queue)->wait();
      else if (!queue->idle()) {
        std::lock_guard<std::mutex> g(known().lock);
        known().orphans.push_back({of, queue});
      }
    }
  }
  passed[device] = now;
  pools_trim(device);
}

void synchronize_all() {
  for (int i = 0; busy && i < settings().devices; i++) device_synchronize(i);
}

}  // namespace fakegpu

using namespace fakegpu;
#define STREAM(s, handle) Stream* s; if (CUresult r_ = stream_of(handle, &s)) return r_

extern "C" {
CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  if (!out || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  count(C_STREAM_CREATE);
  Stream* s = make(device, priority > 0 ? 0 : priority < -5 ? -5 : priority, flags);
  std::lock_guard<std::mutex> g(known().lock);
  known().streams.insert(s);
  *out = (CUstream)s;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
CUresult cuStreamDestroy_v2(CUstream handle) {
  if ((uintptr_t)handle <= 2) return CUDA_ERROR_INVALID_HANDLE;
  STREAM(s, handle);
  if (CUresult r = not_captured(s)) return r;
  std::lock_guard<std::mutex> g(known().lock);
  known().streams.erase(s);
  if (!s->queue->idle()) known().orphans.push_back({s->device, s->queue});
  delete s;
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream handle) {
  STREAM(s, handle);
  if (CUresult r = not_captured(s)) return r;
  if (CUresult r = implicit_capture(s)) return r;
  if (!busy) return CUDA_SUCCESS;
  return s->queue->finished() && implied(s).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream handle) {
  count(C_STREAM_SYNC);
  STREAM(s, handle);
  if (CUresult r = not_captured(s)) return r;
  if (CUresult r = implicit_capture(s)) return r;
  return stream_synchronize(s);
}
CUresult cuStreamGetPriority(CUstream h, int* out) { STREAM(s, h); *out = s->priority; return CUDA_SUCCESS; }
CUresult cuStreamGetFlags(CUstream h, unsigned* out) { STREAM(s, h); *out = s->flags; return CUDA_SUCCESS; }
CUresult cuStreamGetId(CUstream h, unsigned long long* out) { STREAM(s, h); *out = s->id; return CUDA_SUCCESS; }
CUresult cuStreamGetDevice(CUstream h, CUdevice* out) { STREAM(s, h); *out = s->device; return CUDA_SUCCESS; }
CUresult cuStreamGetCtx(CUstream h, CUcontext* out) { STREAM(s, h); *out = context_of(s->device); return CUDA_SUCCESS; }

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn f, void* data) {
  if (!f) return CUDA_ERROR_INVALID_VALUE;
  return enqueue(stream, [f, data] { f(data); }, CU_GRAPH_NODE_TYPE_HOST, true);
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback f, void* data, unsigned) {
  STREAM(s, stream);
  if (CUresult r = not_captured(s)) return r;
  submit(s, [=] { f(stream, CUDA_SUCCESS, data); }, true);
  return CUDA_SUCCESS;
}
}
