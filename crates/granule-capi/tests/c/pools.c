/* Private pools: scopes and filters, sources, checkpoints, captures, limits. */
#include "check.h"

static int dropped;

static void drop(void *user) {
    CHECK(user == &dropped);
    dropped += 1;
}

static bool only_odd(void *user, uint64_t stream) {
    CHECK(user == &dropped);
    return stream % 2 == 1;
}

static int segments;

static void *from_heap(void *user, uint64_t bytes, int32_t device, uint64_t stream) {
    (void)user, (void)device, (void)stream;
    if (bytes > 64 * MIB) {
        return NULL;
    }
    segments += 1;
    return aligned_alloc(512, bytes);
}

static void to_heap(void *user, void *ptr, uint64_t bytes, int32_t device, uint64_t stream) {
    (void)user, (void)bytes, (void)device, (void)stream;
    segments -= 1;
    free(ptr);
}

static granule_pool_stats_t about(granule_allocator *a, granule_pool_id pool) {
    granule_pool_stats_t stats = {0};
    stats.size = sizeof stats;
    OK(granule_pool_stats(a, 0, pool, &stats));
    return stats;
}

static void scopes(granule_allocator *a) {
    granule_pool_id pool = granule_pool_fresh(), of_capture = granule_pool_fresh_for_capture();
    CHECK(pool.first == 0 && pool.second > 0 && of_capture.first > 0 && of_capture.second == 0);
    int32_t uses = 0;
    ANSWERS(GRANULE_UNKNOWN_POOL, granule_pool_use_count(a, 0, pool, &uses));

    granule_filter filter = {sizeof filter, GRANULE_FILTER_CUSTOM, 0, &dropped, only_odd, drop};
    OK(granule_pool_begin(a, 0, pool, &filter));
    OK(granule_pool_use_count(a, 0, pool, &uses));
    CHECK(uses == 1 && dropped == 0);
    void *inside = take(a, 512, 33), *outside = take(a, 512, 0);
    CHECK(about(a, pool).allocation == 1 && about(a, pool).segments == 1);
    bool exactly = false;
    OK(granule_pool_has_live(a, 0, pool, &inside, 1, &exactly));
    CHECK(exactly);
    OK(granule_pool_has_live(a, 0, pool, &outside, 1, &exactly));
    CHECK(!exactly);

    /* A scope that cannot be opened lets go of its filter, too. */
    ANSWERS(GRANULE_POOL, granule_pool_begin(a, 0, pool, &filter));
    CHECK(dropped == 1);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_pool_begin(NULL, 0, pool, &filter));
    CHECK(dropped == 2);
    filter.accepts = NULL;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_pool_begin(a, 0, pool, &filter));
    CHECK(dropped == 3);
    filter.kind = 99;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_pool_begin(a, 0, pool, &filter));
    CHECK(dropped == 4);

    granule_pool_reserved held[4];
    uint64_t count = 0;
    OK(granule_pools_reserved(a, 0, held, 4, &count));
    CHECK(count == 1 && held[0].pool.second == pool.second && held[0].reserved_bytes.all.current == 2 * MIB);

    OK(granule_pool_end(a, 0, pool));
    CHECK(dropped == 5);
    OK(granule_pool_create(a, 0, pool, NULL));
    OK(granule_pool_set_use_on_oom(a, 0, pool, true));
    OK(granule_pool_set_no_split(a, 0, pool));
    OK(granule_free(a, inside));
    OK(granule_free(a, outside));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_empty_pool(a, pool));
    ANSWERS(GRANULE_UNKNOWN_POOL, granule_pool_release(a, 0, pool));

    const int32_t kinds[] = {GRANULE_FILTER_ALWAYS, GRANULE_FILTER_THIS_THREAD, GRANULE_FILTER_STREAM};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        granule_filter plain = {sizeof plain, kinds[n], 5, NULL, NULL, NULL};
        granule_pool_id other = granule_pool_fresh();
        OK(granule_pool_begin(a, 0, other, &plain));
        void *served = take(a, 512, 5), *beside = take(a, 512, 6);
        CHECK(about(a, other).allocation == (kinds[n] == GRANULE_FILTER_STREAM ? 1u : 2u));
        OK(granule_free(a, served));
        OK(granule_free(a, beside));
        OK(granule_pool_end(a, 0, other));
        OK(granule_pool_release(a, 0, other));
    }
    OK(granule_empty_cache(a));
}

static void sources(granule_allocator *a) {
    granule_pool_id pool = granule_pool_fresh();
    granule_segment_source source = {sizeof source, &dropped, from_heap, to_heap, drop};
    granule_filter all = {sizeof all, GRANULE_FILTER_ALWAYS, 0, NULL, NULL, NULL};
    dropped = 0;
    OK(granule_pool_create(a, 0, pool, &source));
    ANSWERS(GRANULE_POOL, granule_pool_create(a, 0, pool, &source));
    CHECK(dropped == 1);
    source.free = NULL;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_pool_create(a, 0, granule_pool_fresh(), &source));
    CHECK(dropped == 2);

    OK(granule_pool_begin(a, 0, pool, &all));
    void *ptr = take(a, 3 * MIB, 0);
    CHECK(segments == 1 && about(a, pool).reserved_bytes.all.current == 20 * MIB);
    void *none = NULL;
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 65 * MIB, 0, 0, &none));
    CHECK(strstr(granule_last_error(), "has a source of memory of its own, which had none") != NULL);
    OK(granule_pool_set_limits(a, 0, pool, 24 * MIB, UINT64_MAX));
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 30 * MIB, 0, 0, &none));
    OK(granule_pool_end(a, 0, pool));
    OK(granule_free(a, ptr));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_empty_cache(a));
    CHECK(segments == 0 && dropped == 3);
}

