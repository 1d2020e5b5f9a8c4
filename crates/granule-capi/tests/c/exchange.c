/* Memory in the shape of other libraries: buffers and DLPack's tensors of them, an OrtAllocator. The layouts here are written from
 * descriptions. */
#include "check.h"

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

typedef struct managed {
    tensor tensor;
    void *manager;
    void (*deleter)(struct managed *);
} managed;

typedef struct versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct versioned *);
    uint64_t flags;
    tensor tensor;
} versioned;

static volatile int go;

static void wait_for_go(void *user) {
    (void)user;
    while (!go) {
    }
}

static int64_t live(granule_allocator *a) {
    return stats_of(a).allocated_bytes.all.current;
}

static granule_tensor floats(const int64_t *shape, uint32_t dimensions) {
    granule_tensor how;
    memset(&how, 0, sizeof how);
    how.size = sizeof how;
    how.shape = shape;
    how.dimensions = dimensions;
    how.code = 2;
    how.bits = 32;
    return how;
}

/* What is in a tensor, and who keeps the memory. */
static void layouts(granule_allocator *a) {
    const int64_t shape[] = {2, 3, 5};
    granule_tensor how = floats(shape, 3);
    granule_buffer *b = NULL;
    OK(granule_buffer_create(a, 120, 1, 0, &b));
    void *plain = NULL, *newer = NULL;
    OK(granule_buffer_to_dlpack(b, &how, &plain));
    how.versioned = true;
    OK(granule_buffer_to_dlpack(b, &how, &newer));
    const managed *first = plain;
    const versioned *second = newer;
    CHECK(second->major == 1 && second->minor == 1 && second->flags == 0);
    const tensor *both[] = {&first->tensor, &second->tensor};
    for (int i = 0; i < 2; ++i) {
        const tensor *t = both[i];
        CHECK(t->data == granule_buffer_ptr(b) && t->byte_offset == 0);
        CHECK(t->device_type == 12 && t->device_id == 1);
        CHECK(t->ndim == 3 && t->code == 2 && t->bits == 32 && t->lanes == 1);
        CHECK(t->shape[0] == 2 && t->shape[1] == 3 && t->shape[2] == 5);
        CHECK(t->strides[0] == 15 && t->strides[1] == 5 && t->strides[2] == 1);
    }
    granule_device_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    OK(granule_buffer_destroy(b));
    OK(granule_stats(a, 1, &stats));
    CHECK(stats.allocated_bytes.all.current == 512);
    ((managed *)plain)->deleter(plain);
    OK(granule_stats(a, 1, &stats));
    CHECK(stats.allocated_bytes.all.current == 512);
    ((versioned *)newer)->deleter(newer);
    OK(granule_stats(a, 1, &stats));
    CHECK(stats.allocated_bytes.all.current == 0);
}

/* A consumer's stream waits for the buffer's, and the memory waits for the consumer. */
static void streams(granule_allocator *a) {
    uint64_t own = 0, other = 0;
    OK(granule_stream_create(a, 0, 0, &own));
    OK(granule_stream_create(a, 0, 0, &other));
    const int64_t shape[] = {1 << 20};
    granule_tensor how = floats(shape, 1);
    how.has_consumer = true;
    how.consumer = other;
    granule_buffer *b = NULL;
    OK(granule_buffer_create(a, 4 << 20, 0, own, &b));
    void *ptr = granule_buffer_ptr(b), *made = NULL;
    go = 0;
    OK(granule_stream_launch_host(a, 0, own, wait_for_go, NULL));
    OK(granule_buffer_to_dlpack(b, &how, &made));
    CHECK(granule_stream_query(a, 0, other) == GRANULE_NOT_READY);
    OK(granule_buffer_destroy(b));
    ((managed *)made)->deleter(made);
    void *next = take(a, 4 << 20, own);
    CHECK(next != ptr);
    go = 1;
    OK(granule_stream_synchronize(a, 0, other));
    CHECK(take(a, 4 << 20, own) == ptr);
    OK(granule_free(a, ptr));
    OK(granule_free(a, next));
    CHECK(live(a) == 0);
}

static void refusals(granule_allocator *a) {
    granule_buffer *b = NULL;
    OK(granule_buffer_create(a, 100, 0, 0, &b));
    CHECK(granule_free(a, granule_buffer_ptr(b)) != GRANULE_OK);
    OK(granule_buffer_record_stream(b, 0, 0));
    void *out = NULL;
    const int64_t fits[] = {25}, large[] = {26}, negative[] = {-1}, endless[] = {INT64_MAX, INT64_MAX};
    granule_tensor how = floats(large, 1);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_buffer_to_dlpack(b, &how, &out));
    CHECK(strstr(granule_last_error(), "the buffer has 100 bytes") != NULL);
    how.shape = negative;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_buffer_to_dlpack(b, &how, &out));
    how = floats(endless, 2);
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_buffer_to_dlpack(b, &how, &out));
    how = floats(fits, 1);
    how.bits = 4;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_buffer_to_dlpack(b, &how, &out));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_buffer_to_dlpack(NULL, &how, &out));
    CHECK(out == NULL);
    how = floats(NULL, 0);
    OK(granule_buffer_to_dlpack(b, &how, &out));
    CHECK(((managed *)out)->tensor.ndim == 0);
    ((managed *)out)->deleter(out);
    OK(granule_buffer_destroy(b));
    OK(granule_buffer_destroy(NULL));
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_buffer_create(a, 16ull << 30, 0, 0, &b));
    /* Nothing is a buffer, too. */
    const int64_t none[] = {0, 7};
    how = floats(none, 2);
    how.has_consumer = true;
    OK(granule_buffer_create(a, 0, 0, 0, &b));
    CHECK(granule_buffer_ptr(b) == NULL);
    OK(granule_buffer_to_dlpack(b, &how, &out));
    CHECK(((managed *)out)->tensor.shape[1] == 7);
    ((managed *)out)->deleter(out);
    OK(granule_buffer_destroy(b));
    CHECK(live(a) == 0);
}

/* A consumer's stream would have to wait, which only the driver can make it do. */
static void without_a_driver(void) {
    granule_allocator *a = make("");
    granule_buffer *b = NULL;
    void *out = NULL;
    const int64_t shape[] = {25};
    granule_tensor how = floats(shape, 1);
    how.has_consumer = true;
    /* The driver would say that it knows no such stream. */
    how.consumer = 0x5eed;
    OK(granule_buffer_create(a, 100, 0, 0, &b));
    OK(granule_abandon(a));
    ANSWERS(GRANULE_DRIVER_GONE, granule_buffer_to_dlpack(b, &how, &out));
    CHECK(out == NULL);
    OK(granule_buffer_destroy(b));
    OK(granule_allocator_destroy(a));
}

int main(void) {
    granule_allocator *a = make("");
    layouts(a);
    streams(a);
    refusals(a);
    OK(granule_allocator_destroy(a));
    without_a_driver();
    return 0;
}
