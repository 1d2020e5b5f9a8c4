/* The device itself: streams, events, copies, peers. */
#include "check.h"

static int ran;

static void on_host(void *user) {
    *(int *)user += 1;
}

int main(void) {
    granule_allocator *a = make("expandable_segments:True");
    int32_t device = 7, least = -1, greatest = 1;
    OK(granule_device_set(a, 1));
    OK(granule_device_current(a, &device));
    CHECK(device == 1);
    OK(granule_device_set(a, 0));
    ANSWERS(GRANULE_INVALID_DEVICE, granule_device_set(a, 2));
    uint64_t free_bytes = 0, total = 0;
    OK(granule_device_memory_info(a, 0, &free_bytes, &total));
    CHECK(total == 4ull << 30 && free_bytes == total);
    granule_bytes name = {NULL, 0, NULL};
    OK(granule_device_name(a, 0, &name));
    CHECK(name.len > 0 && strlen((const char *)name.data) == name.len);
    granule_bytes_free(&name);
    granule_device_properties_t properties = {0};
    properties.size = sizeof properties;
    OK(granule_device_properties(a, 1, &properties));
    CHECK(properties.total_memory == 4ull << 30 && properties.warp_size > 0);
    OK(granule_stream_priority_range(a, 0, &least, &greatest));
    CHECK(least >= 0 && greatest <= 0);

    uint64_t first = 0, second = 0, start = 0, end = 0;
    OK(granule_stream_create(a, 0, 0, &first));
    OK(granule_stream_create(a, 0, greatest, &second));
    OK(granule_event_create(a, 0, true, &start));
    OK(granule_event_create(a, 0, true, &end));
    char *ptr = take(a, 8192, first);
    char text[] = "what goes there comes back", back[sizeof text] = {0};
    OK(granule_event_record(a, 0, start, first));
    OK(granule_memset(a, ptr, 0x155, 8192, 0, first));
    OK(granule_copy_on_stream(a, ptr, text, sizeof text, GRANULE_COPY_HOST_TO_DEVICE, 0, first));
    OK(granule_event_record(a, 0, end, first));
    OK(granule_stream_wait_event(a, 0, second, 0, end));
    OK(granule_copy_on_stream(a, ptr + 4096, ptr, 4096, GRANULE_COPY_DEVICE_TO_DEVICE, 0, second));
    OK(granule_stream_launch_host(a, 0, second, on_host, &ran));
    OK(granule_stream_synchronize(a, 0, second));
    CHECK(ran == 1);
    OK(granule_stream_query(a, 0, second));
    OK(granule_event_synchronize(a, 0, end));
    OK(granule_event_query(a, 0, end));
    float ms = -1;
    OK(granule_event_elapsed_ms(a, 0, start, end, &ms));
    CHECK(ms >= 0);
    OK(granule_copy(a, back, ptr + 4096, sizeof back, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(strcmp(text, back) == 0);
    OK(granule_copy(a, back, ptr + 4096 + sizeof text, 1, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(back[0] == 0x55);
    OK(granule_copy(a, back, text, 5, GRANULE_COPY_HOST_TO_HOST));
    CHECK(memcmp(back, "what ", 5) == 0);
    OK(granule_copy(a, NULL, NULL, 0, GRANULE_COPY_HOST_TO_HOST));
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_copy(a, back, text, 5, 4));

    granule_pointer_info_t info = {0};
    info.size = sizeof info;
    OK(granule_pointer_info(a, ptr + 100, &info));
    CHECK(info.kind == GRANULE_POINTER_DEVICE && info.device == 0);
    OK(granule_pointer_info(a, text, &info));
    CHECK(info.kind == GRANULE_POINTER_UNKNOWN && info.device == -1 && info.base == NULL);

    /* A query of work that waits, for the host function is told from outside. */
    const char *unfinished = "";
    OK(granule_event_record(a, 0, end, first));
    granule_status answer = granule_event_query(a, 0, end);
    CHECK(answer == GRANULE_OK || answer == GRANULE_NOT_READY);
    CHECK(strstr(granule_last_error(), unfinished) != NULL);

    /* Peers. */
    bool can = false, does = true;
    OK(granule_can_access_peer(a, 0, 1, &can));
    OK(granule_is_peer_access_enabled(a, 0, 1, &does));
    CHECK(can && !does);
    OK(granule_enable_peer_access(a, 0, 1));
    OK(granule_is_peer_access_enabled(a, 0, 1, &does));
    CHECK(does);
    void *there = NULL;
    OK(granule_malloc(a, 4096, 1, 0, &there));
    OK(granule_copy_async(a, there, 1, ptr, 0, 4096, 0, first));
    OK(granule_stream_synchronize(a, 0, first));
    OK(granule_copy(a, back, there, sizeof back, GRANULE_COPY_DEVICE_TO_HOST));
    CHECK(strcmp(text, back) == 0);
    ANSWERS(GRANULE_INVALID_DEVICE, granule_copy_async(a, there, 2, ptr, 0, 4096, 0, first));

    /* Another device's stream waits for this one's event. */
    uint64_t beyond = 0;
    OK(granule_stream_create(a, 1, 0, &beyond));
    OK(granule_stream_wait_event(a, 1, beyond, 0, end));
    OK(granule_stream_synchronize(a, 1, beyond));
    OK(granule_stream_destroy(a, 1, beyond));

    OK(granule_free(a, there));
    OK(granule_free(a, ptr));
    OK(granule_event_destroy(a, 0, start));
    OK(granule_event_destroy(a, 0, end));
    OK(granule_retire_stream(a, 0, first));
    OK(granule_stream_destroy(a, 0, first));
    OK(granule_stream_destroy(a, 0, second));
    OK(granule_device_synchronize(a, 0));
    OK(granule_allocator_destroy(a));
    return 0;
}
