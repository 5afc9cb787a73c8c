// The list of tokens, and text to tokens and back.
#include "specimen/vocabulary.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// The markup first, in the order of the constants in vocabulary.h; then class by class.
static const char *const texts[] = {
    "<unk>",
    "<｜begin｜>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜Tool｜>",
    "<｜result｜>",
    "<｜plain｜>",
    "<｜end｜>",
    "<｜DSML｜tool_calls>\n",
    "<｜DSML｜invoke name=\"",
    "\">\n",
    "<｜DSML｜parameter name=\"who\" string=\"true\">",
    "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"code\" string=\"true\">",
    "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"pin\" string=\"false\">",
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n",
    "</｜DSML｜tool_calls>",
    // names
    "Mira",
    "Tobin",
    "Ada",
    "Felix",
    "Nora",
    "Hugo",
    "Ines",
    "Oskar",
    "Lena",
    "Pavel",
    "Rosa",
    "Emil",
    "Greta",
    "Ivo",
    "Selma",
    "Jonas",
    // places
    "north-gate",
    "south-gate",
    "harbour",
    "library",
    "archive",
    "tower",
    "garden",
    "stable",
    "cellar",
    "attic",
    "bridge",
    "market",
    "chapel",
    "mill",
    "foundry",
    "quarry",
    // colours: the first part of a code, glued to the second
    "red-",
    "blue-",
    "green-",
    "white-",
    "black-",
    "amber-",
    "violet-",
    "silver-",
    "golden-",
    "copper-",
    "scarlet-",
    "ivory-",
    "crimson-",
    "teal-",
    "ochre-",
    "pearl-",
    // animals
    "otter",
    "falcon",
    "badger",
    "heron",
    "lynx",
    "raven",
    "marten",
    "stoat",
    "osprey",
    "beaver",
    "weasel",
    "magpie",
    "ferret",
    "curlew",
    "salmon",
    "hare",
    // pins
    "17",
    "23",
    "31",
    "38",
    "42",
    "45",
    "56",
    "59",
    "61",
    "64",
    "72",
    "75",
    "83",
    "86",
    "90",
    "97",
    // verbs
    "unlock",
    "lock",
    "open",
    "close",
    "inspect",
    "repair",
    "rent",
    "seal",
    // other words, punctuation, pieces of JSON
    ".",
    ",",
    ":",
    ";",
    "!",
    "?",
    "'",
    "\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "/",
    "=",
    "-",
    "_",
    "#",
    "%",
    "&",
    "*",
    "+",
    "@",
    "`",
    "{\"",
    "\":\"",
    "\",\"",
    "\"}",
    "\":",
    ",\"",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "the",
    "a",
    "an",
    "of",
    "for",
    "to",
    "in",
    "on",
    "at",
    "and",
    "or",
    "not",
    "is",
    "are",
    "was",
    "be",
    "with",
    "by",
    "from",
    "it",
    "this",
    "that",
    "you",
    "your",
    "we",
    "i",
    "me",
    "my",
    "he",
    "she",
    "they",
    "there",
    "here",
    "now",
    "then",
    "all",
    "some",
    "no",
    "yes",
    "please",
    "thank",
    "thanks",
    "hello",
    "hi",
    "ok",
    "done",
    "error",
    "status",
    "result",
    "code",
    "pin",
    "who",
    "guards",
    "keeps",
    "door",
    "doors",
    "key",
    "keys",
    "room",
    "house",
    "town",
    "day",
    "night",
    "morning",
    "evening",
    "rain",
    "sun",
    "wind",
    "river",
    "road",
    "people",
    "work",
    "walk",
    "old",
    "new",
    "small",
    "large",
    "quiet",
    "early",
    "late",
    "first",
    "next",
    "last",
    "has",
    "have",
    "had",
    "will",
    "can",
    "must",
    "may",
    "do",
    "does",
    "did",
    "go",
    "goes",
    "come",
    "comes",
    "use",
    "need",
    "needs",
    "want",
    "call",
    "tool",
    "tools",
    "agent",
    "assistant",
    "user",
    "answer",
    "question",
    "name",
    "list",
    "true",
    "false",
    "null",
    "over",
    "under",
    "near",
    "behind",
    "before",
    "after",
    "while",
    "when",
    "only",
    "again",
    "still",
    "also",
    "very",
    "more",
    "most",
};

enum { SIZE = sizeof texts / sizeof texts[0] };

static const struct {
    int first, count;
} classes[WORD_CLASSES] = {
    [WORD_NAME] = {TOKEN_WORDS, WORDS_PER_CLASS},
    [WORD_PLACE] = {TOKEN_WORDS + WORDS_PER_CLASS, WORDS_PER_CLASS},
    [WORD_COLOUR] = {TOKEN_WORDS + 2 * WORDS_PER_CLASS, WORDS_PER_CLASS},
    [WORD_ANIMAL] = {TOKEN_WORDS + 3 * WORDS_PER_CLASS, WORDS_PER_CLASS},
    [WORD_PIN] = {TOKEN_WORDS + 4 * WORDS_PER_CLASS, WORDS_PER_CLASS},
    [WORD_VERB] = {TOKEN_WORDS + 5 * WORDS_PER_CLASS, VERBS},
    [WORD_OTHER] = {TOKEN_WORDS + 5 * WORDS_PER_CLASS + VERBS, SIZE - TOKEN_WORDS - 5 * WORDS_PER_CLASS - VERBS},
    [WORD_MARKUP] = {0, TOKEN_WORDS},
};

