#include "record/pattern.h"

#include "base/memory.h"
#include "record/python_stack.h"
#include "record/recorder.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

gv_pattern *gv_patterns_parse(const char *text, size_t *count)
{
    gv_pattern *patterns = NULL;
    size_t capacity = 0;
    *count = 0;
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\n");
        const char *why = "memory ran out";
        if (length && GV_GROW(patterns, capacity, *count + 1) && gv_pattern_parse(at, length, &patterns[*count], &why))
            ++*count;
        else if (length)
            gv_say("--canary-region \"%.*s\" is ignored: %s", (int)length, at, why);
        at += length + (at[length] == '\n');
    }
    return patterns;
}

// ---- The stack of the call ----

static bool python_has(const char *text)
{
    gv_python_stack stack;
    bool found = false;
    gv_python_stack_read(&stack);
    for (size_t i = 0; i < stack.count && !found; i++) {
        const gv_python_line *frame = &stack.frames[i];
        char line[512];
        snprintf(line, sizeof line, "%.*s:%llu %.*s", (int)frame->file_length, stack.text + frame->file,
                 (unsigned long long)frame->line, (int)frame->function_length, stack.text + frame->function);
        found = strstr(line, text) != NULL;
    }
    gv_python_stack_release(&stack);
    return found;
}

typedef struct host_search {
    const char *text;
    unsigned frames;
    bool found;
} host_search;

static _Unwind_Reason_Code look_at_frame(struct _Unwind_Context *unwinding, void *user)
{
    enum { MOST_FRAMES = 48 };
    host_search *search = user;
    Dl_info info;
    if (dladdr((void *)(uintptr_t)_Unwind_GetIP(unwinding), &info))
        search->found = (info.dli_sname && strstr(info.dli_sname, search->text)) ||
                        (info.dli_fname && strstr(info.dli_fname, search->text));
    return search->found || ++search->frames == MOST_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static bool host_has(const char *text)
{
    host_search search = {.text = text};
    _Unwind_Backtrace(look_at_frame, &search);
    return search.found;
}

const gv_pattern *gv_pattern_find(const gv_pattern *patterns, size_t count, uint64_t size, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        const gv_pattern *p = &patterns[i];
        if (size < p->least || size > p->most || (p->name[0] && !(name && strstr(name, p->name))))
            continue;
        if (!p->stack[0] || python_has(p->stack) || host_has(p->stack))
            return p;
    }
    return NULL;
}
