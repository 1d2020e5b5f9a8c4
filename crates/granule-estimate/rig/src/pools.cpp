// The driver's stream-ordered pools, one per device. A freed block stays in its pool, whole, until the pool holds
// more than its threshold at a synchronisation. Blocks are neither split nor merged, which the real pools do.
#include "fakegpu.h"
#include <algorithm>

namespace fakegpu {
namespace {

struct Pool {
  uint64_t threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  std::multimap<size_t, std::pair<uintptr_t, Block>> free;  // by length
};
Pool* all() {
  static auto* pools = new Pool[MAX_DEVICES];
  return pools;
}

Pool* pool_of(CUmemoryPool handle) {
  auto* p = (Pool*)handle;
  return p >= all() && p < all() + settings().devices ? p : nullptr;
}

// With the lock of memory held.
void trim(Pool& p, uint64_t keep) {
  while (p.reserved > keep && !p.free.empty()) {
    auto it = std::prev(p.free.end());
    auto [at, block] = it->second;
    p.free.erase(it);
    p.reserved -= block.length;
    give_back(at, block);
  }
}

bool reuse(Pool& p, size_t size, uintptr_t* out) {
  auto it = p.free.lower_bound(size);
  if (it == p.free.end() || it->first > 2 * std::max(size, MiB)) return false;
  auto [at, block] = it->second;
  p.free.erase(it);
  block.size = size;
  add_block(at, block);
  *out = at;
  return true;
}

CUresult pool_allocate(CUdeviceptr* out, size_t size, int device) {
  if (!out || !size) return CUDA_ERROR_INVALID_VALUE;
  Pool& p = all()[device];
  uintptr_t at = 0;
  {
    std::lock_guard<std::mutex> g(memory_lock());
    reuse(p, size, &at);
  }
  bool fresh = !at;
  if (fresh && allocate(device, size, Kind::Pool, &at)) {
    std::lock_guard<std::mutex> g(memory_lock());
    trim(p, 0);
  }
  if (!at)
    if (CUresult r = allocate(device, size, Kind::Pool, &at)) return r;
  std::lock_guard<std::mutex> g(memory_lock());
  p.used += size;
  p.used_high = std::max(p.used_high, p.used);
  if (fresh) p.reserved += block_length(at);
  p.reserved_high = std::max(p.reserved_high, p.reserved);
  *out = at;
  return CUDA_SUCCESS;
}

}  // namespace

bool pool_free(uintptr_t at) {
  std::lock_guard<std::mutex> g(memory_lock());
  Block block;
  if (!take_block(at, Kind::Pool, &block)) return false;
  count(C_FREE);
  Pool& p = all()[block.device];
  p.used -= block.size;
  p.free.insert({block.length, {at, block}});
  return true;
}

void pools_trim(int device) {
  Pool& p = all()[device];
  std::lock_guard<std::mutex> g(memory_lock());
  trim(p, p.threshold);
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t size, CUstream stream) {
  Stream* s;
  if (CUresult r = stream_of(stream, &s)) return r;
  return pool_allocate(out, size, s->device);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t size, CUmemoryPool pool, CUstream stream) {
  Pool* p = pool_of(pool);
  return p ? pool_allocate(out, size, (int)(p - all())) : cuMemAllocAsync(out, size, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
  Range range;
  bool known = find_range(at, &range) && range.base == at && !range.mapped && range.kind != Kind::Imported;
  if (!known) return bad_call(CUDA_ERROR_INVALID_VALUE);
  bool pooled = range.kind == Kind::Pool;
  return enqueue(stream, [=] { pooled ? (void)pool_free(at) : (void)release(at); }, CU_GRAPH_NODE_TYPE_MEM_FREE);
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice d) {
  if (d < 0 || d >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
  *out = (CUmemoryPool)&all()[d];
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice d) { return cuDeviceGetDefaultMemPool(out, d); }
CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool pool) { return pool_of(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  Pool* p = pool_of(pool);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> g(memory_lock());
  trim(*p, keep);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc*, size_t) {
  return pool_of(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void* out) {
  Pool* p = pool_of(pool);
  if (!p || !out) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> g(memory_lock());
  switch (which) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(uint64_t*)out = p->threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(uint64_t*)out = p->reserved; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(uint64_t*)out = p->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(uint64_t*)out = p->used; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(uint64_t*)out = p->used_high; break;
    default: *(int*)out = 1;  // the reuse policies
  }
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void* value) {
  Pool* p = pool_of(pool);
  if (!p || !value) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> g(memory_lock());
  if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) p->threshold = *(uint64_t*)value;
  if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) p->reserved_high = p->reserved;
  if (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH) p->used_high = p->used;
  return CUDA_SUCCESS;
}
}
