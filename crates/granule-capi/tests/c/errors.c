/* What is wrong is said with a status and a text, and breaks nothing. */
#include "check.h"

#include <stddef.h>

static void one_of_each_argument(granule_allocator *a) {
    void *ptr = NULL;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_malloc(NULL, 512, 0, 0, &ptr));
    CHECK(strcmp(granule_last_error(), "a is null") == 0);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_malloc(a, 512, 0, 0, NULL));
    CHECK(strcmp(granule_last_error(), "out is null") == 0);
    ANSWERS(GRANULE_INVALID_DEVICE, granule_malloc(a, 512, -1, 0, &ptr));
    ANSWERS(GRANULE_INVALID_DEVICE, granule_malloc(a, 512, 2, 0, &ptr));
    ANSWERS(GRANULE_INVALID_DEVICE, granule_malloc(a, 512, 1 << 20, 0, &ptr));
    CHECK(strstr(granule_last_error(), "1048576") != NULL);
    CHECK(ptr == NULL);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_configure(a, NULL));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_configure(a, "max_split_size_mb:\xff\xfe"));
    CHECK(strstr(granule_last_error(), "UTF-8") != NULL);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_allocator_create(NULL, NULL));
}

static void sizes_of_structs(granule_allocator *a) {
    granule_device_stats stats;
    memset(&stats, 0x5a, sizeof stats);
    stats.size = 0;
    ANSWERS(GRANULE_ABI, granule_stats(a, 0, &stats));
    /* A byte less than the first version had. What came later stands behind `asleep_bytes`. */
    stats.size = offsetof(granule_device_stats, asleep_bytes) + sizeof stats.asleep_bytes - 1;
    ANSWERS(GRANULE_ABI, granule_stats(a, 0, &stats));
    CHECK(stats.num_ooms == 0x5a5a5a5a5a5a5a5a);
    CHECK(strstr(granule_last_error(), "sizeof") != NULL);

    /* A caller with a newer header: what this library does not know stays as it was. */
    struct {
        granule_device_stats known;
        uint64_t unknown;
    } newer;
    memset(&newer, 0x5a, sizeof newer);
    newer.known.size = sizeof newer;
    OK(granule_stats(a, 0, &newer.known));
    CHECK(newer.known.size == sizeof newer && newer.known.num_ooms == 0);
    CHECK(newer.unknown == 0x5a5a5a5a5a5a5a5a);

    granule_options options = {sizeof options - 16, "openreg", NULL, NULL, NULL};
    granule_allocator *other = NULL;
    ANSWERS(GRANULE_ABI, granule_allocator_create(&options, &other));
    CHECK(other == NULL);
}

static void pointers(granule_allocator *a) {
    void *ptr = take(a, 3 * MIB, 0);
    OK(granule_free(a, NULL));
    ANSWERS(GRANULE_INVALID_POINTER, granule_free(a, (char *)ptr + 512));
    CHECK(strstr(granule_last_error(), "lies inside the live block") != NULL);
    ANSWERS(GRANULE_INVALID_POINTER, granule_free_on(a, ptr, 1));
    int local = 0;
    ANSWERS(GRANULE_INVALID_POINTER, granule_free(a, &local));
    ANSWERS(GRANULE_INVALID_POINTER, granule_record_stream(a, &local, 0, 0));
    OK(granule_free(a, ptr));
    ANSWERS(GRANULE_INVALID_POINTER, granule_free(a, ptr));
    CHECK(strstr(granule_last_error(), "freed") != NULL);
    uint64_t bytes = 7;
    ANSWERS(GRANULE_INVALID_POINTER, granule_block_size(a, ptr, &bytes));
    CHECK(bytes == 7);
}

