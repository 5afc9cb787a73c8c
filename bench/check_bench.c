// Benchmark of `gravel check`'s work on generated traces. Subcommands, each one process so that its memory is its own:
//   generate FILE SHAPE...   writes the trace
//   check FILE SHAPE...      loads it and runs all detectors, verifies the planted races, prints times and memory
//   pairs FILE               the same races by comparing all unordered pairs of nodes
//   run COMMAND...           runs a command and prints its times and memory
// SHAPE is NODES CHAINS EDGES RANGES-PER-NODE RACES SEED; 0 EDGES leaves their number open.
#include "plan.h"

#include "access/range_set.h"
#include "base/memory.h"
#include "detect/detect.h"
#include "order/graph_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int complain(const gv_error *error)
{
    fprintf(stderr, "check_bench: %s\n", error->text);
    return 1;
}

static double megabytes(long kilobytes)
{
    return (double)kilobytes / 1024;
}

static bool parse_shape(char **arguments, bench_shape *shape)
{
    uint64_t numbers[6];
    for (size_t i = 0; i < 6; i++) {
        char *end;
        if (!arguments[i])
            return false;
        numbers[i] = strtoull(arguments[i], &end, 10);
        if (*end)
            return false;
    }
    *shape = (bench_shape){.nodes = (uint32_t)numbers[0],
                           .chains = (uint32_t)numbers[1],
                           .edges = (uint32_t)numbers[2],
                           .ranges_per_node = (uint32_t)numbers[3],
                           .races = (uint32_t)numbers[4],
                           .seed = numbers[5]};
    return shape->nodes > 2 && shape->chains > 0;
}

static int generate(const char *path, const bench_shape *shape)
{
    gv_error error = {0};
    bench_plan plan;
    uint64_t ranges;
    if (bench_plan_make(shape, &plan, &error))
        return complain(&error);
    gv_status status = bench_plan_write(&plan, path, &ranges, &error);
    if (!status)
        printf("generate: %u nodes, %u chains, %zu edges, %llu ranges, %u planted races\n", shape->nodes, shape->chains,
               plan.edge_count, (unsigned long long)ranges, shape->races);
    bench_plan_free(&plan);
    return status ? complain(&error) : 0;
}

// Are the races found exactly the planted ones?
static bool is_planted(const bench_plan *plan, const gv_race_pair *pair)
{
    for (uint32_t i = 0; i < plan->shape.races; i++) {
        const bench_race *race = &plan->races[i];
        if (race->first != pair->first.node || race->second != pair->second.node)
            continue;
        enum gv_finding_id id = race->first_kind == 1    ? GV_FINDING_RACE_WAR
                                : race->second_kind == 1 ? GV_FINDING_RACE_RAW
                                                         : GV_FINDING_RACE_WAW;
        return pair->bytes == race->bytes && pair->id == id;
    }
    return false;
}

static bool verify(const bench_plan *plan, const gv_findings *findings)
{
    size_t found = 0;
    for (size_t i = 0; i < findings->count; i++) {
        const gv_finding *finding = &findings->items[i];
        for (size_t p = 0; p < finding->pair_count; p++) {
            if (!is_planted(plan, &finding->pairs[p])) {
                fprintf(stderr, "check_bench: nodes %u and %u race on %llu bytes, which is not planted\n",
                        finding->pairs[p].first.node, finding->pairs[p].second.node,
                        (unsigned long long)finding->pairs[p].bytes);
                return false;
            }
            found++;
        }
    }
    if (found != plan->shape.races)
        fprintf(stderr, "check_bench: %zu of %u planted races were found\n", found, plan->shape.races);
    return found == plan->shape.races;
}

// Wall and processor seconds of the two halves of a check.
typedef struct check_times {
    double load, detect, load_cpu, detect_cpu;
} check_times;

static gv_status check_once(const char *path, gv_trace **trace, gv_findings *findings, check_times *times,
                            gv_error *error)
{
    double start = seconds(CLOCK_MONOTONIC), start_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    gv_status status = gv_trace_load(path, trace, error);
    double loaded = seconds(CLOCK_MONOTONIC), loaded_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (!status)
        status = gv_detect(*trace, findings, error);
    *times = (check_times){.load = loaded - start,
                           .detect = seconds(CLOCK_MONOTONIC) - loaded,
                           .load_cpu = loaded_cpu - start_cpu,
                           .detect_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - loaded_cpu};
    return status;
}

static void print_check(const char *name, const check_times *t, size_t findings)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s: %.4f s (load %.4f, detect %.4f), cpu %.4f s (load %.4f, detect %.4f), peak %.0f MiB, %zu findings\n",
           name, t->load + t->detect, t->load, t->detect, t->load_cpu + t->detect_cpu, t->load_cpu, t->detect_cpu,
           megabytes(usage.ru_maxrss), findings);
}

