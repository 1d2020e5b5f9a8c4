/* History: contexts and their end, trackers, observers, snapshots. */
#include "check.h"

static int gathered, released, tracked, actions[10], visits;
static void *current;

/* A context is a number of its own, so that each can be told from the others. */
static void *gather(void *user) {
    CHECK(user == &gathered);
    gathered += 1;
    return malloc(1);
}

static void release(void *user, void *context) {
    CHECK(user == &gathered);
    released += 1;
    free(context);
}

static void track(void *user, const granule_trace_entry *entry) {
    CHECK(user == &tracked && (entry->device == 0 || entry->device == 1));
    CHECK(entry->compile_context && entry->user_metadata && entry->internal_metadata);
    tracked += 1;
    actions[entry->action] += 1;
    if (entry->action == GRANULE_ACTION_ALLOC) {
        current = entry->context;
    }
}

static void visit(void *user, void *context) {
    visits += 1;
    *(void **)user = context;
}

static int attached, detached, ooms, rejections;

static void on_segment(void *user, const granule_segment_event *event) {
    CHECK(user == NULL && event->size == sizeof *event && event->device == 0 && event->bytes > 0);
    *(event->added ? &attached : &detached) += 1;
}

static void on_oom(void *user, int64_t device, uint64_t tried, uint64_t total, uint64_t free_bytes) {
    CHECK(user == &ooms && device == 0 && tried == 1ull << 40 && total == 4ull << 30 && free_bytes <= total);
    ooms += 1;
}

static void on_rejection(void *user, int64_t device, uint64_t wanted, uint64_t held, uint64_t limit) {
    CHECK(user == NULL && device == 0 && wanted >= 3ull << 30 && held < limit && limit == 2ull << 30);
    rejections += 1;
}

static uint64_t processes(void *user, int32_t device, granule_process_memory *out, uint64_t capacity) {
    CHECK(user == NULL && device == 0);
    for (uint64_t n = 0; n < 100 && n < capacity; n++) {
        out[n] = (granule_process_memory){(uint32_t)n + 1, MIB};
    }
    return 100;
}

/* Segments are whole under PyTorch's policy, and grow under Granule's. */
static int32_t new_memory(void) {
    return is_policy("pytorch") ? GRANULE_ACTION_SEGMENT_ALLOC : GRANULE_ACTION_SEGMENT_MAP;
}

static void look(granule_allocator *a, void *block, void *context) {
    granule_snapshot *snapshot = NULL;
    OK(granule_snapshot_take(a, NULL, true, &snapshot));
    const granule_segment_info *segments = NULL;
    uint64_t count = 0;
    OK(granule_snapshot_segments(snapshot, &segments, &count));
    CHECK(count == 1 && segments[0].device == 0 && segments[0].is_large);
    CHECK(segments[0].is_growable != is_policy("pytorch") && segments[0].block_count == 2);
    CHECK(segments[0].total >= 3 * MIB && segments[0].allocated == 3 * MIB);
    UNDER_PYTORCH(segments[0].total == 20 * MIB && segments[0].context == context);
    CHECK(segments[0].registration == 0);
    CHECK(segments[0].blocks[0].addr == (uintptr_t)block && segments[0].blocks[0].state == GRANULE_BLOCK_ALLOCATED);
    CHECK(segments[0].blocks[0].context == context && segments[0].blocks[0].requested == 3 * MIB - 1);
    CHECK(segments[0].blocks[1].state == GRANULE_BLOCK_INACTIVE && segments[0].blocks[1].context == NULL);

    const granule_trace_entry *entries = NULL;
    OK(granule_snapshot_trace(snapshot, 0, &entries, &count));
    UNDER_PYTORCH(count == 3 && entries[0].bytes == 20 * MIB);
    CHECK(count >= 3);
    for (uint64_t n = 0; n < count - 2; n++) {
        CHECK(entries[n].action == new_memory() && entries[n].bytes > 0);
    }
    const granule_trace_entry *alloc = entries + count - 2, *annotate = entries + count - 1;
    CHECK(alloc->action == GRANULE_ACTION_ALLOC && alloc->context == context);
    CHECK(strcmp(alloc->compile_context, "region") == 0 && strcmp(alloc->user_metadata, "step 1") == 0);
    CHECK(alloc->time_us > 1600000000000000 && strcmp(alloc->internal_metadata, "") == 0);
    CHECK(annotate->action == GRANULE_ACTION_ANNOTATE && strcmp(annotate->user_metadata, "weights") == 0);
    OK(granule_snapshot_trace(snapshot, 1, &entries, &count));
    CHECK(count == 0);
    ANSWERS(GRANULE_INVALID_DEVICE, granule_snapshot_trace(snapshot, -1, &entries, &count));
    const granule_range_mark *marks = NULL;
    OK(granule_snapshot_ranges(snapshot, &marks, &count));
    CHECK(count == 2 && marks[0].start && !marks[1].start && strcmp(marks[0].name, "forward") == 0);

    /* What a snapshot points to stays while it does, whatever becomes of the block. */
    int before = released;
    OK(granule_free(a, block));
    granule_history off = {0};
    off.size = sizeof off;
    OK(granule_record_history(a, &off));
    CHECK(released < gathered && released >= before);
    granule_snapshot_free(snapshot);
    granule_snapshot_free(NULL);
}

