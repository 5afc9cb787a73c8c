// A report as blocks (headings, paragraphs, lists, tables, a chart of intervals, log excerpts) that are written as text
// for a terminal, as Markdown or as one HTML page without anything from elsewhere.
#ifndef GV_LAB_DOCUMENT_H
#define GV_LAB_DOCUMENT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct gv_document gv_document;

typedef enum gv_document_form { GV_FORM_TEXT, GV_FORM_MARKDOWN, GV_FORM_HTML } gv_document_form;

// How a table's row or a chart's bar is meant.
typedef enum gv_tone { GV_TONE_PLAIN, GV_TONE_GOOD, GV_TONE_BAD, GV_TONE_OPEN } gv_tone;

// Texts are copied and may hold anything; they are made safe for the form they are written in. Memory that runs out is
// remembered and reported by gv_document_write.
gv_document *gv_document_new(const char *title);
void gv_document_free(gv_document *document);

void gv_document_heading(gv_document *document, const char *text);
void gv_document_paragraph(gv_document *document, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gv_document_item(gv_document *document, const char *text); // of a list; items in a row are one list
void gv_document_log(gv_document *document, const char *title, const char *text);

// A table: first the columns (a title that begins with '>' is of numbers and stands to the right), then cells row by
// row.
void gv_document_table(gv_document *document, const char *const *columns, size_t count);
void gv_document_cell(gv_document *document, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gv_document_tone(gv_document *document, gv_tone tone); // of the row whose cells came last

// A chart of rates with intervals (0 to 1), one bar after the other. Only HTML shows it; the numbers stand in tables.
void gv_document_chart(gv_document *document, const char *title, double limit);
void gv_document_bar(gv_document *document, const char *label, double low, double rate, double high, gv_tone tone);

gv_status gv_document_write(const gv_document *document, gv_document_form form, FILE *out, gv_error *error);

#endif
