#include "lab/service.h"

#include "base/memory.h"
#include "lab/tree.h"
#include "report/format.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYSTEMCTL_SECONDS = 120 };

// ---- systemd ------------------------------------------------------------------------------------------------------

static gv_status systemctl(bool user, const char *verb, const char *unit, const char *log, double seconds,
                           gv_error *error)
{
    char *words[] = {"systemctl", user ? "--user" : "--system", (char *)verb, (char *)unit, NULL};
    return gv_run_program(words, NULL, log, seconds, error);
}

static char *joined(const char *folder, const char *name)
{
    gv_string path = {0};
    gv_string_add(&path, "%s/%s", folder, name);
    if (path.failed)
        gv_string_free(&path);
    return path.text;
}

// The folder of the unit's drop-ins that a restart of the machine clears.
static char *drop_in_folder(const char *unit, bool user)
{
    gv_string path = {0};
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (user)
        gv_string_add(&path, "%s/systemd/user/%s.d", runtime ? runtime : "/run", unit);
    else
        gv_string_add(&path, "/run/systemd/system/%s.d", unit);
    if (path.failed)
        gv_string_free(&path);
    return path.text;
}

// systemd.exec(5): quoted, with backslash escapes, and % doubled because units expand specifiers.
static void write_quoted(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', file);
        if (*text == '%')
            fputc('%', file);
        if (*text == '\n')
            fputs("\\n", file);
        else
            fputc(*text, file);
    }
    fputs("\"\n", file);
}

static gv_status write_drop_in(const char *path, char *const *variables, gv_error *error)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return gv_fail(error, GV_ERR_IO, "%s cannot be written: %s; run gravel lab as the user whose unit it is", path,
                       strerror(errno));
    fputs("# Written by gravel lab for one trial; it is removed after it.\n[Service]\n", file);
    for (size_t i = 0; variables[i]; i++) {
        fputs(strchr(variables[i], '=') ? "Environment=" : "UnsetEnvironment=", file);
        write_quoted(file, variables[i]);
    }
    bool failed = ferror(file);
    failed = fclose(file) != 0 || failed;
    return failed ? gv_fail(error, GV_ERR_IO, "%s cannot be written: %s", path, strerror(errno)) : GV_OK;
}

static pid_t main_pid(const char *unit, bool user, const char *scratch)
{
    char *log = joined(scratch, "main-pid.txt");
    char *words[] = {"systemctl", user ? "--user" : "--system", "show", "--property=MainPID", "--value", (char *)unit,
                     NULL};
    if (log)
        unlink(log);
    char *text =
        log && gv_run_program(words, NULL, log, SYSTEMCTL_SECONDS, NULL) == GV_OK ? gv_file_tail(log, 64) : NULL;
    pid_t pid = text ? (pid_t)strtol(text, NULL, 10) : 0;
    gv_free(text);
    gv_free(log);
    return pid;
}

gv_status gv_unit_clear(const char *unit, bool user, const char *scratch, gv_error *error)
{
    char *folder = drop_in_folder(unit, user), *path = folder ? joined(folder, "50-gravel-lab.conf") : NULL;
    char *log = joined(scratch, "systemctl.log");
    gv_status status = path && log ? GV_OK : gv_fail(error, GV_ERR_MEMORY, "out of memory");
    if (status == GV_OK)
        status = systemctl(user, "stop", unit, log, SYSTEMCTL_SECONDS, error);
    if (status == GV_OK && unlink(path) == 0) {
        // The folder goes too when nothing else is in it.
        rmdir(folder);
        char *words[] = {"systemctl", user ? "--user" : "--system", "daemon-reload", NULL};
        status = gv_run_program(words, NULL, log, SYSTEMCTL_SECONDS, error);
    }
    gv_free(folder);
    gv_free(path);
    gv_free(log);
    return status;
}

