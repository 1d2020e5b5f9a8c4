// Events.
#include "queue.h"

namespace fakegpu {
namespace {

struct Known {
  std::mutex lock;
  std::map<Event*, std::shared_ptr<Event>> events;
};
Known& known() {
  static auto* k = new Known;
  return *k;
}

}  // namespace

CUresult event_of(CUevent handle, Event** out) {
  std::lock_guard<std::mutex> g(known().lock);
  if (!known().events.count((Event*)handle)) return bad_call(CUDA_ERROR_INVALID_HANDLE);
  *out = (Event*)handle;
  return CUDA_SUCCESS;
}

std::shared_ptr<Event> new_event(unsigned flags, int device, bool imported, CUevent* handle) {
  auto event = std::make_shared<Event>();
  event->flags = flags;
  event->device = device;
  event->imported = imported;
  std::lock_guard<std::mutex> g(known().lock);
  known().events[event.get()] = event;
  *handle = (CUevent)event.get();
  return event;
}

}  // namespace fakegpu

using namespace fakegpu;
#define STREAM(s, handle) Stream* s; if (CUresult r_ = stream_of(handle, &s)) return r_
#define EVENT(e, handle) Event* e; if (CUresult r_ = event_of(handle, &e)) return r_

extern "C" {
CUresult cuEventCreate(CUevent* out, unsigned flags) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  bool shared = flags & CU_EVENT_INTERPROCESS;
  if (!out || flags > 7 || (shared && !(flags & CU_EVENT_DISABLE_TIMING))) return CUDA_ERROR_INVALID_VALUE;
  SharedProgress* progress = shared ? new_progress() : nullptr;
  if (shared && !progress) return CUDA_ERROR_OUT_OF_MEMORY;
  new_event(flags, device, false, out)->shared = progress;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent handle) {
  EVENT(e, handle);
  std::lock_guard<std::mutex> g(known().lock);
  known().events.erase(e);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  count(C_EVENT_RECORD);
  EVENT(e, event);
  STREAM(s, stream);
  if (e->device != s->device) return bad_call(CUDA_ERROR_INVALID_HANDLE);
  if (CUresult r = implicit_capture(s)) return r;
  if (s->capture) return captured_record(e, s);
  e->capture_id = 0;
  e->frontier.clear();
  if (auto* shared = e->shared) {
    uint64_t number = ++shared->recorded;
    submit(s, [=] { if (shared->done < number) shared->done = number; });
  }
  e->mark = mark_on(s);
  return CUDA_SUCCESS;
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) { return cuEventRecord(event, stream); }
CUresult cuEventQuery(CUevent event) {
  count(C_EVENT_QUERY);
  EVENT(e, event);
  if (e->capture_id) return CUDA_ERROR_CAPTURED_EVENT;
  if (CUresult r = not_while_capturing()) return r;
  bool complete = e->imported ? e->shared->done >= e->shared->recorded : !e->mark || e->mark->complete();
  if (complete) return CUDA_SUCCESS;
  count(C_EVENT_NOT_READY);
  return CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  count(C_EVENT_SYNC);
  EVENT(e, event);
  if (e->capture_id) return CUDA_ERROR_CAPTURED_EVENT;
  if (CUresult r = not_while_capturing()) return r;
  if (e->imported) wait_for_progress(e->shared, e->shared->recorded);
  else if (auto mark = e->mark) mark->wait();
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  EVENT(a, start);
  EVENT(b, end);
  if (!ms) return CUDA_ERROR_INVALID_VALUE;
  if ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->mark || !b->mark) return CUDA_ERROR_INVALID_HANDLE;
  for (Event* e : {a, b}) {
    std::lock_guard<std::mutex> g(e->mark->lock);
    if (!e->mark->done) return CUDA_ERROR_NOT_READY;
  }
  std::chrono::duration<float, std::milli> passed = b->mark->at - a->mark->at;
  *ms = passed.count();
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime_v2(float* ms, CUevent start, CUevent end) { return cuEventElapsedTime(ms, start, end); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  count(C_STREAM_WAIT);
  STREAM(s, stream);
  EVENT(e, event);
  if (CUresult r = implicit_capture(s)) return r;
  bool done = false;
  if (CUresult r = captured_wait(s, e, &done)) return r;
  if (done) return CUDA_SUCCESS;
  if (auto* shared = e->shared) {
    uint64_t number = shared->recorded;
    if (shared->done < number) s->queue->push([=] { wait_for_progress(shared, number); });
    return CUDA_SUCCESS;
  }
  if (!e->mark) return CUDA_SUCCESS;
  auto mark = e->mark;
  bool finished;
  {
    std::lock_guard<std::mutex> g(mark->lock);
    finished = mark->done;
  }
  if (!finished)
    s->queue->push([mark] {
      std::unique_lock<std::mutex> g(mark->lock);
      mark->changed.wait(g, [&] { return mark->done; });
    });
  return CUDA_SUCCESS;
}
}
