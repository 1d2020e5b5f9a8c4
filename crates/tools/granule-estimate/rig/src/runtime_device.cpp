// Devices, errors, entry points.
#include "fakegpu.h"
#include "runtime.h"
#include <cstring>
#include <mutex>

namespace runtime {
namespace {
thread_local cudaError_t last_error = cudaSuccess;
thread_local int thread_device = 0;

int initialise() {
  static const int initialised = cuInit(0);
  return initialised;
}

int retain(int device, CUcontext* out) {
  static std::mutex lock;
  static CUcontext primary[fakegpu::MAX_DEVICES];
  std::lock_guard<std::mutex> g(lock);
  if (!primary[device])
    if (int r = cuDevicePrimaryCtxRetain(&primary[device], device)) return r;
  *out = primary[device];
  return 0;
}

int use(int device) {
  if (int r = initialise()) return r;
  if (device < 0 || device >= fakegpu_device_count()) return cudaErrorInvalidDevice;
  CUcontext c;
  if (int r = retain(device, &c)) return r;
  return cuCtxSetCurrent(c);
}
}  // namespace

cudaError_t ret(int code) {
  if (code && code != cudaErrorNotReady) last_error = (cudaError_t)code;
  return (cudaError_t)code;
}
int enter() {
  CUcontext c;
  cuCtxGetCurrent(&c);
  return c ? 0 : use(thread_device);
}
}  // namespace runtime
using namespace runtime;

extern "C" {
cudaError_t cudaGetDeviceCount(int* n) {
  *n = fakegpu_device_count();
  cuInit(0);
  return ret(*n ? 0 : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* d) {
  CUdevice current;
  *d = cuCtxGetDevice(&current) ? thread_device : current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  if (int r = use(d)) return ret(r);
  thread_device = d;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int d, unsigned, unsigned) {
  if (d < 0 || d >= fakegpu_device_count()) return ret(cudaErrorInvalidDevice);
  CUcontext c;
  if (int r = initialise()) return ret(r);
  return ret(retain(d, &c));
}
cudaError_t cudaDriverGetVersion(int* v) { return ret(cuDriverGetVersion(v)); }
cudaError_t cudaRuntimeGetVersion(int* v) { *v = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int d) {
  if (d < 0 || d >= fakegpu_device_count()) return ret(cudaErrorInvalidDevice);
  if (int r = initialise()) return ret(r);
  return ret(cuDeviceGetAttribute(v, (CUdevice_attribute)a, d));  // of the same numbers
}
cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) { initialise(); return ret(cuDeviceGetPCIBusId(s, n, d)); }
cudaError_t cudaDeviceGetByPCIBusId(int* d, const char* s) { initialise(); return ret(cuDeviceGetByPCIBusId(d, s)); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  DRIVER(cuCtxGetStreamPriorityRange(least, greatest));
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) { initialise(); return ret(cuDeviceCanAccessPeer(can, a, b)); }
cudaError_t cudaDeviceEnablePeerAccess(int d, unsigned flags) {
  if (d < 0 || d >= fakegpu_device_count()) return ret(cudaErrorInvalidDevice);
  CUcontext c;
  if (int r = retain(d, &c)) return ret(r);
  DRIVER(cuCtxEnablePeerAccess(c, flags));
}
cudaError_t cudaDeviceDisablePeerAccess(int d) {
  CUcontext c;
  if (int r = retain(d, &c)) return ret(r);
  DRIVER(cuCtxDisablePeerAccess(c));
}
cudaError_t cudaDeviceGetP2PAttribute(int* v, cudaDeviceP2PAttr a, int from, int to) {
  return ret(cuDeviceGetP2PAttribute(v, (CUdevice_P2PAttribute)a, from, to));
}
cudaError_t cudaDeviceSynchronize() { DRIVER(cuCtxSynchronize()); }
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t n) { DRIVER(cuCtxSetLimit((CUlimit)limit, n)); }
cudaError_t cudaDeviceGetLimit(size_t* n, cudaLimit limit) { DRIVER(cuCtxGetLimit(n, (CUlimit)limit)); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  if (d < 0 || d >= fakegpu_device_count()) return ret(cudaErrorInvalidDevice);
  if (int r = initialise()) return ret(r);
  auto attribute = [d](int a) {
    int value = 0;
    cuDeviceGetAttribute(&value, (CUdevice_attribute)a, d);
    return value;
  };
  memset(p, 0, sizeof *p);
  cuDeviceGetName(p->name, sizeof p->name, d);
  cuDeviceGetUuid_v2((CUuuid*)&p->uuid, d);
  cuDeviceTotalMem_v2(&p->totalGlobalMem, d);
  p->sharedMemPerBlock = attribute(8);
  p->regsPerBlock = attribute(12);
  p->warpSize = attribute(10);
  p->memPitch = attribute(11);
  p->maxThreadsPerBlock = attribute(1);
  for (int i = 0; i < 3; i++) p->maxThreadsDim[i] = attribute(2 + i), p->maxGridSize[i] = attribute(5 + i);
  p->totalConstMem = attribute(9);
  p->major = attribute(75);
  p->minor = attribute(76);
  p->textureAlignment = attribute(14);
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = attribute(16);
  p->canMapHostMemory = attribute(19);
  p->surfaceAlignment = 512;
  p->concurrentKernels = attribute(31);
  p->ECCEnabled = 1;
  p->pciBusID = d + 1;
  p->asyncEngineCount = attribute(40);
  p->unifiedAddressing = attribute(41);
  p->memoryBusWidth = attribute(37);
  p->l2CacheSize = attribute(38);
  p->maxThreadsPerMultiProcessor = attribute(39);
  p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = attribute(81);
  p->regsPerMultiprocessor = attribute(82);
  p->managedMemory = attribute(83);
  p->cooperativeLaunch = attribute(95);
  p->sharedMemPerBlockOptin = attribute(97);
  p->maxBlocksPerMultiProcessor = attribute(106);
  p->reservedSharedMemPerBlock = attribute(111);
  p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = attribute(115);
  p->clusterLaunch = attribute(120);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t e) {
  switch ((int)e) {
    case 0: return "cudaSuccess";
    case 1: return "cudaErrorInvalidValue";
    case 2: return "cudaErrorMemoryAllocation";
    case 100: return "cudaErrorNoDevice";
    case 101: return "cudaErrorInvalidDevice";
    case 400: return "cudaErrorInvalidResourceHandle";
    case 600: return "cudaErrorNotReady";
    case 801: return "cudaErrorNotSupported";
    case 900: return "cudaErrorStreamCaptureUnsupported";
    case 901: return "cudaErrorStreamCaptureInvalidated";
  }
  const char* name;
  return cuGetErrorName((CUresult)e, &name) ? "cudaErrorUnknown" : name;
}
const char* cudaGetErrorString(cudaError_t e) {
  const char* text;
  return cuGetErrorString((CUresult)e, &text) ? "unknown error" : text;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  CUdriverProcAddressQueryResult found;
  cuGetProcAddress_v2(symbol, out, (int)version, flags, &found);
  if (status) *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** out, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, out, CUDART_VERSION, flags, status);
}
}
