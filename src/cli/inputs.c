#include "cli/inputs.h"

#include "base/memory.h"
#include "cli/cli.h"
#include "detect/detect.h"

bool gv_inputs_suppress(gv_inputs *inputs, const char *path)
{
    gv_error error = {0};
    if (!GV_GROW(inputs->suppressions, inputs->suppression_capacity, inputs->suppression_count + 1)) {
        gv_say("out of memory while %s was read", path);
        return false;
    }
    gv_suppressions *added = &inputs->suppressions[inputs->suppression_count++];
    *added = (gv_suppressions){0};
    if (gv_suppressions_read(added, path, &error) == GV_OK)
        return true;
    gv_say("%s", error.text);
    return false;
}

bool gv_inputs_load(gv_inputs *inputs, char **paths, size_t count)
{
    bool all = true;
    if (!GV_GROW(inputs->traces, inputs->trace_capacity, inputs->trace_count + count)) {
        gv_say("out of memory");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        gv_error error = {0};
        if (gv_trace_load(paths[i], &inputs->traces[inputs->trace_count], &error) == GV_OK) {
            inputs->trace_count++;
        } else {
            gv_say("%s", error.text);
            all = false;
        }
    }
    return all;
}

gv_status gv_inputs_find(const gv_inputs *inputs, gv_findings *findings, gv_error *error)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i < inputs->trace_count && status == GV_OK; i++)
        status = gv_detect(inputs->traces[i], findings, error);
    for (size_t i = 0; i < inputs->suppression_count && status == GV_OK; i++)
        status = gv_suppressions_apply(&inputs->suppressions[i], findings, error);
    return status;
}

void gv_inputs_free(gv_inputs *inputs)
{
    for (size_t i = 0; i < inputs->trace_count; i++)
        gv_trace_free(inputs->traces[i]);
    gv_free(inputs->traces);
    for (size_t i = 0; i < inputs->suppression_count; i++)
        gv_suppressions_free(&inputs->suppressions[i]);
    gv_free(inputs->suppressions);
    *inputs = (gv_inputs){0};
}
