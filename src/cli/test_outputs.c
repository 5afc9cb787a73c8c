// Unit tests of cli/outputs.c: which files a run made.
#include "base/memory.h"
#include "cli/outputs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/gravel-outputs-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 ? system(command) : -1;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void names_with_the_process_id(void **state)
{
    put("run.5.gravel", "old");
    gv_outputs outputs;
    gv_error error = {0};
    assert_int_equal(gv_outputs_prepare(&outputs, "run.%p.gravel", &error), GV_OK);
    put("run.12.gravel", "new");
    put("run.7.gravel", "new");
    put("run.x.gravel", "no number");
    put("run..gravel", "no number");
    put("run.7.gravel.bak", "another name");
    put("other.7.gravel", "another name");
    assert_int_equal(mkdir("run.9.gravel", 0777), 0);
    assert_int_equal(gv_outputs_collect(&outputs, &error), GV_OK);
    assert_int_equal(outputs.count, 2);
    assert_string_equal(outputs.items[0].shown, "run.7.gravel"); // 7 before 12
    assert_string_equal(outputs.items[1].shown, "run.12.gravel");
    assert_int_equal(outputs.items[0].path[0], '/');
    gv_outputs_free(&outputs);
}

static void one_name_and_its_children(void **state)
{
    put("t.gravel", ""); // an empty one is a trace that came to nothing
    gv_outputs outputs;
    gv_error error = {0};
    assert_int_equal(gv_outputs_prepare(&outputs, "t.gravel", &error), GV_OK);
    assert_int_not_equal(access("t.gravel", F_OK), 0); // replaced
    put("t.gravel", "new");
    put("t.gravel.31.gravel", "a child");
    put("t.gravel.gravel", "another name");
    put("t.gravel.31", "another name");
    assert_int_equal(gv_outputs_collect(&outputs, &error), GV_OK);
    assert_int_equal(outputs.count, 2);
    assert_string_equal(outputs.items[0].shown, "t.gravel");
    assert_string_equal(outputs.items[1].shown, "t.gravel.31.gravel");
    gv_outputs_free(&outputs);
}

static void a_file_that_was_written_to_again_counts(void **state)
{
    put("run.5.gravel", "old");
    put("run.6.gravel", "old");
    gv_outputs outputs;
    gv_error error = {0};
    assert_int_equal(gv_outputs_prepare(&outputs, "run.%p.gravel", &error), GV_OK);
    put("run.5.gravel", "a process with the same id");
    assert_int_equal(gv_outputs_collect(&outputs, &error), GV_OK);
    assert_int_equal(outputs.count, 1);
    assert_string_equal(outputs.items[0].shown, "run.5.gravel");
    gv_outputs_free(&outputs);
}

static void refusals(void **state)
{
    put("notes.txt", "precious");
    static const struct {
        const char *pattern;
        gv_status status;
        const char *message;
    } cases[] = {
        {"notes.txt", GV_ERR_USAGE, "no gravel trace"},
        {"missing/t.gravel", GV_ERR_IO, "No such file"},
        {"./", GV_ERR_USAGE, "names a folder"},
        {"/tmp/%p/t.gravel", GV_ERR_USAGE, "not in a folder's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gv_outputs outputs;
        gv_error error = {0};
        assert_int_equal(gv_outputs_prepare(&outputs, cases[i].pattern, &error), cases[i].status);
        assert_non_null(strstr(error.text, cases[i].message));
    }
    assert_int_equal(access("notes.txt", F_OK), 0);
}

static void the_default_name(void **state)
{
    gv_outputs outputs;
    gv_error error = {0};
    assert_int_equal(gv_outputs_prepare(&outputs, NULL, &error), GV_OK);
    char expected[128];
    snprintf(expected, sizeof expected, "%s/gravel.%%p.gravel", folder);
    assert_string_equal(outputs.pattern, expected);
    gv_outputs_free(&outputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_with_the_process_id, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_name_and_its_children, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_was_written_to_again_counts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(refusals, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_default_name, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
