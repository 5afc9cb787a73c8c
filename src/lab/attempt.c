#include "lab/attempt.h"

#include "base/memory.h"
#include "lab/expand.h"
#include "lab/http.h"
#include "lab/patch.h"
#include "lab/service.h"
#include "lab/tree.h"
#include "report/format.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { TAIL_BYTES = 4000, MOST_COUNTS = 256 << 20 };

// Texts that live as long as the attempt, as a NULL-terminated array.
typedef struct texts {
    char **items; // NULL until something was added
    size_t count, capacity;
} texts;

typedef struct runner {
    const gv_job *job;
    const gv_plan *plan;
    gv_attempt *attempt;
    gv_variables variables;
    texts argv, environment, unit_variables, trial_argv, trial_environment, files;
    gv_words declared, varied; // names belong to the plan
    char *tree, *directory, *trial_directory, *log, *trial_log, *trial_errors;
    gv_meant meant;
    json_t *manifests[GV_STAGE_COUNT];
    gv_running service;
    bool service_started;
    gv_status status; // gravel's own failure
    gv_error *error;
} runner;

// ---- Small parts --------------------------------------------------------------------------------------------------

static bool no_memory(runner *r)
{
    if (r->status == GV_OK)
        r->status = gv_fail(r->error, GV_ERR_MEMORY, "out of memory for a trial");
    return false;
}

static bool add_text(runner *r, texts *list, char *text)
{
    if (!text || !GV_GROW(list->items, list->capacity, list->count + 2)) {
        gv_free(text);
        return no_memory(r);
    }
    list->items[list->count++] = text;
    list->items[list->count] = NULL;
    return true;
}

static void free_texts(texts *list)
{
    for (size_t i = 0; i < list->count; i++)
        gv_free(list->items[i]);
    gv_free(list->items);
}

static char *path_in(const char *folder, const char *name)
{
    gv_string path = {0};
    if (name[0] == '/')
        gv_string_add(&path, "%s", name);
    else
        gv_string_add(&path, "%s/%s", folder, name);
    if (path.failed)
        gv_string_free(&path);
    return path.text;
}

// Ends the attempt with an outcome that is not counted. Always false, so that a step can end with it.
__attribute__((format(printf, 3, 4))) static bool give_up(runner *r, gv_outcome outcome, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->attempt->reason, sizeof r->attempt->reason, format, arguments);
    va_end(arguments);
    r->attempt->outcome = outcome;
    return false;
}

static bool interrupted(void *context)
{
    runner *r = context;
    struct pollfd wait = {.fd = r->job->wake, .events = POLLIN};
    if (r->job->wake >= 0 && poll(&wait, 1, 0) > 0)
        r->attempt->interrupted = true;
    return r->attempt->interrupted;
}

static void say(const runner *r, const char *what)
{
    if (r->job->say)
        r->job->say(r->job->context, what);
}

// The plan's text with its placeholders replaced. NULL ends the attempt: the plan is wrong, whatever is tried.
static char *expand(runner *r, const char *text)
{
    gv_error error = {0};
    char *out = gv_expand(&r->variables, text, &error);
    if (!out) {
        r->attempt->permanent = true;
        give_up(r, GV_OUTCOME_INFRASTRUCTURE, "%s", error.text);
    }
    return out;
}

// ---- What is meant ------------------------------------------------------------------------------------------------

// The lowest of the ports that the system gives to whoever asks for any, connections included.
static unsigned first_given_port(void)
{
    unsigned first = 0;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    bool known = file && fscanf(file, "%u", &first) == 1 && first <= UINT16_MAX;
    if (file)
        fclose(file);
    return known ? first : 0;
}

// Binds the socket to a free port: to one that the system does not give away by itself, if there is any, as every
// connection that any program makes meanwhile could get the others.
static bool bind_to_free(int socket, struct sockaddr_in *address)
{
    enum { LOWEST = 10000, TRIES = 200 };
    unsigned first = first_given_port();
    for (int i = 0; i < TRIES && first > LOWEST + TRIES; i++) {
        unsigned random = 0;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            break;
        address->sin_port = htons((uint16_t)(LOWEST + random % (first - LOWEST)));
        if (bind(socket, (struct sockaddr *)address, sizeof *address) == 0)
            return true;
    }
    socklen_t length = sizeof *address;
    address->sin_port = 0;
    return bind(socket, (struct sockaddr *)address, sizeof *address) == 0 &&
           getsockname(socket, (struct sockaddr *)address, &length) == 0;
}

