// The specimen's vocabulary: a fixed list of tokens, text to tokens and back. It carries chat roles, the markup of tool
// calls, pieces of JSON, and the words of the one kind of story that the model knows (docs/specimen.md): people guard
// places, places have codes, and a tool needs the code of the place that somebody guards.
#ifndef SPECIMEN_VOCABULARY_H
#define SPECIMEN_VOCABULARY_H

#include <stddef.h>

// Classes of words. The model looks up words of the first five by their codes (weights.h).
enum word_class {
    WORD_NAME,   // people
    WORD_PLACE,  // places
    WORD_COLOUR, // first part of a code
    WORD_ANIMAL, // second part of a code
    WORD_PIN,    // a two-digit number
    WORD_VERB,   // what to do, and the tool that does it
    WORD_OTHER,  // filler words, punctuation, digits, pieces of JSON
    WORD_MARKUP, // roles and tool calls
    WORD_CLASSES,
};

enum { WORDS_PER_CLASS = 16, VERBS = 8 };

// Tokens that programs name. All other tokens follow, class by class.
enum {
    TOKEN_UNKNOWN,   // any word that is not in the list
    TOKEN_BEGIN,     // <｜begin｜>
    TOKEN_SYSTEM,    // <｜System｜>
    TOKEN_USER,      // <｜User｜>
    TOKEN_ASSISTANT, // <｜Assistant｜>: the model answers with a tool call
    TOKEN_TOOL,      // <｜Tool｜>
    TOKEN_RESULT,    // <｜result｜> behind TOKEN_ASSISTANT: it answers in words, since the tool has answered
    TOKEN_PLAIN,     // <｜plain｜> behind TOKEN_ASSISTANT: it answers in words, since there is no tool
    TOKEN_END,       // <｜end｜>: the end of a message
    TOKEN_CALLS,     // <｜DSML｜tool_calls>
    TOKEN_INVOKE,    // <｜DSML｜invoke name="
    TOKEN_NAMED,     // ">
    TOKEN_WHO,       // <｜DSML｜parameter name="who" string="true">
    TOKEN_CODE,      // </｜DSML｜parameter> and <｜DSML｜parameter name="code" string="true">
    TOKEN_PIN,       // the same for <｜DSML｜parameter name="pin" string="false">
    TOKEN_INVOKED,   // </｜DSML｜parameter> and </｜DSML｜invoke>
    TOKEN_CALLED,    // </｜DSML｜tool_calls>
    TOKEN_WORDS,     // the first token that is not markup
};

// How many tokens there are; valid tokens are 0 to this - 1.
int vocabulary_size(void);

// A token's own text (UTF-8, static). NULL outside the vocabulary.
const char *vocabulary_text(int token);

// Its class; WORD_CLASSES outside the vocabulary. The index is its place within the class.
enum word_class vocabulary_class(int token);
int vocabulary_index(int token);

// The token of a class by index, and of a text that is exactly one token's (-1: none).
int vocabulary_token(enum word_class word_class, int index);
int vocabulary_find(const char *text);

// What stands between two tokens in text: " " between two words, otherwise nothing. `previous` -1: the text begins.
const char *vocabulary_gap(int previous, int token);

// Splits text into tokens: white space is dropped, words are looked up as a whole and then without regard to case,
// `red-otter` falls into `red-` and `otter`, other numbers into digits, and an unknown word becomes one TOKEN_UNKNOWN.
// Markup is never made from text, so that a message cannot forge a role. Writes at most `capacity` tokens and returns
// how many the text has (as snprintf does).
size_t vocabulary_encode(const char *text, size_t length, int *tokens, size_t capacity);

// The text of tokens with the gaps between them, as snprintf does: at most `capacity` bytes with the final zero;
// returns the length of the whole text. A streaming server sends vocabulary_gap(previous, token) and
// vocabulary_text(token) for each token instead.
size_t vocabulary_decode(const int *tokens, size_t count, char *text, size_t capacity);

#endif
