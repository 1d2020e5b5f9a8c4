#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>

struct Handle {
  char name[OR_IPC_HANDLE_MAX_LEN] = {};
  ptrdiff_t offset = -1;
};

static Handle handle_of(void* at) {
  Handle handle;
  OK(orGetIpcMemHandle(at, handle.name, sizeof handle.name, &handle.offset));
  return handle;
}

static bool exists(const char* name) {
  int file = shm_open(name, O_RDWR, 0);
  if (file >= 0) close(file);
  return file >= 0;
}

TEST(a_block_is_found_again_in_the_same_process) {
  const char there[16] = "shared with all";
  void *device = new_memory(16), *mapped = nullptr;
  OK(orMemcpy(device, there, 16, orMemcpyHostToDevice));
  Handle handle = handle_of(device);
  CHECK(handle.offset == 0);
  CHECK(std::strlen(handle.name) > 0 && handle.name[0] == '/');
  size_t bytes = 0;
  OK(orOpenIpcMemHandle(&mapped, handle.name, &bytes));
  CHECK(bytes == static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  CHECK(std::memcmp(mapped, there, 16) == 0);
  static_cast<char*>(mapped)[0] = 'S';
  OK(orCloseIpcMemHandle(mapped, bytes));
  OK(orFree(device));
}

TEST(another_process_finds_the_bytes_also_after_they_were_freed) {
  const char there[] = "from the parent";
  void* device = new_memory(sizeof there);
  OK(orMemcpy(device, there, sizeof there, orMemcpyHostToDevice));
  Handle handle = handle_of(device);
  OK(orFree(device));
  int ended = signal_of([&] {
    void* mapped = nullptr;
    size_t bytes = 0;
    bool found = orOpenIpcMemHandle(&mapped, handle.name, &bytes) == orSuccess &&
        std::memcmp(mapped, there, sizeof there) == 0;
    if (!found || orCloseIpcMemHandle(mapped, bytes) != orSuccess) std::abort();
  });
  CHECK(ended == 0);
  CHECK(!exists(handle.name));
}

TEST(an_address_inside_a_block_has_an_offset) {
  char there[64] = {};
  std::memcpy(there + 16, "\x11\x22\x33\x44", 4);
  char* device = static_cast<char*>(new_memory(64));
  OK(orMemcpy(device, there, 64, orMemcpyHostToDevice));
  Handle handle = handle_of(device + 16);
  CHECK(handle.offset == 16);
  void* mapped = nullptr;
  size_t bytes = 0;
  OK(orOpenIpcMemHandle(&mapped, handle.name, &bytes));
  CHECK(std::memcmp(static_cast<char*>(mapped) + handle.offset, "\x11\x22\x33\x44", 4) == 0);
  OK(orCloseIpcMemHandle(mapped, bytes));
  OK(orFree(device));
}

TEST(a_handle_is_a_copy_of_its_own) {
  const char first[] = "first", second[] = "other";
  void *device = new_memory(6), *mapped[2] = {};
  size_t bytes[2] = {};
  OK(orMemcpy(device, first, 6, orMemcpyHostToDevice));
  Handle one = handle_of(device);
  OK(orMemcpy(device, second, 6, orMemcpyHostToDevice));
  Handle two = handle_of(device);
  CHECK(std::strcmp(one.name, two.name) != 0);
  OK(orOpenIpcMemHandle(&mapped[0], one.name, &bytes[0]));
  OK(orOpenIpcMemHandle(&mapped[1], two.name, &bytes[1]));
  CHECK(std::strcmp(static_cast<char*>(mapped[0]), first) == 0);
  CHECK(std::strcmp(static_cast<char*>(mapped[1]), second) == 0);
  OK(orCloseIpcMemHandle(mapped[0], bytes[0]));
  OK(orCloseIpcMemHandle(mapped[1], bytes[1]));
  OK(orFree(device));
}

TEST(a_handle_can_be_opened_once) {
  void *device = new_memory(8), *mapped = nullptr, *again = nullptr;
  size_t bytes = 0, others = 0;
  Handle handle = handle_of(device);
  CHECK(exists(handle.name));
  OK(orOpenIpcMemHandle(&mapped, handle.name, &bytes));
  CHECK(!exists(handle.name));
  REFUSED(orOpenIpcMemHandle(&again, handle.name, &others));
  CHECK(again == nullptr && others == 0);
  OK(orCloseIpcMemHandle(mapped, bytes));
  OK(orFree(device));
}

TEST(exporting_leaves_the_block_closed) {
  char* device = static_cast<char*>(new_memory(8));
  Handle handle = handle_of(device);
  CHECK(signal_of([device] { *static_cast<volatile char*>(device) = 1; }) == SIGSEGV);
  shm_unlink(handle.name);
  OK(orFree(device));
}

TEST(what_is_no_device_memory_has_no_handle) {
  char name[OR_IPC_HANDLE_MAX_LEN] = {};
  ptrdiff_t offset = -1;
  REFUSED(orGetIpcMemHandle(nullptr, name, sizeof name, &offset));
  REFUSED(orGetIpcMemHandle(name, name, sizeof name, &offset));
  void* host = nullptr;
  OK(orMallocHost(&host, 8));
  REFUSED(orGetIpcMemHandle(host, name, sizeof name, &offset));
  CHECK(offset == -1 && name[0] == 0);
  OK(orFreeHost(host));
}

TEST(places_that_are_missing_or_small_are_refused) {
  char name[OR_IPC_HANDLE_MAX_LEN] = {};
  ptrdiff_t offset = -1;
  void *device = new_memory(8), *mapped = nullptr;
  size_t bytes = 0;
  REFUSED(orGetIpcMemHandle(device, name, 4, &offset));
  REFUSED(orGetIpcMemHandle(device, name, OR_IPC_HANDLE_MAX_LEN - 1, &offset));
  REFUSED(orGetIpcMemHandle(device, nullptr, sizeof name, &offset));
  REFUSED(orGetIpcMemHandle(device, name, sizeof name, nullptr));
  CHECK(offset == -1 && name[0] == 0);
  Handle handle = handle_of(device);
  REFUSED(orOpenIpcMemHandle(nullptr, handle.name, &bytes));
  REFUSED(orOpenIpcMemHandle(&mapped, nullptr, &bytes));
  REFUSED(orOpenIpcMemHandle(&mapped, handle.name, nullptr));
  CHECK(exists(handle.name));
  shm_unlink(handle.name);
  OK(orFree(device));
}

TEST(an_unknown_name_is_refused) {
  void* mapped = nullptr;
  size_t bytes = 0;
  for (const char* name : {"/openreg_no_such_object", "", "/", "no/such"}) {
    REFUSED(orOpenIpcMemHandle(&mapped, name, &bytes));
  }
  CHECK(mapped == nullptr && bytes == 0);
}

TEST(only_what_was_opened_is_closed) {
  void *device = new_memory(8), *mapped = nullptr;
  size_t bytes = 0;
  Handle handle = handle_of(device);
  OK(orOpenIpcMemHandle(&mapped, handle.name, &bytes));
  REFUSED(orCloseIpcMemHandle(nullptr, bytes));
  REFUSED(orCloseIpcMemHandle(device, bytes));
  REFUSED(orCloseIpcMemHandle(mapped, bytes + 1));
  REFUSED(orCloseIpcMemHandle(mapped, 0));
  CHECK(*static_cast<volatile char*>(mapped) == 0);
  OK(orCloseIpcMemHandle(mapped, bytes));
  REFUSED(orCloseIpcMemHandle(mapped, bytes));
  OK(orFree(device));
}

TEST(opened_memory_counts_as_the_hosts) {
  void *device = new_memory(8), *mapped = nullptr;
  size_t bytes = 0;
  Handle handle = handle_of(device);
  OK(orOpenIpcMemHandle(&mapped, handle.name, &bytes));
  orPointerAttributes found{};
  OK(orPointerGetAttributes(&found, mapped));
  CHECK(found.type == orMemoryTypeUnmanaged);
  OK(orMemoryUnprotect(mapped));
  OK(orMemoryProtect(mapped));
  OK(orMemcpy(device, mapped, 8, orMemcpyHostToDevice));
  REFUSED(orFree(mapped));
  OK(orCloseIpcMemHandle(mapped, bytes));
  OK(orFree(device));
}
