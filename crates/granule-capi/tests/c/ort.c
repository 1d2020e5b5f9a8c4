/* An OrtAllocator, called as ONNX Runtime calls it. The layout here is written from its description. */
#include "check.h"

typedef struct ort {
    uint32_t version;
    void *(*alloc)(struct ort *, size_t);
    void (*free)(struct ort *, void *);
    const void *(*info)(const struct ort *);
    void *(*reserve)(struct ort *, size_t);
    void *(*stats)(const struct ort *, void **);
    void *(*alloc_on_stream)(struct ort *, size_t, const void *);
    void *(*shrink)(struct ort *);
} ort;

/* A stream as the runtime has it: not the driver's handle. */
typedef struct {
    int other;
    uint64_t handle;
} sync_stream;

static void *handle_of(const void *stream) {
    return (void *)(uintptr_t)((const sync_stream *)stream)->handle;
}

static volatile int go;

static void wait_for_go(void *user) {
    (void)user;
    while (!go) {
    }
}

int main(void) {
    granule_allocator *a = make("");
    uint64_t own = 0, other = 0;
    OK(granule_stream_create(a, 0, 0, &own));
    OK(granule_stream_create(a, 0, 0, &other));
    int memory_info = 7;
    granule_ort_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.version = 23;
    options.stream = own;
    void *made = NULL;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_ort_allocator_create(a, &options, &made));
    CHECK(strstr(granule_last_error(), "memory_info is null") != NULL);
    options.memory_info = &memory_info;
    options.version = 17;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_ort_allocator_create(a, &options, &made));
    CHECK(strstr(granule_last_error(), "before 1.18") != NULL);
    options.version = 25;
    OK(granule_ort_allocator_create(a, &options, &made));
    ort *plain = made;
    CHECK(plain->version == 25 && plain->stats == NULL && plain->shrink == NULL);
    CHECK(plain->alloc_on_stream == NULL);
    CHECK(plain->info(plain) == &memory_info);
    options.stream_handle = handle_of;
    OK(granule_ort_allocator_create(a, &options, &made));
    ort *aware = made;
    CHECK(aware->alloc_on_stream != NULL);

    void *first = plain->alloc(plain, 1000), *second = plain->reserve(plain, 4 << 20);
    CHECK(first != NULL && second != NULL && stats_of(a).allocated_bytes.all.current == 1024 + (4 << 20));
    plain->free(plain, first);
    plain->free(plain, second);
    plain->free(plain, NULL);
    CHECK(plain->alloc(plain, 0) == NULL);
    CHECK(plain->alloc(plain, (size_t)16 << 30) == NULL);
    plain->free(plain, &memory_info);
    CHECK(stats_of(a).allocated_bytes.all.current == 0);

    /* Memory of one stream is no other's before its work is done. */
    sync_stream stream = {1, other};
    void *ptr = aware->alloc_on_stream(aware, 4 << 20, &stream);
    go = 0;
    OK(granule_stream_launch_host(a, 0, other, wait_for_go, NULL));
    aware->free(aware, ptr);
    CHECK(aware->alloc_on_stream(aware, 4 << 20, &stream) == ptr);
    void *elsewhere = aware->alloc(aware, 4 << 20);
    CHECK(elsewhere != ptr);
    void *unnamed = aware->alloc_on_stream(aware, 100, NULL);
    CHECK(unnamed != NULL);
    go = 1;
    aware->free(aware, ptr);
    aware->free(aware, elsewhere);
    aware->free(aware, unnamed);
    OK(granule_ort_allocator_destroy(plain));
    OK(granule_ort_allocator_destroy(aware));
    OK(granule_ort_allocator_destroy(NULL));
    OK(granule_stream_synchronize(a, 0, other));
    CHECK(stats_of(a).allocated_bytes.all.current == 0);
    OK(granule_allocator_destroy(a));
    return 0;
}
