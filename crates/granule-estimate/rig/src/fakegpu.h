// The fake device, as the driver's entry points see it. All of it lives in the fake libcuda.so.1; the fake
// runtime is a layer over the driver's functions, as the real one is, so both see one device.
#pragma once
#include <cuda.h>
// The header gives these names the newest form; the library has both.
#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#undef cuGetProcAddress
#undef cuGraphNodeGetDependencies
#undef cuMemPrefetchAsync
#undef cuStreamUpdateCaptureDependencies
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fakegpu {

constexpr size_t MiB = size_t(1) << 20;
constexpr size_t GRANULE = 2 * MiB;  // the driver's page for large blocks
constexpr int MAX_DEVICES = 16;

// ---- settings and statistics (settings.cpp) --------------------------------------------------------------
// The order is part of the interface for scripts that ask by number; new ones go last.
enum Counter {
  C_MALLOC, C_MALLOC_FAIL, C_FREE, C_VA_RESERVE, C_VA_FREE, C_MEM_CREATE, C_MEM_CREATE_FAIL, C_MEM_RELEASE,
  C_MAP, C_UNMAP, C_SET_ACCESS, C_LAUNCH, C_MEMCPY, C_MEMSET, C_EVENT_RECORD, C_EVENT_QUERY,
  C_EVENT_NOT_READY, C_EVENT_SYNC, C_STREAM_WAIT, C_STREAM_SYNC, C_DEVICE_SYNC, C_STREAM_CREATE, C_CAPTURE,
  C_GRAPH_LAUNCH, C_HOST_ALLOC, C_BAD_CALL, C_IPC_EXPORT, C_IPC_OPEN, C_IPC_CLOSE, C_FD_EXPORT, C_FD_IMPORT,
  C_COUNT
};
struct Settings {
  int devices = 1;
  size_t capacity = 80 * 1024 * MiB;
  size_t context_bytes = 0;
  uint64_t event_lag = 0;
  bool bytes = false;    // device memory has contents
  FILE* log = nullptr;   // one line per memory call
};
const Settings& settings();
void count(Counter);
uint64_t counter(Counter);
// Counts a call that no correct program makes.
CUresult bad_call(CUresult answer);
#define LOG(...) do { if (fakegpu::settings().log) fprintf(fakegpu::settings().log, __VA_ARGS__); } while (0)

// ---- contexts (contexts.cpp) -----------------------------------------------------------------------------
CUresult need_context(int* device);  // the current context's device, or the driver's error
int context_device(CUcontext);       // -1: no context of this driver
CUcontext context_of(int device);

// ---- addresses and capacity (memory.cpp) -----------------------------------------------------------------
enum class Kind { Malloc, Pool, Managed, Imported };
struct Block {
  size_t size;     // as asked for
  size_t length;   // addresses taken
  size_t charged;  // bytes of the device's capacity
  Kind kind;
  int device;
};
struct Range { uintptr_t base; size_t size; int device; Kind kind; bool mapped; uint64_t id; };

std::mutex& memory_lock();
// With the lock held: addresses of a device's arena, and bytes of its capacity.
uintptr_t take_addresses(int device, size_t bytes, size_t alignment, uintptr_t hint);
void give_addresses(uintptr_t at, size_t bytes);
bool charge(int device, size_t bytes);
void uncharge(int device, size_t bytes);
void add_block(uintptr_t at, Block block);
bool take_block(uintptr_t at, Kind kind, Block* block);  // out of the books, its addresses and bytes still taken
void give_back(uintptr_t at, const Block& block);        // what was taken out of the books
size_t block_length(uintptr_t at);
// Without it:
CUresult allocate(int device, size_t size, Kind kind, uintptr_t* out);
CUresult release(uintptr_t at);
void memory_info(int device, size_t* free_bytes, size_t* total);
bool in_arena(uintptr_t p, int* device = nullptr);  // a device address, allocated or not
bool find_range(uintptr_t p, Range* range);         // the allocation or mapping around an address
bool whole_range(uintptr_t p, size_t n);            // every byte of it is allocated or mapped
// mapped ranges of virtual memory, for the two above; with the lock held (virtual_memory.cpp)
bool find_mapping(uintptr_t p, Range* range);

// ---- contents (bytes.cpp) --------------------------------------------------------------------------------
void bytes_start(int device, uintptr_t arena, size_t length);
void* bytes_at(uintptr_t p);                        // where a device byte lies in this process
void bytes_forget(uintptr_t at, size_t n);          // freed: the contents are gone
void bytes_map(uintptr_t at, size_t n, int fd, off_t offset);
void bytes_unmap(uintptr_t at, size_t n);
int bytes_file(int device);                         // the file that holds the arena
off_t bytes_offset(int device, uintptr_t at);
size_t host_page();                                 // of this system: 4, 16 or 64 KiB
size_t whole_pages(size_t n);                       // n in pages of the host, in bytes; 0 where that is no number
void bytes_show(uintptr_t at, size_t n);            // managed memory: the host may touch it
void bytes_hide(uintptr_t at, size_t n);

// ---- streams and events (streams.cpp, events.cpp, queue.h) -----------------------------------------------
struct Capture;
struct Node;
struct Queue;
struct Mark;
struct Stream {
  int id, device, priority;
  unsigned flags;
  bool legacy = false;
  std::shared_ptr<Queue> queue;
  Capture* capture = nullptr;    // under capture
  std::vector<Node*> frontier;   // what its next captured work depends on
};
struct Event {
  unsigned flags;
  int device;
  std::shared_ptr<Mark> mark;    // null: never recorded, or recorded in a capture
  unsigned long long capture_id = 0;
  std::vector<Node*> frontier;
  bool imported = false;
  struct SharedProgress* shared = nullptr;  // for other processes
};
// How far an event for other processes has come, in memory that they share: the last record, and the last passed.
struct SharedProgress { std::atomic<uint64_t> recorded, done; };
// The stream behind a handle; the error of a handle that is none.
CUresult stream_of(CUstream handle, Stream** out);
CUresult event_of(CUevent handle, Event** out);
void each_stream(const std::function<void(Stream*)>&);
// Does work in the stream's order, at once where nothing is before it. `slow` work runs in a thread of the
// stream: a function of the program, which may take as long as it likes.
void submit(Stream*, std::function<void()> work, bool slow = false);
CUresult stream_synchronize(Stream*);
void device_synchronize(int device);
void synchronize_all();
std::shared_ptr<Event> new_event(unsigned flags, int device, bool imported, CUevent* handle);

// ---- capture (capture.cpp) -------------------------------------------------------------------------------
// Work for a stream: captured where the stream is, submitted where it is not.
CUresult enqueue(CUstream, std::function<void()> work, CUgraphNodeType type, bool slow = false);
// A call that captures of this thread, or global ones, forbid: the error, with the captures broken.
CUresult not_while_capturing();
// A call about this stream that a capture of it forbids.
CUresult not_captured(Stream*);
CUresult implicit_capture(Stream*);
CUresult captured_record(Event*, Stream*);
CUresult captured_wait(Stream*, Event*, bool* done);

// ---- copies (copies.cpp) ---------------------------------------------------------------------------------
CUresult check_copy(uintptr_t dst, uintptr_t src, size_t n);
void copy_now(uintptr_t dst, uintptr_t src, size_t n);

// ---- pools (pools.cpp) -----------------------------------------------------------------------------------
bool pool_free(uintptr_t at);   // false: no block of a pool
void pools_trim(int device);    // what a synchronisation lets go

// ---- events of other processes (ipc_events.cpp) ----------------------------------------------------------
SharedProgress* new_progress();
void wait_for_progress(SharedProgress*, uint64_t number);

// ---- host memory (host.cpp) ------------------------------------------------------------------------------
struct HostRange { uintptr_t base; size_t size; unsigned flags; bool registered; };
bool find_host(uintptr_t p, HostRange* range);

}  // namespace fakegpu

// For ctypes, nvml and the runtime.
extern "C" {
int fakegpu_device_count();
int fakegpu_attribute(int attribute);
size_t fakegpu_used(int device);
size_t fakegpu_peak(int device);
void fakegpu_reset_peak(int device);
void fakegpu_set_capacity(int device, size_t bytes);
uint64_t fakegpu_counter(int number);
uint64_t fakegpu_counter_named(const char* name);
void fakegpu_set_d2h_fill(int byte);
void fakegpu_remember(int on);
void fakegpu_launch();
}
