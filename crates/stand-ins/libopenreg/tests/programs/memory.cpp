#include "check.h"

static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

TEST(memory_of_both_kinds_comes_in_whole_pages_and_goes) {
  for (size_t bytes : {size_t{1}, size_t{4096}, 3 * page + 1}) {
    void *device = nullptr, *host = nullptr;
    OK(orMalloc(&device, bytes));
    OK(orMallocHost(&host, bytes));
    CHECK(device != nullptr && reinterpret_cast<uintptr_t>(device) % page == 0);
    CHECK(host != nullptr && reinterpret_cast<uintptr_t>(host) % page == 0);
    std::memset(host, 1, bytes);
    OK(orFree(device));
    OK(orFreeHost(host));
  }
}

TEST(either_free_takes_either_kind) {
  void *device = new_memory(8), *host = nullptr;
  OK(orMallocHost(&host, 8));
  OK(orFreeHost(device));
  OK(orFree(host));
}

TEST(freeing_null_is_fine) {
  OK(orFree(nullptr));
  OK(orFreeHost(nullptr));
}

TEST(null_and_0_bytes_are_refused) {
  REFUSED(orMalloc(nullptr, 4096));
  REFUSED(orMallocHost(nullptr, 4096));
  void* at = nullptr;
  REFUSED(orMalloc(&at, 0));
  REFUSED(orMallocHost(&at, 0));
  CHECK(at == nullptr);
}

TEST(more_than_there_is_is_refused) {
  void* at = nullptr;
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - page + 1, SIZE_MAX / 2}) {
    REFUSED(orMalloc(&at, bytes));
    REFUSED(orMallocHost(&at, bytes));
  }
  CHECK(at == nullptr);
}

TEST(only_a_live_base_can_be_freed) {
  char* at = static_cast<char*>(new_memory(2 * page));
  REFUSED(orFree(at + 1));
  REFUSED(orFree(at + page));
  OK(orFree(at));
  REFUSED(orFree(at));
  int local = 0;
  REFUSED(orFree(&local));
}

TEST(bytes_come_back_as_they_went) {
  char there[] = "device memory", back[sizeof there] = {};
  void* device = new_memory(sizeof there);
  OK(orMemcpy(device, there, sizeof there, orMemcpyHostToDevice));
  OK(orMemcpy(back, device, sizeof there, orMemcpyDeviceToHost));
  CHECK(std::strcmp(there, back) == 0);
  OK(orFree(device));
}

TEST(bytes_go_from_device_to_device_and_host_to_host) {
  char there[] = "abcd", back[5] = {}, host[5] = {};
  void* first = new_memory(5);
  OK(orSetDevice(1));
  void* second = new_memory(5);
  OK(orMemcpy(first, there, 5, orMemcpyHostToDevice));
  OK(orMemcpy(second, first, 5, orMemcpyDeviceToDevice));
  OK(orMemcpy(back, second, 5, orMemcpyDeviceToHost));
  OK(orMemcpy(host, back, 5, orMemcpyHostToHost));
  CHECK(std::strcmp(host, there) == 0);
  OK(orFree(first));
  OK(orFree(second));
}

TEST(addresses_inside_an_allocation_are_its_own) {
  char there[] = "0123456789", back[4] = {};
  char* device = static_cast<char*>(new_memory(64));
  OK(orMemcpy(device + 7, there, 10, orMemcpyHostToDevice));
  OK(orMemcpy(back, device + 10, 3, orMemcpyDeviceToHost));
  CHECK(std::strcmp(back, "345") == 0);
  OK(orFree(device));
}

TEST(a_copy_may_overlap_itself) {
  char there[] = "abcdef", back[7] = {};
  char* device = static_cast<char*>(new_memory(64));
  OK(orMemcpy(device, there, 7, orMemcpyHostToDevice));
  OK(orMemcpy(device + 2, device, 4, orMemcpyDeviceToDevice));
  OK(orMemcpy(back, device, 7, orMemcpyDeviceToHost));
  CHECK(std::strcmp(back, "ababcd") == 0);
  OK(orFree(device));
}

TEST(page_locked_memory_counts_as_the_hosts) {
  void *device = new_memory(8), *host = nullptr;
  OK(orMallocHost(&host, 8));
  OK(orMemcpy(device, host, 8, orMemcpyHostToDevice));
  OK(orMemcpy(host, device, 8, orMemcpyDeviceToHost));
  REFUSED(orMemcpy(host, device, 8, orMemcpyDeviceToDevice));
  OK(orFree(device));
  OK(orFreeHost(host));
}

TEST(null_and_0_bytes_are_not_copied) {
  char host[8] = {};
  void* device = new_memory(8);
  REFUSED(orMemcpy(nullptr, host, 4, orMemcpyHostToDevice));
  REFUSED(orMemcpy(device, nullptr, 4, orMemcpyHostToDevice));
  REFUSED(orMemcpy(device, host, 0, orMemcpyHostToDevice));
  OK(orFree(device));
}