static void out_of_memory(granule_allocator *a) {
    granule_error error = {0};
    error.size = sizeof error;
    void *kept = take(a, 100 * MIB, 0);
    void *ptr = kept;
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 1ull << 40, 0, 0, &ptr));
    CHECK(ptr == kept);
    CHECK(strstr(granule_last_error(), "out of memory. Tried to allocate 1024.00 GiB. Device 0 (openreg) has a total") != NULL);
    CHECK(strstr(granule_last_error(), "PyTorch") == NULL && strstr(granule_last_error(), "PYTORCH") == NULL);
    /* Where PyTorch is, its own words. */
    CHECK(strstr(granule_last_error_for_pytorch(), "GPU 0 has a total") != NULL);
    OK(granule_last_error_details(&error));
    CHECK(error.status == GRANULE_OUT_OF_MEMORY && error.device == 0 && error.driver_code == 0);
    CHECK(error.requested == 1ull << 40 && error.tried == 1ull << 40);
    CHECK(error.device_total == 4ull << 30 && error.device_free == (4ull << 30) - error.reserved);
    CHECK(error.allowed == UINT64_MAX && error.allocated == 100 * MIB && error.reserved >= 100 * MIB);
    granule_bytes json = {NULL, 0, NULL};
    OK(granule_last_error_json(&json));
    CHECK(strstr((const char *)json.data, "\"status\":1,") && strstr((const char *)json.data, "\"remedies\":["));
    CHECK(strlen((const char *)json.data) == json.len);
    granule_bytes_free(&json);
    CHECK(json.data == NULL && json.len == 0);
    granule_bytes_free(&json);
    granule_bytes_free(NULL);

    /* A success keeps the last error. */
    OK(granule_free(a, kept));
    CHECK(strstr(granule_last_error(), "out of memory") != NULL);
    granule_device_stats stats = stats_of(a);
    CHECK(stats.num_ooms == 1);
    UNDER_PYTORCH(stats.num_alloc_retries == 1);

    OK(granule_set_memory_fraction(a, 0, 0.25));
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 2ull << 30, 0, 0, &ptr));
    OK(granule_last_error_details(&error));
    CHECK(error.allowed == 1ull << 30);
    OK(granule_set_memory_fraction(a, 0, 1));
    OK(granule_configure(a, "per_process_memory_fraction:0.25,throw_on_cudamalloc_oom:True"));
    ANSWERS(GRANULE_REJECTED, granule_malloc(a, 2ull << 30, 0, 0, &ptr));
    OK(granule_last_error_details(&error));
    CHECK(error.requested == 2ull << 30);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_set_memory_fraction(a, 0, 1.5));
}

static void backends(void) {
    granule_options options = {sizeof options, "cude", NULL, NULL, NULL};
    granule_allocator *a = NULL;
    ANSWERS(GRANULE_NO_BACKEND, granule_allocator_create(&options, &a));
    CHECK(strstr(granule_last_error(), "cuda, hip, hip-as-cuda, openreg") != NULL);
    options.backend = "openreg";
    options.settings = "max_split_size_mb:nonsense";
    ANSWERS(GRANULE_SETTINGS, granule_allocator_create(&options, &a));
    CHECK(a == NULL);
    granule_bytes json = {NULL, 0, NULL};
    OK(granule_backends_json(&json));
    CHECK(strstr((const char *)json.data, "\"name\":\"openreg\"") != NULL);
    granule_bytes_free(&json);
}

int main(void) {
    CHECK(granule_abi_version() == GRANULE_ABI_VERSION);
    CHECK(strcmp(granule_version(), "0.1.0") == 0);
    CHECK(strcmp(granule_last_error(), "") == 0);
    granule_error none = {0};
    none.size = sizeof none;
    OK(granule_last_error_details(&none));
    CHECK(none.status == GRANULE_OK && none.device == -1 && none.allowed == UINT64_MAX);
    OK(granule_allocator_destroy(NULL));
    CHECK(granule_backend_name(NULL) == NULL);

    granule_allocator *a = make("");
    one_of_each_argument(a);
    sizes_of_structs(a);
    pointers(a);
    out_of_memory(a);
    OK(granule_allocator_destroy(a));
    backends();
    return 0;
}
