// A device's addresses and its capacity. An arena is one reservation of addresses that nothing may touch:
// allocating hands out ranges of it. Addresses are the same in every run.
#include "fakegpu.h"
#include <sys/mman.h>
#include <cstdlib>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace fakegpu {
namespace {

constexpr uintptr_t FIRST_ARENA = 0x300000000000;

// Expandable segments reserve more addresses than there is capacity, again and again: one device gets 32 TiB.
size_t arena_bytes() {
  static const size_t each = [] {
    size_t share = size_t(32) << 40;
    while (share > size_t(4) << 40 && share * settings().devices > size_t(32) << 40) share /= 2;
    return share;
  }();
  return each;
}

// First fit by address; ranges merge when they come back.
struct Addresses {
  std::map<uintptr_t, size_t> free;

  void give(uintptr_t at, size_t n) {
    auto next = free.lower_bound(at);
    if (next != free.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == at) {
        at = before->first;
        n += before->second;
        free.erase(before);
      }
    }
    if (next != free.end() && at + n == next->first) {
      n += next->second;
      free.erase(next);
    }
    free[at] = n;
  }
  void cut(std::map<uintptr_t, size_t>::iterator it, uintptr_t at, size_t n) {
    auto [base, length] = *it;
    free.erase(it);
    if (at > base) free[base] = at - base;
    if (base + length > at + n) free[at + n] = base + length - at - n;
  }
  uintptr_t take(size_t n, size_t alignment) {
    for (auto it = free.begin(); it != free.end(); ++it) {
      uintptr_t at = (it->first + alignment - 1) / alignment * alignment;
      if (at + n > it->first + it->second) continue;
      cut(it, at, n);
      return at;
    }
    return 0;
  }
  bool take_at(uintptr_t at, size_t n) {
    auto it = free.upper_bound(at);
    if (it == free.begin()) return false;
    --it;
    if (at + n > it->first + it->second) return false;
    cut(it, at, n);
    return true;
  }
};

struct Device {
  size_t capacity = 0, used = 0, peak = 0;
  uintptr_t arena = 0;
  Addresses addresses;
  std::map<uintptr_t, Block> blocks;
};

std::vector<Device>& devices() {
  static std::vector<Device>* all = [] {
    auto* made = new std::vector<Device>(settings().devices);
    for (size_t i = 0; i < made->size(); i++) {
      Device& d = (*made)[i];
      d.capacity = settings().capacity;
      d.used = d.peak = settings().context_bytes;
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      void* at = mmap((void*)(FIRST_ARENA + i * arena_bytes()), arena_bytes(), PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
      if (at == MAP_FAILED) at = mmap(nullptr, arena_bytes(), PROT_NONE, flags, -1, 0);
      if (at == MAP_FAILED) {
        perror("fakegpu: no address space");
        abort();
      }
      d.arena = (uintptr_t)at;
      d.addresses.give((d.arena + GRANULE - 1) / GRANULE * GRANULE, arena_bytes() - GRANULE);
      if (settings().bytes) bytes_start((int)i, d.arena, arena_bytes());
    }
    return made;
  }();
  return *all;
}

std::atomic<uint64_t> next_id{1};
std::map<uintptr_t, uint64_t> ids;  // of blocks, for CU_POINTER_ATTRIBUTE_BUFFER_ID

bool find_block(uintptr_t p, Range* range) {
  for (Device& d : devices()) {
    auto it = d.blocks.upper_bound(p);
    if (it == d.blocks.begin()) continue;
    --it;
    if (p >= it->first + it->second.size) continue;
    *range = {it->first, it->second.size, it->second.device, it->second.kind, false, ids[it->first]};
    return true;
  }
  return false;
}

}  // namespace

std::mutex& memory_lock() {
  static auto* m = new std::mutex;
  return *m;
}

uintptr_t take_addresses(int device, size_t bytes, size_t alignment, uintptr_t hint) {
  Addresses& all = devices()[device].addresses;
  if (hint && hint % alignment == 0 && all.take_at(hint, bytes)) return hint;
  return all.take(bytes, alignment);
}
void give_addresses(uintptr_t at, size_t bytes) {
  int device;
  if (in_arena(at, &device)) devices()[device].addresses.give(at, bytes);
}
bool charge(int device, size_t bytes) {
  Device& d = devices()[device];
  if (d.used + bytes > d.capacity) return false;
  d.used += bytes;
  if (d.used > d.peak) d.peak = d.used;
  return true;
}
void uncharge(int device, size_t bytes) { devices()[device].used -= bytes; }
void add_block(uintptr_t at, Block block) {
  devices()[block.device].blocks[at] = block;
  ids[at] = next_id++;
}

