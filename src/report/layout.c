#include "report/layout.h"

#include "report/messages.h"

enum { LABEL_WIDTH = 13, LABEL_INDENT = 2 };

void gv_layout_row(gv_layout *layout, const char *label)
{
    if (layout->text.length) {
        gv_string_clear(&layout->label);
        gv_string_add(&layout->label, "%*s%-*s", LABEL_INDENT, "", LABEL_WIDTH, label);
        gv_print_wrapped(layout->out, gv_string_text(&layout->label), LABEL_INDENT + LABEL_WIDTH, GV_REPORT_WIDTH,
                         gv_string_text(&layout->text));
    }
    gv_string_clear(&layout->text);
}

void gv_layout_paragraph(gv_layout *layout, const char *first)
{
    if (layout->text.length)
        gv_print_wrapped(layout->out, first, LABEL_INDENT, GV_REPORT_WIDTH, gv_string_text(&layout->text));
    gv_string_clear(&layout->text);
}

void gv_layout_properties(gv_layout *layout)
{
    fprintf(layout->out, "%*s%s\n", LABEL_INDENT, "", gv_string_text(&layout->text));
    gv_string_clear(&layout->text);
}

void gv_layout_stack(gv_layout *layout, const gv_trace *trace, uint64_t id, const char *label)
{
    if (!id || id >= trace->stack_count)
        return;
    const gv_stack *stack = &trace->stacks[id];
    for (size_t i = 0; i < stack->python_count; i++, label = "") {
        gv_message_python_frame(&layout->text, &stack->python[i]);
        gv_layout_row(layout, label);
    }
    for (size_t i = 0; i < stack->host_count; i++, label = "") {
        gv_message_host_frame(&layout->text, trace, &stack->host[i]);
        gv_layout_row(layout, label);
    }
}
