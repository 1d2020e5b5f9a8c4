// Copies and fills. Without contents they only check their ranges; a small copy back then reads as zeros, so that
// a program that looks at results sees the same in every run.
#include "queue.h"
#include <cstring>

namespace fakegpu {
namespace {

std::atomic<int> fill{0};

// What was copied to the device while it was asked to remember: byte by byte, since there is little of it.
std::atomic<bool> remembers{false};
std::mutex remembered_lock;
std::map<uintptr_t, char> remembered;

// Larger ones leave the host alone, so that buffers of an offload do not take memory, and are not remembered.
constexpr size_t SMALL = MiB;

void copy_remembered(uintptr_t dst, uintptr_t src, size_t n) {
  bool to_device = in_arena(dst), from_device = in_arena(src);
  std::lock_guard<std::mutex> guard(remembered_lock);
  for (size_t i = 0; i < n; i++) {
    char byte = (char)fill;
    if (!from_device) byte = ((char*)src)[i];
    else if (auto found = remembered.find(src + i); found != remembered.end()) byte = found->second;
    if (to_device) remembered[dst + i] = byte;
    else ((char*)dst)[i] = byte;
  }
}

void* host_side(uintptr_t p) { return in_arena(p) ? bytes_at(p) : (void*)p; }

CUresult check(uintptr_t p, size_t n) {
  return !in_arena(p) || whole_range(p, n) ? CUDA_SUCCESS : bad_call(CUDA_ERROR_INVALID_VALUE);
}

CUresult copy_on(CUstream stream, uintptr_t dst, uintptr_t src, size_t n) {
  count(C_MEMCPY);
  if (CUresult r = check_copy(dst, src, n)) return r;
  HostRange pinned;
  bool to_device = in_arena(dst), from_device = in_arena(src);
  if ((settings().bytes || remembers) && to_device && !from_device && !find_host(src, &pinned)) {
    // Ordinary host memory may change as soon as the call is back.
    auto bytes = std::make_shared<std::vector<char>>((char*)src, (char*)src + n);
    return enqueue(stream, [=] { copy_now(dst, (uintptr_t)bytes->data(), n); }, CU_GRAPH_NODE_TYPE_MEMCPY);
  }
  if (CUresult r = enqueue(stream, [=] { copy_now(dst, src, n); }, CU_GRAPH_NODE_TYPE_MEMCPY)) return r;
  Stream* s;
  if (to_device || !from_device || !busy || find_host(dst, &pinned) || stream_of(stream, &s)) return CUDA_SUCCESS;
  // And it must hold what was copied to it.
  if (!s->capture) mark_on(s)->wait();
  return CUDA_SUCCESS;
}

CUresult wait_for_legacy() {
  Stream* s;
  if (CUresult r = stream_of(CU_STREAM_LEGACY, &s)) return r;
  return stream_synchronize(s);
}

CUresult copy(uintptr_t dst, uintptr_t src, size_t n) {
  if (CUresult r = not_while_capturing()) return r;
  if (CUresult r = copy_on(CU_STREAM_LEGACY, dst, src, n)) return r;
  return wait_for_legacy();
}

template <typename T>
CUresult fill_on(CUstream stream, uintptr_t dst, T value, size_t n) {
  count(C_MEMSET);
  if (CUresult r = check(dst, n * sizeof(T))) return r;
  return enqueue(stream, [=] {
    if (in_arena(dst) && !settings().bytes) return;
    T* to = (T*)host_side(dst);
    if (sizeof(T) == 1) memset(to, (int)value, n);
    else for (size_t i = 0; i < n; i++) to[i] = value;
  }, CU_GRAPH_NODE_TYPE_MEMSET);
}

template <typename T>
CUresult fill_now(uintptr_t dst, T value, size_t n) {
  if (CUresult r = not_while_capturing()) return r;
  if (CUresult r = fill_on(CU_STREAM_LEGACY, dst, value, n)) return r;
  return wait_for_legacy();
}

CUresult copy_rows(CUstream stream, const CUDA_MEMCPY2D* c) {
  auto address = [](CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : (uintptr_t)device;
  };
  uintptr_t src = address(c->srcMemoryType, c->srcHost, c->srcDevice) + c->srcY * c->srcPitch + c->srcXInBytes;
  uintptr_t dst = address(c->dstMemoryType, c->dstHost, c->dstDevice) + c->dstY * c->dstPitch + c->dstXInBytes;
  for (size_t row = 0; row < c->Height; row++)
    if (CUresult r = copy_on(stream, dst + row * c->dstPitch, src + row * c->srcPitch, c->WidthInBytes)) return r;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult check_copy(uintptr_t dst, uintptr_t src, size_t n) {
  if (CUresult r = check(dst, n)) return r;
  return check(src, n);
}

void copy_now(uintptr_t dst, uintptr_t src, size_t n) {
  bool to_device = in_arena(dst), from_device = in_arena(src);
  if (settings().bytes || (!to_device && !from_device)) memmove(host_side(dst), host_side(src), n);
  else if (n > SMALL) return;
  else if (remembers) copy_remembered(dst, src, n);
  else if (!to_device) memset((void*)dst, fill, n);
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
void fakegpu_set_d2h_fill(int byte) { fill = byte; }
void fakegpu_remember(int on) {
  std::lock_guard<std::mutex> guard(remembered_lock);
  remembers = on != 0;
  if (!on) remembered.clear();
}

CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, s, n); }
CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void* s, size_t n) { return copy(d, (uintptr_t)s, n); }
CUresult cuMemcpyDtoH_v2(void* d, CUdeviceptr s, size_t n) { return copy((uintptr_t)d, s, n); }
CUresult cuMemcpyDtoD_v2(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, s, n); }
CUresult cuMemcpyPeer(CUdeviceptr d, CUcontext, CUdeviceptr s, CUcontext, size_t n) { return copy(d, s, n); }
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q) { return copy_on(q, d, s, n); }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void* s, size_t n, CUstream q) { return copy_on(q, d, (uintptr_t)s, n); }
CUresult cuMemcpyDtoHAsync_v2(void* d, CUdeviceptr s, size_t n, CUstream q) { return copy_on(q, (uintptr_t)d, s, n); }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream q) { return copy_on(q, d, s, n); }
CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext to, CUdeviceptr s, CUcontext from, size_t n, CUstream q) {
  if (context_device(to) < 0 || context_device(from) < 0) return CUDA_ERROR_INVALID_CONTEXT;
  return copy_on(q, d, s, n);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream q) { return copy_rows(q, c); }
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) {
  if (CUresult r = not_while_capturing()) return r;
  if (CUresult r = copy_rows(CU_STREAM_LEGACY, c)) return r;
  return wait_for_legacy();
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) { return cuMemcpy2D_v2(c); }
CUresult cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n) { return fill_now(d, v, n); }
CUresult cuMemsetD16_v2(CUdeviceptr d, unsigned short v, size_t n) { return fill_now(d, v, n); }
CUresult cuMemsetD32_v2(CUdeviceptr d, unsigned v, size_t n) { return fill_now(d, v, n); }
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream q) { return fill_on(q, d, v, n); }
CUresult cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, CUstream q) { return fill_on(q, d, v, n); }
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream q) { return fill_on(q, d, v, n); }
CUresult cuStreamWriteValue32_v2(CUstream q, CUdeviceptr d, cuuint32_t v, unsigned) { return fill_on(q, d, v, 1); }
CUresult cuStreamWriteValue64_v2(CUstream q, CUdeviceptr d, cuuint64_t v, unsigned) { return fill_on(q, d, v, 1); }
}