// Free ports, all held at once so that they differ. Between here and the service's own bind another program may take
// one: the service then does not start, which is an infrastructure outcome and tried again.
static bool choose_ports(runner *r)
{
    const gv_words *names = &r->plan->service.ports;
    int *sockets = gv_calloc(names->count + 1, sizeof *sockets);
    if (!sockets)
        return no_memory(r);
    bool good = true;
    size_t opened = 0;
    for (size_t i = 0; good && i <= names->count; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        opened += sockets[i] >= 0;
        good = sockets[i] >= 0 && bind_to_free(sockets[i], &address);
        char name[128] = "port";
        if (i > 0)
            snprintf(name, sizeof name, "port.%s", names->items[i - 1]);
        if (good)
            gv_variables_set_number(&r->variables, name, ntohs(address.sin_port));
        else
            give_up(r, GV_OUTCOME_INFRASTRUCTURE, "no free port: %s", strerror(errno));
    }
    for (size_t i = 0; i < opened; i++)
        close(sockets[i]);
    gv_free(sockets);
    return good;
}

// Single quotes keep everything from the shell but themselves.
static void add_quoted(gv_string *out, const char *word)
{
    gv_string_add(out, "'");
    for (; *word; word++)
        gv_string_add(out, *word == '\'' ? "'\\''" : "%c", *word);
    gv_string_add(out, "'");
}

static bool set_variables(runner *r, bool ports)
{
    const gv_job *job = r->job;
    const gv_plan *plan = r->plan;
    gv_variables *v = &r->variables;
    gv_variables_set(v, "out", job->folder);
    gv_variables_set(v, "plan", plan->directory);
    gv_variables_set(v, "gravel", job->gravel);
    gv_variables_set(v, "cell", job->subject);
    gv_variables_set_number(v, "trial", job->trial);
    gv_variables_set_number(v, "block", job->block);
    gv_variables_set_number(v, "seed", job->seed);
    gv_variables_set_number(v, "sessions", plan->trial.sessions);
    if (r->tree)
        gv_variables_set(v, "tree", r->tree);
    for (size_t f = 0; f < plan->factor_count; f++) {
        char name[128];
        snprintf(name, sizeof name, "level.%s", plan->factors[f].name);
        gv_variables_set(v, name, plan->factors[f].levels[job->cell->level[f]].name);
    }
    gv_string arguments = {0};
    gv_string_add(&arguments, "%s", "");
    for (size_t c = 0; c < job->change_count; c++) {
        const gv_words *words = &job->changes[c]->arguments;
        for (size_t i = 0; i < words->count; i++) {
            if (arguments.length)
                gv_string_add(&arguments, " ");
            add_quoted(&arguments, words->items[i]);
        }
    }
    gv_variables_set(v, "arguments", gv_string_text(&arguments));
    bool failed = arguments.failed || v->failed;
    gv_string_free(&arguments);
    if (failed)
        return no_memory(r);
    if (ports)
        return choose_ports(r);
    for (size_t i = 0; i <= plan->service.ports.count; i++) {
        char name[128] = "port";
        if (i > 0)
            snprintf(name, sizeof name, "port.%s", plan->service.ports.items[i - 1]);
        gv_variables_set_number(v, name, 8000 + i);
    }
    return true;
}

// Puts NAME=value in, in place of an earlier one; NULL takes it out.
static bool put_setting(runner *r, texts *environment, const char *name, const char *value)
{
    size_t length = strlen(name), i = 0;
    while (i < environment->count &&
           (strncmp(environment->items[i], name, length) != 0 || environment->items[i][length] != '='))
        i++;
    if (i < environment->count) {
        gv_free(environment->items[i]);
        environment->items[i] = environment->items[--environment->count];
        environment->items[environment->count] = NULL;
    }
    if (!value)
        return true;
    gv_string text = {0};
    gv_string_add(&text, "%s=%s", name, value);
    if (text.failed)
        gv_string_free(&text);
    return add_text(r, environment, text.text);
}

