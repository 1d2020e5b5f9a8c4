/* Sleep and wake, with and without contents. */
#include "check.h"

static void fill(granule_allocator *a, void *ptr, int value, uint64_t bytes) {
    OK(granule_memset(a, ptr, value, bytes, 0, 0));
    OK(granule_device_synchronize(a, 0));
}

static bool holds(granule_allocator *a, void *ptr, unsigned char value, size_t bytes) {
    unsigned char *copy = malloc(bytes);
    OK(granule_copy(a, copy, ptr, bytes, GRANULE_COPY_DEVICE_TO_HOST));
    bool same = copy[0] == value && memcmp(copy, copy + 1, bytes - 1) == 0;
    free(copy);
    return same;
}

int main(void) {
    granule_allocator *a = make("");
    granule_pool_id pool = granule_pool_fresh();
    granule_filter all = {sizeof all, GRANULE_FILTER_ALWAYS, 0, NULL, NULL, NULL};
    OK(granule_pool_create(a, 0, pool, NULL));
    OK(granule_set_sleep_tag(a, 0, pool, "weights", 1));
    OK(granule_pool_begin(a, 0, pool, &all));
    void *ptr = take(a, 30 * MIB, 0);
    OK(granule_pool_end(a, 0, pool));
    void *awake = take(a, 512, 0);
    fill(a, ptr, 0x42, 30 * MIB);

    const char *tags[] = {"weights"}, *unknown[] = {"wieghts"};
    granule_sleep_report slept = {0};
    slept.size = sizeof slept;
    granule_wake_report woken = {0};
    woken.size = sizeof woken;
    ANSWERS(GRANULE_SLEEP, granule_sleep(a, unknown, 1, GRANULE_BACKUP_DISCARD, NULL, &slept));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_sleep(a, tags, 1, 9, NULL, &slept));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_sleep(a, tags, 1, GRANULE_BACKUP_FILE, NULL, &slept));

    const struct {
        int32_t backup;
        const char *directory;
    } ways[] = {{GRANULE_BACKUP_PINNED, NULL}, {GRANULE_BACKUP_PINNED_KEEP, NULL}, {GRANULE_BACKUP_FILE, "."}};
    for (size_t n = 0; n < 3; n++) {
        OK(granule_sleep(a, tags, 1, ways[n].backup, ways[n].directory, &slept));
        uint64_t whole = slept.slept;
        CHECK(whole >= 30 * MIB && slept.backed_up == whole && slept.kept == 0 && slept.took_ns > 0);
        UNDER_PYTORCH(whole == 40 * MIB);
        bool asleep = false;
        OK(granule_is_asleep(a, ptr, &asleep));
        CHECK(asleep);
        int32_t device = 7;
        OK(granule_block_device(a, ptr, &device));
        CHECK(device == 0);
        ANSWERS(GRANULE_INVALID_POINTER, granule_free_on(a, ptr, 1));
        OK(granule_is_asleep(a, awake, &asleep));
        CHECK(!asleep);
        ANSWERS(GRANULE_INVALID_POINTER, granule_is_asleep(a, &asleep, &asleep));
        OK(granule_is_pool_asleep(a, 0, pool, &asleep));
        CHECK(asleep && (uint64_t)stats_of(a).asleep_bytes == whole);
        uint64_t held = 0;
        OK(granule_backup_bytes(a, &held));
        CHECK(held >= whole);
        ANSWERS(GRANULE_ASLEEP, granule_record_stream(a, ptr, 0, 77));
        OK(granule_wake(a, tags, 1, &woken));
        CHECK(woken.woken == whole && woken.restored == whole && woken.took_ns > 0);
        CHECK(holds(a, ptr, 0x42, 30 * MIB));
    }
    OK(granule_drop_backups(a));
    uint64_t held = 1;
    OK(granule_backup_bytes(a, &held));
    CHECK(held == 0);

    OK(granule_sleep(a, NULL, 0, GRANULE_BACKUP_DISCARD, NULL, NULL));
    granule_bytes json = {NULL, 0, NULL};
    OK(granule_sleep_report_json(&json));
    CHECK(strcmp((const char *)json.data, "{\"kept\":[]}") == 0);
    granule_bytes_free(&json);
    OK(granule_free(a, ptr));
    OK(granule_wake(a, NULL, 0, &woken));
    CHECK(woken.woken == 0);
    OK(granule_set_sleep_tag(a, 0, pool, NULL, 0));
    OK(granule_free(a, awake));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_allocator_destroy(a));
    return 0;
}
