// Options of the engine on the command line.
#include "specimen/commands.h"
#include "specimen/faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char engine_options_help[] =
    "  --keys bf16|fp8        format of the index's keys (default bf16)\n"
    "  --graph, --eager       decode by captured graphs (default), or launch every kernel\n"
    "  --breakable            capture segments, with the index's search eager between them\n"
    "  --overlap on|off       run the indexer and others in side streams (default on)\n"
    "  --batch N              requests that decode at a time (default 8)\n"
    "  --buckets N,N,...      batch sizes to capture (default 1, 2, 4, 8, 12, 16, ... up to --batch)\n"
    "  --repair[=keep|record] repair the incident: keep the tensor until the streams join (default),\n"
    "                         or tell the allocator of the streams that use it\n"
    "  --prove-reuse          let the allocator reuse recorded blocks in a capture once that is proved safe\n"
    "  --fault NAME           switch a fault or decoy on; may be given more than once (gravel-specimen faults)\n"
    "  --pages N              pages of the cache (default: enough)\n"
    "  --hold NANOSECONDS     makes the indexer's first kernel so much longer\n"
    "  --probe                under `gravel run --probe`: compute the index's logits again behind each replay, from\n"
    "                         clones of their inputs, and compare\n"
    "  --kernels FOLDER       where kernels.so and kernels.fatbin are (default: specimen/ beside the program)\n";

bool option_number(const char *option, const char *argument, long long least, long long most, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(argument, &end, 10);
    if (!errno && end != argument && !*end && *value >= least && *value <= most)
        return true;
    fprintf(stderr, "gravel-specimen: %s wants a number from %lld to %lld, not \"%s\"\n", option, least, most,
            argument);
    return false;
}

// One of two words.
static bool choose(const char *option, const char *argument, const char *first, const char *second, bool *is_second)
{
    *is_second = !strcmp(argument, second);
    if (*is_second || !strcmp(argument, first))
        return true;
    fprintf(stderr, "gravel-specimen: %s is %s or %s, not \"%s\"\n", option, first, second, argument);
    return false;
}

static bool set_buckets(engine_config *config, const char *argument)
{
    char *copy = strdup(argument), *rest = copy;
    bool ok = copy != NULL;
    config->bucket_count = 0;
    for (char *item; ok && (item = strsep(&rest, ","));) {
        long long value = 0;
        ok = option_number("--buckets", item, 1, ENGINE_MAX_BATCH, &value);
        if (ok && config->bucket_count == ENGINE_MAX_BUCKETS) {
            fprintf(stderr, "gravel-specimen: --buckets takes at most %d sizes\n", ENGINE_MAX_BUCKETS);
            ok = false;
        }
        if (ok)
            config->buckets[config->bucket_count++] = (int)value;
    }
    free(copy);
    return ok;
}

static bool set_fault(engine_config *config, const char *name)
{
    int index = fault_find(name);
    if (index >= 0) {
        config->faults |= UINT32_C(1) << index;
        return true;
    }
    fprintf(stderr, "gravel-specimen: there is no fault \"%s\"; `gravel-specimen faults` lists them\n", name);
    return false;
}

bool engine_option(engine_config *config, int code, const char *argument)
{
    long long number = 0;
    bool second = false, ok = true;
    switch (code) {
    case 1000:
        ok = choose("--keys", argument, "bf16", "fp8", &second);
        config->keys = second ? ENGINE_KEYS_FP8 : ENGINE_KEYS_BF16;
        return ok;
    case 1001: config->graph = false; return true;
    case 1002: config->graph = true; return true;
    case 1003: config->graph = config->breakable = true; return true;
    case 1004:
        ok = choose("--overlap", argument, "on", "off", &second);
        config->overlap = !second;
        return ok;
    case 1005:
        ok = option_number("--batch", argument, 1, ENGINE_MAX_BATCH, &number);
        config->batch_limit = (int)number;
        return ok;
    case 1006: return set_buckets(config, argument);
    case 1007: return set_fault(config, argument);
    case 1008:
        ok = !argument || choose("--repair", argument, "keep", "record", &second);
        config->repair = second ? ENGINE_REPAIR_RECORD_STREAM : ENGINE_REPAIR_KEEP;
        return ok;
    case 1009: config->prove_reuse = true; return true;
    case 1010:
        ok = option_number("--pages", argument, 1, 1 << 20, &number);
        config->pages = (int)number;
        return ok;
    case 1011:
        ok = option_number("--hold", argument, 0, 1000000000, &number);
        config->hold_ns = (uint64_t)number;
        return ok;
    case 1020: config->probe = true; return true;
    case 1012: config->kernels = argument; return true;
    }
    return false;
}
