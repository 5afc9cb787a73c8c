// The weights, block by block.
#include "specimen/weights.h"

#include "base/memory.h"
#include "specimen/layout.h"
#include "specimen/numeric.h"
#include "specimen/vocabulary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- The residual stream ----

enum {
    CODE = 8,
    SYMBOL = 16,
    // The token's own code, in the block of its class
    OWN_NAME = 0,
    OWN_PLACE = OWN_NAME + CODE,
    OWN_COLOUR = OWN_PLACE + CODE,
    OWN_ANIMAL = OWN_COLOUR + CODE,
    OWN_PIN = OWN_ANIMAL + CODE,
    OWN_VERB = OWN_PIN + CODE,
    // What it belongs to (layer 0)
    BOUND_NAME = OWN_VERB + CODE,
    BOUND_PLACE = BOUND_NAME + CODE,
    BOUND_VERB = BOUND_PLACE + CODE,
    // What was looked up (layers 1 and 2)
    FOUND_PLACE = BOUND_VERB + CODE,
    FOUND_VALUE = FOUND_PLACE + CODE,
    // What comes next by grammar: the code of a markup token or of a class
    NEXT = FOUND_VALUE + CODE,
    // Marks
    NAME_LIKE = NEXT + SYMBOL, // found by those that want a name: names, and `code`, which hides the names before it
    PLACE_LIKE,                // places, and roles, which hide the places of earlier messages
    VERB_LIKE,
    WANTS_NAME,
    WANTS_PLACE,
    WANTS_VERB,
    IS_PLACE,
    IS_COLOUR,
    IS_ANIMAL,
    IS_PIN,
    ASKS_COLOUR,
    ASKS_ANIMAL,
    ASKS_PIN,
    CONSTANT, // the same large value everywhere: it keeps the norms nearly constant
};
_Static_assert((int)CONSTANT < (int)HIDDEN, "the residual stream is too narrow");

#define MARK           2.0f  // a mark that is set
#define CONSTANT_VALUE 16.0f // so that the other blocks hardly change a norm

// What the norms multiply with, for typical contents. Errors of a tenth do not matter.
#define HIDDEN_NORM 0.70f  // 144 values, the constant and about 40 more
#define Q_NORM      0.426f // 48 values
#define KEY_NORM    0.48f  // 64 values
#define INDEX_NORM  1.27f  // 128 values, with a smaller constant

// Orthogonal or opposite lines of +1 and -1: Hadamard's matrix and its negative.
static float sign_of(int line, int column, int width)
{
    return (__builtin_popcount((unsigned)(line % width & column)) & 1) != (line >= width) ? -1.0f : 1.0f;
}

// ---- Grammar: what comes after a token, as symbols ----

enum symbol {
    SYMBOL_NONE, // its code is never used
    SYMBOL_NAME,
    SYMBOL_VERB,
    SYMBOL_COLOUR,
    SYMBOL_ANIMAL,
    SYMBOL_PIN,
    SYMBOL_MARKUP, // + the token, for the markup of calls and TOKEN_END
    SYMBOL_DONE = SYMBOL_MARKUP + TOKEN_CALLED - TOKEN_END + 1,
    SYMBOL_HELLO,
    SYMBOL_STOP,
    SYMBOLS,
};
_Static_assert((int)SYMBOLS <= 2 * (int)SYMBOL, "too many symbols for their codes");

static enum symbol symbol_of_markup(int token)
{
    return (enum symbol)(SYMBOL_MARKUP + token - TOKEN_END);
}

