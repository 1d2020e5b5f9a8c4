/* What the driver's calls cost on this device, and what the driver does where Granule's backend relies on it:
 * drvcost [aliases|semantics|cost]; all three without an argument. Prints one JSON object a line, each after "KIT ".
 * Plain C over libcuda.so.1, which is loaded at run time: gcc -std=gnu17 -O2 -o drvcost drvcost.c -ldl -lpthread */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr, Handle;
typedef struct {
  unsigned type, handle_types;
  struct { unsigned type; int id; } location;
  void *win32;
  struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Prop;
typedef struct { struct { unsigned type; int id; } location; unsigned flags; } Access;

enum { ANY = 0, DESCRIPTOR = 1, FABRIC = 8 }; /* kinds of handles */
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, IS_LEGACY_IPC = 10, RANGE_START = 11, RANGE_SIZE = 12 }; /* attributes of pointers */
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define SAY(format, ...) (printf("KIT {\"step\":" format "}\n", __VA_ARGS__), fflush(stdout))

static void *lib, *context, *stream, *other;
static CUdevice device;
static Prop prop = { 1, ANY, { 1, 0 }, 0, { 0, 0, 0, { 0 } } };
static Access rw = { { 1, 0 }, 3 };

static CUresult absent(void) { return 500; } /* CUDA_ERROR_NOT_FOUND */
static void *find(const char *name) {
  void *found = dlsym(lib, name);
  if (!found) SAY("\"driver\",\"missing\":\"%s\"", name);
  return found ? found : (void *)absent;
}
/* A call by name, which is looked up once at each place. */
#define CALL(name, ...) ({ static void *at_; if (!at_) at_ = find(#name); ((CUresult(*)())at_)(__VA_ARGS__); })
static const char *name_of(CUresult r) { const char *s = "?"; return CALL(cuGetErrorName, r, &s) ? "?" : s; }
/* One without which nothing that follows makes sense: the function ends. */
#define MUST(name, ...) do { \
    CUresult r_ = CALL(name, __VA_ARGS__); \
    if (r_) { SAY("\"driver\",\"failed\":\"%s\",\"code\":%d,\"name\":\"%s\",\"line\":%d", #name, r_, name_of(r_), __LINE__); return; } \
  } while (0)
#define RESERVE(va, bytes) MUST(cuMemAddressReserve, &(va), (size_t)(bytes), (size_t)0, (CUdeviceptr)0, 0ull)
#define CREATE(handle, bytes) MUST(cuMemCreate, &(handle), (size_t)(bytes), &prop, 0ull)
#define MAP(va, bytes, handle) CALL(cuMemMap, (CUdeviceptr)(va), (size_t)(bytes), (size_t)0, handle, 0ull)
#define OPEN(va, bytes) CALL(cuMemSetAccess, (CUdeviceptr)(va), (size_t)(bytes), &rw, (size_t)1)
#define UNMAP(va, bytes) CALL(cuMemUnmap, (CUdeviceptr)(va), (size_t)(bytes))

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }

/* ---- What calls cost ---- */

static int by_value(const void *a, const void *b) { double x = *(const double *)a, y = *(const double *)b; return x < y ? -1 : x > y; }
static void report(const char *call, uint64_t bytes, double *v, int n) {
  qsort(v, n, sizeof *v, by_value);
  double sum = 0;
  for (int i = 0; i < n; i++) sum += v[i];
  SAY("\"driver\",\"call\":\"%s\",\"bytes\":%llu,\"n\":%d,\"median_ns\":%.0f,\"p10_ns\":%.0f,\"p90_ns\":%.0f,\"max_ns\":%.0f,\"mean_ns\":%.0f",
    call, (unsigned long long)bytes, n, v[n / 2], v[n / 10], v[n * 9 / 10], v[n - 1], sum / n);
}

/* The life of memory that is mapped, step by step. */
static void mapped(uint64_t bytes, unsigned handle_types, int rdma, const char *suffix) {
  static const char *const steps[] = { "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree" };
  enum { STEPS = sizeof steps / sizeof *steps, MOST = 48 };
  int n = bytes >= GIB ? 6 : bytes >= 64 * MIB ? 16 : MOST;
  double took[STEPS][MOST];
  Prop p = prop;
  p.handle_types = handle_types; p.flags.rdma = rdma;
  for (int i = -1; i < n; i++) { /* the first is not counted */
    CUdeviceptr va = 0; Handle h = 0; double t[STEPS + 1];
    t[0] = now(); RESERVE(va, bytes);
    t[1] = now(); MUST(cuMemCreate, &h, (size_t)bytes, &p, 0ull);
    t[2] = now(); MUST(cuMemMap, va, (size_t)bytes, (size_t)0, h, 0ull);
    t[3] = now(); MUST(cuMemSetAccess, va, (size_t)bytes, &rw, (size_t)1);
    t[4] = now(); MUST(cuMemUnmap, va, (size_t)bytes);
    t[5] = now(); MUST(cuMemRelease, h);
    t[6] = now(); MUST(cuMemAddressFree, va, (size_t)bytes);
    t[7] = now();
    for (int step = 0; step < STEPS; step++) took[step][i < 0 ? 0 : i] = t[step + 1] - t[step];
  }
  for (int step = 0; step < STEPS; step++) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", steps[step], suffix);
    report(name, bytes, took[step], n);
  }
}