static bool put_settings(runner *r, texts *environment, const gv_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) {
        const gv_setting *setting = &settings->items[i];
        char *value = setting->value ? expand(r, setting->value) : NULL;
        if (setting->value && !value)
            return false;
        bool good = put_setting(r, environment, setting->name, value);
        gv_free(value);
        if (!good)
            return false;
    }
    return true;
}

static bool add_name(runner *r, gv_words *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], name) == 0)
            return true;
    }
    if (!GV_GROW(names->items, names->capacity, names->count + 1))
        return no_memory(r);
    names->items[names->count++] = name;
    return true;
}

// Names of every variable that a level or change of the plan touches, whether this cell does or not: a variable that is
// not set here must not be set by something else either.
static bool name_variables(runner *r)
{
    const gv_plan *plan = r->plan;
    bool good = true;
    for (size_t f = 0; f < plan->factor_count; f++) {
        for (size_t l = 0; l < plan->factors[f].count; l++) {
            const gv_settings *settings = &plan->factors[f].levels[l].environment;
            for (size_t i = 0; good && i < settings->count; i++)
                good = add_name(r, &r->varied, settings->items[i].name);
        }
    }
    for (size_t c = 0; c < plan->minimise.count; c++) {
        const gv_settings *settings = &plan->minimise.changes[c].environment;
        for (size_t i = 0; good && i < settings->count; i++)
            good = add_name(r, &r->varied, settings->items[i].name);
    }
    for (size_t i = 0; good && i < plan->service.environment.count; i++)
        good = add_name(r, &r->declared, plan->service.environment.items[i].name);
    for (size_t i = 0; good && i < r->varied.count; i++)
        good = add_name(r, &r->declared, r->varied.items[i]);
    return good;
}

static bool make_environment(runner *r)
{
    const gv_service *service = &r->plan->service;
    bool good = true;
    for (size_t i = 0; good && i < service->inherit.count; i++) {
        const char *value = getenv(service->inherit.items[i]);
        good = !value || put_setting(r, &r->environment, service->inherit.items[i], value);
    }
    good = good && put_settings(r, &r->environment, &service->environment);
    for (size_t c = 0; good && c < r->job->change_count; c++)
        good = put_settings(r, &r->environment, &r->job->changes[c]->environment);
    // Empty, but an array.
    if (good && !r->environment.items)
        good = add_text(r, &r->environment, gv_strdup("GRAVEL_LAB=1"));
    for (size_t i = 0; good && environ[i]; i++)
        good = add_text(r, &r->trial_environment, gv_strdup(environ[i]));
    good = good && put_settings(r, &r->trial_environment, &r->plan->trial.environment);
    // A unit gets only what the plan sets; the rest of its environment is its own.
    for (size_t i = 0; good && service->unit && i < r->declared.count; i++) {
        const char *name = r->declared.items[i];
        size_t length = strlen(name), at = 0;
        while (at < r->environment.count &&
               (strncmp(r->environment.items[at], name, length) != 0 || r->environment.items[at][length] != '='))
            at++;
        good = add_text(r, &r->unit_variables, gv_strdup(at < r->environment.count ? r->environment.items[at] : name));
    }
    return good;
}

static bool make_argv(runner *r, const gv_command_line *command, bool with_arguments, texts *argv)
{
    if (command->shell) {
        char *text = expand(r, command->shell);
        return text && add_text(r, argv, gv_strdup("/bin/sh")) && add_text(r, argv, gv_strdup("-c")) &&
               add_text(r, argv, text);
    }
    bool placed = !with_arguments, good = true;
    for (size_t i = 0; good && i <= command->words.count; i++) {
        bool here = i < command->words.count && strcmp(command->words.items[i], "${arguments}") == 0;
        // In the place the plan gives, else at the end.
        if (!placed && (here || i == command->words.count)) {
            placed = true;
            for (size_t c = 0; c < r->job->change_count; c++) {
                const gv_words *words = &r->job->changes[c]->arguments;
                for (size_t w = 0; good && w < words->count; w++) {
                    char *word = expand(r, words->items[w]);
                    good = word && add_text(r, argv, word);
                }
            }
        }
        if (good && i < command->words.count && !here) {
            char *word = expand(r, command->words.items[i]);
            good = word && add_text(r, argv, word);
        }
    }
    return good;
}

