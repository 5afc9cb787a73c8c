#include "lab/document.h"

#include "base/memory.h"
#include "report/format.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

typedef enum block_kind { BLOCK_HEADING, BLOCK_PARAGRAPH, BLOCK_ITEM, BLOCK_LOG, BLOCK_TABLE, BLOCK_CHART } block_kind;

typedef struct mark {
    char *label;
    double low, rate, high;
    gv_tone tone;
} mark;

typedef struct part {
    block_kind kind;
    char *title, *text;
    char **cells; // of a table: the titles first
    size_t cell_count, cell_capacity, columns;
    gv_tone *tones; // of its rows, as far as set
    size_t tone_count, tone_capacity;
    mark *bars;
    size_t bar_count, bar_capacity;
    double limit;
} part;

struct gv_document {
    char *title;
    part *blocks;
    size_t count, capacity;
    bool failed;
};

// ---- Putting together ---------------------------------------------------------------------------------------------

static part *add(gv_document *document, block_kind kind, const char *title, const char *text)
{
    if (!document || document->failed || !GV_GROW(document->blocks, document->capacity, document->count + 1)) {
        if (document)
            document->failed = true;
        return NULL;
    }
    part *block = &document->blocks[document->count++];
    *block = (struct part){.kind = kind};
    block->title = title ? gv_strdup(title) : NULL;
    block->text = text ? gv_strdup(text) : NULL;
    document->failed = document->failed || (title && !block->title) || (text && !block->text);
    return block;
}

gv_document *gv_document_new(const char *title)
{
    gv_document *document = gv_calloc(1, sizeof *document);
    if (document && !(document->title = gv_strdup(title)))
        document->failed = true;
    return document;
}

void gv_document_free(gv_document *document)
{
    if (!document)
        return;
    for (size_t i = 0; i < document->count; i++) {
        part *block = &document->blocks[i];
        for (size_t c = 0; c < block->cell_count; c++)
            gv_free(block->cells[c]);
        for (size_t b = 0; b < block->bar_count; b++)
            gv_free(block->bars[b].label);
        gv_free(block->cells);
        gv_free(block->tones);
        gv_free(block->bars);
        gv_free(block->title);
        gv_free(block->text);
    }
    gv_free(document->blocks);
    gv_free(document->title);
    gv_free(document);
}

void gv_document_heading(gv_document *document, const char *text)
{
    add(document, BLOCK_HEADING, NULL, text);
}

static char *formatted(const char *format, va_list arguments)
{
    char *text = NULL;
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length >= 0 && (text = gv_malloc((size_t)length + 1)))
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void gv_document_paragraph(gv_document *document, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = formatted(format, arguments);
    va_end(arguments);
    add(document, BLOCK_PARAGRAPH, NULL, text ? text : "");
    gv_free(text);
}

void gv_document_item(gv_document *document, const char *text)
{
    add(document, BLOCK_ITEM, NULL, text);
}

void gv_document_log(gv_document *document, const char *title, const char *text)
{
    add(document, BLOCK_LOG, title, text);
}

static part *last(gv_document *document, block_kind kind)
{
    if (!document || document->failed || document->count == 0)
        return NULL;
    part *block = &document->blocks[document->count - 1];
    return block->kind == kind ? block : NULL;
}

static void add_cell(gv_document *document, char *text)
{
    part *block = last(document, BLOCK_TABLE);
    if (!block || !text || !GV_GROW(block->cells, block->cell_capacity, block->cell_count + 1)) {
        gv_free(text);
        if (document)
            document->failed = true;
        return;
    }
    block->cells[block->cell_count++] = text;
}

void gv_document_table(gv_document *document, const char *const *columns, size_t count)
{
    part *block = add(document, BLOCK_TABLE, NULL, NULL);
    if (block)
        block->columns = count;
    for (size_t i = 0; block && i < count; i++)
        add_cell(document, gv_strdup(columns[i]));
}

void gv_document_cell(gv_document *document, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_cell(document, formatted(format, arguments));
    va_end(arguments);
}

void gv_document_tone(gv_document *document, gv_tone tone)
{
    part *block = last(document, BLOCK_TABLE);
    if (!block)
        return;
    size_t rows = block->cell_count / block->columns - 1;
    if (!GV_GROW(block->tones, block->tone_capacity, rows)) {
        document->failed = true;
        return;
    }
    while (block->tone_count < rows)
        block->tones[block->tone_count++] = GV_TONE_PLAIN;
    block->tones[rows - 1] = tone;
}

