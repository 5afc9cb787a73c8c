// Replays the kept inputs of the fuzzers, and every file of tests/data/bad, through the fuzzers' own entries, so that
// each run of the tests covers what fuzzing once found. Runs in the repository's root.
#include "entry.h"
#include "fix_entry.h"
#include "stress_entry.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void replay(const char *folder, void (*entry)(const uint8_t *, size_t))
{
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    size_t files = 0;
    for (struct dirent *item; (item = readdir(listing));) {
        if (item->d_name[0] == '.')
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        long size = ftell(file);
        assert_true(size >= 0);
        rewind(file);
        // Exactly as long as the file, so that the address sanitizer sees one byte too many.
        uint8_t *data = malloc(size ? (size_t)size : 1);
        assert_non_null(data);
        assert_int_equal(fread(data, 1, (size_t)size, file), size);
        fclose(file);
        entry(data, (size_t)size);
        free(data);
        files++;
    }
    closedir(listing);
    assert_true(files > 0);
}

static void test_trace_corpus(void **state)
{
    replay("tests/fuzz/corpus/trace", gv_fuzz_trace);
}

static void test_records_corpus(void **state)
{
    replay("tests/fuzz/corpus/records", gv_fuzz_records);
}

static void test_answer_corpus(void **state)
{
    replay("tests/fuzz/corpus/answer", gv_fuzz_answer);
}

static void test_scenario_corpus(void **state)
{
    replay("tests/fuzz/corpus/scenario", gv_fuzz_scenario);
}

static void test_fix_corpus(void **state)
{
    replay("tests/fuzz/corpus/fix", gv_fuzz_fix);
}

static void test_bad_files(void **state)
{
    replay("tests/data/bad", gv_fuzz_trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_corpus),  cmocka_unit_test(test_records_corpus),
        cmocka_unit_test(test_answer_corpus), cmocka_unit_test(test_scenario_corpus),
        cmocka_unit_test(test_fix_corpus),    cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