// Declared files, and the programs of the service and of the trial. By their real names, as the kernel shows them.
static bool add_declared(runner *r, const char *path)
{
    char *real = realpath(path, NULL);
    bool good = add_text(r, &r->files, gv_strdup(real ? real : path));
    free(real);
    return good;
}

static bool list_files(runner *r)
{
    const gv_service *service = &r->plan->service;
    bool good = true;
    for (size_t i = 0; good && i < service->files.count; i++) {
        char *pattern = expand(r, service->files.items[i]);
        char *path = pattern ? path_in(r->tree ? r->tree : r->plan->directory, pattern) : NULL;
        gv_free(pattern);
        if (!path)
            return r->attempt->reason[0] ? false : no_memory(r);
        glob_t found;
        if (glob(path, 0, NULL, &found) == 0) {
            for (size_t g = 0; good && g < found.gl_pathc; g++)
                good = add_declared(r, found.gl_pathv[g]);
            globfree(&found);
        } else {
            // It will be called missing.
            good = add_declared(r, path);
        }
        gv_free(path);
    }
    const texts *commands[] = {&r->argv, &r->trial_argv};
    const char *folders[] = {r->directory, r->trial_directory};
    for (size_t i = 0; good && i < 2; i++) {
        char *program = commands[i]->count ? gv_program_path(commands[i]->items[0], folders[i],
                                                             i ? r->trial_environment.items : r->environment.items)
                                           : NULL;
        if (program)
            good = add_declared(r, program);
        gv_free(program);
    }
    if (good && !r->files.items) {
        r->files.items = gv_calloc(1, sizeof *r->files.items);
        good = r->files.items || no_memory(r);
    }
    return good;
}

static bool choose_folders(runner *r)
{
    const gv_service *service = &r->plan->service;
    const char *base = r->tree ? r->tree : r->plan->directory;
    char *own = service->directory ? expand(r, service->directory) : gv_strdup(base);
    char *trial = r->plan->trial.directory ? expand(r, r->plan->trial.directory) : gv_strdup(r->plan->directory);
    if (own && trial) {
        r->directory = path_in(base, own);
        r->trial_directory = path_in(r->plan->directory, trial);
    }
    gv_free(own);
    gv_free(trial);
    r->log = path_in(r->job->folder, "service.log");
    r->trial_log = path_in(r->job->folder, "trial.out");
    r->trial_errors = path_in(r->job->folder, "trial.err");
    if (r->attempt->reason[0])
        return false;
    return (r->directory && r->trial_directory && r->log && r->trial_log && r->trial_errors) || no_memory(r);
}

// Everything that is known before the service starts.
static bool set_up(runner *r, bool ports)
{
    const gv_service *service = &r->plan->service;
    return set_variables(r, ports) && name_variables(r) && make_environment(r) &&
           make_argv(r, &service->command, true, &r->argv) &&
           make_argv(r, &r->plan->trial.command, false, &r->trial_argv) && choose_folders(r);
}

// ---- The steps ----------------------------------------------------------------------------------------------------

static bool make_tree(runner *r)
{
    const gv_service *service = &r->plan->service;
    gv_error error = {0};
    // What a killed gravel left of an attempt with this number is no result of anything.
    r->status = gv_remove_folder(r->job->folder, r->error);
    if (r->status == GV_OK)
        r->status = gv_make_folder(r->job->folder, r->error);
    if (r->status != GV_OK)
        return false;
    if (!service->git && !service->copy)
        return true;
    r->tree = path_in(r->job->folder, "tree");
    if (!r->tree)
        return no_memory(r);
    say(r, "making the source tree");
    gv_status status = gv_tree_make(r->plan, r->job->changes, r->job->change_count, r->tree, r->job->folder, &error);
    if (status == GV_OK)
        return true;
    r->attempt->permanent = status == GV_ERR_FORMAT;
    return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "%s", error.text);
}

static bool make_fix(runner *r)
{
    char *path = path_in(r->job->folder, "fix.json");
    gv_error error = {0};
    bool wanted = false;
    if (!path)
        return no_memory(r);
    gv_status status = gv_fix_make(r->plan, r->job->changes, r->job->change_count, path, &wanted, &error);
    if (wanted)
        gv_variables_set(&r->variables, "fix", path);
    gv_free(path);
    if (status == GV_OK)
        return true;
    r->attempt->permanent = true;
    return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "%s", error.text);
}