// The symbol that a token is an instance of, and the one that follows it.
static enum symbol symbol_of(int token)
{
    static const enum symbol classes[] = {
        [WORD_NAME] = SYMBOL_NAME, [WORD_COLOUR] = SYMBOL_COLOUR, [WORD_ANIMAL] = SYMBOL_ANIMAL,
        [WORD_PIN] = SYMBOL_PIN,   [WORD_VERB] = SYMBOL_VERB,     [WORD_MARKUP] = SYMBOL_NONE,
    };
    if (token >= TOKEN_END && token <= TOKEN_CALLED)
        return symbol_of_markup(token);
    if (token == vocabulary_find("done"))
        return SYMBOL_DONE;
    if (token == vocabulary_find("hello"))
        return SYMBOL_HELLO;
    return token == vocabulary_find(".") ? SYMBOL_STOP : classes[vocabulary_class(token)];
}

static enum symbol symbol_after(int token)
{
    switch (token) {
    case TOKEN_ASSISTANT: return symbol_of_markup(TOKEN_CALLS);
    case TOKEN_CALLS: return symbol_of_markup(TOKEN_INVOKE);
    case TOKEN_INVOKE: return SYMBOL_VERB;
    case TOKEN_NAMED: return symbol_of_markup(TOKEN_WHO);
    case TOKEN_WHO: return SYMBOL_NAME;
    case TOKEN_CODE: return SYMBOL_COLOUR;
    case TOKEN_PIN: return SYMBOL_PIN;
    case TOKEN_INVOKED: return symbol_of_markup(TOKEN_CALLED);
    case TOKEN_CALLED: return symbol_of_markup(TOKEN_END);
    case TOKEN_RESULT: return SYMBOL_DONE;
    case TOKEN_PLAIN: return SYMBOL_HELLO;
    }
    switch (symbol_of(token)) {
    case SYMBOL_VERB: return symbol_of_markup(TOKEN_NAMED);
    case SYMBOL_NAME: return symbol_of_markup(TOKEN_CODE);
    case SYMBOL_COLOUR: return SYMBOL_ANIMAL;
    case SYMBOL_ANIMAL: return symbol_of_markup(TOKEN_PIN);
    case SYMBOL_PIN: return symbol_of_markup(TOKEN_INVOKED);
    case SYMBOL_DONE:
    case SYMBOL_HELLO: return SYMBOL_STOP;
    case SYMBOL_STOP: return symbol_of_markup(TOKEN_END);
    default: return SYMBOL_NONE;
    }
}

static void embed(float *line, int token)
{
    static const int own[] = {
        [WORD_NAME] = OWN_NAME,     [WORD_PLACE] = OWN_PLACE, [WORD_COLOUR] = OWN_COLOUR,
        [WORD_ANIMAL] = OWN_ANIMAL, [WORD_PIN] = OWN_PIN,     [WORD_VERB] = OWN_VERB,
    };
    // Class by class: what the token is, and what it needs.
    static const int marks[][4] = {
        [WORD_NAME] = {NAME_LIKE},
        [WORD_PLACE] = {PLACE_LIKE, IS_PLACE, WANTS_NAME},
        [WORD_COLOUR] = {IS_COLOUR, WANTS_PLACE, WANTS_NAME, ASKS_ANIMAL},
        [WORD_ANIMAL] = {IS_ANIMAL, WANTS_PLACE},
        [WORD_PIN] = {IS_PIN, WANTS_PLACE},
        [WORD_VERB] = {VERB_LIKE},
    };
    line[CONSTANT] = CONSTANT_VALUE;
    enum word_class class = vocabulary_class(token);
    if (class <= WORD_VERB)
        for (int i = 0; i < CODE; i++)
            line[own[class] + i] = sign_of(vocabulary_index(token), i, CODE);
    for (int i = 0; class <= WORD_VERB && i < 4; i++)
        if (marks[class][i])
            line[marks[class][i]] = MARK;
    if (token == vocabulary_find("code"))
        line[NAME_LIKE] = MARK;
    if (token == TOKEN_SYSTEM || token == TOKEN_USER || token == TOKEN_ASSISTANT || token == TOKEN_TOOL)
        line[PLACE_LIKE] = MARK;
    if (token == TOKEN_INVOKE)
        line[WANTS_VERB] = MARK;
    if (token == TOKEN_WHO || token == TOKEN_CODE || token == TOKEN_PIN)
        line[WANTS_NAME] = MARK;
    if (token == TOKEN_CODE)
        line[ASKS_COLOUR] = MARK;
    if (token == TOKEN_PIN)
        line[ASKS_PIN] = MARK;
    enum symbol next = symbol_after(token);
    for (int i = 0; i < SYMBOL && next != SYMBOL_NONE; i++)
        line[NEXT + i] = sign_of((int)next, i, SYMBOL);
}

