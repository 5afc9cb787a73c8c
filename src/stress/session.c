#include "stress/session.h"

#include "base/memory.h"
#include "stress/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Numbers ------------------------------------------------------------------------------------------------------

gv_random gv_random_open(uint64_t seed, uint64_t stream)
{
    gv_random random = {seed};
    random.state = gv_random_next(&random) ^ (stream * 0x9e3779b97f4a7c15ull);
    gv_random_next(&random);
    return random;
}

uint64_t gv_random_next(gv_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t gv_random_below(gv_random *random, uint64_t below)
{
    // The high half of a product: the bias is below/2^64, far under what any session can show.
    return (uint64_t)(((unsigned __int128)gv_random_next(random) * below) >> 64);
}

// ---- Drawing values -----------------------------------------------------------------------------------------------

// A drawn value. `rules` says its name.
typedef struct values {
    const gv_rules *rules;
    char **items;
} values;

typedef struct maker {
    const gv_scenario *scenario;
    gv_session *session;
    gv_random random;
    gv_error *error;
    uint64_t *used; // hashes of values that must not come twice; a power of two of slots, 0 is free
    size_t used_count, used_slots;
    gv_string scratch;
    char *context;
} maker;

static gv_status no_memory(maker *make)
{
    return gv_fail(make->error, GV_ERR_MEMORY, "out of memory while session %zu was made", make->session->index);
}

// Puts a hash into the set. 1: it was new; 0: it is there already; -1: out of memory.
static int put_used(maker *make, uint64_t hash)
{
    if (make->used_count * 2 >= make->used_slots) {
        size_t slots = make->used_slots ? make->used_slots * 2 : 256;
        uint64_t *larger = gv_calloc(slots, sizeof *larger);
        if (!larger)
            return -1;
        for (size_t i = 0; i < make->used_slots; i++) {
            if (make->used[i]) {
                size_t slot = make->used[i] & (slots - 1);
                while (larger[slot])
                    slot = (slot + 1) & (slots - 1);
                larger[slot] = make->used[i];
            }
        }
        gv_free(make->used);
        make->used = larger;
        make->used_slots = slots;
    }
    hash |= 1;
    for (size_t slot = hash & (make->used_slots - 1);; slot = (slot + 1) & (make->used_slots - 1)) {
        if (make->used[slot] == hash)
            return 0;
        if (!make->used[slot]) {
            make->used[slot] = hash;
            make->used_count++;
            return 1;
        }
    }
}

static void draw_once(gv_random *random, const gv_rule *rule, gv_string *out)
{
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    gv_string_clear(out);
    for (int64_t i = 0; i < rule->low && rule->kind < GV_RULE_INTEGER; i++) {
        char text[2] = {0};
        size_t length = 1;
        switch (rule->kind) {
        // No leading zero: whoever takes the digits for a number gives them back unchanged.
        case GV_RULE_DIGITS:
            text[0] = (char)(i ? '0' + gv_random_below(random, 10) : '1' + gv_random_below(random, 9));
            break;
        case GV_RULE_LETTERS: text[0] = (char)('a' + gv_random_below(random, 26)); break;
        case GV_RULE_HEX: text[0] = "0123456789abcdef"[gv_random_below(random, 16)]; break;
        default:
            text[0] = consonants[gv_random_below(random, sizeof consonants - 1)];
            text[1] = vowels[gv_random_below(random, sizeof vowels - 1)];
            text[0] = (char)(i ? text[0] : text[0] - 'a' + 'A');
            length = 2;
        }
        gv_string_add_bytes(out, text, length);
    }
    if (rule->kind == GV_RULE_INTEGER)
        gv_string_add(out, "%" PRId64,
                      rule->low + (int64_t)gv_random_below(random, (uint64_t)(rule->high - rule->low) + 1));
    if (rule->kind == GV_RULE_PICK || rule->kind == GV_RULE_DEAL)
        gv_string_add(out, "%s", rule->choices[gv_random_below(random, rule->choice_count)]);
}

// Draws a value. Codes and names never come twice in a session: two records of one name would make a right answer
// wrong.
static gv_status draw(maker *make, const gv_rule *rule, char **out)
{
    enum { TRIES = 2000 };
    bool unique = rule->kind < GV_RULE_INTEGER || rule->kind == GV_RULE_DEAL;
    for (int i = 0; i < TRIES; i++) {
        draw_once(&make->random, rule, &make->scratch);
        if (make->scratch.failed)
            return no_memory(make);
        int fresh = unique ? put_used(make, gv_hash_bytes(GV_HASH_START, make->scratch.text, make->scratch.length)) : 1;
        if (fresh < 0)
            return no_memory(make);
        if (!fresh)
            continue;
        *out = gv_strdup(gv_string_text(&make->scratch));
        return *out ? GV_OK : no_memory(make);
    }
    return gv_fail(
        make->error, GV_ERR_LIMIT,
        "the scenario's value `%s` has too few different values for one session; give it more characters, or "
        "ask for a shorter context (--ctx) or fewer rounds",
        rule->name);
}

static void free_values(values *drawn)
{
    for (size_t i = 0; drawn->items && i < drawn->rules->count; i++)
        gv_free(drawn->items[i]);
    gv_free(drawn->items);
    drawn->items = NULL;
}

static gv_status draw_all(maker *make, const gv_rules *rules, values *drawn)
{
    *drawn = (values){.rules = rules, .items = gv_calloc(rules->count, sizeof(char *))};
    gv_status status = drawn->items ? GV_OK : no_memory(make);
    for (size_t i = 0; status == GV_OK && i < rules->count; i++)
        status = draw(make, &rules->items[i], &drawn->items[i]);
    return status;
}

// ---- Filling templates --------------------------------------------------------------------------------------------

typedef struct scope {
    const values *own, *session, *previous;
    const char *context;
    size_t round;
} scope;

static const char *find_value(const values *drawn, const char *name, size_t length)
{
    for (size_t i = 0; drawn && drawn->items && i < drawn->rules->count; i++) {
        const char *rule = drawn->rules->items[i].name;
        if (strlen(rule) == length && memcmp(rule, name, length) == 0)
            return drawn->items[i];
    }
    return NULL;
}

// The loader has checked the places: each has a value.
static void fill(gv_string *out, const char *template, const scope *names)
{
    static const char previous[] = "previous.";
    size_t prefix = sizeof previous - 1;
    const char *literal, *name;
    size_t literal_length, length;
    while (gv_template_next(&template, &literal, &literal_length, &name, &length)) {
        gv_string_add_bytes(out, literal, literal_length);
        const char *value = find_value(names->own, name, length);
        if (!value)
            value = find_value(names->session, name, length);
        if (value)
            gv_string_add_bytes(out, value, strlen(value));
        else if (length == 7 && memcmp(name, "context", 7) == 0 && names->context)
            gv_string_add_bytes(out, names->context, strlen(names->context));
        else if (length == 5 && memcmp(name, "round", 5) == 0)
            gv_string_add(out, "%zu", names->round + 1);
        else if (length > prefix && memcmp(name, previous, prefix) == 0 &&
                 (value = find_value(names->previous, name + prefix, length - prefix)))
            gv_string_add_bytes(out, value, strlen(value));
    }
}

static gv_status fill_text(maker *make, const char *template, const scope *names, char **out)
{
    gv_string text = {0};
    fill(&text, template, names);
    *out = text.failed ? NULL : gv_strndup(gv_string_text(&text), text.length);
    gv_string_free(&text);
    return *out ? GV_OK : no_memory(make);
}

// A copy of `value` with its texts filled. A text that a schema wants as another type becomes that.
static json_t *fill_json(const json_t *value, const json_t *schema, const scope *names)
{
    json_t *copy = NULL;
    if (json_is_object(value)) {
        const char *key;
        json_t *member;
        copy = json_object();
        json_object_foreach((json_t *)value, key, member)
        {
            if (copy &&
                json_object_set_new(copy, key, fill_json(member, gv_schema_property(schema, key), names)) != 0) {
                json_decref(copy);
                copy = NULL;
            }
        }
        return copy;
    }
    if (json_is_array(value)) {
        copy = json_array();
        for (size_t i = 0; copy && i < json_array_size(value); i++) {
            if (json_array_append_new(
                    copy, fill_json(json_array_get(value, i), json_object_get(schema, "items"), names)) != 0) {
                json_decref(copy);
                copy = NULL;
            }
        }
        return copy;
    }
    if (!json_is_string(value))
        return json_deep_copy(value);
    gv_string text = {0};
    fill(&text, json_string_value(value), names);
    bool other = schema && !gv_schema_allows(schema, "string");
    // "7" is not JSON text by itself for a reader of objects, hence DECODE_ANY.
    if (!text.failed && other)
        copy = json_loads(gv_string_text(&text), JSON_DECODE_ANY, NULL);
    if (!text.failed && (!copy || json_is_string(copy) || json_is_object(copy) || json_is_array(copy))) {
        json_decref(copy);
        copy = json_string(gv_string_text(&text));
    }
    gv_string_free(&text);
    return copy;
}

// ---- The context --------------------------------------------------------------------------------------------------

// Facts of the session and of all rounds, in an order drawn by lot.
static gv_status collect_facts(maker *make, const scope *session, const values *rounds, size_t count, gv_texts *facts)
{
    gv_status status = GV_OK;
    for (size_t i = 0; i <= count && status == GV_OK; i++) {
        const gv_texts *templates = i < count ? &gv_scenario_round(make->scenario, i)->facts : &make->scenario->facts;
        scope names = *session;
        names.own = i < count ? &rounds[i] : NULL;
        names.previous = i > 0 && i < count ? &rounds[i - 1] : NULL;
        names.round = i;
        for (size_t j = 0; j < templates->count && status == GV_OK; j++) {
            if (!GV_GROW(facts->items, facts->capacity, facts->count + 1))
                return no_memory(make);
            status = fill_text(make, templates->items[j], &names, &facts->items[facts->count]);
            facts->count += status == GV_OK;
        }
    }
    for (size_t i = facts->count; i > 1; i--) {
        size_t other = (size_t)gv_random_below(&make->random, i);
        char *kept = facts->items[i - 1];
        facts->items[i - 1] = facts->items[other];
        facts->items[other] = kept;
    }
    return status;
}

static gv_status add_filler(maker *make, gv_string *context)
{
    const gv_scenario *scenario = make->scenario;
    values drawn = {0};
    gv_status status = draw_all(make, &scenario->filler_values, &drawn);
    if (status == GV_OK) {
        scope names = {.own = &drawn};
        fill(context, scenario->filler.items[gv_random_below(&make->random, scenario->filler.count)], &names);
    }
    free_values(&drawn);
    return status;
}

static gv_status make_context(maker *make, const scope *session, const values *rounds, size_t count, size_t lines)
{
    gv_texts facts = {0};
    gv_string context = {0};
    gv_status status = collect_facts(make, session, rounds, count, &facts);
    // Without filler there is nothing to make the context longer with.
    if (lines < facts.count || make->scenario->filler.count == 0)
        lines = facts.count;
    size_t planted = 0;
    for (size_t i = 0; i < lines && status == GV_OK; i++) {
        // Selection sampling: each set of lines is as likely as any other to be the facts'.
        bool fact = gv_random_below(&make->random, lines - i) < facts.count - planted;
        if (i)
            gv_string_add_bytes(&context, "\n", 1);
        if (fact) {
            gv_string_add_bytes(&context, facts.items[planted], strlen(facts.items[planted]));
            planted++;
        } else {
            status = add_filler(make, &context);
        }
    }
    if (status == GV_OK)
        make->context = context.failed ? NULL : gv_strndup(gv_string_text(&context), context.length);
    if (status == GV_OK && !make->context)
        status = no_memory(make);
    gv_string_free(&context);
    for (size_t i = 0; i < facts.count; i++)
        gv_free(facts.items[i]);
    gv_free(facts.items);
    return status;
}

// ---- Rounds -------------------------------------------------------------------------------------------------------

static gv_status make_turn(maker *make, const gv_round_plan *plan, const scope *names, gv_turn *turn)
{
    gv_status status = fill_text(make, plan->user, names, &turn->user);
    if (status == GV_OK && plan->text)
        status = fill_text(make, plan->text, names, &turn->text);
    if (status == GV_OK && plan->tool) {
        const gv_tool_plan *tool = gv_scenario_tool(make->scenario, plan->tool);
        turn->arguments = fill_json(plan->arguments, tool->parameters, names);
        // Only a round's own result has places for values.
        json_t *result = plan->result   ? fill_json(plan->result, NULL, names)
                         : tool->result ? json_deep_copy(tool->result)
                                        : json_object();
        // A result that is text is given as it is, not as a JSON string.
        if (json_is_string(result))
            turn->result = gv_strdup(json_string_value(result));
        else if (result)
            turn->result = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
        json_decref(result);
        if (!turn->arguments || !turn->result)
            status = no_memory(make);
    }
    turn->expected = (gv_expectation){.tool = plan->tool, .arguments = turn->arguments, .text = turn->text};
    return status;
}

static gv_status make_session(maker *make, values *session_values, values *rounds, size_t count, size_t lines)
{
    gv_session *session = make->session;
    scope names = {.session = session_values};
    gv_status status = draw_all(make, &make->scenario->values, session_values);
    for (size_t i = 0; i < count && status == GV_OK; i++)
        status = draw_all(make, &gv_scenario_round(make->scenario, i)->values, &rounds[i]);
    if (status == GV_OK)
        status = make_context(make, &names, rounds, count, lines);
    names.context = make->context;
    if (status == GV_OK && make->scenario->system)
        status = fill_text(make, make->scenario->system, &names, &session->system);
    for (size_t i = 0; i < count && status == GV_OK; i++) {
        names = (scope){.own = &rounds[i],
                        .session = session_values,
                        .previous = i ? &rounds[i - 1] : NULL,
                        .context = i ? NULL : make->context,
                        .round = i};
        status = make_turn(make, gv_scenario_round(make->scenario, i), &names, &session->turns[i]);
    }
    return status;
}

gv_status gv_session_make(const gv_scenario *scenario, uint64_t seed, size_t index, size_t rounds, size_t lines,
                          gv_session *session, gv_error *error)
{
    *session = (gv_session){.scenario = scenario, .seed = seed, .index = index, .turn_count = rounds};
    if (rounds == 0 || !gv_scenario_round(scenario, rounds - 1))
        return gv_fail(error, GV_ERR_USAGE,
                       "the scenario \"%s\" has %zu rounds, and %zu were asked for; ask for fewer, or say with "
                       "`again_from` where it begins again",
                       scenario->name, scenario->round_count, rounds);
    maker make = {.scenario = scenario, .session = session, .random = gv_random_open(seed, index), .error = error};
    values session_values = {0}, *round_values = gv_calloc(rounds, sizeof *round_values);
    session->turns = gv_calloc(rounds, sizeof *session->turns);
    gv_status status = round_values && session->turns ? GV_OK : no_memory(&make);
    if (status == GV_OK)
        status = make_session(&make, &session_values, round_values, rounds, lines);
    free_values(&session_values);
    for (size_t i = 0; round_values && i < rounds; i++)
        free_values(&round_values[i]);
    gv_free(round_values);
    gv_free(make.used);
    gv_string_free(&make.scratch);
    gv_free(make.context);
    if (status != GV_OK)
        gv_session_free(session);
    return status;
}

void gv_session_free(gv_session *session)
{
    for (size_t i = 0; session->turns && i < session->turn_count; i++) {
        gv_free(session->turns[i].user);
        gv_free(session->turns[i].text);
        gv_free(session->turns[i].result);
        json_decref(session->turns[i].arguments);
    }
    gv_free(session->turns);
    gv_free(session->system);
    *session = (gv_session){0};
}

char *gv_session_other_result(const gv_session *session, const char *tool)
{
    const gv_tool_plan *plan = gv_scenario_tool(session->scenario, tool);
    if (!plan || !plan->result)
        return gv_strdup("{}");
    return json_is_string(plan->result) ? gv_strdup(json_string_value(plan->result))
                                        : json_dumps(plan->result, JSON_COMPACT | JSON_ENCODE_ANY);
}

void gv_add_json_string(gv_string *out, const char *text, size_t length)
{
    gv_string_add_bytes(out, "\"", 1);
    size_t from = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        gv_string_add_bytes(out, text + from, i - from);
        from = i + 1;
        if (byte == '\n')
            gv_string_add_bytes(out, "\\n", 2);
        else if (byte == '"' || byte == '\\')
            gv_string_add(out, "\\%c", byte);
        else
            gv_string_add(out, "\\u%04x", byte);
    }
    gv_string_add_bytes(out, text + from, length - from);
    gv_string_add_bytes(out, "\"", 1);
}
