// Contexts: one primary context of each device, and a stack of current ones of each thread.
#include "fakegpu.h"
#include <set>

namespace fakegpu {
namespace {

struct Context { int references = 0; unsigned flags = 0; };
Context primary[MAX_DEVICES];
std::mutex& lock() {
  static auto* m = new std::mutex;
  return *m;
}
std::set<std::pair<int, int>> peers;  // from, to
thread_local std::vector<CUcontext> stack;
std::atomic<size_t> limits[CU_LIMIT_MAX];

}  // namespace

CUcontext context_of(int device) { return (CUcontext)&primary[device]; }
int context_device(CUcontext c) {
  auto at = (Context*)c - primary;
  return at >= 0 && at < settings().devices && (CUcontext)&primary[at] == c ? (int)at : -1;
}
CUresult need_context(int* device) {
  if (stack.empty() || !stack.back()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context_device(stack.back());
  return CUDA_SUCCESS;
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice d) {
  if (d < 0 || d >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> g(lock());
  primary[d].references++;
  *out = context_of(d);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
  if (d < 0 || d >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> g(lock());
  if (!primary[d].references) return bad_call(CUDA_ERROR_INVALID_CONTEXT);
  primary[d].references--;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags) { primary[d].flags = flags; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned* flags, int* active) {
  if (d < 0 || d >= settings().devices) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> g(lock());
  *flags = primary[d].flags;
  *active = primary[d].references > 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* out) {
  *out = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext c) {
  if (c && context_device(c) < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop_back();
  if (c) stack.push_back(c);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext c) {
  if (context_device(c) < 0) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(c);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* out) { return need_context(out); }
CUresult cuCtxGetApiVersion(CUcontext, unsigned* v) { *v = 3020; return CUDA_SUCCESS; }
CUresult cuCtxGetFlags(unsigned* flags) { *flags = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit limit, size_t n) {
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  limits[limit] = n;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t* n, CUlimit limit) {
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *n = limits[limit];
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  int device;
  if (CUresult r = need_context(&device)) return r;
  count(C_DEVICE_SYNC);
  if (CUresult r = not_while_capturing()) return r;
  device_synchronize(device);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  int device;
  if (CUresult r = need_context(&device)) return r;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags) {
  int from, to = context_device(other);
  if (CUresult r = need_context(&from)) return r;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (to < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> g(lock());
  return peers.insert({from, to}).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
CUresult cuCtxDisablePeerAccess(CUcontext other) {
  int from, to = context_device(other);
  if (CUresult r = need_context(&from)) return r;
  std::lock_guard<std::mutex> g(lock());
  return peers.erase({from, to}) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
}