int main(void) {
    granule_allocator *a = make("");
    OK(granule_add_trace_tracker(a, track, &tracked));
    OK(granule_add_segment_observer(a, on_segment, NULL));
    granule_history history = {sizeof history, true, true, GRANULE_CONTEXT_ALL, 1000,
                               1u << GRANULE_ACTION_SNAPSHOT, &gathered, gather, release};
    OK(granule_record_history(a, &history));
    bool on = false;
    OK(granule_is_history_enabled(a, &on));
    CHECK(on);

    OK(granule_set_user_metadata("step 1"));
    granule_bytes text = {NULL, 0, NULL};
    OK(granule_user_metadata(&text));
    CHECK(strcmp((const char *)text.data, "step 1") == 0);
    granule_bytes_free(&text);
    OK(granule_push_compile_context("region"));
    void *block = take(a, 3 * MIB - 1, 0);
    OK(granule_pop_compile_context());
    OK(granule_pop_compile_context());
    OK(granule_set_user_metadata(""));
    CHECK(gathered == 1 && released == 0 && current != NULL);
    CHECK(actions[GRANULE_ACTION_ALLOC] == 1 && attached == actions[new_memory()] && attached > 0);
    UNDER_PYTORCH(attached == 1);
    OK(granule_annotate(a, block, "weights"));
    ANSWERS(GRANULE_INVALID_POINTER, granule_annotate(a, &on, "nothing"));
    OK(granule_mark_range(a, true, "forward", 0));
    OK(granule_mark_range(a, false, "forward", 0));

    void *context = NULL;
    OK(granule_context_of(a, block, visit, &context));
    CHECK(visits == 1 && context == current);
    OK(granule_context_of(a, &on, visit, &context));
    CHECK(visits == 1);
    look(a, block, context);
    OK(granule_empty_cache(a));
    CHECK(detached > 0 && detached == actions[GRANULE_ACTION_SEGMENT_FREE] + actions[GRANULE_ACTION_SEGMENT_UNMAP]);
    UNDER_PYTORCH(actions[GRANULE_ACTION_SEGMENT_FREE] == 1);

    /* Many operations, some of them dropped from the ring: each context ends once. */
    history.max_entries = 10;
    OK(granule_record_history(a, &history));
    for (int n = 0; n < 1000; n++) {
        OK(granule_free(a, take(a, 512 + (uint64_t)n, 0)));
    }
    OK(granule_empty_cache(a));
    CHECK(gathered > 2000 && released > 1900 && released < gathered);
    granule_history_status_t status = {0};
    status.size = sizeof status;
    OK(granule_history_status(a, 0, &status));
    CHECK(status.recorded && !status.complete && status.overwritten > 2000 && status.before_recording > 0);

    OK(granule_add_oom_observer(a, on_oom, &ooms));
    OK(granule_set_process_memory_source(a, processes, NULL));
    void *none = NULL;
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 1ull << 40, 0, 0, &none));
    CHECK(ooms == 1 && strstr(granule_last_error(), "Process 99 uses 1024.00 KiB.") != NULL);
    OK(granule_add_rejection_observer(a, on_rejection, NULL));
    OK(granule_configure(a, "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True"));
    ANSWERS(GRANULE_REJECTED, granule_malloc(a, 3ull << 30, 0, 0, &none));
    CHECK(rejections == 1);

    granule_bytes file = {NULL, 0, NULL};
    OK(granule_snapshot_pickle(a, NULL, true, &file));
    CHECK(file.len > 100 && file.data[0] == 0x80);
    granule_bytes_free(&file);
    OK(granule_snapshot_json(a, NULL, false, &file));
    CHECK(strstr((const char *)file.data, "\"segments\"") != NULL);
    granule_bytes_free(&file);
    granule_pool_id nobodys = granule_pool_fresh();
    granule_snapshot *empty = NULL;
    OK(granule_snapshot_take(a, &nobodys, false, &empty));
    const granule_segment_info *segments = NULL;
    uint64_t count = 1;
    OK(granule_snapshot_segments(empty, &segments, &count));
    CHECK(count == 0);
    granule_snapshot_free(empty);

    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_add_trace_tracker(a, NULL, NULL));
    history.contexts = 4;
    ANSWERS(GRANULE_INVALID_ARGUMENT, granule_record_history(a, &history));
    OK(granule_allocator_destroy(a));
    CHECK(released == gathered);
    CHECK(tracked > 2000);
    return 0;
}