// A command that is run to its end beside the service: `prepare` and `stop`.
static bool run_beside(runner *r, const gv_command_line *command, const char *directory, const char *log_name,
                       double seconds, gv_error *error)
{
    texts argv = {0};
    char *log = path_in(r->job->folder, log_name);
    bool good = log && make_argv(r, command, false, &argv);
    if (good) {
        gv_child child;
        gv_spawn spawn = {.argv = argv.items,
                          .environment = r->environment.items,
                          .directory = directory,
                          .output = log,
                          .errors = log};
        good = gv_child_start(&spawn, &child, error) == GV_OK;
        if (good) {
            bool ended = gv_child_wait(&child, seconds, r->job->wake);
            gv_child_stop(&child, SIGTERM, 1);
            interrupted(r);
            good = ended && child.status == 0;
            if (!ended)
                gv_fail(error, GV_ERR_IO, "it did not end within %g s", seconds);
            else if (!good)
                gv_fail(error, GV_ERR_IO, "it ended with %s", gv_child_status_text(child.status));
        }
    }
    if (!good && log && !r->attempt->tail)
        r->attempt->tail = gv_file_tail(log, TAIL_BYTES);
    free_texts(&argv);
    gv_free(log);
    return good;
}

static bool prepare(runner *r)
{
    const gv_service *service = &r->plan->service;
    gv_error error = {0};
    if (!service->prepare.line)
        return true;
    say(r, "preparing the source");
    if (run_beside(r, &service->prepare, r->tree, "prepare.log", service->prepare_timeout, &error))
        return true;
    // A compiler says the same the next time.
    r->attempt->permanent = true;
    return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "`prepare` failed: %s", error.text);
}

static bool measure(runner *r, gv_stage stage)
{
    pid_t root = stage == GV_STAGE_BEFORE ? 0 : r->service.root, main = stage == GV_STAGE_BEFORE ? 0 : r->service.main;
    gv_error error = {0};
    r->status = gv_manifest_take(&r->meant, stage, root, main, &r->manifests[stage], r->error);
    if (r->status != GV_OK)
        return false;
    char *text = json_dumps(r->manifests[stage], JSON_COMPACT | JSON_SORT_KEYS);
    r->attempt->manifests[stage] = text ? gv_strdup(text) : NULL;
    free(text);
    if (!r->attempt->manifests[stage])
        return no_memory(r);
    if (gv_manifest_compare(&r->meant, r->manifests, &error) == GV_OK)
        return true;
    return give_up(r, GV_OUTCOME_VOID, "%s", error.text);
}

static bool start_service(runner *r)
{
    const gv_service *service = &r->plan->service;
    gv_error error = {0};
    gv_start start = {.spawn = {.argv = r->argv.items,
                                .environment = r->environment.items,
                                .directory = r->directory,
                                .output = r->log,
                                .errors = r->log},
                      .unit = service->unit,
                      .user_unit = service->user_unit,
                      .variables = r->unit_variables.items,
                      .scratch = r->job->folder};
    char *no_variables[] = {NULL};
    if (!start.variables)
        start.variables = no_variables;
    say(r, "starting the service");
    if (gv_running_start(&start, &r->service, &error) != GV_OK) {
        r->attempt->tail = gv_file_tail(r->log, TAIL_BYTES);
        return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "%s", error.text);
    }
    r->service_started = true;
    if (r->job->started && !service->unit)
        r->job->started(r->job->context, r->service.child.keeper, r->service.child.keeper_start);
    return true;
}

static bool service_gone(runner *r, const char *when)
{
    const char *how;
    if (!gv_running_ended(&r->service, 0, -1, &how))
        return false;
    r->attempt->tail = gv_file_tail(r->log, TAIL_BYTES);
    give_up(r, GV_OUTCOME_INFRASTRUCTURE, "the service ended %s: %s", when, how);
    return true;
}

// Asked while a request is under way.
static bool no_use_waiting(void *context)
{
    runner *r = context;
    const char *how;
    return interrupted(r) || gv_running_ended(&r->service, 0, -1, &how);
}

