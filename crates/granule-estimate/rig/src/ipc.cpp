// Handles of memory for other processes. A handle tells the exporting process, where its
// contents lie, and how long the allocation is: the importer takes addresses of its own for it and, where there
// are contents, maps the exporter's file there. It does not count against the importer's capacity.
#include "fakegpu.h"
#include <fcntl.h>
#include <unistd.h>
#include <cstring>

namespace fakegpu {
namespace {

constexpr char MAGIC[16] = "fakegpu ipc";
struct MemoryHandle { char magic[16]; int process, device; uint64_t size, offset, id; int file; };
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

// What this process opened: an exporter's allocation is opened once, and counted from then on.
struct Opened { uintptr_t at; size_t times; };
std::map<std::pair<int, uint64_t>, Opened>& opened() {
  static auto* all = new std::map<std::pair<int, uint64_t>, Opened>;
  return *all;
}

CUresult open_new(const MemoryHandle& handle, uintptr_t* out) {
  size_t length = (handle.size + GRANULE - 1) / GRANULE * GRANULE;
  int file = -1;
  if (settings().bytes) {
    std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
    file = handle.file < 0 ? -1 : open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;  // the exporter is gone
  }
  uintptr_t at = take_addresses(handle.device, length, GRANULE, 0);
  if (at) {
    if (file >= 0) bytes_map(at, whole_pages(handle.size), file, (off_t)handle.offset);
    add_block(at, {handle.size, length, 0, Kind::Imported, handle.device});
  }
  if (file >= 0) close(file);
  *out = at;
  return at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace
}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr p) {
  Range range;
  if (!out || !find_range(p, &range) || range.mapped || range.kind != Kind::Malloc) return CUDA_ERROR_INVALID_VALUE;
  count(C_IPC_EXPORT);
  MemoryHandle handle{{}, getpid(), range.device, range.size, 0, range.id, -1};
  memcpy(handle.magic, MAGIC, sizeof MAGIC);
  if (settings().bytes) {
    handle.file = bytes_file(range.device);
    handle.offset = (uint64_t)bytes_offset(range.device, range.base);
  }
  memset(out, 0, sizeof *out);
  memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle raw, unsigned flags) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  MemoryHandle handle;
  memcpy(&handle, &raw, sizeof handle);
  if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(handle.magic, MAGIC, sizeof MAGIC) ||
      handle.device < 0 || handle.device >= settings().devices)
    return CUDA_ERROR_INVALID_VALUE;
  if (handle.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard<std::mutex> g(memory_lock());
  auto known = opened().find({handle.process, handle.id});
  if (known == opened().end()) {
    uintptr_t at;
    if (CUresult r = open_new(handle, &at)) return r;
    known = opened().insert({{handle.process, handle.id}, {at, 0}}).first;
    LOG("ipc_open %d %zu %zx\n", handle.device, (size_t)handle.size, at);
  }
  count(C_IPC_OPEN);
  known->second.times++;
  *out = known->second.at;
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
  std::lock_guard<std::mutex> g(memory_lock());
  for (auto it = opened().begin(); it != opened().end(); ++it) {
    if (it->second.at != at) continue;
    count(C_IPC_CLOSE);
    if (--it->second.times) return CUDA_SUCCESS;
    opened().erase(it);
    Block block;
    if (!take_block(at, Kind::Imported, &block)) return CUDA_ERROR_INVALID_VALUE;
    if (settings().bytes) bytes_unmap(at, block.length);
    give_addresses(at, block.length);
    LOG("ipc_close %zx\n", (size_t)at);
    return CUDA_SUCCESS;
  }
  return bad_call(CUDA_ERROR_INVALID_VALUE);
}
}