/* A range of many small handles: opened and unmapped in one call each, as expandable segments and views are; and one by one. */
static void many(uint64_t unit, int count) {
  CUdeviceptr va = 0; Handle h[256]; double t[9];
  RESERVE(va, unit * count);
  #define EACH(call) for (int i = 0; i < count; i++) call
  t[0] = now(); EACH(CREATE(h[i], unit));
  t[1] = now(); EACH(MAP(va + i * unit, unit, h[i]));
  t[2] = now(); MUST(cuMemSetAccess, va, (size_t)(unit * count), &rw, (size_t)1);
  t[3] = now(); MUST(cuMemUnmap, va, (size_t)(unit * count));
  t[4] = now(); EACH(MAP(va + i * unit, unit, h[i]));
  t[5] = now(); EACH(OPEN(va + i * unit, unit));
  t[6] = now(); EACH(UNMAP(va + i * unit, unit));
  t[7] = now(); EACH(MUST(cuMemRelease, h[i]));
  t[8] = now();
  MUST(cuMemAddressFree, va, (size_t)(unit * count));
  SAY("\"driver\",\"call\":\"many\",\"unit\":%llu,\"count\":%d,\"create_each_ns\":%.0f,\"map_each_ns\":%.0f,\"open_all_ns\":%.0f,\"open_each_ns\":%.0f,"
    "\"unmap_all_ns\":%.0f,\"unmap_each_ns\":%.0f,\"release_each_ns\":%.0f", (unsigned long long)unit, count, (t[1] - t[0]) / count,
    (t[2] - t[1]) / count, t[3] - t[2], (t[6] - t[5]) / count, t[4] - t[3], (t[7] - t[6]) / count, (t[8] - t[7]) / count);
}

static void raw(uint64_t bytes) {
  enum { MOST = 32 };
  int n = bytes >= GIB ? 8 : MOST; double take[MOST], give[MOST];
  for (int i = -1; i < n; i++) {
    CUdeviceptr p = 0; int at = i < 0 ? 0 : i;
    double a = now(); MUST(cuMemAlloc_v2, &p, (size_t)bytes); double b = now(); MUST(cuMemFree_v2, p); double c = now();
    take[at] = b - a; give[at] = c - b;
  }
  report("cuMemAlloc", bytes, take, n); report("cuMemFree", bytes, give, n);
}

static void small(void) {
  void *e, *e2, *c, *graph; size_t a, b; int v; CUdeviceptr p, base; unsigned mode, status; unsigned long long id;
  MUST(cuEventCreate, &e, 2u); MUST(cuEventCreate, &e2, 2u); MUST(cuMemAlloc_v2, &p, (size_t)(4 * MIB));
  /* 31 times the mean of some; what was queued is done before the next. */
  #define SMALL(label, times, work) do { \
      double v_[31]; \
      for (int r_ = 0; r_ < 31; r_++) { double a_ = now(); for (int i_ = 0; i_ < (times); i_++) { work; } v_[r_] = (now() - a_) / (times); } \
      report(label, 0, v_, 31); MUST(cuCtxSynchronize); \
    } while (0)
  SMALL("cuEventRecord", 200, CALL(cuEventRecord, e, stream));
  SMALL("cuEventQuery.done", 500, CALL(cuEventQuery, e));
  SMALL("cuStreamQuery.idle", 500, CALL(cuStreamQuery, stream));
  SMALL("cuEventCreate+Destroy", 100, { void *n_; CALL(cuEventCreate, &n_, 2u); CALL(cuEventDestroy_v2, n_); });
  SMALL("cuStreamWaitEvent", 200, CALL(cuStreamWaitEvent, other, e, 0u));
  SMALL("cuEventRecord+WaitOther", 100, { CALL(cuEventRecord, e2, stream); CALL(cuStreamWaitEvent, other, e2, 0u); });
  SMALL("cuEventSynchronize.done", 200, CALL(cuEventSynchronize, e));
  SMALL("cuStreamSynchronize.idle", 200, CALL(cuStreamSynchronize, stream));
  SMALL("cuCtxSynchronize.idle", 100, CALL(cuCtxSynchronize));
  SMALL("cuMemGetInfo", 50, CALL(cuMemGetInfo_v2, &a, &b));
  SMALL("cuPointerGetAttribute.type", 500, CALL(cuPointerGetAttribute, &v, MEMORY_TYPE, p));
  SMALL("cuMemGetAddressRange", 500, CALL(cuMemGetAddressRange_v2, &base, &a, p));
  SMALL("cuCtxGetCurrent", 1000, CALL(cuCtxGetCurrent, &c));
  SMALL("cuCtxPush+Pop", 500, { CALL(cuCtxPushCurrent_v2, context); CALL(cuCtxPopCurrent_v2, &c); });
  SMALL("cuCtxGetDevice", 500, CALL(cuCtxGetDevice, &v));
  SMALL("cuThreadExchangeStreamCaptureMode", 500, { mode = 2; CALL(cuThreadExchangeStreamCaptureMode, &mode); CALL(cuThreadExchangeStreamCaptureMode, &mode); });
  SMALL("cuStreamGetCaptureInfo", 500, CALL(cuStreamGetCaptureInfo_v2, stream, &status, &id, &graph, (void *)0, (void *)0));
  SMALL("cuMemsetD8Async.4MiB", 50, CALL(cuMemsetD8Async, p, 1, (size_t)(4 * MIB), stream));
  SMALL("cuMemAllocAsync+Free.1MiB", 50, { CUdeviceptr q_; CALL(cuMemAllocAsync, &q_, (size_t)MIB, stream); CALL(cuMemFreeAsync, q_, stream); });
  SMALL("cuStreamCreate+Destroy", 10, { void *s_; CALL(cuStreamCreateWithPriority, &s_, 1u, 0); CALL(cuStreamDestroy_v2, s_); });
  MUST(cuEventDestroy_v2, e); MUST(cuEventDestroy_v2, e2); MUST(cuMemFree_v2, p);
}

