/* Memory between live blocks goes back, and each has its contents at its address. */
#include "check.h"

#define BLOCKS 32
#define BLOCK (3 * MIB)

static bool holds(granule_allocator *a, void *ptr, unsigned char value, size_t bytes) {
    unsigned char *copy = malloc(bytes);
    OK(granule_copy(a, copy, ptr, bytes, GRANULE_COPY_DEVICE_TO_HOST));
    bool same = copy[0] == value && memcmp(copy, copy + 1, bytes - 1) == 0;
    free(copy);
    return same;
}

static bool stops(void *user, int32_t device, bool stop) {
    CHECK(device == 0);
    *(int *)user += stop ? 1 : 100;
    return true;
}

int main(void) {
    granule_allocator *a = make("");
    int asked = 0;
    OK(granule_add_quiesce_hook(a, stops, &asked));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_add_quiesce_hook(a, NULL, &asked));
    void *large = take(a, 128 * MIB, 0), *blocks[BLOCKS];
    for (int n = 0; n < BLOCKS; n++) {
        blocks[n] = take(a, BLOCK, 0);
        OK(granule_memset(a, blocks[n], n + 1, BLOCK, 0, 0));
    }
    OK(granule_device_synchronize(a, 0));
    for (int n = 0; n < BLOCKS; n++) {
        if (n % 4 != 0) {
            OK(granule_free(a, blocks[n]));
        }
    }
    OK(granule_pin_physical(a, blocks[0]));
    ANSWERS(GRANULE_INVALID_POINTER, granule_pin_physical(a, &asked));
    granule_compaction_report report = {0};
    report.size = sizeof report;
    granule_status compacted = granule_compact(a, 0, &report);
    if (compacted == GRANULE_OK) {
        CHECK(report.gained > 0 && report.moved > 0 && report.pause_ns > 0);
        granule_device_stats stats = stats_of(a);
        CHECK(stats.compactions == 1 && (uint64_t)stats.compaction_bytes_gained == report.gained);
        CHECK((uint64_t)stats.compaction_bytes_moved == report.moved);
        CHECK((uint64_t)stats.compaction_pause_ns == report.pause_ns);
        OK(granule_compact(a, 0, NULL));
    } else {
        CHECK(!is_policy("granule") && report.gained == 0);
    }
    ANSWERS(GRANULE_INVALID_DEVICE, granule_compact(a, 99, &report));
    CHECK(asked == 0);
    for (int n = 0; n < BLOCKS; n += 4) {
        CHECK(holds(a, blocks[n], (unsigned char)(n + 1), BLOCK));
        OK(granule_free(a, blocks[n]));
    }
    OK(granule_free(a, large));
    OK(granule_allocator_destroy(a));
    return 0;
}
