/* A Granule backend in C, over host memory.
 *
 * It has the required part and nothing else, so it is where a vendor begins: each function below is replaced by
 * a few calls of the driver (granule_backend.h names CUDA's and HIP's). Two devices share the host's memory; a
 * stream is a queue with a thread that works through it.
 *
 * One lock guards everything. Each queued task has a ticket from one counter, so that "all work queued so far"
 * is a number, and an event is a queue and a ticket. */
#include "granule_backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 2
#define CAPACITY (1024ull << 20)
#define HOST (-1)
#define PAGE 4096

struct queue;

/* Work on a stream. */
struct task {
    struct task *next;
    uint64_t ticket;
    enum { COPY, FILL, CALL, WAIT } kind;
    void *dst;
    const void *src;
    uint64_t bytes;
    uint8_t value;
    granule_backend_host_function function;
    void *argument;
    struct queue *awaited;
    uint64_t awaited_ticket;
};

/* A stream. The task that runs stays first until it is done. */
struct queue {
    struct queue *next;
    int device;
    int users; /* the handle, the thread, events, and tasks of others that wait for it */
    bool closed;
    struct task *first, *last;
};

/* An event: the end of what was queued at its last record. */
struct event {
    struct queue *queue;
    uint64_t ticket;
};

/* Memory that was handed out. */
struct block {
    struct block *next;
    uint64_t base, bytes;
    int device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct queue *queues, *default_queues[DEVICES];
static struct block *blocks;
static uint64_t used[DEVICES], tickets;
static _Thread_local granule_backend_device current;

static granule_backend_status unlocked(granule_backend_status status) {
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- queues; the caller holds the lock ------------------------------------------------------------------- */

static bool passed(const struct queue *queue, uint64_t ticket) {
    return !queue->first || queue->first->ticket > ticket;
}

static void leave(struct queue *queue) {
    if (queue && --queue->users == 0) free(queue);
}

static void run(const struct task *task) {
    switch (task->kind) {
    case COPY: memmove(task->dst, task->src, task->bytes); break;
    case FILL: memset(task->dst, task->value, task->bytes); break;
    case CALL: task->function(task->argument); break;
    case WAIT: break;
    }
}

static void *work(void *argument) {
    struct queue *queue = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct task *task = queue->first;
        if (!task && queue->closed) break;
        if (!task || (task->kind == WAIT && !passed(task->awaited, task->awaited_ticket))) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        run(task);
        pthread_mutex_lock(&lock);
        leave(task->awaited);
        queue->first = task->next;
        free(task);
        pthread_cond_broadcast(&changed);
    }
    struct queue **link = &queues;
    while (*link != queue) link = &(*link)->next;
    *link = queue->next;
    leave(queue);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct queue *open_queue(int device) {
    struct queue *queue = calloc(1, sizeof *queue);
    pthread_t thread;
    if (!queue) return NULL;
    queue->device = device;
    queue->users = 2;
    if (pthread_create(&thread, NULL, work, queue)) {
        free(queue);
        return NULL;
    }
    pthread_detach(thread);
    queue->next = queues;
    return queues = queue;
}

static struct queue *queue_of(granule_backend_stream stream) {
    if (stream.raw) return (struct queue *)(uintptr_t)stream.raw;
    struct queue **queue = &default_queues[stream.device];
    if (!*queue) *queue = open_queue(stream.device);
    return *queue;
}

/* Gives the lock back. */
static granule_backend_status submit(granule_backend_stream stream, struct task task) {
    struct task *queued = malloc(sizeof *queued);
    struct queue *queue = queue_of(stream);
    if (!queued || !queue) {
        free(queued);
        return unlocked(GRANULE_BACKEND_RESOURCE_LIMIT);
    }
    *queued = task;
    queued->ticket = ++tickets;
    if (task.awaited) task.awaited->users++;
    if (queue->first) queue->last->next = queued;
    else queue->first = queued;
    queue->last = queued;
    pthread_cond_broadcast(&changed);
    return unlocked(GRANULE_BACKEND_OK);
}

/* ---- devices --------------------------------------------------------------------------------------------- */

static granule_backend_status device_count(void *context, uint16_t *answer) {
    *answer = DEVICES;
    return GRANULE_BACKEND_OK;
}

static granule_backend_status current_device(void *context, granule_backend_device *answer) {
    *answer = current;
    return GRANULE_BACKEND_OK;
}

static granule_backend_status set_device(void *context, granule_backend_device device) {
    current = device;
    return GRANULE_BACKEND_OK;
}

static granule_backend_status synchronize_device(void *context, granule_backend_device device) {
    pthread_mutex_lock(&lock);
    uint64_t until = tickets;
    struct queue *queue = queues;
    while (queue) {
        if (queue->device == device && !passed(queue, until)) {
            pthread_cond_wait(&changed, &lock);
            queue = queues; /* the list may have changed */
        } else {
            queue = queue->next;
        }
    }
    return unlocked(GRANULE_BACKEND_OK);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static granule_backend_status take(int device, uint64_t bytes, uint64_t alignment, granule_backend_address *answer) {
    if (bytes > CAPACITY) return GRANULE_BACKEND_OUT_OF_MEMORY;
    struct block *block = malloc(sizeof *block);
    void *base = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    pthread_mutex_lock(&lock);
    if (!block || !base || (device != HOST && bytes > CAPACITY - used[device])) {
        free(block);
        free(base);
        return unlocked(GRANULE_BACKEND_OUT_OF_MEMORY);
    }
    if (device != HOST) used[device] += bytes;
    *answer = (uintptr_t)base;
    *block = (struct block){blocks, *answer, bytes, device};
    blocks = block;
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status give(int device, granule_backend_address base) {
    pthread_mutex_lock(&lock);
    struct block **link = &blocks;
    while (*link && ((*link)->base != base || (*link)->device != device)) link = &(*link)->next;
    struct block *block = *link;
    if (!block) return unlocked(GRANULE_BACKEND_INVALID_VALUE);
    if (device != HOST) used[device] -= block->bytes;
    *link = block->next;
    free((void *)(uintptr_t)base);
    free(block);
    return unlocked(GRANULE_BACKEND_OK);
}

static const struct block *block_of(granule_backend_address ptr) {
    const struct block *block = blocks;
    while (block && (ptr < block->base || ptr - block->base >= block->bytes)) block = block->next;
    return block;
}

static granule_backend_status device_malloc(void *context, granule_backend_device device, uint64_t bytes, granule_backend_address *answer) {
    return take(device, bytes, 512, answer);
}

static granule_backend_status device_free(void *context, granule_backend_device device, granule_backend_address ptr) {
    return give(device, ptr);
}

static granule_backend_status host_malloc(void *context, uint64_t bytes, uint32_t flags, granule_backend_address *answer) {
    return take(HOST, bytes, PAGE, answer);
}

static granule_backend_status host_free(void *context, granule_backend_address ptr) {
    return give(HOST, ptr);
}

static granule_backend_status memory_info(void *context, granule_backend_device device, granule_backend_memory_info *answer) {
    pthread_mutex_lock(&lock);
    *answer = (granule_backend_memory_info){.free = CAPACITY - used[device], .total = CAPACITY};
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status pointer_info(void *context, granule_backend_address ptr, granule_backend_pointer_info *answer) {
    pthread_mutex_lock(&lock);
    const struct block *block = block_of(ptr);
    *answer = (granule_backend_pointer_info){GRANULE_BACKEND_POINTER_KIND_UNMANAGED, HOST, 0};
    if (block) {
        int32_t kind = block->device == HOST ? GRANULE_BACKEND_POINTER_KIND_HOST : GRANULE_BACKEND_POINTER_KIND_DEVICE;
        *answer = (granule_backend_pointer_info){kind, block->device, block->base};
    }
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status address_range(void *context, granule_backend_address ptr, granule_backend_address_range *answer) {
    pthread_mutex_lock(&lock);
    const struct block *block = block_of(ptr);
    if (!block) return unlocked(GRANULE_BACKEND_INVALID_VALUE);
    *answer = (granule_backend_address_range){block->base, block->bytes};
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status copy_async(void *context, granule_backend_address dst, granule_backend_address src, uint64_t bytes,
                                 granule_backend_copy_kind kind, granule_backend_stream stream) {
    struct task task = {.kind = COPY, .bytes = bytes};
    task.dst = (void *)(uintptr_t)dst;
    task.src = (const void *)(uintptr_t)src;
    pthread_mutex_lock(&lock);
    return submit(stream, task);
}

static granule_backend_status memset_async(void *context, granule_backend_address dst, uint8_t value, uint64_t bytes,
                                   granule_backend_stream stream) {
    struct task task = {.kind = FILL, .dst = (void *)(uintptr_t)dst, .value = value, .bytes = bytes};
    pthread_mutex_lock(&lock);
    return submit(stream, task);
}

/* ---- streams --------------------------------------------------------------------------------------------- */

static granule_backend_status create_stream(void *context, granule_backend_device device, int32_t priority, uint64_t *answer) {
    pthread_mutex_lock(&lock);
    struct queue *queue = open_queue(device);
    *answer = (uintptr_t)queue;
    return unlocked(queue ? GRANULE_BACKEND_OK : GRANULE_BACKEND_RESOURCE_LIMIT);
}

static granule_backend_status destroy_stream(void *context, granule_backend_stream stream) {
    if (!stream.raw) return GRANULE_BACKEND_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    struct queue *queue = queue_of(stream);
    queue->closed = true; /* its thread ends after the last task */
    leave(queue);
    pthread_cond_broadcast(&changed);
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status query_stream(void *context, granule_backend_stream stream) {
    pthread_mutex_lock(&lock);
    struct queue *queue = queue_of(stream);
    return unlocked(!queue || passed(queue, tickets) ? GRANULE_BACKEND_OK : GRANULE_BACKEND_NOT_READY);
}

static granule_backend_status synchronize_stream(void *context, granule_backend_stream stream) {
    pthread_mutex_lock(&lock);
    struct queue *queue = queue_of(stream);
    uint64_t until = tickets;
    while (queue && !passed(queue, until)) pthread_cond_wait(&changed, &lock);
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status launch_host_function(void *context, granule_backend_stream stream, granule_backend_host_function function,
                                           void *argument) {
    struct task task = {.kind = CALL, .function = function, .argument = argument};
    pthread_mutex_lock(&lock);
    return submit(stream, task);
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static struct event *event_of(granule_backend_event event) {
    return (struct event *)(uintptr_t)event.raw;
}

static granule_backend_status create_event(void *context, granule_backend_device device, uint32_t flags, uint64_t *answer) {
    struct event *event = calloc(1, sizeof *event);
    *answer = (uintptr_t)event;
    return event ? GRANULE_BACKEND_OK : GRANULE_BACKEND_RESOURCE_LIMIT;
}

static granule_backend_status destroy_event(void *context, granule_backend_event event) {
    pthread_mutex_lock(&lock);
    leave(event_of(event)->queue);
    free(event_of(event));
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status record_event(void *context, granule_backend_event event, granule_backend_stream stream) {
    pthread_mutex_lock(&lock);
    struct queue *queue = queue_of(stream);
    if (!queue) return unlocked(GRANULE_BACKEND_RESOURCE_LIMIT);
    queue->users++;
    leave(event_of(event)->queue);
    *event_of(event) = (struct event){queue, tickets};
    return unlocked(GRANULE_BACKEND_OK);
}

static bool is_ready(granule_backend_event event) {
    struct event *record = event_of(event);
    return !record->queue || passed(record->queue, record->ticket);
}

static granule_backend_status query_event(void *context, granule_backend_event event) {
    pthread_mutex_lock(&lock);
    return unlocked(is_ready(event) ? GRANULE_BACKEND_OK : GRANULE_BACKEND_NOT_READY);
}

static granule_backend_status synchronize_event(void *context, granule_backend_event event) {
    pthread_mutex_lock(&lock);
    while (!is_ready(event)) pthread_cond_wait(&changed, &lock);
    return unlocked(GRANULE_BACKEND_OK);
}

static granule_backend_status wait_event(void *context, granule_backend_stream stream, granule_backend_event event) {
    pthread_mutex_lock(&lock);
    struct event record = *event_of(event);
    if (is_ready(event)) return unlocked(GRANULE_BACKEND_OK);
    struct task task = {.kind = WAIT, .awaited = record.queue, .awaited_ticket = record.ticket};
    return submit(stream, task);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

const granule_backend_table *example_backend(void) {
    static const granule_backend_table table = {
        .size = sizeof table,
        .version = GRANULE_BACKEND_VERSION,
        .name = "example",
        .device_count = device_count,
        .current_device = current_device,
        .set_device = set_device,
        .synchronize_device = synchronize_device,
        .malloc = device_malloc,
        .free = device_free,
        .memory_info = memory_info,
        .pointer_info = pointer_info,
        .address_range = address_range,
        .copy_async = copy_async,
        .memset_async = memset_async,
        .create_stream = create_stream,
        .destroy_stream = destroy_stream,
        .query_stream = query_stream,
        .synchronize_stream = synchronize_stream,
        .wait_event = wait_event,
        .launch_host_function = launch_host_function,
        .create_event = create_event,
        .destroy_event = destroy_event,
        .record_event = record_event,
        .query_event = query_event,
        .synchronize_event = synchronize_event,
        .host_malloc = host_malloc,
        .host_free = host_free,
    };
    return &table;
}