static void host(uint64_t bytes) {
  double take[4], give[4], lock[4], unlock[4];
  for (int i = 0; i < 4; i++) {
    void *p = 0;
    double a = now(); MUST(cuMemHostAlloc, &p, (size_t)bytes, 1u); double b = now(); MUST(cuMemFreeHost, p); take[i] = b - a; give[i] = now() - b;
    void *m = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return;
    memset(m, 1, bytes);
    a = now(); MUST(cuMemHostRegister_v2, m, (size_t)bytes, 1u); b = now(); MUST(cuMemHostUnregister, m); lock[i] = b - a; unlock[i] = now() - b;
    munmap(m, bytes);
  }
  report("cuMemHostAlloc", bytes, take, 4); report("cuMemFreeHost", bytes, give, 4);
  report("cuMemHostRegister.touched", bytes, lock, 4); report("cuMemHostUnregister", bytes, unlock, 4);
}

static void copies(void) {
  size_t bytes = GIB; void *h; CUdeviceptr a, b; double best[3] = { 1e30, 1e30, 1e30 };
  MUST(cuMemHostAlloc, &h, bytes, 1u); MUST(cuMemAlloc_v2, &a, bytes); MUST(cuMemAlloc_v2, &b, bytes);
  memset(h, 3, bytes);
  for (int i = 0; i < 12; i++) {
    MUST(cuCtxSynchronize); double t = now();
    if (i % 3 == 0) MUST(cuMemcpyHtoDAsync_v2, a, h, bytes, stream);
    if (i % 3 == 1) MUST(cuMemcpyDtoHAsync_v2, h, a, bytes, stream);
    if (i % 3 == 2) MUST(cuMemcpyDtoDAsync_v2, b, a, bytes, stream);
    MUST(cuStreamSynchronize, stream); t = now() - t;
    if (t < best[i % 3]) best[i % 3] = t;
  }
  SAY("\"driver\",\"call\":\"copies\",\"bytes\":%zu,\"h2d_gb_s\":%.2f,\"d2h_gb_s\":%.2f,\"d2d_gb_s_one_way\":%.2f", bytes, bytes / best[0], bytes / best[1], bytes / best[2]);
  MUST(cuMemFreeHost, h); MUST(cuMemFree_v2, a); MUST(cuMemFree_v2, b);
}

static void cost(void) {
  small();
  for (int i = 21; i <= 32; i += i == 21 ? 3 : 2) raw(1ull << i);
  static const unsigned sizes[] = { 2, 4, 8, 16, 20, 24, 32, 64, 256, 1024, 4096 };
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) mapped(sizes[i] * MIB, ANY, 0, "");
  mapped(20 * MIB, DESCRIPTOR, 0, ".fd"); mapped(20 * MIB, ANY, 1, ".rdma"); mapped(20 * MIB, DESCRIPTOR, 1, ".fd.rdma");
  many(2 * MIB, 256); many(8 * MIB, 128); many(24 * MIB, 64);
  host(64 * MIB); host(512 * MIB); copies();
}

/* ---- Kernels ---- */

/* A thread for each word: word i has the number i * 0x9e3779b1 + seed. */
#define WORD \
  ".reg .pred p; .reg .u32 i,n,s,v,w,x,y; .reg .u64 a,b,o;\n" \
  "mov.u32 x,%%ctaid.x; mov.u32 y,%%ntid.x; mov.u32 i,%%tid.x; mad.lo.u32 i,x,y,i;\n" \
  "ld.param.u32 n,[words]; setp.ge.u32 p,i,n; @p ret;\n" \
  "ld.param.u32 s,[seed]; mad.lo.u32 v,i,0x9e3779b1,s; mul.wide.u32 o,i,4; ld.param.u64 a,[at]; add.u64 a,a,o;\n"
#define COUNT "setp.eq.u32 p,v,w; @p ret;\nld.param.u64 a,[wrong]; red.global.add.u32 [a],1; ret;\n}\n"
#define GIVEN "(.param .u64 at, .param .u32 words, .param .u32 seed, .param .u64 wrong, .param .u64 place)\n{\n"
static const char plain[] = ".version 6.4\n.target %s\n.address_size 64\n"
  ".visible .entry spin(.param .u64 ns)\n{\n.reg .pred p; .reg .u64 a,b,c,d;\n"
  "ld.param.u64 a,[ns];\nmov.u64 b,%%globaltimer;\nL:\nmov.u64 c,%%globaltimer;\nsub.u64 d,c,b;\nsetp.lt.u64 p,d,a;\n@p bra L;\nret;\n}\n"
  ".visible .entry put" GIVEN WORD "st.global.u32 [a],v; ret;\n}\n"
  ".visible .entry check" GIVEN WORD "ld.global.u32 w,[a];\n" COUNT;
