// Events of other processes. How far an event has come lies in memory that both processes map: a handle names
// the process, its file and the place in it.
#include "fakegpu.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstring>

namespace fakegpu {
namespace {

constexpr char MAGIC[16] = "fakegpu event";
constexpr size_t PLACES = 4096;
struct Handle { char magic[16]; int process, file; uint64_t place; unsigned flags; };
static_assert(sizeof(Handle) <= sizeof(CUipcEventHandle));

SharedProgress* map_places(int file) {
  void* at = mmap(nullptr, PLACES * sizeof(SharedProgress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : (SharedProgress*)at;
}

// This process's own places; they are not reused, since another process may still look.
struct Own {
  int file = memfd_create("fakegpu-events", MFD_CLOEXEC);
  SharedProgress* places = nullptr;
  std::atomic<uint64_t> next{0};
  Own() {
    if (file >= 0 && !ftruncate(file, PLACES * sizeof(SharedProgress))) places = map_places(file);
  }
};
Own& own() {
  static auto* o = new Own;
  return *o;
}

}  // namespace

SharedProgress* new_progress() {
  uint64_t place = own().next++;
  return own().places && place < PLACES ? own().places + place : nullptr;
}

void wait_for_progress(SharedProgress* p, uint64_t number) {
  while (p->done < number) usleep(100);
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuIpcGetEventHandle(CUipcEventHandle* out, CUevent handle) {
  Event* event;
  if (CUresult r = event_of(handle, &event)) return r;
  if (!out || !event->shared || event->imported) return CUDA_ERROR_INVALID_HANDLE;
  Handle made{{}, getpid(), own().file, (uint64_t)(event->shared - own().places), event->flags};
  memcpy(made.magic, MAGIC, sizeof MAGIC);
  memset(out, 0, sizeof *out);
  memcpy(out, &made, sizeof made);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle raw) {
  static std::mutex lock;
  static std::map<int, SharedProgress*> processes;  // mapped once, for good
  int device;
  if (CUresult r = need_context(&device)) return r;
  Handle handle;
  memcpy(&handle, &raw, sizeof handle);
  if (!out || memcmp(handle.magic, MAGIC, sizeof MAGIC) || handle.place >= PLACES) return CUDA_ERROR_INVALID_VALUE;
  if (handle.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard<std::mutex> g(lock);
  SharedProgress*& places = processes[handle.process];
  if (!places) {
    std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
    int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;  // the exporter is gone
    places = map_places(file);
    close(file);
    if (!places) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto event = new_event(handle.flags, device, true, out);
  event->shared = places + handle.place;
  return CUDA_SUCCESS;
}
}
