// Page-locked host memory: allocated here, or the program's own and registered.
#include "fakegpu.h"
#include <sys/mman.h>

namespace fakegpu {
namespace {

std::mutex& lock() {
  static auto* m = new std::mutex;
  return *m;
}
std::map<uintptr_t, HostRange>& ranges() {
  static auto* all = new std::map<uintptr_t, HostRange>;
  return *all;
}
bool find(uintptr_t p, HostRange* range) {
  auto it = ranges().upper_bound(p);
  if (it == ranges().begin()) return false;
  --it;
  if (p >= it->first + it->second.size) return false;
  *range = it->second;
  return true;
}

}  // namespace

bool find_host(uintptr_t p, HostRange* range) {
  std::lock_guard<std::mutex> g(lock());
  return find(p, range);
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuMemHostAlloc(void** out, size_t size, unsigned flags) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  if (!out || !size || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = not_while_capturing()) return r;
  count(C_HOST_ALLOC);
  size_t length = whole_pages(size);
  if (length < size) return CUDA_ERROR_OUT_OF_MEMORY;
  void* at = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard<std::mutex> g(lock());
  ranges()[(uintptr_t)at] = {(uintptr_t)at, size, flags, false};
  *out = at;
  return CUDA_SUCCESS;
}
CUresult cuMemAllocHost_v2(void** out, size_t size) { return cuMemHostAlloc(out, size, 0); }
CUresult cuMemFreeHost(void* p) {
  if (CUresult r = not_while_capturing()) return r;
  synchronize_all();  // as the real one does
  std::lock_guard<std::mutex> g(lock());
  auto it = ranges().find((uintptr_t)p);
  if (it == ranges().end() || it->second.registered) return bad_call(CUDA_ERROR_INVALID_VALUE);
  munmap(p, whole_pages(it->second.size));
  ranges().erase(it);
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister_v2(void* p, size_t size, unsigned flags) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  uintptr_t at = (uintptr_t)p;
  if (!p || !size || flags > 15 || at + size < at) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> g(lock());
  auto next = ranges().lower_bound(at);
  HostRange before;
  if ((next != ranges().end() && next->first < at + size) || find(at, &before))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  ranges()[at] = {at, size, flags, true};
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* p) {
  std::lock_guard<std::mutex> g(lock());
  auto it = ranges().find((uintptr_t)p);
  if (it == ranges().end() || !it->second.registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  ranges().erase(it);
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned) {
  HostRange range;
  if (!out || !find_host((uintptr_t)p, &range)) return CUDA_ERROR_INVALID_VALUE;
  *out = (CUdeviceptr)p;
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetFlags(unsigned* out, void* p) {
  HostRange range;
  if (!out || !find_host((uintptr_t)p, &range)) return CUDA_ERROR_INVALID_VALUE;
  *out = range.flags;
  return CUDA_SUCCESS;
}
}
