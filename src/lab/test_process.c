// Programs and what they leave behind: nothing outlives the one who started it.
#include "lab/process.h"

#include "base/memory.h"
#include "lab/patch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/gravel-lab-XXXXXX";
static char log_path[512];

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(log_path);
    return rmdir(folder);
}

static char *environment[] = {"PATH=/usr/bin:/bin", "MARK=lab", NULL};

static void start(const char *script, gv_child *child)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    gv_spawn spawn = {
        .argv = argv, .environment = environment, .directory = folder, .output = log_path, .errors = log_path};
    gv_error error = {0};
    unlink(log_path);
    if (gv_child_start(&spawn, child, &error) != GV_OK)
        fail_msg("%s", error.text);
}

static void expect_log(const char *part)
{
    char *text;
    assert_int_equal(gv_read_whole(log_path, 1 << 20, &text, NULL, NULL), GV_OK);
    if (!strstr(text, part))
        fail_msg("the log says \"%s\"", text);
    gv_free(text);
}

static void test_end(void **state)
{
    gv_child child;
    start("echo $MARK in $(pwd); test -t 0 || read line || exit 3", &child);
    assert_true(gv_child_wait(&child, 60, -1));
    assert_string_equal(gv_child_status_text(child.status), "exit code 3");
    assert_true(gv_child_stop(&child, SIGTERM, 1));
    expect_log("lab in ");
    expect_log(folder);
    assert_int_equal(gv_process_start(child.keeper), 0);
}

static void test_start_failures(void **state)
{
    gv_child child;
    gv_error error = {0};
    char *argv[] = {"no-such-program", NULL};
    gv_spawn spawn = {.argv = argv, .environment = environment, .output = log_path, .errors = log_path};
    assert_int_equal(gv_child_start(&spawn, &child, &error), GV_ERR_MISSING);
    assert_non_null(strstr(error.text, "no-such-program cannot be run: No such file"));
    argv[0] = "sh";
    spawn.directory = "/nowhere";
    assert_int_equal(gv_child_start(&spawn, &child, &error), GV_ERR_MISSING);
    assert_non_null(strstr(error.text, "/nowhere"));
    spawn.directory = NULL;
    spawn.output = "/nowhere/log";
    assert_int_equal(gv_child_start(&spawn, &child, &error), GV_ERR_IO);
    // No keeper is left of any of them.
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static size_t count_tree(const gv_child *child)
{
    pid_t pids[64];
    return gv_process_tree(child->keeper, pids, 64);
}

static void wait_for_tree(const gv_child *child, size_t count)
{
    for (int i = 0; i < 3000 && count_tree(child) < count; i++)
        usleep(10000);
    assert_true(count_tree(child) >= count);
}

// Children in sessions of their own that ignore SIGTERM, and grandchildren whose parents are gone.
#define STUBBORN "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; (sleep 600 & sleep 600); :' & done; (sleep 600 &) "

static void test_stop_kills_all(void **state)
{
    gv_child child;
    start(STUBBORN "; echo up; wait", &child);
    wait_for_tree(&child, 10);
    pid_t pids[64];
    size_t count = gv_process_tree(child.keeper, pids, 64);
    assert_true(gv_child_stop(&child, SIGTERM, 0.5));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gv_process_start(pids[i]), 0);
}

// A program that ends and leaves processes: waiting says so, stopping takes them too.
static void test_left_behind(void **state)
{
    gv_child child;
    start(STUBBORN "; exit 0", &child);
    assert_true(gv_child_wait(&child, 60, -1));
    wait_for_tree(&child, 3);
    assert_true(gv_child_stop(&child, SIGTERM, 0.5));
    assert_int_equal(count_tree(&child), 0);
}

static void test_signal_is_sent(void **state)
{
    gv_child child;
    start("trap 'echo got it; exit 4' INT; echo up; while :; do sleep 0.01; done", &child);
    while (access(log_path, R_OK) != 0 || !count_tree(&child))
        usleep(1000);
    char *text = NULL;
    for (int i = 0; i < 3000 && !(text && strstr(text, "up")); i++) {
        gv_free(text);
        usleep(10000);
        assert_int_equal(gv_read_whole(log_path, 4096, &text, NULL, NULL), GV_OK);
    }
    gv_free(text);
    assert_false(gv_child_wait(&child, 0, -1));
    assert_true(gv_child_stop(&child, SIGINT, 60));
    assert_string_equal(gv_child_status_text(child.status), "exit code 4");
    expect_log("got it");
}

static void test_wake(void **state)
{
    gv_child child;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    start("sleep 600", &child);
    assert_int_equal(write(ends[1], "", 1), 1);
    double before = gv_now();
    assert_false(gv_child_wait(&child, 300, ends[0]));
    assert_true(gv_now() - before < 200);
    assert_true(gv_child_stop(&child, SIGKILL, 1));
    close(ends[0]);
    close(ends[1]);
}

// The one who started everything is killed by SIGKILL: the keeper sees its socket close and kills what it keeps.
static void test_kill_of_the_starter(void **state)
{
    int ends[2];
    gv_child child;
    assert_int_equal(pipe(ends), 0);
    pid_t starter = fork();
    if (starter == 0) {
        start(STUBBORN "; wait", &child);
        wait_for_tree(&child, 10);
        if (write(ends[1], &child, sizeof child) != sizeof child)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &child, sizeof child), (int)sizeof child);
    pid_t pids[64];
    size_t count = gv_process_tree(child.keeper, pids, 64);
    assert_true(count >= 10);
    kill(starter, SIGKILL);
    waitpid(starter, NULL, 0);
    gv_keeper_end(child.keeper, child.keeper_start);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(gv_process_start(pids[i]), 0);
    // A number that another process has by now is left alone.
    gv_keeper_end(getpid(), gv_process_start(getpid()) + 1);
    close(ends[0]);
    close(ends[1]);
}

static void test_program_path(void **state)
{
    char *path = gv_program_path("sh", NULL, environment);
    assert_true(strcmp(path, "/usr/bin/sh") == 0 || strcmp(path, "/bin/sh") == 0);
    gv_free(path);
    path = gv_program_path("build/x", "/srv", environment);
    assert_string_equal(path, "/srv/build/x");
    gv_free(path);
    path = gv_program_path("no-such-program", NULL, environment);
    assert_string_equal(path, "no-such-program");
    gv_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_start_failures),
        cmocka_unit_test(test_stop_kills_all),
        cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_signal_is_sent),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_kill_of_the_starter),
        cmocka_unit_test(test_program_path),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