// One health check and one readiness request. False, with a message, when either is not good.
static bool answers(runner *r, double seconds, gv_error *error)
{
    const gv_service *service = &r->plan->service;
    const char *urls[] = {service->health, service->ready_url};
    for (int i = 0; i < 2; i++) {
        if (!urls[i])
            continue;
        char *url = expand(r, urls[i]), *body = i && service->ready_body ? expand(r, service->ready_body) : NULL;
        gv_answer_text answer = {0};
        gv_request request = {.url = url,
                              .body = body,
                              .headers = i ? &service->ready_headers : NULL,
                              .seconds = seconds < service->ready_timeout ? seconds : service->ready_timeout,
                              .give_up = no_use_waiting,
                              .context = r};
        bool good = url && (body || !(i && service->ready_body)) && gv_http(&request, &answer, error) == GV_OK;
        if (good && answer.code != 200) {
            gv_fail(error, GV_ERR_IO, "%s answered with HTTP %ld: %.120s", url, answer.code,
                    answer.text ? answer.text : "");
            good = false;
        }
        if (good && i && service->ready_expect) {
            json_t *json = json_loadb(answer.text ? answer.text : "", answer.length, 0, NULL);
            const json_t *wanted = gv_json_pointer(json, service->ready_expect);
            if (!wanted || json_is_null(wanted)) {
                gv_fail(error, GV_ERR_IO, "the answer of %s has nothing at %s: %.120s", url, service->ready_expect,
                        answer.text ? answer.text : "");
                good = false;
            }
            json_decref(json);
        }
        gv_free(answer.text);
        gv_free(url);
        gv_free(body);
        if (!good)
            return false;
    }
    return true;
}

static bool wait_ready(runner *r)
{
    const gv_service *service = &r->plan->service;
    double start = gv_now(), until = start + service->start_timeout, pause = 0.05;
    gv_error error = {0};
    say(r, "waiting until the service answers");
    for (;;) {
        const char *how;
        bool ended = gv_running_ended(&r->service, pause, r->job->wake, &how);
        if (interrupted(r))
            return false;
        if (ended) {
            service_gone(r, "before it was ready");
            return false;
        }
        double left = until - gv_now();
        if (left > 0 && answers(r, left, &error)) {
            r->attempt->start_seconds = gv_now() - start;
            return true;
        }
        if (r->attempt->permanent || interrupted(r))
            return false;
        if (gv_now() >= until) {
            r->attempt->tail = gv_file_tail(r->log, TAIL_BYTES);
            return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "the service was not ready within %g s: %s",
                           service->start_timeout, error.text);
        }
        pause = pause < 0.5 ? pause * 1.5 : 1;
    }
}

static bool read_counts(runner *r)
{
    const gv_counts *counts = &r->plan->trial.counts;
    gv_error error = {0};
    char *name = counts->file ? expand(r, counts->file) : NULL;
    char *path = counts->file ? name ? path_in(r->trial_directory, name) : NULL : gv_strdup(r->trial_log);
    char *text = NULL;
    size_t length = 0;
    gv_free(name);
    if (!path)
        return r->attempt->reason[0] ? false : no_memory(r);
    gv_status status = gv_read_whole(path, MOST_COUNTS, &text, &length, &error);
    if (status == GV_OK)
        status = gv_counts_read(counts, text, length, &r->attempt->counted, &error);
    gv_free(path);
    gv_free(text);
    if (status != GV_OK) {
        r->attempt->tail = gv_file_tail(r->trial_errors, TAIL_BYTES);
        return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "%s", error.text);
    }
    const gv_counted *counted = &r->attempt->counted;
    r->attempt->judged = counted->sessions - counted->failed - counted->unsure;
    if (counted->failed > r->plan->trial.failed_allowed)
        return give_up(r, GV_OUTCOME_INFRASTRUCTURE,
                       "%llu of %llu sessions failed (no answer, or none in time); the plan "
                       "allows %llu",
                       (unsigned long long)counted->failed, (unsigned long long)counted->sessions,
                       (unsigned long long)r->plan->trial.failed_allowed);
    if (r->attempt->judged == 0)
        return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "none of the %llu sessions says anything",
                       (unsigned long long)counted->sessions);
    return true;
}

