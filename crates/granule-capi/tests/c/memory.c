/* Memory: taken, reused, used by other streams, given back; settings; statistics. */
#include "check.h"

static int callbacks;

static bool make_room(void *user) {
    callbacks += 1;
    return *(bool *)user;
}

/* Whether a block of so many bytes is over max_split_size. */
static bool is_oversize(granule_allocator *a, uint64_t bytes) {
    void *ptr = take(a, bytes, 0);
    bool is = stats_of(a).oversize_allocations.current == 1;
    OK(granule_free(a, ptr));
    return is;
}

int main(void) {
    granule_allocator *a = make("expandable_segments:False");
    CHECK(strcmp(granule_backend_name(a), "openreg") == 0);
    int32_t devices = 0;
    OK(granule_device_count(a, &devices));
    CHECK(devices == 2);

    void *nothing = &devices;
    OK(granule_malloc(a, 0, 0, 0, &nothing));
    CHECK(nothing == NULL);
    void *small = take(a, 1000, 0), *large = take(a, 30 * MIB, 0);
    uint64_t bytes = 0;
    OK(granule_block_size(a, small, &bytes));
    CHECK(bytes == 1024);
    int32_t device = 7;
    OK(granule_block_device(a, small, &device));
    CHECK(device == 0);
    ANSWERS(GRANULE_INVALID_POINTER, granule_block_device(a, (char *)small + 512, &device));
    void *base = NULL;
    if (is_policy("pytorch")) {
        OK(granule_base_allocation(a, small, &base, &bytes));
        CHECK(base == small && bytes == 2 * MIB);
    } else {
        ANSWERS(GRANULE_UNSUPPORTED, granule_base_allocation(a, small, &base, &bytes));
    }
    granule_device_stats stats = stats_of(a);
    CHECK(stats.allocation.small_pool.current == 1 && stats.allocation.large_pool.current == 1);
    CHECK(stats.requested_bytes.all.current == 1000 + 30 * MIB && stats.reserved_bytes.all.current >= 31 * MIB);
    UNDER_PYTORCH(stats.reserved_bytes.all.current == 32 * MIB && stats.num_device_alloc == 2);
    CHECK(stats.max_split_size == -1);

    granule_scope *scope = NULL;
    OK(granule_scope_begin(a, 0, &scope));
    OK(granule_free(a, large));
    CHECK(take(a, 30 * MIB, 0) == large);
    granule_scope_stats seen = {0};
    seen.size = sizeof seen;
    OK(granule_scope_peaks(scope, &seen));
    CHECK(seen.num_allocations == 1 && seen.num_frees == 1 && seen.num_device_alloc == 0);
    CHECK(seen.allocated_bytes.begin == seen.allocated_bytes.end && seen.allocated_bytes.peak == 1024 + 30 * MIB);
    OK(granule_scope_end(scope, NULL));
    OK(granule_scope_end(NULL, NULL));

    /* Another stream uses the block: it is pending after its free. */
    uint64_t stream = 0;
    OK(granule_stream_create(a, 0, 0, &stream));
    OK(granule_memset(a, large, 1, 30 * MIB, 0, stream));
    OK(granule_record_stream(a, large, 0, stream));
    OK(granule_free(a, large));
    OK(granule_synchronize(a, 0));
    CHECK(stats_of(a).pending_bytes == 0);
    OK(granule_poll(a, 0));
    OK(granule_stream_destroy(a, 0, stream));

    granule_cache_info_t info = {0};
    info.size = sizeof info;
    OK(granule_cache_info(a, 0, &info));
    CHECK(info.largest_cached >= 30 * MIB && info.largest == info.device_free);
    OK(granule_largest_free_block(a, 0, &bytes));

    granule_bytes who = {0};
    OK(granule_ledger_json(a, 0, &who));
    CHECK(who.len > 0 && memcmp(who.data, "{\"device\":0,\"total\":", 20) == 0);
    granule_bytes_free(&who);
    CHECK(bytes == info.largest_cached);
    UNDER_PYTORCH(bytes == 30 * MIB);
    OK(granule_reset_peak_stats(a, 0));
    OK(granule_reset_accumulated_stats(a, 0));
    CHECK(stats_of(a).allocated_bytes.all.peak == 1024 && stats_of(a).num_device_alloc == 0);

    /* Exactly there. */
    void *at = NULL;
    OK(granule_malloc_at(a, 4 * MIB, (char *)large + 8 * MIB, 0, 0, &at));
    CHECK(at == (char *)large + 8 * MIB);
    ANSWERS(GRANULE_EXACT_ADDRESS, granule_malloc_at(a, 4 * MIB, at, 0, 0, &base));
    OK(granule_free_on(a, at, 0));

    bool on = false;
    OK(granule_is_enabled(a, &on));
    CHECK(on);
    OK(granule_enable(a, false));
    void *direct = take(a, 512, 0);
    OK(granule_is_enabled(a, &on));
    CHECK(!on);
    OK(granule_free(a, direct));
    OK(granule_enable(a, true));

    double fraction = 0;
    OK(granule_set_memory_fraction(a, 0, 0.5));
    OK(granule_memory_fraction(a, 0, &fraction));
    CHECK(fraction == 0.5);
    bool helped = false;
    OK(granule_add_free_memory_callback(a, make_room, &helped));
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 3ull << 30, 0, 0, &at));
    CHECK(callbacks > 0);
    OK(granule_set_memory_fraction(a, 0, 1));
    OK(granule_set_memory_limits(a, 0, 64 * MIB, UINT64_MAX));
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 128 * MIB, 0, 0, &at));
    /* Settings that say nothing new about limits leave them alone, also as the text of those in force. */
    granule_bytes in_force = {NULL, 0, NULL};
    OK(granule_configure_strictly(a, "segments_ipc:False"));
    OK(granule_configure_strictly(a, "segments_ipc:True"));
    OK(granule_settings_in_force(a, &in_force));
    OK(granule_configure_strictly(a, (const char *)in_force.data));
    granule_bytes_free(&in_force);
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 128 * MIB, 0, 0, &at));
    OK(granule_set_memory_limits(a, 0, UINT64_MAX, UINT64_MAX));

    /* PyTorch's reset rules; Granule's own options leave the rest alone. */
    OK(granule_configure(a, "max_split_size_mb:64"));
    UNDER_PYTORCH(is_oversize(a, 100 * MIB));
    OK(granule_configure(a, "segments_ipc:False"));
    UNDER_PYTORCH(is_oversize(a, 100 * MIB));
    OK(granule_configure(a, "expandable_segments:True"));
    CHECK(!is_oversize(a, 100 * MIB));
    granule_bytes text = {NULL, 0, NULL};
    OK(granule_settings(a, &text));
    CHECK(strcmp((const char *)text.data, "expandable_segments:True") == 0);
    granule_bytes_free(&text);
    OK(granule_configure_strictly(a, "max_split_size_mb:64"));
    OK(granule_settings_in_force(a, &text));
    CHECK(strncmp((const char *)text.data, "max_split_size_mb:64,expandable_segments:True", 45) == 0);
    CHECK(strstr((const char *)text.data, ",segments_ipc:False") != NULL);
    CHECK(strstr((const char *)text.data, policy()) != NULL);
    OK(granule_configure_strictly(a, (const char *)text.data));
    granule_bytes_free(&text);
    ANSWERS(GRANULE_SETTINGS, granule_configure_strictly(a, "no_such_option:1"));
    CHECK(strstr(granule_last_error(), "max_split_size_mb, ") && strstr(granule_last_error(), "cross_stream, "));
    ANSWERS(GRANULE_SETTINGS, granule_configure(a, "cross_strem:never"));
    CHECK(strstr(granule_last_error(), "did you mean 'cross_stream'?") != NULL);
    ANSWERS(GRANULE_SETTINGS, granule_configure(a, "backend:cudaMallocAsync"));
    OK(granule_check_settings(NULL));
    OK(granule_check_settings("segments_ipc:False"));
    ANSWERS(GRANULE_SETTINGS, granule_check_settings("expandable_segments:Maybe"));
    OK(granule_check_settings("backend:cudaMallocAsync"));

    /* Growable segments. */
    OK(granule_empty_cache(a));
    void *growing = take(a, 30 * MIB, 0);
    OK(granule_set_reserve_class(a, 0, 0, "training"));
    granule_stream_segments sizes[2];
    uint64_t count = 0;
    OK(granule_growable_sizes(a, 0, sizes, 2, &count));
    UNDER_PYTORCH(count == 1 && sizes[0].total_size == 40 * MIB);
    bool grows = false;
    for (uint64_t n = 0; n < count && n < 2; n++) {
        CHECK(sizes[n].stream == 0);
        grows |= !sizes[n].is_small_pool && sizes[n].total_size >= 30 * MIB;
    }
    CHECK(grows);
    uint64_t again = 0;
    OK(granule_growable_sizes(a, 0, NULL, 0, &again));
    CHECK(again == count);
    ANSWERS(GRANULE_UNSUPPORTED, granule_base_allocation(a, growing, &base, &bytes));
    OK(granule_free(a, growing));

    OK(granule_free(a, small));
    OK(granule_empty_cache(a));
    OK(granule_empty_pool(a, (granule_pool_id){0, 0}));
    CHECK(stats_of(a).reserved_bytes.all.current == 0);
    granule_bytes figures = {NULL, 0, NULL};
    OK(granule_stats_json(a, 0, &figures));
    CHECK(strstr((const char *)figures.data, "\"reserved_bytes.all.current\":0,") != NULL);
    granule_bytes_free(&figures);
    OK(granule_memory_summary(a, 0, true, &figures));
    CHECK(strstr((const char *)figures.data, "device ID 0") != NULL);
    granule_bytes_free(&figures);
    if (granule_prometheus(a, &figures) == GRANULE_OK) {
        CHECK(strstr((const char *)figures.data, "granule_reserved_bytes") != NULL);
    } else {
        CHECK(strstr(granule_last_error(), "this build has no metrics") != NULL);
    }
    granule_bytes_free(&figures);

    OK(granule_abandon(a));
    ANSWERS(GRANULE_DRIVER_GONE, granule_malloc(a, 512, 0, 0, &at));
    ANSWERS(GRANULE_DRIVER_GONE, granule_device_synchronize(a, 0));
    OK(granule_allocator_destroy(a));
    return 0;
}