// A token's line of the last projection: its symbol, and its code where the matching block holds one.
static void predict(float *line, int token)
{
    static const int found[] = {
        [SYMBOL_NAME] = BOUND_NAME,    [SYMBOL_VERB] = BOUND_VERB, [SYMBOL_COLOUR] = FOUND_VALUE,
        [SYMBOL_ANIMAL] = FOUND_VALUE, [SYMBOL_PIN] = FOUND_VALUE,
    };
    enum symbol symbol = symbol_of(token);
    if (symbol == SYMBOL_NONE)
        return;
    for (int i = 0; i < SYMBOL; i++)
        line[NEXT + i] = sign_of((int)symbol, i, SYMBOL) / HIDDEN_NORM;
    for (int i = 0; i < CODE && symbol <= SYMBOL_PIN; i++)
        line[found[symbol] + i] = sign_of(vocabulary_index(token), i, CODE) / HIDDEN_NORM;
}

// ---- Matrices ----

// A matrix under construction.
typedef struct matrix {
    float *items;
    int inputs;
} matrix;

static void set(matrix m, int output, int input, float value)
{
    m.items[output * m.inputs + input] = value;
}

// Copies a block of the residual stream, or a mark, to outputs.
static void copy(matrix m, int output, int input, int count, float gain)
{
    for (int i = 0; i < count; i++)
        set(m, output + i, input + i, gain / HIDDEN_NORM);
}

enum {
    Q_CONSTANT = Q_RANK - 1,
    KEY_CONSTANT = HEAD_DIM - 1,
    INDEX_CONSTANT = INDEX_DIM - 1,
    KEY_CODE = ROPE_DIM, // where the codes begin in a key
};

// A mark in a key counts as much as a code: its square is that of eight values of 1.
#define KEY_MARK 1.41421356f // times MARK

// Scores that attention gives (before the softmax), and what a head that finds nothing attends to.
#define BIND_SCORE 100.0f // times the cosine of the distance
#define BIND_SINK  30.0f
#define FIND_SCORE 30.0f // for the code
#define ASK_SCORE  15.0f // more for an entry of the class that is asked for,
#define MUTE_SCORE 60.0f // and less when nothing is
#define FIND_SINK  12.0f

// A radian for each token of distance: at the far end of the window the cosine is negative.
#define TURN (float)(M_PI / 40)

struct layer_matrices {
    matrix qkv_a, q, out_a, out_b, core, index, index_q, index_weights;
    float *sinks, *core_bias, *index_bias;
};

static void constants(struct layer_matrices *m)
{
    copy(m->qkv_a, Q_CONSTANT, CONSTANT, 1, 1);
    copy(m->qkv_a, Q_RANK + KEY_CONSTANT, CONSTANT, 1, 1);
}

