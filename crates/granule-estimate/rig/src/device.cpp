// What the device says about itself: compute capability 9.0 with 132 multiprocessors.
#include "fakegpu.h"
#include <cstring>

using namespace fakegpu;
namespace {
bool known(CUdevice d) { return d >= 0 && d < settings().devices; }
bool initialised = false;
}  // namespace

extern "C" {
// CUdevice_attribute and cudaDeviceAttr use the same numbers.
int fakegpu_attribute(int a) {
  switch (a) {
    case 1: return 1024;              // threads of a block
    case 2: case 3: return 1024;      // block dimensions x, y
    case 4: return 64;                // block dimension z
    case 5: return 2147483647;        // grid x
    case 6: case 7: return 65535;
    case 8: return 49152;             // shared memory of a block
    case 9: return 65536;             // constant memory
    case 10: return 32;               // warp
    case 11: return 2147483647;       // pitch
    case 12: return 65536;            // registers of a block
    case 13: return 1755000;          // clock, kHz
    case 14: return 512;              // texture alignment
    case 16: return 132;              // multiprocessors
    case 19: return 1;                // can map host memory
    case 31: return 1;                // concurrent kernels
    case 36: return 2619000;          // memory clock
    case 37: return 5120;             // bus width
    case 38: return 50 * 1024 * 1024; // L2
    case 39: return 2048;             // threads of a multiprocessor
    case 40: return 3;                // copy engines
    case 41: return 1;                // unified addressing
    case 75: return 9;                // compute capability, major
    case 78: case 79: case 80: return 1;
    case 81: return 233472;           // shared memory of a multiprocessor
    case 82: return 65536;            // registers of a multiprocessor
    case 83: return 1;                // managed memory
    case 95: return 1;                // cooperative launch
    case 97: return 232448;           // opt-in shared memory
    case 102: return 1;               // virtual memory management
    case 103: return 1;               // POSIX file descriptor handles
    case 106: return 32;              // blocks of a multiprocessor
    case 111: return 1024;            // reserved shared memory
    case 115: return 1;               // memory pools
    case 120: return 1;               // cluster launch
    default: return 0;                // integrated, fabric handles, multicast, ...
  }
}

CUresult cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (!settings().devices) return CUDA_ERROR_NO_DEVICE;
  initialised = true;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* v) { *v = CUDA_VERSION; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* n) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *n = settings().devices;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* d, int i) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (!known(i)) return CUDA_ERROR_INVALID_DEVICE;
  *d = i;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* s, int n, CUdevice d) {
  if (!known(d)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(s, n, "Fake H100");
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice d) {
  if (!known(d)) return CUDA_ERROR_INVALID_DEVICE;
  memory_info(d, nullptr, bytes);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice d) {
  if (!known(d)) return CUDA_ERROR_INVALID_DEVICE;
  if (!v || a <= 0 || a >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *v = a == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? d + 1 : fakegpu_attribute(a);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* u, CUdevice d) {
  if (!known(d)) return CUDA_ERROR_INVALID_DEVICE;
  memset(u, d + 1, sizeof *u);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* u, CUdevice d) { return cuDeviceGetUuid_v2(u, d); }
CUresult cuDeviceGetPCIBusId(char* s, int n, CUdevice d) {
  if (!known(d)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(s, n, "0000:%02x:00.0", d + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetByPCIBusId(CUdevice* d, const char* s) {
  unsigned domain = 0, bus = 0;
  if (sscanf(s, "%x:%x", &domain, &bus) != 2 || !known((int)bus - 1)) return CUDA_ERROR_INVALID_DEVICE;
  *d = (int)bus - 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice a, CUdevice b) {
  if (!known(a) || !known(b)) return CUDA_ERROR_INVALID_DEVICE;
  *can = a != b;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetP2PAttribute(int* v, CUdevice_P2PAttribute a, CUdevice, CUdevice) {
  *v = a == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || a == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}
}