static gv_status start_unit(const gv_start *start, gv_running *running, gv_error *error)
{
    gv_status status = gv_unit_clear(start->unit, start->user_unit, start->scratch, error);
    if (status != GV_OK)
        return status;
    char *folder = drop_in_folder(start->unit, start->user_unit);
    char *log = joined(start->scratch, "systemctl.log");
    running->drop_in = folder ? joined(folder, "50-gravel-lab.conf") : NULL;
    running->unit = gv_strdup(start->unit);
    running->scratch = gv_strdup(start->scratch);
    running->user_unit = start->user_unit;
    if (!running->drop_in || !running->unit || !running->scratch || !log)
        status = gv_fail(error, GV_ERR_MEMORY, "out of memory");
    if (status == GV_OK)
        status = gv_make_folder(folder, error);
    if (status == GV_OK)
        status = write_drop_in(running->drop_in, start->variables, error);
    char *reload[] = {"systemctl", start->user_unit ? "--user" : "--system", "daemon-reload", NULL};
    if (status == GV_OK)
        status = gv_run_program(reload, NULL, log, SYSTEMCTL_SECONDS, error);
    if (status == GV_OK)
        status = systemctl(start->user_unit, "start", start->unit, log, 3600, error);
    if (status == GV_OK) {
        running->root = running->main = main_pid(start->unit, start->user_unit, start->scratch);
        if (running->main <= 0)
            status =
                gv_fail(error, GV_ERR_IO, "the unit %s was started and has no main process; see systemctl status %s",
                        start->unit, start->unit);
    }
    gv_free(folder);
    gv_free(log);
    if (status != GV_OK && running->unit)
        gv_running_stop(running, SIGTERM, SYSTEMCTL_SECONDS);
    return status;
}

// What the unit wrote, for the log's tail of an infrastructure outcome.
static void keep_journal(const gv_running *running)
{
    char *log = joined(running->scratch, "service.log");
    char *words[] = {
        "journalctl", running->user_unit ? "--user" : "--system", "--unit", running->unit, "--lines=200", "--no-pager",
        NULL};
    if (log)
        gv_run_program(words, NULL, log, SYSTEMCTL_SECONDS, NULL);
    gv_free(log);
}

// ---- Either -------------------------------------------------------------------------------------------------------

gv_status gv_running_start(const gv_start *start, gv_running *running, gv_error *error)
{
    *running = (gv_running){.child.socket = -1};
    if (start->unit)
        return start_unit(start, running, error);
    gv_status status = gv_child_start(&start->spawn, &running->child, error);
    running->main = running->child.pid;
    running->root = running->child.keeper;
    return status;
}

bool gv_running_ended(gv_running *running, double seconds, int wake, const char **how)
{
    if (!running->unit) {
        bool ended = gv_child_wait(&running->child, seconds, wake);
        *how = ended ? gv_child_status_text(running->child.status) : NULL;
        return ended;
    }
    // systemd says nothing on its own here; the process's start time tells it from one that took over its number.
    double until = gv_now() + seconds;
    uint64_t start = gv_process_start(running->main);
    for (;;) {
        if (start == 0 || gv_process_start(running->main) != start) {
            *how = "its main process is gone";
            return true;
        }
        double left = until - gv_now();
        if (left <= 0)
            return false;
        struct pollfd wait = {.fd = wake, .events = POLLIN};
        if (poll(&wait, 1, left < 0.1 ? (int)(left * 1000) + 1 : 100) > 0)
            return false;
    }
}

bool gv_running_stop(gv_running *running, int signal, double seconds)
{
    if (!running->unit)
        return gv_child_stop(&running->child, signal, seconds);
    keep_journal(running);
    bool good = gv_unit_clear(running->unit, running->user_unit, running->scratch, NULL) == GV_OK;
    gv_free(running->unit);
    gv_free(running->drop_in);
    gv_free(running->scratch);
    running->unit = running->drop_in = running->scratch = NULL;
    return good;
}