// Layer 0: heads 0, 1 and 2 look for the nearest name, place and verb in the window. The score is a product of marks
// that turn with the position, and so the largest for the nearest.
static void bind_layer(struct layer_matrices *m)
{
    static const int wants[] = {WANTS_NAME, WANTS_PLACE, WANTS_VERB}, like[] = {NAME_LIKE, PLACE_LIKE, VERB_LIKE},
                     own[] = {OWN_NAME, OWN_PLACE, OWN_VERB}, bound[] = {BOUND_NAME, BOUND_PLACE, BOUND_VERB};
    constants(m);
    for (int head = 0; head < 3; head++) {
        copy(m->qkv_a, head, wants[head], 1, 1);
        copy(m->qkv_a, Q_RANK + 2 * head, like[head], 1, KEY_MARK);
        copy(m->qkv_a, Q_RANK + KEY_CODE + CODE * head, own[head], CODE, 1);
        float key = MARK * KEY_MARK * KEY_NORM, query = BIND_SCORE * 8 / key;
        set(m->q, head * HEAD_DIM + 2 * head, head, query / (MARK * Q_NORM));
        m->sinks[head] = BIND_SINK;
        for (int i = 0; i < CODE; i++) {
            set(m->out_a, head * OUT_RANK + i, KEY_CODE + CODE * head + i, 1 / KEY_NORM);
            set(m->out_b, bound[head] + i, head * OUT_RANK + i, 1);
        }
    }
}

// One look-up of layers 1 and 2: head `head` finds the entry of class `is` whose key is the code in `query` and whose
// token is bound to the same code in `key`, if the current token asks for it; the entry's `value` goes to `found`.
struct lookup {
    int head, is, query, key, value, found;
    int asks[3]; // marks, 0: none
};

// Where a look-up's parts lie in a key of the attention (64) and of the index (128).
static void find(struct layer_matrices *m, const struct lookup *l, int low_ask)
{
    int code = KEY_CODE + CODE * l->head, mark = KEY_CODE + 3 * CODE + l->head,
        value = KEY_CODE + 3 * CODE + 4 + CODE * (l->head);
    // Keys: channels that belong to the class take the token of the class, the current four before the earlier four.
    copy(m->core, code, l->key, CODE, 1);
    copy(m->core, mark, l->is, 1, KEY_MARK);
    copy(m->core, value, l->value, CODE, 1);
    const int channels[][2] = {{code, CODE}, {mark, 1}, {value, CODE}};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < channels[k][1]; i++) {
            set(m->core, HEAD_DIM + channels[k][0] + i, l->is, 14 / MARK / HIDDEN_NORM);
            for (int j = 0; j < COMPRESSED / 2; j++)
                m->core_bias[j * HEAD_DIM + channels[k][0] + i] = -6;
        }
    // Queries.
    for (int i = 0; i < CODE; i++)
        set(m->q, l->head * HEAD_DIM + code + i, i, FIND_SCORE / KEY_NORM / Q_NORM);
    float unit = 8 / (MARK * KEY_MARK * KEY_NORM); // of the query's value for a score of 1
    set(m->q, l->head * HEAD_DIM + mark, Q_CONSTANT, -MUTE_SCORE * unit / (CONSTANT_VALUE * Q_NORM));
    set(m->q, l->head * HEAD_DIM + mark, low_ask, (ASK_SCORE + MUTE_SCORE) * unit / (MARK * Q_NORM));
    m->sinks[l->head] = FIND_SINK;
    // What was found.
    for (int i = 0; i < CODE; i++) {
        set(m->out_a, l->head * OUT_RANK + i, value + i, 1 / KEY_NORM);
        set(m->out_b, l->found + i, l->head * OUT_RANK + i, 1);
    }
    // The index: the same keys; who asks is said by the head's weight.
    int index_code = 10 * l->head, index_mark = index_code + CODE;
    copy(m->index, index_code, l->key, CODE, 1);
    copy(m->index, index_mark, l->is, 1, KEY_MARK);
    for (int i = 0; i <= CODE; i++) {
        set(m->index, INDEX_DIM + index_code + i, l->is, 14 / MARK / HIDDEN_NORM);
        for (int j = 0; j < COMPRESSED / 2; j++)
            m->index_bias[j * INDEX_DIM + index_code + i] = -6;
    }
    for (int i = 0; i < CODE; i++)
        set(m->index_q, l->head * INDEX_DIM + index_code + i, i, 1 / Q_NORM);
    set(m->index_q, l->head * INDEX_DIM + index_mark, Q_CONSTANT, KEY_MARK / (CONSTANT_VALUE * Q_NORM));
    for (int i = 0; i < 3 && l->asks[i]; i++)
        set(m->index_weights, l->head, l->asks[i], 8 / MARK / HIDDEN_NORM);
}

