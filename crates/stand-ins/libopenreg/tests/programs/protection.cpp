// Device memory is closed to the host outside of its scopes.

#include "check.h"

static int read_signal(char* at) {
  return signal_of([at] { volatile char byte = *static_cast<volatile char*>(at); (void)byte; });
}

static int write_signal(char* at) {
  return signal_of([at] { *static_cast<volatile char*>(at) = 1; });
}

TEST(the_host_faults_on_device_memory) {
  char* device = static_cast<char*>(new_memory(8192));
  for (char* at : {device, device + 1, device + 8191}) {
    CHECK(read_signal(at) == SIGSEGV);
    CHECK(write_signal(at) == SIGSEGV);
  }
  OK(orFree(device));
  CHECK(read_signal(device) == SIGSEGV);
}

TEST(host_memory_is_open) {
  void* host = nullptr;
  OK(orMallocHost(&host, 16));
  CHECK(write_signal(static_cast<char*>(host)) == 0);
  OK(orMemoryUnprotect(host));
  OK(orMemoryProtect(host));
  CHECK(write_signal(static_cast<char*>(host)) == 0);
  OK(orFreeHost(host));
}

TEST(an_unprotected_block_is_open_until_it_is_protected) {
  char* device = static_cast<char*>(new_memory(64));
  OK(orMemoryUnprotect(device));
  device[3] = 'x';
  CHECK(device[3] == 'x');
  OK(orMemoryProtect(device));
  CHECK(read_signal(device) == SIGSEGV);
  char back = 0;
  OK(orMemcpy(&back, device + 3, 1, orMemcpyDeviceToHost));
  CHECK(back == 'x');
  OK(orFree(device));
}

TEST(scopes_nest) {
  char* device = static_cast<char*>(new_memory(64));
  OK(orMemoryUnprotect(device));
  OK(orMemoryUnprotect(device + 5));
  OK(orMemoryProtect(device + 63));
  CHECK(write_signal(device) == 0);
  OK(orMemoryProtect(device));
  CHECK(write_signal(device) == SIGSEGV);
  OK(orFree(device));
}

TEST(only_the_block_itself_is_opened) {
  char *first = static_cast<char*>(new_memory(16)), *second = static_cast<char*>(new_memory(16));
  OK(orMemoryUnprotect(first));
  CHECK(read_signal(second) == SIGSEGV);
  OK(orMemoryProtect(first));
  OK(orFree(first));
  OK(orFree(second));
}

TEST(a_copy_leaves_protection_as_it_was) {
  char host[16] = {};
  char* device = static_cast<char*>(new_memory(16));
  OK(orMemcpy(device, host, 16, orMemcpyHostToDevice));
  CHECK(read_signal(device) == SIGSEGV);
  OK(orMemcpy(device + 8, device, 4, orMemcpyDeviceToDevice));
  CHECK(read_signal(device) == SIGSEGV);
  OK(orMemoryUnprotect(device));
  OK(orMemcpy(host, device, 16, orMemcpyDeviceToHost));
  CHECK(write_signal(device) == 0);
  OK(orMemoryProtect(device));
  REFUSED(orMemcpy(host, device, 16, orMemcpyHostToDevice));
  CHECK(read_signal(device) == SIGSEGV);
  OK(orFree(device));
}

TEST(protecting_once_too_often_does_nothing) {
  char* device = static_cast<char*>(new_memory(16));
  OK(orMemoryProtect(device));
  OK(orMemoryProtect(device));
  OK(orMemoryUnprotect(device));
  CHECK(write_signal(device) == 0);
  OK(orMemoryProtect(device));
  CHECK(write_signal(device) == SIGSEGV);
  OK(orFree(device));
}

TEST(other_memory_needs_no_scope) {
  char local[16];
  OK(orMemoryUnprotect(local));
  OK(orMemoryProtect(local));
  OK(orMemoryUnprotect(nullptr));
  OK(orMemoryProtect(nullptr));
}

TEST(an_open_block_can_be_freed) {
  void* device = new_memory(16);
  OK(orMemoryUnprotect(device));
  OK(orFree(device));
}

TEST(a_forked_child_has_memory_of_its_own) {
  char there[] = "the parent's", back[sizeof there] = {};
  void* device = new_memory(sizeof there);
  OK(orMemcpy(device, there, sizeof there, orMemcpyHostToDevice));
  CHECK(signal_of([device] {
          char other[4] = "abc";
          orMemcpy(device, other, 4, orMemcpyHostToDevice);
          orFree(device);
        }) == 0);
  OK(orMemcpy(back, device, sizeof there, orMemcpyDeviceToHost));
  CHECK(std::strcmp(back, there) == 0);
  OK(orFree(device));
}