static int given_back;

/* One that has its memory from the allocator whose pool it serves. */
static void *from_itself(void *user, uint64_t bytes, int32_t device, uint64_t stream) {
    void *ptr = NULL;
    (void)stream;
    return granule_malloc(user, bytes, device, 12345, &ptr) == GRANULE_OK ? ptr : NULL;
}

static void to_itself(void *user, void *ptr, uint64_t bytes, int32_t device, uint64_t stream) {
    (void)bytes, (void)device, (void)stream;
    OK(granule_free(user, ptr));
    given_back += 1;
}

static void memory_of_its_own(granule_allocator *a) {
    granule_pool_id pool = granule_pool_fresh();
    granule_segment_source source = {sizeof source, a, from_itself, to_itself, NULL};
    granule_filter one = {sizeof one, GRANULE_FILTER_STREAM, 77, NULL, NULL, NULL};
    OK(granule_pool_create(a, 0, pool, &source));
    OK(granule_pool_begin(a, 0, pool, &one));
    void *none = NULL;
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 3 * MIB, 0, 77, &none));
    CHECK(given_back > 0 && stats_of(a).allocation.all.current == 0);
    OK(granule_pool_end(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
}

static void checkpoints(granule_allocator *a) {
    granule_pool_id pool = granule_pool_fresh();
    granule_filter all = {sizeof all, GRANULE_FILTER_ALWAYS, 0, NULL, NULL, NULL};
    const uint64_t sizes[] = {3 * MIB, 3 * MIB};
    OK(granule_pool_create(a, 0, pool, NULL));
    OK(granule_pool_prime(a, 0, pool, 0, sizes, 2));
    OK(granule_pool_begin(a, 0, pool, &all));
    void *first = take(a, 3 * MIB, 0);
    granule_checkpoint *saved = NULL;
    OK(granule_pool_checkpoint(a, 0, pool, &saved));
    void *second = take(a, 3 * MIB, 0);

    granule_delta delta = {0};
    delta.size = sizeof delta;
    ANSWERS(GRANULE_CHECKPOINT, granule_pool_restore_stale(a, saved, &first, 1, &delta));
    OK(granule_pool_restore(a, saved, &delta));
    CHECK(delta.freed_count == 2 && delta.allocated_count == 1 && delta.allocated[0] == first);
    granule_delta_free(&delta);
    CHECK(delta.freed == NULL && delta.owner == NULL);
    granule_delta_free(&delta);
    granule_delta_free(NULL);
    ANSWERS(GRANULE_INVALID_POINTER, granule_free(a, second));
    granule_checkpoint_free(saved);
    granule_checkpoint_free(NULL);
    OK(granule_free(a, first));
    OK(granule_pool_end(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
}

static void captures(granule_allocator *a) {
    ANSWERS(GRANULE_CAPTURE, granule_mark_capture_end(a, 0));
    OK(granule_mark_capture_begin(a, 0));
    OK(granule_mark_capture_end(a, 0));

    uint64_t stream = 0;
    OK(granule_stream_create(a, 0, 0, &stream));
    granule_capture *capture = NULL;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_capture_begin(a, 0, stream, 7, NULL, &capture));
    OK(granule_capture_begin(a, 0, stream, GRANULE_CAPTURE_THREAD_LOCAL, NULL, &capture));
    granule_pool_id pool = {0, 0}, other = granule_pool_fresh(), held[2];
    OK(granule_capture_pool(capture, &pool));
    CHECK(pool.first > 0);
    OK(granule_pool_create(a, 0, other, NULL));
    OK(granule_capture_retain_pool(capture, other));
    void *ptr = take(a, 4096, stream);
    OK(granule_memset(a, ptr, 0x7b, 4096, 0, stream));
    ANSWERS(GRANULE_CAPTURE, granule_stream_synchronize(a, 0, stream));
    OK(granule_capture_abort(NULL));
    granule_graph *graph = NULL;
    granule_status ended = granule_capture_end(capture, &graph);
    if (ended != GRANULE_OK) {
        /* The wait above may have broken the capture, as it does on CUDA: once more without it. */
        OK(granule_free(a, ptr));
        OK(granule_capture_begin(a, 0, stream, GRANULE_CAPTURE_RELAXED, NULL, &capture));
        OK(granule_capture_retain_pool(capture, other));
        ptr = take(a, 4096, stream);
        OK(granule_memset(a, ptr, 0x7b, 4096, 0, stream));
        OK(granule_capture_end(capture, &graph));
    }
    uint64_t count = 0;
    OK(granule_graph_pools(graph, held, 2, &count));
    CHECK(count == 2 && held[1].second == other.second);
    OK(granule_graph_launch(graph, 0, stream));
    OK(granule_stream_synchronize(a, 0, stream));
    unsigned char bytes[4096] = {0};
    OK(granule_copy(a, bytes, ptr, sizeof bytes, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(bytes[0] == 0x7b && bytes[4095] == 0x7b);
    OK(granule_free(a, ptr));
    OK(granule_graph_destroy(graph));
    OK(granule_graph_destroy(NULL));
    OK(granule_pool_release(a, 0, other));

    OK(granule_capture_begin(a, 0, stream, GRANULE_CAPTURE_RELAXED, NULL, &capture));
    OK(granule_capture_abort(capture));
    OK(granule_stream_destroy(a, 0, stream));
}

int main(void) {
    granule_allocator *a = make("");
    scopes(a);
    sources(a);
    memory_of_its_own(a);
    checkpoints(a);
    captures(a);
    OK(granule_empty_cache(a));
    CHECK(stats_of(a).allocation.all.current == 0 && stats_of(a).reserved_bytes.all.current == 0);
    OK(granule_allocator_destroy(a));
    return 0;
}
