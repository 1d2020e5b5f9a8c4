/* Recording: begun, marked, read while it runs, ended; by the program and by the environment. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static int says(granule_allocator *a, const char *text) {
    granule_bytes said;
    OK(granule_record_json(a, &said));
    int found = strstr((const char *)said.data, text) != NULL;
    if (!found) {
        fprintf(stderr, "%s\n", (const char *)said.data);
    }
    granule_bytes_free(&said);
    return found;
}

static void is_refused(const char *options, const char *why) {
    granule_allocator *a = make("");
    granule_status status = granule_record_start(a, options);
    CHECK(status == GRANULE_SETTINGS || status == GRANULE_RECORDING);
    CHECK(strstr(granule_last_error(), why) != NULL);
    CHECK(says(a, "\"recording\":false"));
    OK(granule_allocator_destroy(a));
}

/* How often a text is in all files that a recording left in a directory. */
static int lines(const char *directory, const char *pattern) {
    char command[300], answer[20] = "";
    snprintf(command, sizeof command, "zcat %s/*-d0-*.trace.gz | grep -c '%s'", directory, pattern);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL && fgets(answer, sizeof answer, pipe) != NULL);
    pclose(pipe);
    return atoi(answer);
}

int main(void) {
    is_refused("", "directory");
    is_refused("there,rotate=10MB", "rotate=10MB");
    is_refused("/dev/null/below", "/dev/null/below");

    granule_allocator *a = make("");
    OK(granule_record_mark(a, 1));
    OK(granule_record_flush(a));
    OK(granule_record_stop(a));
    OK(granule_record_start(a, "one,keep=2"));
    ANSWERS(GRANULE_RECORDING, granule_record_start(a, "other"));
    CHECK(says(a, "\"recording\":true"));
    for (int step = 0; step < 10; ++step) {
        OK(granule_record_mark(a, (uint64_t)step));
        void *block = take(a, 1000 + (uint64_t)step, 0);
        OK(granule_free(a, block));
    }
    OK(granule_empty_cache(a));
    OK(granule_record_flush(a));
    CHECK(lines("one", "^a ") == 10 && lines("one", "^f ") == 10 && lines("one", "^i ") == 10 && lines("one", "^e") == 1);
    CHECK(lines("one", "\"ended\":false") == 1);

    /* A forked child has its parent's handle, and nothing to write. */
    pid_t child = fork();
    if (child == 0) {
        ANSWERS(GRANULE_OK, granule_record_mark(a, 99));
        OK(granule_record_stop(a));
        exit(0); /* with the functions that run at an exit */
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    OK(granule_record_stop(a));
    OK(granule_record_stop(a));
    /* 31 of the device that was used; marks and the flush are events of the other one, too. */
    CHECK(says(a, "\"recording\":false") && says(a, "\"events\":42"));
    CHECK(lines("one", "\"ended\":true") == 1 && lines("one", "^i 99") == 0);
    OK(granule_record_start(a, "two"));
    take(a, 77, 0);
    OK(granule_allocator_destroy(a));
    CHECK(lines("two", "^a 0 77 0") == 1 && lines("two", "\"ended\":true") == 1);

    /* The environment's, ended by the end of the process. */
    child = fork();
    if (child == 0) {
        CHECK(setenv("GRANULE_RECORD", "three", 1) == 0);
        a = make("");
        take(a, 99, 0);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(lines("three", "^a 0 99 0") == 1 && lines("three", "\"ended\":true") == 1);

    CHECK(setenv("GRANULE_RECORD", "three,keep=x", 1) == 0);
    granule_options options = {sizeof options, "openreg", NULL, NULL, NULL};
    ANSWERS(GRANULE_SETTINGS, granule_allocator_create(&options, &a));
    CHECK(strstr(granule_last_error(), "keep=x") != NULL);
    CHECK(setenv("GRANULE_RECORD", "/dev/null/below", 1) == 0);
    OK(granule_allocator_create(&options, &a));
    OK(granule_allocator_destroy(a));
    return 0;
}