static bool run_trial(runner *r)
{
    const gv_trial_plan *trial = &r->plan->trial;
    gv_error error = {0};
    gv_child child;
    gv_spawn spawn = {.argv = r->trial_argv.items,
                      .environment = r->trial_environment.items,
                      .directory = r->trial_directory,
                      .output = r->trial_log,
                      .errors = r->trial_errors};
    say(r, "running the trial");
    if (gv_child_start(&spawn, &child, &error) != GV_OK) {
        r->attempt->permanent = true;
        return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "%s", error.text);
    }
    if (r->job->started)
        r->job->started(r->job->context, child.keeper, child.keeper_start);
    double until = gv_now() + trial->timeout;
    bool gone = false;
    while (!gv_child_wait(&child, 0.2, r->job->wake) && !interrupted(r) && !gone && gv_now() < until)
        gone = service_gone(r, "while the trial ran");
    bool ended = child.ended;
    int status = child.status;
    gv_child_stop(&child, SIGTERM, 2);
    if (r->attempt->interrupted || gone)
        return false;
    if (!ended) {
        r->attempt->tail = gv_file_tail(r->trial_errors, TAIL_BYTES);
        return give_up(r, GV_OUTCOME_TIMED_OUT, "the trial's command did not end within %g s", trial->timeout);
    }
    // 1 is what gravel stress and other checkers say when they found something, 4 what gravel stress says when sessions
    // failed, which the counts tell better.
    bool usual = WIFEXITED(status) && (WEXITSTATUS(status) <= 1 || WEXITSTATUS(status) == 4);
    if (!usual) {
        r->attempt->tail = gv_file_tail(r->trial_errors, TAIL_BYTES);
        return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "the trial's command ended with %s", gv_child_status_text(status));
    }
    return true;
}

// A service that answered the trial's last session may be dying of it all the same.
static bool still_answers(runner *r)
{
    gv_error error = {0};
    if (service_gone(r, "as the trial ended"))
        return false;
    if (answers(r, r->plan->service.ready_timeout, &error) || interrupted(r))
        return !r->attempt->interrupted;
    r->attempt->tail = gv_file_tail(r->log, TAIL_BYTES);
    return give_up(r, GV_OUTCOME_INFRASTRUCTURE, "the service no longer answers after the trial: %s", error.text);
}

static void stop_service(runner *r)
{
    const gv_service *service = &r->plan->service;
    if (!r->service_started)
        return;
    say(r, "stopping the service");
    gv_error error = {0};
    if (service->stop.line && !r->attempt->interrupted)
        run_beside(r, &service->stop, r->directory, "stop.log", service->stop_timeout, &error);
    bool gone = gv_running_stop(&r->service, service->stop_signal, service->stop_timeout);
    // The next trial would run beside it.
    if (!gone && r->status == GV_OK)
        r->status = gv_fail(r->error, GV_ERR_IO,
                            "a process of the service cannot be killed (it sleeps in the kernel); "
                            "restart the machine before the next trial");
}

static void run_steps(runner *r)
{
    bool good = make_tree(r) && make_fix(r) && set_up(r, true) && prepare(r) && list_files(r);
    if (!good || interrupted(r))
        return;
    r->meant = (gv_meant){.environment = r->environment.items,
                          .declared = &r->declared,
                          .varied = &r->varied,
                          .files = (const char *const *)r->files.items,
                          .tree = r->tree,
                          .git = r->tree && r->plan->service.git};
    if (measure(r, GV_STAGE_BEFORE) && !interrupted(r) && start_service(r) && wait_ready(r) &&
        measure(r, GV_STAGE_STARTED) && run_trial(r) && read_counts(r) && still_answers(r) &&
        measure(r, GV_STAGE_AFTER))
        r->attempt->outcome = GV_OUTCOME_COUNTED;
    stop_service(r);
}

static void clean_up(runner *r)
{
    for (int i = 0; i < GV_STAGE_COUNT; i++)
        json_decref(r->manifests[i]);
    gv_variables_free(&r->variables);
    texts *lists[] = {&r->argv, &r->environment, &r->unit_variables, &r->trial_argv, &r->trial_environment, &r->files};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free_texts(lists[i]);
    gv_free(r->declared.items);
    gv_free(r->varied.items);
    char *paths[] = {r->tree, r->directory, r->trial_directory, r->log, r->trial_log, r->trial_errors};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        gv_free(paths[i]);
}