/* Writes at one place and reads at the other, in one thread. */
static const char both[] = ".version 7.5\n.target %s\n.address_size 64\n"
  ".visible .entry fenced" GIVEN WORD "ld.param.u64 b,[place]; add.u64 b,b,o; st.global.u32 [a],v; fence.proxy.alias; ld.global.u32 w,[b];\n" COUNT
  ".visible .entry bare" GIVEN WORD "ld.param.u64 b,[place]; add.u64 b,b,o; st.global.u32 [a],v; ld.global.u32 w,[b];\n" COUNT;

static CUresult load(const char *ptx, void **module) {
  static const char *const targets[] = { "sm_70", "sm_80", "sm_90" };
  CUresult r = 0; char text[4096];
  for (unsigned i = 0; i < 3; i++) {
    snprintf(text, sizeof text, ptx, targets[i]);
    if (!(r = CALL(cuModuleLoadData, module, text))) return 0;
  }
  return r;
}
static void *kernel(void *module, const char *name) { void *found = 0; return module && !CALL(cuModuleGetFunction, &found, module, name) ? found : 0; }
static CUresult run(void *function, void *on, CUdeviceptr at, unsigned words, unsigned seed, CUdeviceptr wrong, CUdeviceptr place) {
  void *given[] = { &at, &words, &seed, &wrong, &place };
  return CALL(cuLaunchKernel, function, (words + 255) / 256, 1u, 1u, 256u, 1u, 1u, 0u, on, given, (void **)0);
}

/* ---- Views: one memory at two places ---- */

static struct {
  void *put, *check; /* kernels, or none */
  CUdeviceptr counter, at[2]; /* of wrong words; the two places */
  Handle page[2];
  int turned[2]; /* a place shows the second page first */
  uint64_t bytes;
  unsigned words, *sent, *got, lost;
} views;

static void show(int place) {
  for (int page = 0; page < 2; page++) MUST(cuMemMap, views.at[place] + (page ^ views.turned[place]) * views.bytes, (size_t)views.bytes, (size_t)0, views.page[page], 0ull);
  MUST(cuMemSetAccess, views.at[place], (size_t)(2 * views.bytes), &rw, (size_t)1);
}
static void hide(int place) {
  MUST(cuCtxSynchronize); /* what still uses it would fault */
  for (int page = 0; page < 2; page++) MUST(cuMemUnmap, views.at[place] + page * views.bytes, (size_t)views.bytes);
}

/* Both pages, by a kernel or by a copy. */
static void fill(int by_kernel, int place, unsigned seed, void *on) {
  for (int page = 0; page < 2; page++) {
    CUdeviceptr at = views.at[place] + (page ^ views.turned[place]) * views.bytes;
    if (by_kernel) { if (run(views.put, on, at, views.words, seed + page, views.counter, 0)) views.lost++; continue; }
    for (unsigned i = 0; i < views.words; i++) views.sent[i] = i * 0x9e3779b1u + seed + page;
    MUST(cuMemcpyHtoDAsync_v2, at, views.sent, (size_t)views.bytes, on); MUST(cuStreamSynchronize, on);
  }
}
static void compare(int by_kernel, int place, unsigned seed, void *on) {
  for (int page = 0; page < 2; page++) {
    CUdeviceptr at = views.at[place] + (page ^ views.turned[place]) * views.bytes;
    if (by_kernel) { if (run(views.check, on, at, views.words, seed + page, views.counter, 0)) views.lost++; continue; }
    memset(views.got, 0, views.bytes);
    MUST(cuMemcpyDtoHAsync_v2, views.got, at, (size_t)views.bytes, on); MUST(cuStreamSynchronize, on);
    for (unsigned i = 0; i < views.words; i++) views.lost += views.got[i] != i * 0x9e3779b1u + seed + page;
  }
}
/* Words that were not as they should be, since this was asked last. */
static unsigned wrong(void) {
  unsigned counted = 0, zero = 0, lost = views.lost;
  views.lost = 0;
  CUresult r = CALL(cuCtxSynchronize); if (!r) r = CALL(cuMemcpyDtoH_v2, &counted, views.counter, (size_t)4); if (!r) r = CALL(cuMemcpyHtoD_v2, views.counter, &zero, (size_t)4);
  return counted + lost + (r != 0);
}

enum { ONE_STREAM, BACK, TWO_STREAMS, TURNED, ALONE, SCENES };
static const char *const scenes[] = { "in one stream", "in one stream, from the second place to the first", "in two streams with an event between",
  "after the second place was unmapped and showed the pages in the other order", "after the first place was unmapped, and again when it was back" };

static void scene(int which, int writer, int reader) {
  int from = which == BACK, to = !from; void *e = 0;
  MUST(cuEventCreate, &e, 2u);
  fill(writer, from, 0, stream);
  for (unsigned seed = 2; seed < 18; seed += 2) {
    compare(reader, to, seed - 2, which == TWO_STREAMS ? other : stream); /* so that what is old lies in caches */
    if (which == TWO_STREAMS) { MUST(cuEventRecord, e, other); MUST(cuStreamWaitEvent, stream, e, 0u); }
    fill(writer, from, seed, stream);
    if (which == TWO_STREAMS) { MUST(cuEventRecord, e, stream); MUST(cuStreamWaitEvent, other, e, 0u); }
    if (which == TURNED) { hide(to); views.turned[to] ^= 1; show(to); }
    if (which == ALONE) { hide(from); compare(reader, to, seed, stream); show(from); }
    compare(reader, to, seed, which == TWO_STREAMS ? other : stream);
  }
  MUST(cuEventDestroy_v2, e);
  static const char *const kinds[] = { "a copy", "a kernel" };
  unsigned found = wrong();
  SAY("\"aliases\",\"question\":\"%s reads at one place what %s wrote at the other, %s\",\"wrong_words\":%u,\"right\":%s",
    kinds[reader], kinds[writer], scenes[which], found, found ? "false" : "true");
}

