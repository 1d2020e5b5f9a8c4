/* Pinned host memory. */
#include "check.h"

static granule_host_stats_t figures(granule_host_allocator *h) {
    granule_host_stats_t stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    OK(granule_host_stats(h, &stats));
    return stats;
}

int main(void) {
    granule_allocator *a = make("");
    granule_host_allocator *h = NULL;
    OK(granule_host_create(a, &h));
    void *ptr = &h;
    uint64_t id = 9;
    OK(granule_host_malloc(h, 0, &ptr, &id));
    CHECK(ptr == NULL && id == 0);
    OK(granule_host_free(h, 0));
    OK(granule_host_malloc(h, 5000, &ptr, &id));
    CHECK(id != 0);
    memset(ptr, 0x31, 5000);
    granule_host_stats_t stats = figures(h);
    CHECK(stats.active_requests.current == 1 && stats.active_bytes.current == 8192 && stats.num_host_alloc == 1);
    CHECK(stats.host_alloc_time.count == 1 && stats.requested_bytes == 5000);
    granule_host_bucket buckets[64];
    uint64_t count = 0;
    OK(granule_host_buckets(h, buckets, 64, &count));
    CHECK(count == 64 && buckets[13].active_requests.current == 1);

    /* A stream uses it: it is reused only when that is done. */
    uint64_t stream = 0;
    OK(granule_stream_create(a, 0, 0, &stream));
    void *device = take(a, 5000, stream);
    bool known = false;
    OK(granule_host_copy_async(h, device, ptr, 5000, GRANULE_COPY_HOST_TO_DEVICE, 0, stream));
    OK(granule_host_record_event(h, ptr, 0, 0, stream, &known));
    CHECK(known);
    OK(granule_host_record_event(h, &known, 0, 0, stream, &known));
    CHECK(!known);
    OK(granule_host_record_event(h, ptr, id, 0, stream, NULL));
    OK(granule_host_free(h, id));
    ANSWERS(GRANULE_INVALID_POINTER, granule_host_free(h, id));
    OK(granule_host_synchronize(h));
    OK(granule_host_poll(h));
    void *again = NULL;
    uint64_t other = 0;
    OK(granule_host_malloc_for(h, 8000, 0, stream, &again, &other));
    CHECK(again == ptr && other != id);
    unsigned char byte = 0;
    OK(granule_copy(a, &byte, device, 1, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(byte == 0x31);
    granule_pointer_info_t info = {0};
    info.size = sizeof info;
    OK(granule_pointer_info(a, again, &info));
    CHECK(info.kind == GRANULE_POINTER_PINNED_HOST && info.device == -1 && info.base == again);
    OK(granule_host_retire_stream(h, 0, stream));
    OK(granule_free(a, device));
    OK(granule_stream_destroy(a, 0, stream));

    /* Pools, history, memory of the program's own. */
    granule_pool_id pool = granule_pool_fresh();
    granule_filter all = {sizeof all, GRANULE_FILTER_ALWAYS, 0, NULL, NULL, NULL};
    OK(granule_host_pool_begin(h, 0, pool, &all));
    ANSWERS(GRANULE_POOL, granule_host_pool_begin(h, 0, pool, &all));
    OK(granule_host_pool_end(h, pool));
    OK(granule_host_pool_release(h, pool));
    granule_history history = {0};
    history.size = sizeof history;
    history.enabled = true;
    history.max_entries = 100;
    OK(granule_host_record_history(h, &history));
    OK(granule_host_is_history_enabled(h, &known));
    CHECK(known);
    void *own = aligned_alloc(4096, 8192);
    OK(granule_host_register(h, own, 8192));
    OK(granule_host_unregister(h, own));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_host_register(h, NULL, 8192));
    free(own);
    granule_snapshot *snapshot = NULL;
    OK(granule_host_snapshot_take(h, true, &snapshot));
    const granule_segment_info *segments = NULL;
    OK(granule_snapshot_segments(snapshot, &segments, &count));
    CHECK(count == 1 && segments[0].device == -1 && segments[0].addr == (uintptr_t)again);
    const granule_trace_entry *entries = NULL;
    OK(granule_snapshot_trace(snapshot, 0, &entries, &count));
    CHECK(count > 0 && entries[0].device == -1);
    granule_snapshot_free(snapshot);

    OK(granule_host_reset_peak_stats(h));
    OK(granule_host_reset_accumulated_stats(h));
    OK(granule_host_configure(h, a, "pinned_max_cached_size_mb:1"));
    OK(granule_host_free(h, other));
    OK(granule_host_empty_cache(h));
    CHECK(figures(h).allocated_bytes.current == 0 && figures(h).num_host_free == 1);
    OK(granule_host_destroy(h));
    OK(granule_host_destroy(NULL));

    granule_host_options options = {sizeof options, GRANULE_SIZING_GRANULE, GRANULE_NUMA_NEAR_DEVICE, 1, true};
    OK(granule_host_create_with(a, &options, &h));
    OK(granule_host_malloc(h, 5000, &ptr, &id));
    CHECK(figures(h).active_bytes.current == 8192);
    OK(granule_host_free(h, id));
    OK(granule_host_destroy(h));
    /* All zero is what granule_host_create makes: sizes are the policy's. */
    granule_host_options usual = {0};
    usual.size = sizeof usual;
    OK(granule_host_create_with(a, &usual, &h));
    OK(granule_host_malloc(h, 9000, &ptr, &id));
    CHECK(figures(h).active_bytes.current == (is_policy("pytorch") ? 16384 : 12288));
    options.near = 2;
    ANSWERS(GRANULE_INVALID_DEVICE, granule_host_create_with(a, &options, &h));
    options.sizing = 5;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_host_create_with(a, &options, &h));

    /* It outlives the allocator that it was made from. */
    OK(granule_allocator_destroy(a));
    OK(granule_host_free(h, id));
    OK(granule_host_abandon(h));
    OK(granule_host_destroy(h));
    return 0;
}
