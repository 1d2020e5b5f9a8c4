/* A block in two processes, and what cannot be opened. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

/* The other process: opens the handle that it reads, looks, and writes. */
static int open_it(void) {
    unsigned char bytes[4096];
    uint64_t head[2];
    CHECK(fread(head, sizeof head, 1, stdin) == 1 && head[0] <= sizeof bytes);
    CHECK(fread(bytes, 1, head[0], stdin) == head[0]);
    granule_allocator *a = make("");
    granule_import *import = NULL;
    OK(granule_open_shared(a, 0, bytes, head[0], &import));
    CHECK(granule_import_base(import) != NULL && granule_import_bytes(import) >= 3 * MIB);
    uint64_t open = 0;
    OK(granule_imported_bytes(a, 0, &open));
    CHECK(open == granule_import_bytes(import));
    char *block = (char *)granule_import_base(import) + head[1];
    unsigned char first = 0;
    OK(granule_copy(a, &first, block, 1, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(first == 0x11);
    OK(granule_memset(a, block, 0x22, 3 * MIB, 0, 0));
    OK(granule_device_synchronize(a, 0));
    OK(granule_import_close(import));
    OK(granule_allocator_destroy(a));
    return 0;
}

/* A pool whose memory libraries register: its window stays, and a descriptor of it can be given away. */
static void windows(void) {
    granule_allocator *a = make("");
    const granule_pool_id pool = granule_pool_fresh();
    granule_registered *memory = NULL;
    OK(granule_registered_pool_create(a, 0, pool, 64 * MIB, NULL, 0, &memory));
    const granule_filter filter = {sizeof filter, GRANULE_FILTER_THIS_THREAD, 0, NULL, NULL, NULL};
    OK(granule_pool_begin(a, 0, pool, &filter));
    void *block = take(a, 30 * MIB, 0);
    OK(granule_pool_end(a, 0, pool));
    CHECK(granule_registered_held(memory) == 64 * MIB);

    granule_window *window = NULL;
    OK(granule_window_open(memory, block, &window));
    CHECK(granule_window_bytes(window) == 64 * MIB && granule_window_physical(window) != 0);
    char *base = granule_window_base(window);
    CHECK(base <= (char *)block && (char *)block + 30 * MIB <= base + granule_window_bytes(window));
    int32_t descriptor = -1;
    uint8_t fabric[64];
    OK(granule_window_share(window, &descriptor, fabric));
    CHECK(descriptor >= 0 && close(descriptor) == 0);

    /* Its pool ends, and the library goes on. */
    OK(granule_free(a, block));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_empty_cache(a));
    CHECK(granule_registered_held(memory) == 64 * MIB);
    OK(granule_window_close(window));
    OK(granule_empty_cache(a));
    CHECK(granule_registered_held(memory) == 0);

    window = NULL;
    void *elsewhere = take(a, 3 * MIB, 0);
    ANSWERS(GRANULE_INVALID_POINTER, granule_window_open(memory, elsewhere, &window));
    CHECK(window == NULL && strstr(granule_last_error(), "allocate it in such a pool") != NULL);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_window_open(NULL, elsewhere, &window));
    const int32_t nowhere = 77;
    granule_registered *none = NULL;
    ANSWERS(GRANULE_INVALID_DEVICE,
            granule_registered_pool_create(a, 0, granule_pool_fresh(), 0, &nowhere, 1, &none));
    CHECK(none == NULL);
    CHECK(granule_registered_held(NULL) == 0 && granule_window_base(NULL) == NULL && granule_window_bytes(NULL) == 0);
    CHECK(granule_window_physical(NULL) == 0);
    OK(granule_window_close(NULL));
    OK(granule_registered_close(NULL));
    OK(granule_registered_close(memory));
    OK(granule_free(a, elsewhere));
    OK(granule_allocator_destroy(a));
}

int main(int count, char **arguments) {
    if (count > 1) {
        return open_it();
    }
    granule_allocator *a = make("");
    void *before = take(a, 2 * MIB, 0), *block = take(a, 3 * MIB, 0);
    OK(granule_memset(a, block, 0x11, 3 * MIB, 0, 0));
    OK(granule_device_synchronize(a, 0));
    granule_bytes handle = {NULL, 0, NULL};
    uint64_t offset = 0;
    OK(granule_share(a, block, &handle, &offset));
    CHECK(handle.len > 64);
    UNDER_PYTORCH(offset == 2 * MIB);
    ANSWERS(GRANULE_INVALID_POINTER, granule_share(a, &offset, &handle, &offset));

    char command[4096];
    CHECK(snprintf(command, sizeof command, "'%s' child", arguments[0]) < (int)sizeof command);
    FILE *child = popen(command, "w");
    CHECK(child != NULL);
    const uint64_t head[2] = {handle.len, offset};
    CHECK(fwrite(head, sizeof head, 1, child) == 1 && fwrite(handle.data, 1, handle.len, child) == handle.len);
    CHECK(pclose(child) == 0);
    unsigned char written = 0;
    OK(granule_copy(a, &written, block, 1, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(written == 0x22);

    granule_import *import = NULL;
    ANSWERS(GRANULE_SHARE, granule_open_shared(a, 0, handle.data, handle.len, &import));
    CHECK(strstr(granule_last_error(), "this process's own") != NULL);
    ANSWERS(GRANULE_SHARE, granule_open_shared(a, 0, handle.data, handle.len - 1, &import));
    ANSWERS(GRANULE_SHARE, granule_open_shared(a, 0, NULL, 0, &import));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_open_shared(a, 0, NULL, 5, &import));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_open_shared(a, 0, handle.data, UINT64_MAX, &import));
    CHECK(import == NULL && granule_import_base(NULL) == NULL && granule_import_bytes(NULL) == 0);
    OK(granule_import_close(NULL));
    granule_bytes_free(&handle);
    OK(granule_free(a, block));
    OK(granule_free(a, before));
    OK(granule_allocator_destroy(a));
    windows();
    return 0;
}