static void aliases(void) {
  size_t granule = 0; void *module = 0;
  MUST(cuMemGetAllocationGranularity, &granule, &prop, 0u);
  views.bytes = granule; views.words = granule / 4;
  views.sent = malloc(granule); views.got = malloc(granule);
  if (!views.sent || !views.got) return;
  MUST(cuMemAlloc_v2, &views.counter, (size_t)512); wrong();
  for (int i = 0; i < 2; i++) { CREATE(views.page[i], granule); RESERVE(views.at[i], 2 * granule); }
  views.turned[1] = 1;
  show(0); show(1);
  /* Whether anything can be proven here: contents that stay, and kernels that write and count. */
  fill(0, 0, 5, stream); compare(0, 0, 5, stream);
  int contents = !wrong();
  CUresult loaded = load(plain, &module);
  views.put = kernel(module, "put"); views.check = kernel(module, "check");
  int computes = contents && views.put && views.check;
  if (computes) { fill(1, 0, 6, stream); compare(1, 0, 9, stream); computes = wrong() == 2 * views.words; }
  SAY("\"aliases\",\"page\":%zu,\"contents\":%s,\"kernel\":%s,\"why\":\"%s\"", granule, contents ? "true" : "false", computes ? "true" : "false",
    computes ? "proven by kernels and by copies" : !contents ? "memory keeps nothing here: nothing is proven" : loaded ? name_of(loaded) : "kernels compute nothing here: proven by copies alone");
  for (int which = 0; which < SCENES && contents; which++)
    for (int writer = computes; writer >= 0; writer--)
      for (int reader = computes; reader >= 0; reader--) scene(which, writer, reader);
  /* CUDA promises that a kernel sees at one place what an earlier one, a copy or a memset wrote at the other. Of one kernel that does
   * both it promises so behind fence.proxy.alias, and nothing without. Granule needs neither. */
  if (computes && !load(both, &module)) {
    for (int fenced = 1; fenced >= 0; fenced--) {
      void *function = kernel(module, fenced ? "fenced" : "bare");
      CUresult r = 0;
      for (unsigned seed = 40; seed < 48 && !r; seed++) r = run(function, stream, views.at[0], views.words, seed, views.counter, views.at[1] + views.turned[1] * granule);
      unsigned found = wrong() + (r != 0);
      SAY("\"aliases\",\"question\":\"one kernel reads at one place what it wrote at the other, %s\",\"wrong_words\":%u%s", fenced ? "behind fence.proxy.alias" : "without a fence (not promised)",
        found, !fenced ? "" : found ? ",\"right\":false" : ",\"right\":true");
    }
  }
  hide(0); hide(1);
  for (int i = 0; i < 2; i++) { MUST(cuMemRelease, views.page[i]); MUST(cuMemAddressFree, views.at[i], (size_t)(2 * granule)); }
  MUST(cuMemFree_v2, views.counter); free(views.sent); free(views.got);
}

/* ---- What the driver answers ---- */

static CUresult last; /* of the last question */
static CUresult answers(const char *question, CUresult r, long long value) {
  SAY("\"semantics\",\"question\":\"%s\",\"code\":%d,\"name\":\"%s\",\"value\":%lld", question, r, name_of(r), value);
  return last = r;
}
/* Asks by a call, and says what it answers and a value, which is taken afterwards. */
#define ASK(question, value, name, ...) ({ CUresult r_ = CALL(name, __VA_ARGS__); answers(question, r_, (long long)(value)); })

static void *spin;
static void busy(double ms) {
  unsigned long long ns = (unsigned long long)(ms * 1e6); void *given[] = { &ns };
  CALL(cuLaunchKernel, spin, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, given, (void **)0);
}
#define BUSY(label, work) do { \
    MUST(cuCtxSynchronize); busy(200); \
    double t_ = now(); work; t_ = now() - t_; \
    SAY("\"semantics\",\"question\":\"does %s wait for a kernel of 200 ms on another stream\",\"ms\":%.2f,\"waits\":%s", label, t_ / 1e6, t_ > 150e6 ? "true" : "false"); \
    MUST(cuCtxSynchronize); \
  } while (0)

enum { B = 64 << 20 };