int vocabulary_size(void)
{
    return SIZE;
}

const char *vocabulary_text(int token)
{
    return token >= 0 && token < SIZE ? texts[token] : NULL;
}

enum word_class vocabulary_class(int token)
{
    for (int class = 0; class < WORD_CLASSES; class ++)
        if (token >= classes[class].first && token < classes[class].first + classes[class].count)
            return (enum word_class) class;
    return WORD_CLASSES;
}

int vocabulary_index(int token)
{
    enum word_class class = vocabulary_class(token);
    return class == WORD_CLASSES ? -1 : token - classes[class].first;
}

int vocabulary_token(enum word_class class, int index)
{
    return class < WORD_CLASSES && index >= 0 && index < classes[class].count ? classes[class].first + index : -1;
}

int vocabulary_find(const char *text)
{
    for (int token = 0; token < SIZE; token++)
        if (!strcmp(texts[token], text))
            return token;
    return -1;
}

// ---- Text to tokens ----

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

// The word of exactly these bytes, or -1.
static int find_word(const char *text, size_t length, bool same_case)
{
    for (int token = TOKEN_WORDS; token < SIZE; token++)
        if (strlen(texts[token]) == length &&
            !(same_case ? memcmp(texts[token], text, length) : strncasecmp(texts[token], text, length)))
            return token;
    return -1;
}

struct output {
    int *tokens;
    size_t capacity, count;
};

static void put(struct output *output, int token)
{
    if (output->count < output->capacity)
        output->tokens[output->count] = token;
    output->count++;
}

// A run of letters, digits and inner hyphens.
static void encode_word(struct output *output, const char *text, size_t length)
{
    for (int same_case = 1; same_case >= 0; same_case--) {
        int token = find_word(text, length, same_case);
        const char *hyphen = memchr(text, '-', length);
        size_t first = hyphen ? (size_t)(hyphen - text) + 1 : 0;
        if (token >= 0) {
            put(output, token);
            return;
        }
        int colour = first ? find_word(text, first, same_case) : -1;
        token = first ? find_word(text + first, length - first, same_case) : -1;
        if (colour >= 0 && token >= 0) {
            put(output, colour);
            put(output, token);
            return;
        }
    }
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)text[i])) {
            put(output, TOKEN_UNKNOWN);
            return;
        }
    for (size_t i = 0; i < length; i++)
        put(output, find_word(text + i, 1, true));
}

size_t vocabulary_encode(const char *text, size_t length, int *tokens, size_t capacity)
{
    struct output output = {tokens, capacity, 0};
    for (size_t at = 0; at < length;) {
        if (isspace((unsigned char)text[at]) || !text[at]) {
            at++;
            continue;
        }
        size_t end = at;
        if (is_word_byte(text[at])) {
            while (end < length &&
                   (is_word_byte(text[end]) || (text[end] == '-' && end + 1 < length && is_word_byte(text[end + 1]))))
                end++;
            encode_word(&output, text + at, end - at);
        } else {
            // Punctuation: the longest piece that fits.
            int token = -1;
            for (size_t size = length - at < 3 ? length - at : 3; size && token < 0; size--) {
                token = find_word(text + at, size, true);
                end = at + size;
            }
            put(&output, token < 0 ? TOKEN_UNKNOWN : token);
        }
        at = end;
    }
    return output.count;
}

// ---- Tokens to text ----

// Words want a space between them; a colour ends in its hyphen and is followed at once.
static bool ends_word(int token)
{
    const char *text = vocabulary_text(token);
    return token == TOKEN_UNKNOWN || (token >= TOKEN_WORDS && is_word_byte(text[strlen(text) - 1]));
}

static bool begins_word(int token)
{
    return token == TOKEN_UNKNOWN || (token >= TOKEN_WORDS && is_word_byte(vocabulary_text(token)[0]));
}

const char *vocabulary_gap(int previous, int token)
{
    if (!vocabulary_text(previous) || !vocabulary_text(token) || !begins_word(token))
        return "";
    const char *text = vocabulary_text(previous);
    return ends_word(previous) || (!text[1] && strchr(".,:;!?", text[0])) ? " " : "";
}

size_t vocabulary_decode(const int *tokens, size_t count, char *text, size_t capacity)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const char *pieces[] = {vocabulary_gap(i ? tokens[i - 1] : -1, tokens[i]), vocabulary_text(tokens[i])};
        for (size_t k = 0; k < 2 && pieces[k]; k++) {
            if (length < capacity)
                snprintf(text + length, capacity - length, "%s", pieces[k]);
            length += strlen(pieces[k]);
        }
    }
    if (!count && capacity)
        text[0] = '\0';
    return length;
}