void gv_document_chart(gv_document *document, const char *title, double limit)
{
    part *block = add(document, BLOCK_CHART, title, NULL);
    if (block)
        block->limit = limit;
}

void gv_document_bar(gv_document *document, const char *label, double low, double rate, double high, gv_tone tone)
{
    part *block = last(document, BLOCK_CHART);
    if (!block || !GV_GROW(block->bars, block->bar_capacity, block->bar_count + 1)) {
        if (document)
            document->failed = true;
        return;
    }
    mark *bar = &block->bars[block->bar_count++];
    *bar = (struct mark){gv_strdup(label), low, rate, high, tone};
    document->failed = document->failed || !bar->label;
}

// ---- Text and Markdown --------------------------------------------------------------------------------------------

static bool is_number(const part *block, size_t column)
{
    return block->cells[column][0] == '>';
}

static const char *cell_text(const part *block, size_t cell)
{
    const char *text = block->cells[cell];
    return cell < block->columns && text[0] == '>' ? text + 1 : text;
}

// Markdown's own characters, and what would end a table's cell or begin HTML.
static void write_markdown(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\`*_{}[]<>|#", *text))
            fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

// What came from elsewhere without control characters, for a terminal.
static void write_safe(FILE *out, const char *text)
{
    gv_string safe = {0};
    gv_string_add_safe(&safe, text);
    fputs(gv_string_text(&safe), out);
    gv_string_free(&safe);
}

static void write_padding(FILE *out, size_t count)
{
    fprintf(out, "%*s", (int)count, "");
}

static void write_table(const part *block, bool markdown, FILE *out)
{
    size_t *widths = gv_calloc(block->columns, sizeof *widths);
    size_t rows = block->cell_count / block->columns;
    for (size_t c = 0; widths && c < rows * block->columns; c++) {
        size_t width = gv_columns(cell_text(block, c));
        widths[c % block->columns] = width > widths[c % block->columns] ? width : widths[c % block->columns];
    }
    for (size_t c = 0; c < rows * block->columns; c++) {
        size_t column = c % block->columns;
        const char *text = cell_text(block, c);
        bool ends = column + 1 == block->columns, number = is_number(block, column);
        if (markdown) {
            fputs(column ? " " : "| ", out);
            write_markdown(out, text);
            fputs(ends ? " |\n" : " |", out);
        } else {
            size_t pad = widths ? widths[column] - gv_columns(text) : 0;
            if (number)
                write_padding(out, pad);
            write_safe(out, text);
            if (!number && !ends)
                write_padding(out, pad);
            fputs(ends ? "\n" : "  ", out);
        }
        if (markdown && c + 1 == block->columns) {
            for (size_t i = 0; i < block->columns; i++)
                fputs(is_number(block, i) ? "|---:" : "|---", out);
            fputs("|\n", out);
        }
    }
    gv_free(widths);
}

static void write_plain(const gv_document *document, bool markdown, FILE *out)
{
    if (markdown)
        fputs("# ", out);
    (markdown ? write_markdown : write_safe)(out, document->title);
    fputs("\n", out);
    for (size_t i = 0; i < document->count; i++) {
        const part *block = &document->blocks[i];
        bool follows = i > 0 && block->kind == BLOCK_ITEM && document->blocks[i - 1].kind == BLOCK_ITEM;
        if (!follows && block->kind != BLOCK_CHART)
            fputs("\n", out);
        switch (block->kind) {
        case BLOCK_HEADING:
            if (markdown)
                fputs("## ", out);
            (markdown ? write_markdown : write_safe)(out, block->text);
            fputs("\n", out);
            break;
        case BLOCK_PARAGRAPH:
        case BLOCK_ITEM: {
            const char *first = block->kind == BLOCK_ITEM ? "- " : "";
            if (markdown) {
                fputs(first, out);
                write_markdown(out, block->text);
                fputs("\n", out);
            } else {
                gv_string safe = {0};
                gv_string_add_safe(&safe, block->text);
                gv_print_wrapped(out, first, strlen(first), GV_REPORT_WIDTH, gv_string_text(&safe));
                gv_string_free(&safe);
            }
            break;
        }
        case BLOCK_LOG:
            (markdown ? write_markdown : write_safe)(out, block->title);
            fputs(markdown ? "\n\n" : "\n", out);
            for (const char *line = block->text; *line;) {
                size_t length = strcspn(line, "\n");
                char *copy = gv_strndup(line, length);
                fputs("    ", out);
                write_safe(out, copy ? copy : "");
                fputs("\n", out);
                gv_free(copy);
                line += length + (line[length] == '\n');
            }
            break;
        case BLOCK_TABLE: write_table(block, markdown, out); break;
        case BLOCK_CHART: break;
        }
    }
}

// ---- HTML ---------------------------------------------------------------------------------------------------------

static void write_html_text(FILE *out, const char *text)
{
    gv_string safe = {0};
    gv_string_add_safe(&safe, text);
    for (const char *at = gv_string_text(&safe); *at; at++) {
        switch (*at) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*at, out);
        }
    }
    gv_string_free(&safe);
}

static const char *tone_class(gv_tone tone)
{
    switch (tone) {
    case GV_TONE_GOOD: return "good";
    case GV_TONE_BAD: return "bad";
    case GV_TONE_OPEN: return "open";
    case GV_TONE_PLAIN: break;
    }
    return "plain";
}

static const char style[] =
    ":root{color-scheme:light "
    "dark;--line:#d0d4da;--text:#1d2430;--soft:#5b6573;--page:#fff;--good:#1a7f4b;--bad:#b3261e;"
    "--open:#8a6d00}\n"
    "@media(prefers-color-scheme:dark){:root{--line:#3a414c;--text:#e6e9ee;--soft:#9aa4b2;--page:#14181e;--good:#"
    "5fd39a;"
    "--bad:#ff8a80;--open:#e0c050}}\n"
    "body{font:15px/1.5 system-ui,'DejaVu Sans',sans-serif;color:var(--text);background:var(--page);max-width:72em;"
    "margin:2em auto;padding:0 1.5em}\n"
    "h1{font-size:1.5em;margin-bottom:.3em}h2{font-size:1.15em;margin:1.8em 0 .5em}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;margin:.6em 0}\n"
    "th,td{text-align:left;padding:.25em .9em .25em 0;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    "tr.good td:last-child{color:var(--good);font-weight:600}tr.bad td:last-child{color:var(--bad);font-weight:600}\n"
    "tr.open td:last-child{color:var(--open);font-weight:600}\n"
    "pre{background:color-mix(in srgb,var(--line) 35%,transparent);padding:.7em 1em;overflow-x:auto;font-size:.87em}\n"
    "figure{margin:1em 0}figcaption{color:var(--soft);font-size:.9em}svg{max-width:100%;height:auto}\n"
    "svg text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:var(--text)}svg .axis{stroke:var(--line)}\n"
    "svg .soft{fill:var(--soft)}svg .limit{stroke:var(--soft);stroke-dasharray:4 3}\n"
    "svg .good{stroke:var(--good);fill:var(--good)}svg .bad{stroke:var(--bad);fill:var(--bad)}\n"
    "svg .open{stroke:var(--open);fill:var(--open)}svg .plain{stroke:var(--soft);fill:var(--soft)}\n";

static void write_chart(const part *block, FILE *out)
{
    enum { ROW = 24, TOP = 8, PLOT = 420, BOTTOM = 26 };
    size_t longest = 0;
    double most = block->limit;
    for (size_t i = 0; i < block->bar_count; i++) {
        size_t width = gv_columns(block->bars[i].label);
        longest = width > longest ? width : longest;
        most = fmax(most, block->bars[i].high);
    }
    // A tick every 10 or 20 percent; the axis ends at one.
    double step = most <= 0.5 ? 0.1 : 0.2;
    int ticks = (int)ceil(most / step - 1e-9);
    most = ticks * step;
    int left = (int)longest * 7 + 16, height = TOP + ROW * (int)block->bar_count;
    fprintf(out, "<figure><svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"",
            left + PLOT + 30, height + BOTTOM, left + PLOT + 30, height + BOTTOM);
    write_html_text(out, block->title);
    fputs("\">\n", out);
    for (int tick = 0; tick <= ticks; tick++) {
        double x = left + PLOT * tick / (double)ticks;
        fprintf(out,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"soft\" x=\"%.1f\" "
                "y=\"%d\" "
                "text-anchor=\"middle\">%.0f %%</text>\n",
                x, x, TOP, height, x, height + 18, 100 * step * tick);
    }
    double limit = left + PLOT * block->limit / most;
    fprintf(out, "<line class=\"limit\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", limit, limit, TOP, height);
    for (size_t i = 0; i < block->bar_count; i++) {
        const mark *bar = &block->bars[i];
        double y = TOP + ROW * (double)i + ROW / 2.0;
        double low = left + PLOT * bar->low / most, high = left + PLOT * bar->high / most;
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", left - 10, y + 4);
        write_html_text(out, bar->label);
        fprintf(out,
                "</text><line class=\"%s\" stroke-width=\"3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><circle "
                "class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>\n",
                tone_class(bar->tone), low, high, y, y, tone_class(bar->tone), left + PLOT * bar->rate / most, y);
    }
    fputs("</svg><figcaption>", out);
    write_html_text(out, block->title);
    fputs("</figcaption></figure>\n", out);
}

static void write_html_table(const part *block, FILE *out)
{
    size_t rows = block->cell_count / block->columns;
    fputs("<div class=\"wide\"><table>\n", out);
    for (size_t row = 0; row < rows; row++) {
        gv_tone tone = row > 0 && row - 1 < block->tone_count ? block->tones[row - 1] : GV_TONE_PLAIN;
        fprintf(out, row == 0 ? "<thead><tr>" : "<tr class=\"%s\">", tone_class(tone));
        for (size_t column = 0; column < block->columns; column++) {
            const char *element = row == 0 ? "th" : "td";
            fprintf(out, "<%s%s>", element, is_number(block, column) ? " class=\"n\"" : "");
            write_html_text(out, cell_text(block, row * block->columns + column));
            fprintf(out, "</%s>", element);
        }
        fputs(row == 0 ? "</tr></thead><tbody>\n" : "</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void write_html(const gv_document *document, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width, initial-scale=1\"><title>",
          out);
    write_html_text(out, document->title);
    fprintf(out, "</title><style>\n%s</style></head><body>\n<h1>", style);
    write_html_text(out, document->title);
    fputs("</h1>\n", out);
    for (size_t i = 0; i < document->count; i++) {
        const part *block = &document->blocks[i];
        bool first = i == 0 || document->blocks[i - 1].kind != BLOCK_ITEM;
        bool final = i + 1 == document->count || document->blocks[i + 1].kind != BLOCK_ITEM;
        switch (block->kind) {
        case BLOCK_HEADING:
        case BLOCK_PARAGRAPH:
            fputs(block->kind == BLOCK_HEADING ? "<h2>" : "<p>", out);
            write_html_text(out, block->text);
            fputs(block->kind == BLOCK_HEADING ? "</h2>\n" : "</p>\n", out);
            break;
        case BLOCK_ITEM:
            fputs(first ? "<ul>\n<li>" : "<li>", out);
            write_html_text(out, block->text);
            fputs(final ? "</li>\n</ul>\n" : "</li>\n", out);
            break;
        case BLOCK_LOG:
            fputs("<details><summary>", out);
            write_html_text(out, block->title);
            fputs("</summary><pre>", out);
            // Line by line: what is made safe has no line feeds.
            for (const char *line = block->text; *line;) {
                size_t length = strcspn(line, "\n");
                char *copy = gv_strndup(line, length);
                write_html_text(out, copy ? copy : "");
                fputs("\n", out);
                gv_free(copy);
                line += length + (line[length] == '\n');
            }
            fputs("</pre></details>\n", out);
            break;
        case BLOCK_TABLE: write_html_table(block, out); break;
        case BLOCK_CHART: write_chart(block, out); break;
        }
    }
    fputs("</body></html>\n", out);
}

gv_status gv_document_write(const gv_document *document, gv_document_form form, FILE *out, gv_error *error)
{
    if (!document || document->failed)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the report");
    if (form == GV_FORM_HTML)
        write_html(document, out);
    else
        write_plain(document, form == GV_FORM_MARKDOWN, out);
    return GV_OK;
}