static void attributes(void) {
  static const struct { const char *name; int number; } asked[] = {
    { "VMM", 102 }, { "POSIX_FD", 103 }, { "FABRIC", 128 }, { "RDMA_WITH_VMM", 110 }, { "MEMORY_POOLS", 115 }, { "MANAGED", 83 }, { "MULTICAST", 132 }, { "INTEGRATED", 18 },
    { "NUMA_CONFIG", 130 }, { "NUMA_ID", 131 }, { "SM", 16 }, { "PAGEABLE", 88 }, { "COMPRESSION", 107 }, { "DMA_BUF", 124 }, { "UVA", 41 }, { "CC_MAJOR", 75 },
    { "HOST_NUMA_VMM", 141 }, { "IPC_EVENT", 125 }, { "CAN_FLUSH_REMOTE", 98 } };
  for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
    int v = -77; char question[64];
    snprintf(question, sizeof question, "attribute %s", asked[i].name);
    ASK(question, v, cuDeviceGetAttribute, &v, asked[i].number, device);
  }
  int least = 0, greatest = 0; size_t total = 0, left = 0;
  ASK("stream priorities, greatest", greatest, cuCtxGetStreamPriorityRange, &least, &greatest);
  ASK("cuDeviceTotalMem", total, cuDeviceTotalMem_v2, &total, device);
  ASK("cuMemGetInfo total", total, cuMemGetInfo_v2, &left, &total);
  answers("cuMemGetInfo free at start", 0, left);
  for (int i = 0; i < 2; i++) { unsigned long long id = 0; ASK(i ? "cuStreamGetId of the per-thread stream" : "cuStreamGetId of the null stream", id, cuStreamGetId, (void *)(intptr_t)(2 * i), &id); }
  unsigned long long held = 77; ASK("graph memory held", held, cuDeviceGetGraphMemAttribute, device, 2u, &held);
  /* Names that left the headers, or that few drivers have: what is missing is said where it is looked up. */
  static const char *const kept[] = { "cuGraphNodeGetDependencies", "cuEventElapsedTime", "cuGetProcAddress_v2" };
  for (unsigned i = 0; i < sizeof kept / sizeof *kept; i++) find(kept[i]);
}

/* What is said of addresses, with one mapping at `va + B`. */
static void pointers(CUdeviceptr va) {
  CUdeviceptr base = 0, start = 0; size_t size = 0; char ipc[64];
  ASK("cuMemGetAddressRange in a mapping: base minus mapping", base - (va + B), cuMemGetAddressRange_v2, &base, &size, va + B + 4096);
  answers("cuMemGetAddressRange in a mapping: size", last, size);
  ASK("RANGE_START_ADDR minus mapping", start - (va + B), cuPointerGetAttribute, &start, RANGE_START, va + B + 4096);
  size = 0; ASK("RANGE_SIZE of a mapping", size, cuPointerGetAttribute, &size, RANGE_SIZE, va + B + 4096);
  #define WORD_OF(question, attribute, at) ({ unsigned w_ = 0xffffffffu; ASK(question, w_, cuPointerGetAttribute, &w_, attribute, at); })
  WORD_OF("IS_LEGACY_CUDA_IPC_CAPABLE of a mapping, word written over ffffffff", IS_LEGACY_IPC, va + B);
  WORD_OF("IS_MANAGED of a mapping, word written over ffffffff", IS_MANAGED, va + B);
  WORD_OF("MEMORY_TYPE of a mapping", MEMORY_TYPE, va + B);
  WORD_OF("MEMORY_TYPE of reserved, unmapped addresses", MEMORY_TYPE, va);
  WORD_OF("MEMORY_TYPE of an unknown address", MEMORY_TYPE, 0x10000ull);
  ASK("cuIpcGetMemHandle of a mapping", 0, cuIpcGetMemHandle, ipc, va + B);
}

/* What may be mapped where, and when memory is free again; `h` is mapped at `va + B`. */
static void mappings(CUdeviceptr va, Handle h) {
  Handle h2 = 0, h3 = 0, again = 0; size_t f0, f1, f2, f3, total; unsigned long long access = 77; Prop said;
  #define ASK_MAP(question, at, bytes, offset, handle) ASK(question, 0, cuMemMap, at, (size_t)(bytes), (size_t)(offset), handle, 0ull)
  ASK_MAP("one handle mapped twice", va + 3ull * B, B, 0, h);
  ASK("second mapping opened", 0, cuMemSetAccess, va + 3ull * B, (size_t)B, &rw, (size_t)1);
  ASK_MAP("mapped where something is mapped already", va + 3ull * B, B, 0, h);
  if (!ASK_MAP("half of a handle mapped", va + 5ull * B, B / 2, 0, h)) UNMAP(va + 5ull * B, B / 2);
  if (!ASK_MAP("mapped with an offset", va + 5ull * B, B / 2, B / 2, h)) UNMAP(va + 5ull * B, B / 2);
  ASK("half of a mapping unmapped", 0, cuMemUnmap, va + B, (size_t)(B / 2));
  CREATE(h2, B); MAP(va + 2ull * B, B, h2); OPEN(va + 2ull * B, B);
  if (ASK("three mappings beside one another unmapped in one call", 0, cuMemUnmap, va + B, (size_t)3 * B)) for (int i = 1; i <= 3; i++) UNMAP(va + (uint64_t)i * B, B);
  ASK("unmapped where nothing is mapped", 0, cuMemUnmap, va + B, (size_t)B);
  #define FREE(f) MUST(cuMemGetInfo_v2, &f, &total)
  FREE(f0); CREATE(h3, GIB); FREE(f1); answers("free memory that a handle of 1 GiB takes before it is mapped", 0, (long long)(f0 - f1));
  MUST(cuMemRelease, h3); FREE(f2); answers("free memory that comes back at once with its release", 0, (long long)(f2 - f1));
  MUST(cuMemMap, va + B, (size_t)B, (size_t)0, h, 0ull); OPEN(va + B, B);
  FREE(f2); MUST(cuMemRelease, h); FREE(f3); answers("free memory after a release while mapped (0: it stays)", 0, (long long)(f3 - f2));
  ASK("handle retained from an address", again == h, cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(va + B));
  memset(&said, 0, sizeof said);
  ASK("properties: handle types", said.handle_types, cuMemGetAllocationPropertiesFromHandle, &said, again);
  answers("properties: type", last, said.type); answers("properties: rdma", last, said.flags.rdma); CALL(cuMemRelease, again);
  ASK("cuMemGetAccess of an open mapping", access, cuMemGetAccess, &access, &rw.location, va + B);
  UNMAP(va + B, B); FREE(f3); answers("free memory after its unmap", 0, (long long)(f3 - f2));
  ASK("cuMemGetAccess where nothing is mapped", access, cuMemGetAccess, &access, &rw.location, va + B);
  MUST(cuMemRelease, h2);
  ASK("a handle released twice", 0, cuMemRelease, h2);
}

