/* The driver of an imaginary accelerator: the example backend, and a way to hold a stream still. */
#include "granule_backend.h"

#include <pthread.h>

const granule_backend_table *example_backend(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool is_open;

static const granule_backend_table *table(void) { return example_backend(); }

static void wait_for_the_gate(void *unused) {
    pthread_mutex_lock(&lock);
    while (!is_open) pthread_cond_wait(&opened, &lock);
    pthread_mutex_unlock(&lock);
}

static granule_backend_stream stream_of(int device, uint64_t raw) {
    return (granule_backend_stream){.raw = raw, .device = (granule_backend_device)device};
}

const void *driver_table(void) { return table(); }

int driver_device(void) {
    granule_backend_device device = 0;
    table()->current_device(table()->context, &device);
    return device;
}

void driver_set_device(int device) { table()->set_device(table()->context, (granule_backend_device)device); }

uint64_t driver_create_stream(int device) {
    uint64_t raw = 0;
    table()->create_stream(table()->context, (granule_backend_device)device, 0, &raw);
    return raw;
}

bool driver_is_idle(int device, uint64_t raw) {
    return table()->query_stream(table()->context, stream_of(device, raw)) == GRANULE_BACKEND_OK;
}

void driver_synchronize(int device, uint64_t raw) {
    table()->synchronize_stream(table()->context, stream_of(device, raw));
}

/* Work queued on the stream from here on waits for driver_release. */
void driver_hold(int device, uint64_t raw) {
    pthread_mutex_lock(&lock);
    is_open = false;
    pthread_mutex_unlock(&lock);
    table()->launch_host_function(table()->context, stream_of(device, raw), wait_for_the_gate, NULL);
}

void driver_release(void) {
    pthread_mutex_lock(&lock);
    is_open = true;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}
