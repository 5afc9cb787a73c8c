#include "record/source.h"

#include "base/memory.h"
#include "record/recorder.h"

#include <stdio.h>

const gv_recording_source *gv_source(const char **why)
{
    if (gv_state.soft)
        return gv_source_soft_ready(why) ? &gv_source_soft : NULL;
    return gv_source_sanitizer_ready(why) ? &gv_source_sanitizer : NULL;
}

void gv_source_describe(char *text, size_t size)
{
    const char *why = "";
    const gv_recording_source *source = gv_source(&why);
    if (source == &gv_source_soft)
        snprintf(text, size, "soft");
    else if (source)
        snprintf(text, size, "sanitizer %s", gv_sanitizer_library());
    else
        snprintf(text, size, "none: %s", why);
}

unsigned gv_source_function_flags(CUfunction function, const char *name)
{
    return gv_state.soft ? gv_soft_function_flags(name) : gv_sanitizer_function_flags(function, name);
}

bool gv_source_variables(CUcontext context, gv_variables *variables)
{
    return gv_state.soft ? gv_soft_variables(variables) : gv_sanitizer_variables(context, variables);
}

void gv_variables_free(gv_variables *variables)
{
    gv_free(variables->items);
    gv_free(variables->unknown);
    *variables = (gv_variables){0};
}

void gv_source_loading_own(bool begins)
{
    if (!gv_state.soft)
        gv_sanitizer_loading_own(begins);
}

unsigned gv_source_blind_flags(CUfunction function, const char *name)
{
    return gv_state.soft ? gv_soft_function_flags(name) : gv_sanitizer_blind_flags(function, name);
}
