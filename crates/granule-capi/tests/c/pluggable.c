/* The entry points for CUDAPluggableAllocator, over the process's allocator. */
#include "check.h"

static int dropped;

static void drop(void *user) {
    (void)user;
    dropped += 1;
}

static bool accept(void *user, uint64_t stream) {
    (void)user, (void)stream;
    return true;
}

static volatile int open;

static void wait_until_open(void *user) {
    (void)user;
    while (!open) {
    }
}

/* PyTorch names streams without their device: the block waits for the stream of the other one. */
static void of_another_device(granule_allocator *a) {
    uint64_t stream = 0;
    OK(granule_device_set(a, 0));
    OK(granule_stream_create(a, 1, 0, &stream));
    void *ptr = granule_pluggable_malloc(3 * MIB, 0, NULL);
    OK(granule_stream_launch_host(a, 1, stream, wait_until_open, NULL));
    granule_pluggable_record_stream(ptr, (void *)(uintptr_t)stream);
    granule_pluggable_free(ptr, 3 * MIB, 0, NULL);
    OK(granule_poll(a, 0));
    CHECK(stats_of(a).pending_bytes == 3 * MIB && stats_of(a).unrecorded_frees == 0);
    open = 1;
    OK(granule_stream_synchronize(a, 1, stream));
    OK(granule_poll(a, 0));
    CHECK(stats_of(a).pending_bytes == 0);
    OK(granule_stream_destroy(a, 1, stream));
}

int main(void) {
    /* Without a name the simulated device is not taken; no driver is there either, or this is no test of it. */
    granule_allocator *a = NULL;
    if (granule_pluggable_allocator(&a) == GRANULE_OK) {
        CHECK(strcmp(granule_backend_name(a), "openreg") != 0);
        return 0;
    }
    CHECK(strstr(granule_last_error(), "no backend") != NULL && a == NULL);
    granule_filter all = {sizeof all, GRANULE_FILTER_CUSTOM, 0, NULL, accept, drop};
    granule_pool_id pool = granule_pool_fresh();
    CHECK(granule_pluggable_malloc(512, 0, NULL) == NULL);
    ANSWERS(GRANULE_NO_BACKEND, granule_pluggable_begin_pool(0, pool, &all));
    CHECK(dropped == 1);

    /* The next call tries again. */
    CHECK(setenv("GRANULE_BACKEND", "openreg", 1) == 0);
    granule_pluggable_init(2);
    OK(granule_pluggable_allocator(&a));
    CHECK(strcmp(granule_backend_name(a), "openreg") == 0);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_allocator_destroy(a));

    char *ptr = granule_pluggable_malloc(1000, 0, NULL);
    CHECK(ptr != NULL && granule_pluggable_malloc(0, 0, NULL) == NULL);
    CHECK(granule_pluggable_malloc(-1, 0, NULL) == NULL && granule_pluggable_malloc(512, 9, NULL) == NULL);
    size_t size = 0;
    CHECK(granule_pluggable_base_allocation(ptr, &size) == ptr && size >= 1000);
    UNDER_PYTORCH(size == 2 * MIB);
    CHECK(granule_pluggable_base_allocation(ptr, NULL) == ptr);
    CHECK(granule_pluggable_base_allocation(&size, &size) == &size && size == 0);
    granule_pluggable_record_stream(ptr, NULL);
    CHECK(stats_of(a).allocation.all.current == 1);
    of_another_device(a);

    OK(granule_pluggable_begin_pool(0, pool, &all));
    void *inside = granule_pluggable_malloc(1000, 0, NULL);
    OK(granule_pluggable_end_pool(0, pool));
    CHECK(inside != NULL && dropped == 2);
    OK(granule_pluggable_release_pool(0, pool));
    ANSWERS(GRANULE_POOL, granule_pluggable_release_pool(0, pool));

    granule_pluggable_set_memory_fraction(0.5, 0);
    CHECK(granule_pluggable_malloc(3ll << 30, 0, NULL) == NULL);
    CHECK(strstr(granule_last_error(), "out of memory") != NULL);
    granule_pluggable_free(ptr, 1000, 0, NULL);
    granule_pluggable_free(inside, 1000, 0, NULL);
    granule_pluggable_free(NULL, 0, 0, NULL);
    granule_pluggable_free(&size, 1000, 0, NULL);
    CHECK(strstr(granule_last_error(), "invalid device pointer") != NULL);
    granule_pluggable_reset();
    CHECK(stats_of(a).reserved_bytes.all.current == 0);

    /* No driver is asked whose the stream is. */
    OK(granule_abandon(a));
    granule_pluggable_record_stream(ptr, (void *)(uintptr_t)0x5eed);
    CHECK(strstr(granule_last_error(), "the driver is going away") != NULL);
    return 0;
}
