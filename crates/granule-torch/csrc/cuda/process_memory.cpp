#include "process_memory.h"

#include "errors.h"

#ifdef USE_ROCM

namespace granule_torch {

void tell_process_memory(granule_allocator* /*granule*/) {}

} // namespace granule_torch

#else

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <vector>

namespace granule_torch {
namespace {

// The oldest form of the call, which every version of the library still has.
struct Process {
  unsigned int pid;
  unsigned long long bytes;
};

struct ManagementLibrary {
  int (*handle_by_bus_id)(const char* bus_id, void** device) = nullptr;
  int (*running_processes)(void* device, unsigned int* count, Process* processes) = nullptr;

  // Without functions where it is missing or does not start.
  static const ManagementLibrary& get() {
    static const ManagementLibrary library = open();
    return library;
  }

 private:
  static ManagementLibrary open() {
    ManagementLibrary library;
    void* file = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (file == nullptr) {
      return library;
    }
    const auto start = reinterpret_cast<int (*)()>(dlsym(file, "nvmlInit_v2"));
    if (start == nullptr || start() != 0) {
      return library;
    }
    library.handle_by_bus_id = reinterpret_cast<decltype(handle_by_bus_id)>(dlsym(file, "nvmlDeviceGetHandleByPciBusId_v2"));
    library.running_processes =
        reinterpret_cast<decltype(running_processes)>(dlsym(file, "nvmlDeviceGetComputeRunningProcesses"));
    return library;
  }
};

std::vector<Process> processes_on(int32_t device) {
  constexpr int kInsufficientSize = 7;
  const auto& library = ManagementLibrary::get();
  std::array<char, 64> bus_id{};
  void* handle = nullptr;
  if (library.handle_by_bus_id == nullptr || library.running_processes == nullptr ||
      cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device) != cudaSuccess ||
      library.handle_by_bus_id(bus_id.data(), &handle) != 0) {
    return {};
  }
  std::vector<Process> processes(8);
  for (;;) {
    auto count = static_cast<unsigned int>(processes.size());
    const int status = library.running_processes(handle, &count, processes.data());
    if (status == kInsufficientSize) {
      // Room for some that start meanwhile.
      processes.resize(static_cast<size_t>(count) + 8);
      continue;
    }
    processes.resize(status == 0 ? count : 0);
    return processes;
  }
}

uint64_t process_memory(void* /*user*/, int32_t device, granule_process_memory* out, uint64_t capacity) {
  return shielded("the list of processes", uint64_t{0}, [&] {
    const auto processes = processes_on(device);
    const size_t fits = std::min<size_t>(processes.size(), capacity);
    for (size_t i = 0; i < fits; ++i) {
      out[i].pid = processes[i].pid;
      out[i].bytes = processes[i].bytes;
    }
    return static_cast<uint64_t>(processes.size());
  });
}

} // namespace

void tell_process_memory(granule_allocator* granule) {
  check(granule_set_process_memory_source(granule, process_memory, nullptr));
}

} // namespace granule_torch

#endif
