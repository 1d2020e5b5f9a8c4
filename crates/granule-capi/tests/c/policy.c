/* The policy: chosen by settings or the environment when an allocator is made, and kept. */
#include "check.h"

static void stays(granule_allocator *a, const char *other) {
    char text[64];
    void *ptr = take(a, 3 * MIB, 0);
    CHECK(snprintf(text, sizeof text, "policy:%s", other) < (int)sizeof text);
    ANSWERS(GRANULE_SETTINGS, granule_configure(a, text));
    CHECK(strstr(granule_last_error(), "is refused") != NULL && strstr(granule_last_error(), policy()) != NULL);
    CHECK(snprintf(text, sizeof text, "policy:%s,memory_limit:1MiB", other) < (int)sizeof text);
    ANSWERS(GRANULE_SETTINGS, granule_configure_strictly(a, text));
    /* Nothing was changed, and what does not name another policy is honoured. */
    OK(granule_free(a, take(a, 3 * MIB, 0)));
    CHECK(snprintf(text, sizeof text, "policy:%s", policy()) < (int)sizeof text);
    OK(granule_configure(a, text));
    OK(granule_configure(a, "max_split_size_mb:64"));
    OK(granule_configure(a, "segments_ipc:False"));
    ANSWERS(GRANULE_SETTINGS, granule_configure(a, "policy:fastest"));
    CHECK(strstr(granule_last_error(), "pytorch") != NULL && strstr(granule_last_error(), "granule") != NULL);
    OK(granule_free(a, ptr));
}

int main(void) {
    const char *other = is_policy("pytorch") ? "granule" : "pytorch";
    granule_allocator *a = make("");
    stays(a, other);
    OK(granule_allocator_destroy(a));

    /* Of the environment, where no text is given. */
    granule_options options = {sizeof options, "openreg", NULL, NULL, NULL};
    char text[64];
    CHECK(snprintf(text, sizeof text, "policy:%s", policy()) < (int)sizeof text);
    CHECK(setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1) == 0);
    CHECK(setenv("GRANULE_CONF", text, 1) == 0);
    OK(granule_check_settings(NULL));
    OK(granule_allocator_create(&options, &a));
    stays(a, other);
    OK(granule_allocator_destroy(a));

    /* Two policies in one program. */
    granule_allocator *first = make("");
    options.settings = is_policy("pytorch") ? "policy:granule" : "policy:pytorch";
    granule_allocator *second = NULL;
    OK(granule_allocator_create(&options, &second));
    void *ptr = take(first, 1000, 0);
    ANSWERS(GRANULE_INVALID_POINTER, granule_free(second, ptr));
    OK(granule_free(first, ptr));
    OK(granule_allocator_destroy(second));
    OK(granule_allocator_destroy(first));
    return 0;
}