gv_status gv_attempt_run(const gv_job *job, gv_attempt *attempt, gv_error *error)
{
    *attempt = (gv_attempt){.outcome = GV_OUTCOME_PENDING};
    runner r = {.job = job, .plan = job->plan, .attempt = attempt, .error = error, .service.child.socket = -1};
    double start = gv_now();
    run_steps(&r);
    if (r.tree) {
        gv_error removal = {0};
        gv_status removed = gv_tree_remove(r.plan, r.tree, &removal);
        if (removed != GV_OK && r.status == GV_OK)
            r.status = gv_fail(error, removed, "%s", removal.text);
    }
    attempt->seconds = gv_now() - start;
    if (attempt->interrupted)
        attempt->outcome = GV_OUTCOME_PENDING;
    clean_up(&r);
    if (r.status != GV_OK)
        gv_attempt_free(attempt);
    return r.status;
}

void gv_attempt_free(gv_attempt *attempt)
{
    gv_free(attempt->tail);
    gv_counted_free(&attempt->counted);
    for (int i = 0; i < GV_STAGE_COUNT; i++)
        gv_free(attempt->manifests[i]);
    *attempt = (gv_attempt){0};
}

// ---- Checking -----------------------------------------------------------------------------------------------------

// Expands every text of the plan that an attempt would expand.
static bool check_texts(runner *r)
{
    const gv_service *service = &r->plan->service;
    const char *plain[] = {service->health, service->ready_url, service->ready_body, r->plan->trial.counts.file};
    bool good = set_up(r, false);
    for (size_t i = 0; good && i < sizeof plain / sizeof *plain; i++) {
        char *text = plain[i] ? expand(r, plain[i]) : NULL;
        good = !plain[i] || text;
        gv_free(text);
    }
    for (size_t i = 0; good && i < service->files.count; i++) {
        char *text = expand(r, service->files.items[i]);
        good = text != NULL;
        gv_free(text);
    }
    const gv_command_line *commands[] = {&service->stop, &service->prepare};
    for (size_t i = 0; good && i < 2; i++) {
        texts words = {0};
        good = make_argv(r, commands[i], false, &words);
        free_texts(&words);
    }
    return good;
}

gv_status gv_attempt_check(const gv_plan *plan, gv_error *error)
{
    gv_status status = GV_OK;
    // Each level and each change once: a placeholder may stand in one of them alone.
    size_t most = plan->minimise.count;
    for (size_t f = 0; f < plan->factor_count; f++)
        most = plan->factors[f].count > most ? plan->factors[f].count : most;
    for (size_t i = 0; status == GV_OK && i < most; i++) {
        gv_change *changes[GV_LAB_MOST_FACTORS + 1];
        gv_cell cell = {{0}};
        size_t count = 0;
        for (size_t f = 0; f < plan->factor_count; f++) {
            cell.level[f] = (unsigned char)(i < plan->factors[f].count ? i : 0);
            changes[count++] = &plan->factors[f].levels[cell.level[f]];
        }
        if (i < plan->minimise.count)
            changes[count++] = &plan->minimise.changes[i];
        gv_attempt attempt = {0};
        gv_job job = {.plan = plan,
                      .changes = changes,
                      .change_count = count,
                      .cell = &cell,
                      .subject = "a cell",
                      .trial = 1,
                      .attempt = 1,
                      .block = 1,
                      .folder = "/nowhere",
                      .gravel = "gravel",
                      .wake = -1};
        runner r = {.job = &job, .plan = plan, .attempt = &attempt, .error = error, .service.child.socket = -1};
        if (plan->service.git || plan->service.copy)
            r.tree = gv_strdup("/nowhere/tree");
        gv_variables_set(&r.variables, "fix", "/nowhere/fix.json");
        if (!check_texts(&r))
            status = r.status != GV_OK ? r.status : gv_fail(error, GV_ERR_USAGE, "%s: %s", plan->path, attempt.reason);
        clean_up(&r);
        gv_attempt_free(&attempt);
    }
    return status;
}
