/* A profiler's library: it counts pushes and pops, and keeps the latest name. */
#include <stdio.h>

static int depth, pushes, pops;
static char latest[64];

static int push(const char *name) {
    snprintf(latest, sizeof latest, "%s", name);
    pushes++;
    return depth++;
}

static int pop(void) {
    pops++;
    return --depth;
}

#ifdef NVTX
int nvtxRangePushA(const char *name) { return push(name); }
int nvtxRangePop(void) { return pop(); }
#endif
#ifdef ROCTX
int roctxRangePushA(const char *name) { return push(name); }
int roctxRangePop(void) { return pop(); }
#endif

int granule_test_depth(void) { return depth; }
int granule_test_pushes(void) { return pushes; }
int granule_test_pops(void) { return pops; }
const char *granule_test_latest(void) { return latest; }