/* Kinds of handles, and what is refused. */
static void kinds(CUdeviceptr va, size_t granule) {
  Handle h = 0, in = 0; CUdeviceptr p = 0, found = 0; int fd = -1; char fabric[64]; Prop q = prop;
  #define ASK_CREATE(question, bytes) ASK(question, 0, cuMemCreate, &h, (size_t)(bytes), &q, 0ull)
  q.handle_types = DESCRIPTOR;
  if (!ASK_CREATE("memory for file descriptors", B)) {
    ASK("exported as a descriptor", fd, cuMemExportToShareableHandle, &fd, h, DESCRIPTOR, 0ull);
    if (!ASK("imported from its own descriptor: the same handle", in == h, cuMemImportFromShareableHandle, &in, (void *)(intptr_t)fd, DESCRIPTOR)) CALL(cuMemRelease, in);
    if (fd >= 0) close(fd);
    CALL(cuMemRelease, h);
  }
  q.handle_types = ANY; q.flags.rdma = 1;
  if (!ASK_CREATE("memory for network cards", B)) {
    MAP(va, B, h); ASK("memory for network cards, opened", 0, cuMemSetAccess, va, (size_t)B, &rw, (size_t)1); UNMAP(va, B); CALL(cuMemRelease, h);
  }
  q.handle_types = FABRIC; q.flags.rdma = 0;
  if (!ASK_CREATE("memory for fabric handles", B)) { ASK("exported as a fabric handle", 0, cuMemExportToShareableHandle, fabric, h, FABRIC, 0ull); CALL(cuMemRelease, h); }
  q.handle_types = FABRIC | DESCRIPTOR;
  if (!ASK_CREATE("memory for descriptors and fabric handles", B)) CALL(cuMemRelease, h);
  q.handle_types = ANY;
  ASK_CREATE("memory of 16 TiB", 1ull << 44);
  if (!ASK_CREATE("memory of half a granule", granule / 2)) CALL(cuMemRelease, h);
  ASK("cuMemAlloc of 16 TiB", 0, cuMemAlloc_v2, &p, (size_t)(1ull << 44)); ASK("cuMemAlloc of nothing", 0, cuMemAlloc_v2, &p, (size_t)0);
  MUST(cuMemAlloc_v2, &p, (size_t)(4 * MIB));
  ASK("cuMemFree of an inner address", 0, cuMemFree_v2, p + 512); MUST(cuMemFree_v2, p); ASK("cuMemFree twice", 0, cuMemFree_v2, p);
  for (int shift = 40; shift <= 48; shift++) {
    char question[64]; CUdeviceptr v = 0;
    snprintf(question, sizeof question, "addresses reserved: 2^%d", shift);
    if (!ASK(question, v ? __builtin_ctzll(v) : -1, cuMemAddressReserve, &v, (size_t)(1ull << shift), (size_t)0, (CUdeviceptr)0, 0ull)) CALL(cuMemAddressFree, v, (size_t)(1ull << shift));
  }
  CUdeviceptr hint = va + 64ull * B;
  if (!ASK("an address that is asked for is given", found == hint, cuMemAddressReserve, &found, (size_t)B, (size_t)0, hint, 0ull)) CALL(cuMemAddressFree, found, (size_t)B);
  if (!ASK("addresses aligned to 1 GiB", found ? __builtin_ctzll(found) : -1, cuMemAddressReserve, &found, (size_t)B, (size_t)GIB, (CUdeviceptr)0, 0ull)) CALL(cuMemAddressFree, found, (size_t)B);
}

/* Which calls wait for another stream's kernel, and what a query says meanwhile. */
static void waiting(CUdeviceptr va) {
  CUdeviceptr x = 0, y = 0, found = 0; Handle h = 0; size_t left, total; void *e, *fresh, *m = 0, *s = 0;
  MUST(cuEventCreate, &e, 2u); MUST(cuEventCreate, &fresh, 2u); MUST(cuMemAlloc_v2, &y, (size_t)B); busy(1);
  BUSY("nothing at all", (void)0);
  BUSY("cuMemAlloc", CALL(cuMemAlloc_v2, &x, (size_t)B)); BUSY("cuMemFree", CALL(cuMemFree_v2, x)); BUSY("cuMemFree of other memory", CALL(cuMemFree_v2, y));
  BUSY("cuMemCreate", CALL(cuMemCreate, &h, (size_t)B, &prop, 0ull)); BUSY("cuMemMap", MAP(va, B, h)); BUSY("cuMemSetAccess", OPEN(va, B));
  BUSY("cuMemUnmap", UNMAP(va, B)); BUSY("cuMemRelease", CALL(cuMemRelease, h));
  BUSY("cuMemAddressReserve", CALL(cuMemAddressReserve, &found, (size_t)B, (size_t)0, (CUdeviceptr)0, 0ull)); BUSY("cuMemAddressFree", CALL(cuMemAddressFree, found, (size_t)B));
  BUSY("cuMemGetInfo", CALL(cuMemGetInfo_v2, &left, &total)); BUSY("cuMemHostAlloc", CALL(cuMemHostAlloc, &m, (size_t)B, 1u)); BUSY("cuMemFreeHost", CALL(cuMemFreeHost, m));
  BUSY("cuStreamCreate", CALL(cuStreamCreateWithPriority, &s, 1u, 0)); BUSY("cuStreamDestroy of an idle one", CALL(cuStreamDestroy_v2, s));
  BUSY("cuEventRecord on another stream", CALL(cuEventRecord, e, other));
  busy(100); MUST(cuEventRecord, e, stream);
  ASK("cuEventQuery while its work runs", 0, cuEventQuery, e); ASK("cuStreamQuery while work runs", 0, cuStreamQuery, stream);
  MUST(cuCtxSynchronize);
  ASK("cuEventQuery afterwards", 0, cuEventQuery, e); ASK("cuEventQuery of one that was never recorded", 0, cuEventQuery, fresh);
  MUST(cuEventDestroy_v2, e); MUST(cuEventDestroy_v2, fresh);
}

