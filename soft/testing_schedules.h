// For tests of what holds under the schedules of the software driver, each in a child process, since a process has one.
#ifndef GRAVEL_SOFT_TESTING_SCHEDULES_H
#define GRAVEL_SOFT_TESTING_SCHEDULES_H

#include "soft/testing.h"

#include <sys/wait.h>
#include <unistd.h>

enum { RESULTS = 512 };

// For how many rounds of 0.1 ms a kernel waits for another one. Where both run at once they are sure to meet, however
// late the machine lets one of them begin; under the serial schedule they never do.
static inline int rounds_to_meet(void)
{
    const char *schedule = getenv("GRAVEL_SOFT_SCHEDULE");
    return schedule && strcmp(schedule, "serial") == 0 ? 300 : 1000000;
}

// Runs `scenario` in a child under a schedule; its results come back. False when the child failed.
static inline bool run_under(const char *schedule, void (*scenario)(int *results), int *results)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(600); // below ctest's own limit, which would show nothing
        setenv("GRAVEL_SOFT_SCHEDULE", schedule, 1);
        int own[RESULTS] = {0};
        open_device(NULL);
        scenario(own);
        ssize_t written = write(ends[1], own, sizeof own);
        _exit(written == sizeof own ? 0 : 1);
    }
    close(ends[1]);
    size_t got = 0;
    ssize_t part;
    while (got < RESULTS * sizeof *results &&
           (part = read(ends[0], (char *)results + got, RESULTS * sizeof *results - got)) > 0)
        got += (size_t)part;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline void expect_under(const char *schedule, void (*scenario)(int *results), int *results)
{
    assert_true(run_under(schedule, scenario, results));
}

#endif
