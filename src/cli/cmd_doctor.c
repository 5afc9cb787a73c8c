// gravel doctor: what will and will not work on this machine, each point with its remedy.
#include "cli/cli.h"
#include "cli/doctor_checks.h"
#include "report/format.h"
#include "report/json_writer.h"

#include <stdio.h>

enum { OPTION_JSON = 256, LABEL_WIDTH = 31 };

static const gv_option options[] = {
    {OPTION_JSON, "json", NULL, "Print the answers as JSON (schema \"gravel-doctor\" version 1)."},
};

// What the checks amount to, for the two ways of recording.
typedef struct verdict {
    bool base;         // a program can be run with the recorder in it
    bool gpu, soft;    // recording works
    bool gpu_accesses; // on a GPU, what kernels access can be recorded too
} verdict;

static verdict judge(const gv_check *checks)
{
    verdict result = {.base = checks[GV_CHECK_LIBRARIES].state == GV_CHECK_OK &&
                              checks[GV_CHECK_LINKER].state == GV_CHECK_OK};
    result.gpu = result.base && checks[GV_CHECK_DRIVER].state != GV_CHECK_MISSING;
    result.soft = result.base && checks[GV_CHECK_SOFT].state == GV_CHECK_OK;
    result.gpu_accesses = result.gpu && checks[GV_CHECK_DRIVER].state == GV_CHECK_OK &&
                          checks[GV_CHECK_SANITIZER].state == GV_CHECK_OK &&
                          checks[GV_CHECK_PATCHES].state == GV_CHECK_OK;
    return result;
}

static const char *state_name(enum gv_check_state state)
{
    static const char *const names[] = {"ok", "limited", "missing"};
    return names[state];
}

static void print_text(const gv_check *checks, const verdict *result)
{
    printf("gravel " GRAVEL_VERSION " on this machine:\n\n");
    for (size_t i = 0; i < GV_CHECK_COUNT; i++) {
        char label[64];
        snprintf(label, sizeof label, "  %-8s %-*s", state_name(checks[i].state), LABEL_WIDTH - 11, checks[i].title);
        gv_print_wrapped(stdout, label, LABEL_WIDTH, GV_REPORT_WIDTH, checks[i].found);
        if (checks[i].remedy[0]) {
            snprintf(label, sizeof label, "%*s", LABEL_WIDTH, "");
            gv_print_wrapped(stdout, label, LABEL_WIDTH, GV_REPORT_WIDTH, checks[i].remedy);
        }
    }
    const char *gpu = result->gpu_accesses ? "works."
                      : result->gpu ? "works for graphs, order, copies and sets. What kernels access cannot be seen "
                                      "(see above), so that their graphs will be reported as not complete."
                                    : "does not work (see above).";
    printf("\n");
    gv_print_wrapped(stdout, "Recording on a GPU:                          ", 2, GV_REPORT_WIDTH, gpu);
    gv_print_wrapped(stdout, "Recording on the software driver (--soft):   ", 2, GV_REPORT_WIDTH,
                     result->soft ? "works." : "does not work (see above).");
    printf("Reading traces (gravel check, gravel show):  works anywhere.\n");
}

static void print_json(const gv_check *checks, const verdict *result)
{
    gv_json json = {.out = stdout};
    gv_json_open(&json, NULL, '{');
    gv_json_text(&json, "schema", "gravel-doctor");
    gv_json_number(&json, "version", 1);
    gv_json_text(&json, "gravel", GRAVEL_VERSION);
    gv_json_open(&json, "checks", '[');
    for (size_t i = 0; i < GV_CHECK_COUNT; i++) {
        gv_json_open(&json, NULL, '{');
        gv_json_text(&json, "id", checks[i].id);
        gv_json_text(&json, "state", state_name(checks[i].state));
        gv_json_text(&json, "found", checks[i].found);
        gv_json_text(&json, "remedy", checks[i].remedy[0] ? checks[i].remedy : NULL);
        gv_json_close(&json);
    }
    gv_json_close(&json);
    gv_json_bool(&json, "gpu", result->gpu);
    gv_json_bool(&json, "gpu_accesses", result->gpu_accesses);
    gv_json_bool(&json, "soft", result->soft);
    gv_json_close(&json);
}

static int run(const gv_command *command, int argc, char **argv)
{
    gv_parser parser = gv_parser_open(command, argc, argv);
    bool json = false;
    for (int id; (id = gv_parse_next(&parser)) != GV_PARSE_END;) {
        switch (id) {
        case GV_PARSE_HELP: return GV_EXIT_NONE;
        case GV_PARSE_BAD: return GV_EXIT_USAGE;
        case OPTION_JSON: json = true; break;
        default: break;
        }
    }
    if (parser.first_operand < argc)
        return gv_usage(command, "doctor takes no operand; \"%s\" is too much", argv[parser.first_operand]);
    static gv_install install; // large: paths
    static gv_check checks[GV_CHECK_COUNT];
    gv_install_find(&install);
    gv_doctor_examine(&install, checks);
    verdict result = judge(checks);
    if (json)
        print_json(checks, &result);
    else
        print_text(checks, &result);
    return result.gpu || result.soft ? GV_EXIT_NONE : GV_EXIT_FINDINGS;
}

const gv_command gv_command_doctor = {
    .name = "doctor",
    .summary = "Say what will and will not work on this machine",
    .synopsis = "[OPTION...]",
    .about = "Looks at what recording needs: gravel's own libraries, the dynamic linker, drivers, NVIDIA's Sanitizer "
             "library, "
             "Python. Says for each what was found and, where something is missing, what to do.",
    GV_OPTIONS(options),
    .closing = "Exit code: 0 recording works on a GPU or on the software driver, 1 it works on neither,\n"
               "2 wrong usage.\n",
    .run = run,
};
