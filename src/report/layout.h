// The layout that the text reports of `gravel check` and `gravel fix` share: labelled rows, paragraphs, lines of
// properties. A caller puts text together in `text` and then says what it is; printing empties it.
#ifndef GV_REPORT_LAYOUT_H
#define GV_REPORT_LAYOUT_H

#include "report/format.h"
#include "report/report.h"

typedef struct gv_layout {
    FILE *out;
    gv_string text, label; // used again for every line; freed by whoever made the layout
    const gv_report_options *options;
    bool name_process; // titles say which process they are about
} gv_layout;

// Prints "  label        text" with the text wrapped in its own column. Empty text prints nothing, so that a message
// that has nothing to say needs no test.
void gv_layout_row(gv_layout *layout, const char *label);

// Prints a paragraph that begins with `first` and whose further lines are indented; nothing if the text is empty.
void gv_layout_paragraph(gv_layout *layout, const char *first);

// Prints the line as it is: properties are read by programs line by line.
void gv_layout_properties(gv_layout *layout);

// Prints a call stack of the trace, a row for each frame, the first with the label. 0 and unknown ids print nothing.
void gv_layout_stack(gv_layout *layout, const gv_trace *trace, uint64_t id, const char *label);

#endif
