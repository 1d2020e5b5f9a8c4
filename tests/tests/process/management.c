// A management library with ten processes: this one, eight others, and one of which it does not know.

#include <unistd.h>

struct process {
  unsigned int pid;
  unsigned long long used;
  unsigned int instance;
  unsigned int compute_instance;
};

int nvmlInit_v2(void) {
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = (void*)bus_id;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, struct process* processes) {
  const unsigned int room = *count;
  *count = 10;
  if (device == 0 || room < 10) {
    return 7;
  }
  for (unsigned int i = 0; i < 10; ++i) {
    processes[i] = (struct process){4000000 + i, 1 << 20, 0, 0};
  }
  processes[3].pid = (unsigned int)getpid();
  processes[3].used = 300 << 20;
  processes[7].used = ~0ull;
  return 0;
}

const char* nvmlErrorString(int code) {
  return code == 7 ? "Insufficient Size" : "Unknown Error";
}