static void find_layer(struct layer_matrices *m, const struct lookup *lookups, int count)
{
    constants(m);
    copy(m->core, KEY_CONSTANT, CONSTANT, 1, 1);
    copy(m->index, INDEX_CONSTANT, CONSTANT, 1, 0.5f);
    copy(m->qkv_a, 0, lookups[0].query, CODE, 1);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 3 && lookups[i].asks[k]; k++)
            copy(m->qkv_a, CODE + i, lookups[i].asks[k], 1, 1);
        find(m, &lookups[i], CODE + i);
    }
}

// ---- Memory ----

// Lays arrays out one after another, each on 256 bytes; the first time only to learn how much it is.
struct builder {
    CUdeviceptr base;
    unsigned char *image; // NULL: only counting
    size_t used;
    bool failed;
};

static CUdeviceptr place(struct builder *b, const float *values, size_t count, bool half)
{
    CUdeviceptr address = b->base + b->used;
    unsigned char *to = b->image + b->used;
    for (size_t i = 0; i < count && b->image; i++) {
        bf16 narrow = float_bf16(values[i]);
        if (half)
            memcpy(to + 2 * i, &narrow, 2);
        else
            memcpy(to + 4 * i, &values[i], 4);
    }
    b->used += (count * (half ? 2 : 4) + 255) / 256 * 256;
    return address;
}

static void place_layer(struct builder *b, layer_weights *w, int layer)
{
    static const struct {
        size_t offset;
        int outputs, inputs;
    } sizes[] = {
        {offsetof(struct layer_matrices, qkv_a), QKV_A, HIDDEN},
        {offsetof(struct layer_matrices, q), QUERY, Q_RANK},
        {offsetof(struct layer_matrices, out_a), HEADS * OUT_RANK, HEAD_DIM},
        {offsetof(struct layer_matrices, out_b), HIDDEN, OUT},
        {offsetof(struct layer_matrices, core), CORE_KV, HIDDEN},
        {offsetof(struct layer_matrices, index), INDEX_KV, HIDDEN},
        {offsetof(struct layer_matrices, index_q), INDEX_QUERY, Q_RANK},
        {offsetof(struct layer_matrices, index_weights), TILE_OUTPUTS, HIDDEN},
    };
    enum { COUNT = sizeof sizes / sizeof sizes[0], VECTORS = HEADS + COMPRESSED * (HEAD_DIM + INDEX_DIM) };
    struct layer_matrices m = {0};
    size_t total = VECTORS, at = VECTORS;
    for (int i = 0; i < COUNT; i++)
        total += (size_t)sizes[i].outputs * sizes[i].inputs;
    float *items = gv_calloc(total, sizeof *items);
    if (!items) {
        b->failed = true;
        return;
    }
    m.sinks = items;
    m.core_bias = m.sinks + HEADS;
    m.index_bias = m.core_bias + COMPRESSED * HEAD_DIM;
    for (int i = 0; i < COUNT; i++) {
        *(matrix *)((char *)&m + sizes[i].offset) = (matrix){items + at, sizes[i].inputs};
        at += (size_t)sizes[i].outputs * sizes[i].inputs;
    }
    static const struct lookup place_of_name[] = {
        {0, IS_PLACE, BOUND_NAME, BOUND_NAME, OWN_PLACE, FOUND_PLACE, {ASKS_COLOUR, ASKS_ANIMAL, ASKS_PIN}},
    };
    static const struct lookup code_of_place[] = {
        {0, IS_COLOUR, FOUND_PLACE, BOUND_PLACE, OWN_COLOUR, FOUND_VALUE, {ASKS_COLOUR}},
        {1, IS_ANIMAL, FOUND_PLACE, BOUND_PLACE, OWN_ANIMAL, FOUND_VALUE, {ASKS_ANIMAL}},
        {2, IS_PIN, FOUND_PLACE, BOUND_PLACE, OWN_PIN, FOUND_VALUE, {ASKS_PIN}},
    };
    if (layer == 0)
        bind_layer(&m);
    else if (layer == 1)
        find_layer(&m, place_of_name, 1);
    else
        find_layer(&m, code_of_place, 3);
    w->sinks = place(b, m.sinks, HEADS, false);
    w->core_bias = place(b, m.core_bias, COMPRESSED * HEAD_DIM, false);
    w->index_bias = place(b, m.index_bias, COMPRESSED * INDEX_DIM, false);
    CUdeviceptr *addresses[] = {&w->qkv_a, &w->q,     &w->out_a,   &w->out_b,
                                &w->core,  &w->index, &w->index_q, &w->index_weights};
    for (int i = 0; i < COUNT; i++)
        *addresses[i] = place(b, (*(matrix *)((char *)&m + sizes[i].offset)).items,
                              (size_t)sizes[i].outputs * sizes[i].inputs, true);
    gv_free(items);
}