CUresult allocate(int device, size_t size, Kind kind, uintptr_t* out) {
  count(C_MALLOC);
  // Blocks of 1 MiB and more take whole granules, smaller ones 512 bytes.
  size_t unit = size >= MiB ? GRANULE : 512;
  if (kind == Kind::Managed && unit < host_page()) unit = host_page();  // the host sees it by pages
  size_t need = (size + unit - 1) / unit * unit;
  std::lock_guard<std::mutex> g(memory_lock());
  bool room = need >= size && charge(device, need);
  uintptr_t at = room ? take_addresses(device, need, unit, 0) : 0;
  if (!at) {
    if (room) uncharge(device, need);
    count(C_MALLOC_FAIL);
    LOG("malloc_fail %d %zu\n", device, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  add_block(at, {size, need, need, kind, device});
  if (kind == Kind::Managed) bytes_show(at, need);
  LOG("malloc %d %zu %zx\n", device, size, at);
  *out = at;
  return CUDA_SUCCESS;
}

bool take_block(uintptr_t at, Kind kind, Block* block) {
  for (Device& d : devices()) {
    auto it = d.blocks.find(at);
    if (it == d.blocks.end() || it->second.kind != kind) continue;
    *block = it->second;
    d.blocks.erase(it);
    ids.erase(at);
    return true;
  }
  return false;
}
void give_back(uintptr_t at, const Block& block) {
  if (block.kind == Kind::Managed) bytes_hide(at, block.length);
  bytes_forget(at, block.length);
  give_addresses(at, block.length);
  uncharge(block.device, block.charged);
  LOG("free %d %zu %zx\n", block.device, block.size, at);
}
size_t block_length(uintptr_t at) {
  for (Device& d : devices()) {
    auto it = d.blocks.find(at);
    if (it != d.blocks.end()) return it->second.length;
  }
  return 0;
}

CUresult release(uintptr_t at) {
  count(C_FREE);
  std::lock_guard<std::mutex> g(memory_lock());
  Block block;
  if (!take_block(at, Kind::Malloc, &block) && !take_block(at, Kind::Managed, &block)) {
    fprintf(stderr, "fakegpu: free of an unknown pointer %#zx\n", at);
    return bad_call(CUDA_ERROR_INVALID_VALUE);
  }
  give_back(at, block);
  return CUDA_SUCCESS;
}

void memory_info(int device, size_t* free_bytes, size_t* total) {
  std::lock_guard<std::mutex> g(memory_lock());
  Device& d = devices()[device];
  if (free_bytes) *free_bytes = d.capacity > d.used ? d.capacity - d.used : 0;
  if (total) *total = d.capacity;
}

bool in_arena(uintptr_t p, int* device) {
  auto& all = devices();
  for (size_t i = 0; i < all.size(); i++)
    if (p >= all[i].arena && p < all[i].arena + arena_bytes()) {
      if (device) *device = (int)i;
      return true;
    }
  return false;
}

bool find_range(uintptr_t p, Range* range) {
  std::lock_guard<std::mutex> g(memory_lock());
  return find_block(p, range) || find_mapping(p, range);
}

bool whole_range(uintptr_t p, size_t n) {
  std::lock_guard<std::mutex> g(memory_lock());
  Range range;
  if (find_block(p, &range)) return p + n <= range.base + range.size;
  for (uintptr_t at = p; at < p + n; at = range.base + range.size)
    if (!find_mapping(at, &range)) return false;
  return n > 0 || find_mapping(p, &range);
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
size_t fakegpu_used(int device) {
  std::lock_guard<std::mutex> g(memory_lock());
  return devices()[device].used;
}
size_t fakegpu_peak(int device) {
  std::lock_guard<std::mutex> g(memory_lock());
  return devices()[device].peak;
}
void fakegpu_reset_peak(int device) {
  std::lock_guard<std::mutex> g(memory_lock());
  devices()[device].peak = devices()[device].used;
}
void fakegpu_set_capacity(int device, size_t bytes) {
  std::lock_guard<std::mutex> g(memory_lock());
  devices()[device].capacity = bytes;
}
}