/* What is allowed while a stream is captured. */
static void captured(CUdeviceptr va) {
  CUdeviceptr x = 0; Handle h = 0; void *graph, *e; unsigned relaxed = 2;
  MUST(cuEventCreate, &e, 2u); MUST(cuEventRecord, e, stream); MUST(cuCtxSynchronize);
  #define CAPTURE(end) do { graph = 0; MUST(cuStreamBeginCapture_v2, stream, 0u); end; if (graph) CALL(cuGraphDestroy, graph); } while (0)
  CAPTURE({ ASK("cuMemAlloc during a global capture", 0, cuMemAlloc_v2, &x, (size_t)B); CALL(cuStreamEndCapture, stream, &graph); });
  CAPTURE({
    if (!ASK("cuMemCreate during a global capture", 0, cuMemCreate, &h, (size_t)B, &prop, 0ull)) {
      ASK_MAP("cuMemMap during a global capture", va, B, 0, h); ASK("cuMemSetAccess during a global capture", 0, cuMemSetAccess, va, (size_t)B, &rw, (size_t)1);
      ASK("cuMemUnmap during a global capture", 0, cuMemUnmap, va, (size_t)B); CALL(cuMemRelease, h);
    }
    ASK("cuEventQuery during a global capture", 0, cuEventQuery, e); ASK("that capture ends", 0, cuStreamEndCapture, stream, &graph); });
  MUST(cuCtxSynchronize);
  CAPTURE({
    CALL(cuThreadExchangeStreamCaptureMode, &relaxed);
    if (!ASK("cuMemAlloc during a global capture, thread relaxed", 0, cuMemAlloc_v2, &x, (size_t)B)) ASK("cuMemFree the same", 0, cuMemFree_v2, x);
    ASK("cuEventQuery the same", 0, cuEventQuery, e); CALL(cuThreadExchangeStreamCaptureMode, &relaxed);
    ASK("that capture ends, too", 0, cuStreamEndCapture, stream, &graph); });
  MUST(cuEventDestroy_v2, e);
}

static void semantics(void) {
  void *module = 0; size_t granule = 0, recommended = 0; CUdeviceptr va = 0; Handle h = 0;
  spin = answers("the spinning kernel loads", load(plain, &module), 0) ? 0 : kernel(module, "spin");
  ASK("granularity, minimum", granule, cuMemGetAllocationGranularity, &granule, &prop, 0u);
  ASK("granularity, recommended", recommended, cuMemGetAllocationGranularity, &recommended, &prop, 1u);
  attributes();
  RESERVE(va, 8ull * B); CREATE(h, B); MUST(cuMemMap, va + B, (size_t)B, (size_t)0, h, 0ull); MUST(cuMemSetAccess, va + B, (size_t)B, &rw, (size_t)1);
  pointers(va); mappings(va, h); kinds(va, granule);
  if (spin) { waiting(va); captured(va); }
  MUST(cuMemAddressFree, va, (size_t)(8ull * B));
}

int main(int argc, char **argv) {
  const char *path = getenv("GRANULE_CUDA_LIBRARY");
  lib = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);
  if (!lib) { SAY("\"driver\",\"failed\":\"%s\"", dlerror()); return 1; }
  int version = 0; CUresult r = CALL(cuInit, 0u);
  if (r) { SAY("\"driver\",\"failed\":\"cuInit\",\"code\":%d", r); return 1; }
  double t = now();
  CALL(cuDriverGetVersion, &version); CALL(cuDeviceGet, &device, 0); r = CALL(cuDevicePrimaryCtxRetain, &context, device);
  SAY("\"driver\",\"version\":%d,\"context_ms\":%.1f,\"code\":%d", version, (now() - t) / 1e6, r);
  CALL(cuCtxSetCurrent, context); CALL(cuStreamCreateWithPriority, &stream, 1u, 0); CALL(cuStreamCreateWithPriority, &other, 1u, 0);
  static const struct { const char *name; void (*body)(void); } parts[] = { { "aliases", aliases }, { "semantics", semantics }, { "cost", cost } };
  for (int i = 0; i < 3; i++) if (argc < 2 || !strcmp(argv[1], parts[i].name)) parts[i].body();
  SAY("\"driver\",\"end\":%s", "true");
  return 0;
}