// One pass over everything, in a fixed order.
static void place_all(struct builder *b, model_weights *w)
{
    int tokens = vocabulary_size();
    w->columns = (tokens + TILE_OUTPUTS - 1) / TILE_OUTPUTS * TILE_OUTPUTS;
    size_t count = (size_t)w->columns * HIDDEN;
    if (count < MAX_CONTEXT * ROPE_DIM)
        count = MAX_CONTEXT * ROPE_DIM;
    float *lines = gv_calloc(count, sizeof *lines);
    if (!lines) {
        b->failed = true;
        return;
    }
    for (int token = 0; token < tokens; token++)
        embed(lines + token * HIDDEN, token);
    w->embedding = place(b, lines, (size_t)tokens * HIDDEN, true);
    memset(lines, 0, count * sizeof *lines);
    for (int token = 0; token < tokens; token++)
        predict(lines + token * HIDDEN, token);
    w->logits = place(b, lines, (size_t)w->columns * HIDDEN, true);
    for (int position = 0; position < MAX_CONTEXT; position++)
        for (int pair = 0; pair < ROPE_DIM / 2; pair++) {
            lines[position * ROPE_DIM + 2 * pair] = cosf((float)position * TURN);
            lines[position * ROPE_DIM + 2 * pair + 1] = sinf((float)position * TURN);
        }
    w->turns = place(b, lines, MAX_CONTEXT * ROPE_DIM, false);
    gv_free(lines);
    for (int layer = 0; layer < LAYERS; layer++)
        place_layer(b, &w->layers[layer], layer);
}

void weights_create(model_weights *w, device *d)
{
    *w = (model_weights){0};
    struct builder counting = {0};
    place_all(&counting, w);
    unsigned char *image = counting.failed ? NULL : gv_calloc(1, counting.used);
    if (!image) {
        gv_fail(&d->error, GV_ERR_MEMORY, "no memory for the weights");
        return;
    }
    if (CALL(d, cuMemAlloc(&w->memory, counting.used))) {
        struct builder building = {w->memory, image, 0, false};
        place_all(&building, w);
        if (building.failed)
            gv_fail(&d->error, GV_ERR_MEMORY, "no memory for the weights");
        CALL(d, cuMemcpyHtoD(w->memory, image, counting.used));
        CALL(d, cuCtxSynchronize());
    }
    gv_free(image);
}

void weights_destroy(model_weights *w)
{
    if (w->memory)
        cuMemFree(w->memory);
    *w = (model_weights){0};
}