static int check(const char *path, const bench_shape *shape)
{
    enum { REPEATS = 20 };
    gv_error error = {0};
    gv_trace *trace;
    gv_findings findings = {0};
    check_times times, best;
    if (check_once(path, &trace, &findings, &times, &error))
        return complain(&error);
    print_check("check", &times, findings.count);
    // The first run of a small one is mostly page faults; the best of several says what the work itself takes.
    best = times;
    for (int i = 0; times.load + times.detect < 0.1 && i < REPEATS; i++) {
        gv_findings_free(&findings);
        gv_trace_free(trace);
        if (check_once(path, &trace, &findings, &times, &error))
            return complain(&error);
        if (times.load + times.detect < best.load + best.detect)
            best = times;
    }
    if (times.load + times.detect < 0.1)
        print_check("best of 21", &best, findings.count);
    // The plan is made only now, so that its memory does not count.
    bench_plan plan;
    if (bench_plan_make(shape, &plan, &error))
        return complain(&error);
    bool ok = verify(&plan, &findings);
    bench_plan_free(&plan);
    gv_findings_free(&findings);
    gv_trace_free(trace);
    return ok ? 0 : 1;
}

// ---- All pairs --------------------------------------------------------------------------------------------------

typedef struct node_sets {
    gv_range_set reads, writes;
} node_sets;

static bool conflicts(const node_sets *a, const node_sets *b)
{
    return gv_range_set_overlaps(&a->writes, &b->writes) || gv_range_set_overlaps(&a->writes, &b->reads) ||
           gv_range_set_overlaps(&a->reads, &b->writes);
}

static int all_pairs(const char *path)
{
    gv_error error = {0};
    gv_trace *trace;
    if (gv_trace_load(path, &trace, &error))
        return complain(&error);
    const gv_graph *graph = &trace->graphs[1];
    gv_graph_order *order;
    if (gv_graph_order_build(graph->node_count, graph->edges, graph->edge_count, NULL, &order, &error))
        return complain(&error);
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    node_sets *sets = gv_calloc(graph->node_count, sizeof *sets);
    for (size_t i = 0; sets && i < trace->access_count; i++) {
        node_sets *at = &sets[trace->accesses[i].node];
        if (gv_range_set_decode(&at->reads, trace->accesses[i].reads, &error) ||
            gv_range_set_decode(&at->writes, trace->accesses[i].writes, &error))
            return complain(&error);
    }
    size_t compared = 0, races = 0;
    for (uint32_t a = 0; sets && a < graph->node_count; a++) {
        for (uint32_t b = a + 1; b < graph->node_count; b++) {
            if (gv_graph_order_between(order, a, b) != GV_UNORDERED)
                continue;
            compared++;
            races += conflicts(&sets[a], &sets[b]);
        }
    }
    printf("all pairs: %.4f s, cpu %.4f s, %zu unordered pairs compared, %zu race\n", seconds(CLOCK_MONOTONIC) - wall,
           seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, compared, races);
    for (size_t n = 0; sets && n < graph->node_count; n++) {
        gv_range_set_free(&sets[n].reads);
        gv_range_set_free(&sets[n].writes);
    }
    gv_free(sets);
    gv_graph_order_free(order);
    gv_trace_free(trace);
    return 0;
}

// One run of a command with its output thrown away.
typedef struct run_times {
    double wall, cpu, peak; // seconds, seconds, MiB
    long faults;            // pages mapped in
    int code;
} run_times;

static bool run_once(char **command, run_times *times)
{
    double wall = seconds(CLOCK_MONOTONIC);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(127);
        execv(command[0], command);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
        fprintf(stderr, "check_bench: %s failed\n", command[0]);
        return false;
    }
    times->wall = seconds(CLOCK_MONOTONIC) - wall;
    times->cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    times->peak = megabytes(usage.ru_maxrss);
    times->faults = usage.ru_minflt;
    times->code = WEXITSTATUS(status);
    return true;
}

static int by_wall(const void *left, const void *right)
{
    const run_times *a = left, *b = right;
    return a->wall < b->wall ? -1 : a->wall > b->wall;
}

static void print_run(const char *which, size_t runs, const run_times *times)
{
    printf("%s of %zu: %.4f s, cpu %.4f s, peak %.0f MiB, %ld page faults, exit code %d\n", which, runs, times->wall,
           times->cpu, times->peak, times->faults, times->code);
}

// A short command is run again, since one run of some milliseconds tells more about the machine than about it. The
// median is printed beside the best, which alone would hide what a user waits for.
static int run(char **command)
{
    enum { SHORT_RUNS = 101 };
    static run_times times[SHORT_RUNS];
    size_t runs = 0;
    do {
        if (!run_once(command, &times[runs++]))
            return 1;
    } while (times[0].wall < 0.1 && runs < SHORT_RUNS);
    qsort(times, runs, sizeof *times, by_wall);
    print_run("process, best", runs, &times[0]);
    if (runs > 1)
        print_run("   median", runs, &times[runs / 2]);
    return 0;
}

int main(int count, char **arguments)
{
    bench_shape shape;
    const char *verb = count > 2 ? arguments[1] : "";
    if (strcmp(verb, "run") == 0)
        return run(arguments + 2);
    if (strcmp(verb, "pairs") == 0)
        return all_pairs(arguments[2]);
    bool generates = strcmp(verb, "generate") == 0;
    if ((generates || strcmp(verb, "check") == 0) && count == 9 && parse_shape(arguments + 3, &shape))
        return generates ? generate(arguments[2], &shape) : check(arguments[2], &shape);
    fprintf(stderr, "usage: check_bench generate|check FILE NODES CHAINS EDGES RANGES-PER-NODE RACES SEED\n"
                    "       check_bench pairs FILE\n       check_bench run COMMAND...\n");
    return 2;
}
