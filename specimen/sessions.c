// The story generator and its judge.
#include "specimen/sessions.h"

#include <string.h>

static uint64_t draw(session *s)
{
    // splitmix64
    uint64_t z = s->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static int draw_below(session *s, int limit)
{
    return (int)(draw(s) % (uint64_t)limit);
}

// The first `count` of a random order of a class's words.
static void draw_words(session *s, enum word_class class, int *words, int count)
{
    int order[WORDS_PER_CLASS];
    for (int i = 0; i < WORDS_PER_CLASS; i++)
        order[i] = i;
    for (int i = 0; i < count; i++) {
        int other = i + draw_below(s, WORDS_PER_CLASS - i), taken = order[other];
        order[other] = order[i];
        order[i] = taken;
        words[i] = vocabulary_token(class, taken);
    }
}

static bool add(session *s, const char *text)
{
    return tokens_add_text(&s->history, text, strlen(text));
}

// Sentences that say nothing about people or places.
static bool add_filler(session *s)
{
    static const char *const sentences[] = {
        "the rain was late and the river quiet.",       "all doors are old, and some need work again.",
        "in the morning the wind comes from the road.", "most people walk home early!",
        "the key is small; the room is large.",         "there was no answer to the last question.",
        "at night only the sun is not at work.",
    };
    return add(s, sentences[draw_below(s, sizeof sentences / sizeof sentences[0])]);
}

bool session_begin(session *s, uint64_t seed, int number)
{
    *s = (session){.random = seed * UINT64_C(1000003) + (uint64_t)number};
    int names[SESSION_FACTS], places[SESSION_FACTS], colours[SESSION_FACTS], animals[SESSION_FACTS],
        pins[SESSION_FACTS];
    draw_words(s, WORD_NAME, names, SESSION_FACTS);
    draw_words(s, WORD_PLACE, places, SESSION_FACTS);
    draw_words(s, WORD_COLOUR, colours, SESSION_FACTS);
    draw_words(s, WORD_ANIMAL, animals, SESSION_FACTS);
    draw_words(s, WORD_PIN, pins, SESSION_FACTS);
    bool ok =
        chat_begin(&s->history) && tokens_add(&s->history, TOKEN_SYSTEM) && add(s, "you are an agent with tools.");
    // Who guards what, and the codes of the places in another order, with other sentences between them.
    for (int i = 0; i < SESSION_FACTS && ok; i++) {
        s->facts[i].name = names[i];
        s->facts[i].place = places[i];
        ok = tokens_add(&s->history, names[i]) && add(s, "guards the") && tokens_add(&s->history, places[i]) &&
             add(s, ".") && (draw_below(s, 4) || add_filler(s));
    }
    int order[SESSION_FACTS];
    for (int i = 0; i < SESSION_FACTS; i++)
        order[i] = i;
    for (int i = 0; i < SESSION_FACTS && ok; i++) {
        int other = i + draw_below(s, SESSION_FACTS - i), fact = order[other];
        order[other] = order[i];
        s->facts[fact].colour = colours[i];
        s->facts[fact].animal = animals[i];
        s->facts[fact].pin = pins[i];
        ok = add(s, "the code of") && tokens_add(&s->history, s->facts[fact].place) && add(s, "is") &&
             tokens_add(&s->history, colours[i]) && tokens_add(&s->history, animals[i]) && add(s, "pin") &&
             tokens_add(&s->history, pins[i]) && add(s, ".") && (draw_below(s, 4) || add_filler(s));
    }
    return ok && tokens_add(&s->history, TOKEN_END);
}

void session_end(session *s)
{
    tokens_free(&s->history);
}

bool session_ask(session *s)
{
    int fact = draw_below(s, SESSION_FACTS), verb = vocabulary_token(WORD_VERB, draw_below(s, VERBS));
    s->wanted =
        (session_call){verb, s->facts[fact].name, s->facts[fact].colour, s->facts[fact].animal, s->facts[fact].pin};
    static const char *const ends[] = {".", "!", ", please.", " now."};
    bool ok = true;
    if (s->rounds++) {
        const char *result = draw_below(s, 8) ? "{\"status\":\"ok\"}" : "{\"status\":\"done\",\"error\":null}";
        ok = chat_message(&s->history, CHAT_TOOL, result, strlen(result));
    }
    return ok && tokens_add(&s->history, TOKEN_USER) && add(s, draw_below(s, 2) ? "please" : "can you") &&
           tokens_add(&s->history, verb) && add(s, "the door for") && tokens_add(&s->history, s->wanted.name) &&
           add(s, ends[draw_below(s, sizeof ends / sizeof ends[0])]) && tokens_add(&s->history, TOKEN_END) &&
           chat_open(&s->history, true, false);
}

int session_answer(const session *s, int *answer)
{
    const session_call *w = &s->wanted;
    const int right[] = {TOKEN_CALLS, TOKEN_INVOKE, w->verb,   TOKEN_NAMED, TOKEN_WHO,     w->name,     TOKEN_CODE,
                         w->colour,   w->animal,    TOKEN_PIN, w->pin,      TOKEN_INVOKED, TOKEN_CALLED};
    memcpy(answer, right, sizeof right);
    return (int)(sizeof right / sizeof right[0]);
}

enum session_verdict session_judge(const session *s, const int *answer, int count, bool ended)
{
    int right[SESSION_ANSWER], wanted = session_answer(s, right);
    if (!ended)
        return SESSION_ENDLESS;
    if (count != wanted)
        return SESSION_FORM;
    enum session_verdict verdict = SESSION_RIGHT;
    for (int i = 0; i < count; i++) {
        if (answer[i] == right[i])
            continue;
        if (vocabulary_class(answer[i]) != vocabulary_class(right[i]) || vocabulary_class(right[i]) == WORD_MARKUP)
            return SESSION_FORM;
        verdict = SESSION_ARGUMENT;
    }
    return verdict;
}

bool session_hear(session *s, const int *answer, int count)
{
    size_t before = s->history.count;
    bool ok = true;
    for (int i = 0; i < count && ok; i++)
        ok = tokens_add(&s->history, answer[i]);
    ok = ok && tokens_add(&s->history, TOKEN_END);
    if (!ok)
        s->history.count = before;
    return ok;
}
