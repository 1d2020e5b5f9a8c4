// Virtual memory: reserved addresses, physical handles, mappings, and handles for other processes.
//
// A shareable handle is a file without a name. Its contents, where this device has any, come first; the last
// page says what it is. So a descriptor that crosses to another process is all that the import needs.
#include "fakegpu.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstring>
#include <set>

namespace fakegpu {
namespace {

constexpr char MAGIC[16] = "fakegpu memory";
struct Label { char magic[16]; uint64_t size; int device; unsigned handle_types; };

struct Physical {
  size_t size;
  int device;
  unsigned handle_types;
  int file;         // -1: neither shared nor with contents
  bool imported;    // charged by the process that made it
  size_t handles;   // references of the program
  size_t mappings;
};
struct Mapping { size_t size; Physical* memory; uint64_t id; std::map<int, unsigned long long> access; };

std::set<Physical*>& handles() {
  static auto* all = new std::set<Physical*>;
  return *all;
}
std::map<uintptr_t, size_t>& reservations() {
  static auto* all = new std::map<uintptr_t, size_t>;
  return *all;
}
std::map<uintptr_t, Mapping>& mappings() {
  static auto* all = new std::map<uintptr_t, Mapping>;
  return *all;
}
uint64_t next_mapping = uint64_t(1) << 40;

template <typename T>
typename std::map<uintptr_t, T>::iterator around(std::map<uintptr_t, T>& all, uintptr_t p) {
  auto it = all.upper_bound(p);
  return it == all.begin() ? all.end() : std::prev(it);
}

int new_file(const Physical& p) {
  int file = memfd_create("fakegpu-memory", MFD_CLOEXEC);
  if (file < 0) return -1;
  Label label{{}, p.size, p.device, p.handle_types};
  memcpy(label.magic, MAGIC, sizeof MAGIC);
  if (!ftruncate(file, (off_t)(p.size + 4096)) && pwrite(file, &label, sizeof label, (off_t)p.size) == sizeof label)
    return file;
  close(file);
  return -1;
}

bool read_label(int file, Label* label) {
  struct stat s;
  if (fstat(file, &s) || s.st_size <= 4096) return false;
  return pread(file, label, sizeof *label, s.st_size - 4096) == sizeof *label &&
         !memcmp(label->magic, MAGIC, sizeof MAGIC) && label->size + 4096 == (size_t)s.st_size &&
         label->device < settings().devices;
}

void let_go(Physical* p) {
  if (p->handles || p->mappings) return;
  if (!p->imported) uncharge(p->device, p->size);
  if (p->file >= 0) close(p->file);
  LOG("destroy %d %zu\n", p->device, p->size);
  handles().erase(p);
  delete p;
}

Physical* live(CUmemGenericAllocationHandle h) {
  auto* p = (Physical*)h;
  return handles().count(p) && p->handles ? p : nullptr;
}

// The mappings that make up a range exactly; none where they do not.
bool whole_mappings(uintptr_t at, size_t n) {
  uintptr_t next = at;
  for (auto it = mappings().find(at); next < at + n; ++it) {
    if (it == mappings().end() || it->first != next) return false;
    next += it->second.size;
  }
  return n && next == at + n;
}

}  // namespace

bool find_mapping(uintptr_t p, Range* range) {
  auto it = around(mappings(), p);
  if (it == mappings().end() || p >= it->first + it->second.size) return false;
  *range = {it->first, it->second.size, it->second.memory->device, Kind::Malloc, true, it->second.id};
  return true;
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* p, CUmemAllocationGranularity_flags) {
  if (!out || !p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  *out = GRANULE;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long) {
  count(C_VA_RESERVE);
  bool power = !(alignment & (alignment - 1));
  if (!out || !size || size % GRANULE || !power) return bad_call(CUDA_ERROR_INVALID_VALUE);
  if (alignment < GRANULE) alignment = GRANULE;
  std::lock_guard<std::mutex> g(memory_lock());
  // A reservation belongs to no device, and asks for no context; its addresses come from the current device's arena.
  int device;
  if (need_context(&device)) device = 0;
  uintptr_t at = take_addresses(device, size, alignment, hint);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations()[at] = size;
  LOG("reserve %zu %zx\n", size, at);
  *out = at;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
  count(C_VA_FREE);
  std::lock_guard<std::mutex> g(memory_lock());
  auto it = reservations().find(at);
  if (it == reservations().end() || it->second != size) return bad_call(CUDA_ERROR_INVALID_VALUE);
  auto mapped = mappings().lower_bound(at);
  if (mapped != mappings().end() && mapped->first < at + size) return bad_call(CUDA_ERROR_INVALID_VALUE);
  reservations().erase(it);
  give_addresses(at, size);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size, const CUmemAllocationProp* prop, unsigned long long) {
  count(C_MEM_CREATE);
  if (!out || !prop || !size || size % GRANULE || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return bad_call(CUDA_ERROR_INVALID_VALUE);
  int device = prop->location.id;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 || device >= settings().devices)
    return bad_call(CUDA_ERROR_INVALID_DEVICE);
  unsigned types = prop->requestedHandleTypes;
  if (types & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  std::lock_guard<std::mutex> g(memory_lock());
  if (!charge(device, size)) {
    count(C_MEM_CREATE_FAIL);
    LOG("create_fail %d %zu\n", device, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* p = new Physical{size, device, types, -1, false, 1, 0};
  if (settings().bytes) {
    p->file = new_file(*p);
    if (p->file < 0) {
      uncharge(device, size);
      delete p;
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
  }
  handles().insert(p);
  LOG("create %d %zu\n", device, size);
  *out = (CUmemGenericAllocationHandle)p;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
  count(C_MEM_RELEASE);
  std::lock_guard<std::mutex> g(memory_lock());
  Physical* p = live(h);
  if (!p) return bad_call(CUDA_ERROR_INVALID_VALUE);
  p->handles--;
  let_go(p);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle h, unsigned long long) {
  count(C_MAP);
  std::lock_guard<std::mutex> g(memory_lock());
  Physical* p = live(h);
  if (!p || !size || size % GRANULE || at % GRANULE || offset || size > p->size) return bad_call(CUDA_ERROR_INVALID_VALUE);
  auto reserved = around(reservations(), at);
  if (reserved == reservations().end() || at + size > reserved->first + reserved->second)
    return bad_call(CUDA_ERROR_INVALID_VALUE);
  auto next = mappings().lower_bound(at);
  bool taken = next != mappings().end() && next->first < at + size;
  if (next != mappings().begin()) taken |= std::prev(next)->first + std::prev(next)->second.size > at;
  if (taken) return bad_call(CUDA_ERROR_INVALID_VALUE);
  p->mappings++;
  mappings()[at] = Mapping{size, p, next_mapping++, {}};
  if (settings().bytes) bytes_map(at, size, p->file, 0);
  LOG("map %zx %zu\n", (size_t)at, size);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
  count(C_UNMAP);
  std::lock_guard<std::mutex> g(memory_lock());
  if (!whole_mappings(at, size)) return bad_call(CUDA_ERROR_INVALID_VALUE);
  if (settings().bytes) bytes_unmap(at, size);
  for (auto it = mappings().find(at); it != mappings().end() && it->first < at + size;) {
    Physical* p = it->second.memory;
    it = mappings().erase(it);
    p->mappings--;
    let_go(p);
  }
  LOG("unmap %zx %zu\n", (size_t)at, size);
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc* wanted, size_t n) {
  count(C_SET_ACCESS);
  std::lock_guard<std::mutex> g(memory_lock());
  if (!whole_mappings(at, size) || !wanted || !n) return bad_call(CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < n; i++)
    if (wanted[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        (wanted[i].location.id < 0 || wanted[i].location.id >= settings().devices))
      return bad_call(CUDA_ERROR_INVALID_DEVICE);
  for (auto it = mappings().find(at); it != mappings().end() && it->first < at + size; ++it)
    for (size_t i = 0; i < n; i++) it->second.access[wanted[i].location.id] = wanted[i].flags;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* place, CUdeviceptr at) {
  std::lock_guard<std::mutex> g(memory_lock());
  auto it = around(mappings(), at);
  if (it == mappings().end() || at >= it->first + it->second.size) return CUDA_ERROR_INVALID_VALUE;
  auto known = it->second.access.find(place->id);
  *flags = known == it->second.access.end() ? 0 : known->second;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* at) {
  std::lock_guard<std::mutex> g(memory_lock());
  auto it = around(mappings(), (uintptr_t)at);
  if (it == mappings().end() || (uintptr_t)at >= it->first + it->second.size) return CUDA_ERROR_INVALID_VALUE;
  it->second.memory->handles++;
  *out = (CUmemGenericAllocationHandle)it->second.memory;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle h) {
  std::lock_guard<std::mutex> g(memory_lock());
  Physical* p = live(h);
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  memset(out, 0, sizeof *out);
  out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out->requestedHandleTypes = (CUmemAllocationHandleType)p->handle_types;
  out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  out->location.id = p->device;
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  std::lock_guard<std::mutex> g(memory_lock());
  Physical* p = live(h);
  if (!p || !out || flags) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!(p->handle_types & type)) return bad_call(CUDA_ERROR_INVALID_VALUE);
  if (p->file < 0) p->file = new_file(*p);
  int shared = p->file < 0 ? -1 : fcntl(p->file, F_DUPFD_CLOEXEC, 3);
  if (shared < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  count(C_FD_EXPORT);
  LOG("export %d %zu\n", p->device, p->size);
  *(int*)out = shared;
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* from, CUmemAllocationHandleType type) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  Label label;
  if (!out || !read_label((int)(uintptr_t)from, &label)) return CUDA_ERROR_INVALID_VALUE;
  int file = fcntl((int)(uintptr_t)from, F_DUPFD_CLOEXEC, 3);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::lock_guard<std::mutex> g(memory_lock());
  count(C_FD_IMPORT);
  auto* p = new Physical{label.size, label.device, label.handle_types, file, true, 1, 0};
  handles().insert(p);
  LOG("import %d %zu\n", p->device, p->size);
  *out = (CUmemGenericAllocationHandle)p;
  return CUDA_SUCCESS;
}
}
