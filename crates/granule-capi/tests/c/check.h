/* What the test programs share: checks that say where, and an allocator over the simulated device. */
#ifndef CHECK_H
#define CHECK_H

#include "granule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024u * 1024u)

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition,          \
                    granule_last_error());                                                                   \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* A call answers a status. */
#define ANSWERS(wanted, call)                                                                                \
    do {                                                                                                     \
        granule_status answered = (call);                                                                    \
        if (answered != (wanted)) {                                                                          \
            fprintf(stderr, "%s:%d: %s answered %d instead of %s: %s\n", __FILE__, __LINE__, #call,          \
                    (int)answered, #wanted, granule_last_error());                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define OK(call) ANSWERS(GRANULE_OK, call)

/* The policy that the program runs under, which the one who runs it names. */
static inline const char *policy(void) {
    const char *named = getenv("CHECK_POLICY");
    CHECK(named != NULL);
    return named;
}

static inline bool is_policy(const char *name) {
    return strcmp(policy(), name) == 0;
}

/* What is so under PyTorch's policy, which is exact to the byte. */
#define UNDER_PYTORCH(condition) CHECK(!is_policy("pytorch") || (condition))

static inline granule_allocator *make(const char *settings) {
    char text[200];
    CHECK(snprintf(text, sizeof text, "%s%spolicy:%s", settings, *settings ? "," : "", policy()) < (int)sizeof text);
    granule_options options = {sizeof options, "openreg", text, NULL, NULL};
    granule_allocator *a = NULL;
    OK(granule_allocator_create(&options, &a));
    CHECK(a != NULL);
    return a;
}

static inline void *take(granule_allocator *a, uint64_t bytes, uint64_t stream) {
    void *ptr = NULL;
    OK(granule_malloc(a, bytes, 0, stream, &ptr));
    CHECK(ptr != NULL);
    return ptr;
}

static inline granule_device_stats stats_of(granule_allocator *a) {
    granule_device_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    OK(granule_stats(a, 0, &stats));
    CHECK(stats.size == sizeof stats);
    return stats;
}

#endif
