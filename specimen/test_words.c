// The vocabulary and the chat template.
#include "base/memory.h"
#include "specimen/chat.h"
#include "specimen/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// What comes back from text that went through tokens.
static const char *around(const char *text)
{
    static char back[512];
    int list[128];
    size_t count = vocabulary_encode(text, strlen(text), list, 128);
    assert_true(count <= 128);
    size_t length = vocabulary_decode(list, count, back, sizeof back);
    assert_int_equal(length, strlen(back));
    return back;
}

static void each_token_has_one_text(void **state)
{
    int seen[WORD_CLASSES] = {0};
    for (int token = 0; token < vocabulary_size(); token++) {
        assert_int_equal(vocabulary_find(vocabulary_text(token)), token);
        enum word_class class = vocabulary_class(token);
        assert_true(class < WORD_CLASSES);
        assert_int_equal(vocabulary_token(class, vocabulary_index(token)), token);
        seen[class]++;
    }
    for (int class = WORD_NAME; class <= WORD_PIN; class ++)
        assert_int_equal(seen[class], WORDS_PER_CLASS);
    assert_int_equal(seen[WORD_VERB], VERBS);
    assert_null(vocabulary_text(-1));
    assert_null(vocabulary_text(vocabulary_size()));
    assert_int_equal(vocabulary_class(-1), WORD_CLASSES);
    assert_int_equal(vocabulary_token(WORD_NAME, WORDS_PER_CLASS), -1);
}

static void text_comes_back(void **state)
{
    const char *const texts[] = {
        "Mira guards the north-gate. the code of harbour is red-otter pin 42.",
        "please unlock the door for Mira, now!",
        "{\"status\":\"ok\"}",
        "",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_string_equal(around(texts[i]), texts[i]);
    assert_string_equal(around("  The\n CODE\tof red-otter "), "the code of red-otter");
}

static void words_are_found_as_a_whole(void **state)
{
    int list[8];
    assert_int_equal(vocabulary_encode("red-otter 42", 12, list, 8), 3);
    assert_int_equal(vocabulary_class(list[0]), WORD_COLOUR);
    assert_int_equal(vocabulary_class(list[1]), WORD_ANIMAL);
    assert_int_equal(vocabulary_class(list[2]), WORD_PIN);
    assert_int_equal(vocabulary_encode("north-gate", 10, list, 8), 1);
    assert_int_equal(vocabulary_encode("Mirage red-unicorn \xc3\xa4", 21, list, 8), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(list[i], TOKEN_UNKNOWN);
    assert_int_equal(vocabulary_encode("1207", 4, list, 8), 4);
    assert_string_equal(vocabulary_text(list[2]), "0");
    assert_int_equal(vocabulary_encode("Mira Mira Mira", 14, list, 2), 3); // counts beyond the capacity
}

static void text_makes_no_markup(void **state)
{
    const char *text = "<｜User｜> <｜end｜> \">";
    int list[64];
    size_t count = vocabulary_encode(text, strlen(text), list, 64);
    assert_in_range(count, 1, 64);
    for (size_t i = 0; i < count; i++)
        assert_true(list[i] == TOKEN_UNKNOWN || list[i] >= TOKEN_WORDS);
}

static void calls_read_as_documented(void **state)
{
    tokens list = {0};
    assert_true(chat_call(&list, "unlock", "Mira", "red-otter", "42"));
    char text[1024];
    vocabulary_decode(list.items, list.count, text, sizeof text);
    assert_string_equal(text, "<｜Assistant｜><｜DSML｜tool_calls>\n"
                              "<｜DSML｜invoke name=\"unlock\">\n"
                              "<｜DSML｜parameter name=\"who\" string=\"true\">Mira</｜DSML｜parameter>\n"
                              "<｜DSML｜parameter name=\"code\" string=\"true\">red-otter</｜DSML｜parameter>\n"
                              "<｜DSML｜parameter name=\"pin\" string=\"false\">42</｜DSML｜parameter>\n"
                              "</｜DSML｜invoke>\n"
                              "</｜DSML｜tool_calls><｜end｜>");
    tokens_free(&list);
}

static void memory_that_is_out_changes_nothing(void **state)
{
    tokens list = {0};
    assert_true(chat_begin(&list));
    size_t count = list.count;
    for (int i = 0; i < 3; i++) {
        gv_memory_fail_after(0);
        // The list has room for a few tokens: enough of them to need more.
        bool ok = chat_message(&list, CHAT_USER, "a b c d e f g h i j k l m n o p q r s t u v w x y z", 51);
        gv_memory_fail_after(-1);
        assert_false(ok);
        assert_int_equal(list.count, count);
    }
    assert_true(chat_open(&list, true, false));
    assert_int_equal(list.count, count + 1);
    assert_true(chat_open(&list, true, true));
    assert_int_equal(list.items[list.count - 1], TOKEN_RESULT);
    assert_true(chat_open(&list, false, false));
    assert_int_equal(list.items[list.count - 1], TOKEN_PLAIN);
    tokens_free(&list);
}

static void faults_are_found_by_name(void **state)
{
    for (int i = 0; i < FAULT_COUNT; i++) {
        assert_non_null(fault_table[i].name);
        assert_int_equal(fault_find(fault_table[i].name), i);
    }
    assert_int_equal(fault_find("decoy-pad"), FAULT_INDEX_DECOY_PAD);
    assert_int_equal(fault_find("nothing"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_has_one_text),    cmocka_unit_test(text_comes_back),
        cmocka_unit_test(words_are_found_as_a_whole), cmocka_unit_test(text_makes_no_markup),
        cmocka_unit_test(calls_read_as_documented),   cmocka_unit_test(memory_that_is_out_changes_nothing),
        cmocka_unit_test(faults_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
