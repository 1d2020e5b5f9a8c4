// Contents of device memory (FAKE_GPU_BYTES=1). The arena itself stays untouchable for the program, as device
// memory is for a host. Its bytes lie in a file without a name, of which pages exist only once written, and
// which is mapped a second time, elsewhere: the shadow. Copies go to the shadow. Virtual memory maps the files
// of its physical handles over the shadow.
#include "fakegpu.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cstdlib>

namespace fakegpu {
namespace {

struct Shadow { uintptr_t arena = 0; size_t length = 0; char* at = nullptr; int file = -1; };
Shadow shadows[MAX_DEVICES];

Shadow* shadow_of(uintptr_t p) {
  for (auto& s : shadows)
    if (s.file >= 0 && p >= s.arena && p < s.arena + s.length) return &s;
  return nullptr;
}
void must(void* mapped) {
  if (mapped != MAP_FAILED) return;
  perror("fakegpu: mmap");
  abort();
}

}  // namespace

size_t host_page() {
  static const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return page;
}
size_t whole_pages(size_t n) { return (n + host_page() - 1) / host_page() * host_page(); }

void bytes_start(int device, uintptr_t arena, size_t length) {
  // Every physical handle has a file of its own.
  rlimit files;
  if (!getrlimit(RLIMIT_NOFILE, &files)) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  Shadow& s = shadows[device];
  s.file = memfd_create("fakegpu-device", MFD_CLOEXEC);
  if (s.file < 0 || ftruncate(s.file, (off_t)length)) {
    perror("fakegpu: memfd");
    abort();
  }
  s.arena = arena;
  s.length = length;
  void* at = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.file, 0);
  must(at);
  s.at = (char*)at;
}

void* bytes_at(uintptr_t p) {
  Shadow* s = shadow_of(p);
  return s ? s->at + (p - s->arena) : nullptr;
}
int bytes_file(int device) { return shadows[device].file; }
off_t bytes_offset(int device, uintptr_t at) { return (off_t)(at - shadows[device].arena); }

void bytes_forget(uintptr_t at, size_t n) {
  Shadow* s = shadow_of(at);
  if (s) fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(at - s->arena), (off_t)n);
}

void bytes_map(uintptr_t at, size_t n, int fd, off_t offset) {
  if (void* where = bytes_at(at))
    must(mmap(where, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, offset));
}

void bytes_unmap(uintptr_t at, size_t n) {
  if (Shadow* s = shadow_of(at))
    must(mmap(bytes_at(at), n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, s->file,
              (off_t)(at - s->arena)));
}

void bytes_show(uintptr_t at, size_t n) {
  Shadow* s = shadow_of(at);
  const int flags = MAP_FIXED | MAP_NORESERVE | (s ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  must(mmap((void*)at, n, PROT_READ | PROT_WRITE, flags, s ? s->file : -1, s ? (off_t)(at - s->arena) : 0));
}
void bytes_hide(uintptr_t at, size_t n) {
  must(mmap((void*)at, n, PROT_NONE, MAP_FIXED | MAP_NORESERVE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

}  // namespace fakegpu
