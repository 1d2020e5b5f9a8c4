// What the environment asks for, and the statistics of the run.
#include "fakegpu.h"
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace fakegpu {
namespace {

const char* const NAMES[C_COUNT] = {
  "cudaMalloc", "cudaMalloc_failed", "cudaFree", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate",
  "cuMemCreate_failed", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "kernel_launch", "memcpy",
  "memset", "event_record", "event_query", "event_not_ready", "event_sync", "stream_wait_event", "stream_sync",
  "device_sync", "stream_create", "stream_capture", "graph_launch", "host_alloc", "bad_call", "ipc_export",
  "ipc_open", "ipc_close", "fd_export", "fd_import"};

std::atomic<uint64_t> counters[C_COUNT];
pid_t process;

double number(const char* name, double otherwise) {
  const char* text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

void write_statistics() {
  if (settings().log) fflush(settings().log);
  const char* file = getenv("FAKE_GPU_STATS");
  if (!file || !*file || getpid() != process) return;  // a fork's counters are its parent's
  uint64_t calls = 0;
  for (auto& c : counters) calls += c;
  if (!calls) return;  // a process that never used the device writes nothing
  std::string path(file);
  auto at = path.find("%p");
  if (at != std::string::npos) path.replace(at, 2, std::to_string((long)getpid()));
  FILE* out = fopen(path.c_str(), "w");
  if (!out) return;
  fprintf(out, "{\n \"devices\": [");
  for (int i = 0; i < settings().devices; i++) {
    size_t total;
    memory_info(i, nullptr, &total);
    fprintf(out, "%s{\"capacity\": %zu, \"peak_held\": %zu, \"held_at_exit\": %zu}", i ? ", " : "", total,
            fakegpu_peak(i), fakegpu_used(i));
  }
  fprintf(out, "],\n \"calls\": {");
  for (int i = 0; i < C_COUNT; i++)
    fprintf(out, "%s\"%s\": %llu", i ? ", " : "", NAMES[i], (unsigned long long)counters[i].load());
  fprintf(out, "}\n}\n");
  fclose(out);
}

Settings read() {
  process = getpid();
  Settings s;
  s.devices = (int)number("FAKE_GPU_COUNT", 1);
  if (s.devices < 0) s.devices = 0;
  if (s.devices > MAX_DEVICES) s.devices = MAX_DEVICES;
  s.capacity = size_t(number("FAKE_GPU_MEM_GB", 80) * 1024.0) * MiB;
  s.context_bytes = size_t(number("FAKE_GPU_CTX_MB", 0) * MiB);
  s.event_lag = (uint64_t)number("FAKE_GPU_EVENT_LAG", 0);
  s.bytes = number("FAKE_GPU_BYTES", 0) != 0;
  const char* log = getenv("FAKE_GPU_DRIVER_LOG");
  if (log && *log) s.log = fopen(log, "w");
  atexit(write_statistics);
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings* s = new Settings(read());
  return *s;
}
void count(Counter c) { counters[c].fetch_add(1, std::memory_order_relaxed); }
uint64_t counter(Counter c) { return counters[c].load(); }
CUresult bad_call(CUresult answer) {
  count(C_BAD_CALL);
  return answer;
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
int fakegpu_device_count() { return settings().devices; }
uint64_t fakegpu_counter(int number) { return number >= 0 && number < C_COUNT ? counters[number].load() : 0; }
uint64_t fakegpu_counter_named(const char* name) {
  for (int i = 0; i < C_COUNT; i++)
    if (!strcmp(name, NAMES[i])) return counters[i].load();
  return 0;
}
void fakegpu_launch() { count(C_LAUNCH); }
}