TEST(only_the_exact_kind_is_copied) {
  char host[8] = {}, other[8] = {};
  void *first = new_memory(8), *second = new_memory(8);
  struct { void *to, *from; int kind; } sides[] = {
      {other, host, orMemcpyHostToHost},
      {first, host, orMemcpyHostToDevice},
      {host, first, orMemcpyDeviceToHost},
      {second, first, orMemcpyDeviceToDevice},
  };
  for (auto side : sides) {
    for (int kind = -1; kind <= 4; ++kind) {
      orError_t expected = kind == side.kind ? orSuccess : orErrorUnknown;
      CHECK(orMemcpy(side.to, side.from, 4, static_cast<orMemcpyKind>(kind)) == expected);
    }
  }
  OK(orFree(first));
  OK(orFree(second));
}

TEST(a_copy_ends_with_its_allocation) {
  std::vector<char> host(2 * page);
  char* device = static_cast<char*>(new_memory(1));
  OK(orMemcpy(device, host.data(), page, orMemcpyHostToDevice));
  REFUSED(orMemcpy(device, host.data(), page + 1, orMemcpyHostToDevice));
  REFUSED(orMemcpy(host.data(), device + 1, page, orMemcpyDeviceToHost));
  OK(orFree(device));
}

TEST(a_queued_copy_is_done_once_the_stream_has_come_to_it) {
  char there[] = "async", back[6] = {};
  void* device = new_memory(6);
  orStream_t stream = new_stream();
  Gate gate;
  gate.hold(stream);
  OK(orMemcpyAsync(device, there, 6, orMemcpyHostToDevice, stream));
  OK(orMemcpyAsync(back, device, 6, orMemcpyDeviceToHost, stream));
  gate.wait_until_reached();
  CHECK(back[0] == 0);
  gate.open();
  OK(orStreamSynchronize(stream));
  CHECK(std::strcmp(back, "async") == 0);
  OK(orStreamDestroy(stream));
  OK(orFree(device));
}

TEST(what_is_wrong_with_a_queued_copy_is_lost) {
  char host[8] = "as was";
  void* device = new_memory(8);
  orStream_t stream = new_stream();
  OK(orMemcpyAsync(host, device, 8, orMemcpyHostToDevice, stream));
  OK(orMemcpyAsync(nullptr, nullptr, 0, orMemcpyHostToDevice, stream));
  OK(orStreamSynchronize(stream));
  CHECK(std::strcmp(host, "as was") == 0);
  REFUSED(orMemcpyAsync(device, host, 8, orMemcpyHostToDevice, nullptr));
  OK(orStreamDestroy(stream));
  OK(orFree(device));
}

TEST(attributes_tell_what_an_address_is) {
  OK(orSetDevice(1));
  char* device = static_cast<char*>(new_memory(32));
  void* host = nullptr;
  OK(orMallocHost(&host, 32));

  orPointerAttributes found{};
  CHECK(found.type == orMemoryTypeUnmanaged);
  for (void* at : {static_cast<void*>(device), static_cast<void*>(device + page - 1)}) {
    OK(orPointerGetAttributes(&found, at));
    CHECK(found.type == orMemoryTypeDevice && found.device == 1 && found.pointer == device);
  }
  OK(orPointerGetAttributes(&found, host));
  CHECK(found.type == orMemoryTypeHost && found.device == -1 && found.pointer == host);
  char local[16];
  OK(orPointerGetAttributes(&found, local));
  CHECK(found.type == orMemoryTypeUnmanaged && found.device == -1 && found.pointer == local);
  OK(orFree(device));
  OK(orPointerGetAttributes(&found, device));
  CHECK(found.type == orMemoryTypeUnmanaged && found.pointer == device);
  OK(orFreeHost(host));

  REFUSED(orPointerGetAttributes(nullptr, local));
  REFUSED(orPointerGetAttributes(&found, nullptr));
}

TEST(attributes_are_as_large_as_ever) {
  CHECK(sizeof(orPointerAttributes) == 16);
  CHECK(offsetof(orPointerAttributes, device) == 4);
  CHECK(offsetof(orPointerAttributes, pointer) == 8);
}

TEST(threads_share_all_memory) {
  std::vector<std::thread> threads;
  for (int each = 0; each < 4; ++each) {
    threads.emplace_back([each] {
      OK(orSetDevice(each % 2));
      for (int round = 0; round < 200; ++round) {
        int there = each * 1000 + round, back = -1;
        void* device = new_memory(sizeof there);
        OK(orMemcpy(device, &there, sizeof there, orMemcpyHostToDevice));
        OK(orMemcpy(&back, device, sizeof there, orMemcpyDeviceToHost));
        if (back != there) CHECK(back == there);
        OK(orFree(device));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
