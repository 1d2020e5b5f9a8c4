/* Nobody reads the log: nothing else happens. */
#include "check.h"

#include <signal.h>
#include <unistd.h>

int main(void) {
    int ends[2];
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    /* Both are dubious, and said to be. */
    granule_allocator *a = make("garbage_collection_threshold:0.5"), *b = make("throw_on_cudamalloc_oom:True");
    void *ptr = NULL;
    ANSWERS(GRANULE_REJECTED, granule_malloc(b, 1ull << 45, 0, 0, &ptr));
    ptr = take(b, MIB, 0);
    CHECK(granule_pluggable_malloc(-1, 0, NULL) == NULL);
    CHECK(strstr(granule_last_error(), "negative") != NULL);
    OK(granule_free(b, ptr));
    OK(granule_allocator_destroy(a));
    OK(granule_allocator_destroy(b));
    return 0;
}
