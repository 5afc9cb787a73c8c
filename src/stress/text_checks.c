#include "stress/text_checks.h"

#include <stdint.h>
#include <string.h>

// Only what can hardly stand in an answer by itself: no <think>, which some servers leave in the text on purpose, and
// no plain words. The double-width bar and the low block are DeepSeek's.
const char *const gv_template_fragments[] = {
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|python_tag|>",
    "<|tool_call|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|observation|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<arg_key>",
    "</arg_value>",
    "<invoke name=",
    "</invoke>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[ARGS]",
    "[INST]",
    "[/INST]",
    "<<SYS>>",
    "\xef\xbd\x9c"
    "DSML"
    "\xef\xbd\x9c",
    "<\xef\xbd\x9c", // <｜
    "\xef\xbd\x9c>",
    NULL,
};

static const char *find_in(const char *text, size_t length, const char *const *fragments)
{
    for (size_t i = 0; fragments && fragments[i]; i++) {
        if (memmem(text, length, fragments[i], strlen(fragments[i])))
            return fragments[i];
    }
    return NULL;
}

const char *gv_find_fragment(const char *text, size_t length, const char *const *extra)
{
    // Every built-in fragment has one of these characters, and most answers have none.
    bool may = memchr(text, '<', length) || memchr(text, '[', length) || memchr(text, 0xef, length);
    const char *found = may ? find_in(text, length, gv_template_fragments) : NULL;
    return found ? found : find_in(text, length, extra);
}

bool gv_find_garbled(const char *text, size_t length, size_t *at)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
        bool replaced = byte == 0xef && i + 2 < length && memcmp(text + i, "\xef\xbf\xbd", 3) == 0;
        if (control || byte == 0x7f || replaced) {
            *at = i;
            return true;
        }
    }
    return false;
}

enum { LOOP_WINDOW = 16384, LOOP_PERIOD = 256, LOOP_TIMES = 10, LOOP_BYTES = 400, LOOP_WORDS = 240, WORD_SLOTS = 8192 };

static bool find_exact(const char *text, size_t length, gv_loop *loop)
{
    for (size_t period = 1; period <= LOOP_PERIOD && period * 2 <= length; period++) {
        size_t run = 0;
        for (size_t i = period; i < length; i++) {
            run = text[i] == text[i - period] ? run + 1 : 0;
            size_t repeated = run + period;
            if (repeated >= LOOP_BYTES && repeated / period >= LOOP_TIMES) {
                *loop = (gv_loop){.start = i + 1 - repeated, .length = repeated, .period = period};
                return true;
            }
        }
    }
    return false;
}

// FNV-1a.
static uint32_t hash_word(const char *word, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)word[i]) * 16777619u;
    return hash;
}

// A loop whose turns differ a little: counts how many sequences of four words are new.
static bool find_words(const char *text, size_t length, gv_loop *loop)
{
    static const char blanks[] = " \t\r\n";
    uint32_t last[4] = {0}, seen[WORD_SLOTS] = {0};
    size_t words = 0, sequences = 0, fresh = 0;
    for (size_t at = 0; at < length;) {
        while (at < length && memchr(blanks, text[at], 4))
            at++;
        size_t start = at;
        while (at < length && !memchr(blanks, text[at], 4))
            at++;
        if (at == start)
            break;
        memmove(last, last + 1, 3 * sizeof *last);
        last[3] = hash_word(text + start, at - start);
        if (++words < 4)
            continue;
        uint32_t sequence = hash_word((const char *)last, sizeof last) | 1;
        sequences++;
        // At most LOOP_WINDOW / 2 words: the table is never more than full; a full probe counts as seen.
        for (size_t slot = sequence % WORD_SLOTS, probes = 0; probes < WORD_SLOTS;
             slot = (slot + 1) % WORD_SLOTS, probes++) {
            if (seen[slot] == sequence)
                break;
            if (seen[slot] == 0) {
                seen[slot] = sequence;
                fresh++;
                break;
            }
        }
    }
    if (words < LOOP_WORDS || fresh * 5 >= sequences)
        return false;
    *loop = (gv_loop){.length = length};
    return true;
}

bool gv_find_loop(const char *text, size_t length, gv_loop *loop)
{
    if (length < LOOP_BYTES)
        return false;
    size_t skipped = length > LOOP_WINDOW ? length - LOOP_WINDOW : 0;
    text += skipped;
    length -= skipped;
    if (!find_exact(text, length, loop) && !find_words(text, length, loop))
        return false;
    loop->start += skipped;
    return true;
}
