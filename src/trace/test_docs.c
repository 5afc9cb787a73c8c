// docs/trace-format.md lists every record type and field of the table in record.h, and no other. Runs in the
// repository's root.
#include "trace/record.h"
#include "trace/test_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *text;

static int setup(void **state)
{
    file_bytes file = read_file("docs/trace-format.md");
    file.data[file.size] = '\0'; // read_file leaves room for it
    text = (char *)file.data;
    return 0;
}

static int teardown(void **state)
{
    free(text);
    return 0;
}

static size_t count(const char *from, const char *to, const char *what)
{
    size_t found = 0;
    for (const char *at = from; (at = strstr(at, what)) && at < to; at += strlen(what))
        found++;
    return found;
}

// The section of a record type: from its heading to the next one.
static void find_section(unsigned number, const char *name, const char **from, const char **to)
{
    char heading[80];
    snprintf(heading, sizeof heading, "\n### %u %s\n", number, name);
    *from = strstr(text, heading);
    if (!*from)
        fail_msg("no heading for record type %u, %s", number, name);
    *from += strlen(heading);
    *to = strstr(*from, "\n##");
    assert_non_null(*to);
}

static void expect_row(const char *from, const char *to, unsigned key, const char *kind, const char *field)
{
    char row[120];
    snprintf(row, sizeof row, "\n| %u | %s | `%s` |", key, kind, field);
    if (count(from, to, row) != 1)
        fail_msg("no row, or more than one: %s", row + 1);
}

#define EXPECT_ROW(key, kind, name) expect_row(from, to, key, #kind, #name);
#define COUNT_ROW(key, kind, name)  +1
#define CHECK_SECTION(number, name, FIELDS)  \
    find_section(number, #name, &from, &to); \
    FIELDS(EXPECT_ROW)                       \
    rows += 0 FIELDS(COUNT_ROW);             \
    sections++;

static void test_every_field_is_documented(void **state)
{
    const char *from, *to;
    size_t rows = 0, sections = 0;
    GV_RECORDS(CHECK_SECTION)
    const char *end = text + strlen(text);
    assert_int_equal(count(text, end, "\n### "), sections);
    size_t documented = 0;
    const char *kinds[] = {"| NUMBER | `", "| TEXT | `", "| BYTES | `", "| NUMBERS | `"};
    for (size_t i = 0; i < 4; i++)
        documented += count(text, end, kinds[i]);
    assert_int_equal(documented, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_is_documented),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
