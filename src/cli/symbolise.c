#include "cli/symbolise.h"

#include "base/memory.h"
#include "cli/binary.h"
#include "report/format.h"
#include "trace/reader.h"
#include "trace/writer.h"

#include <stdlib.h>
#include <string.h>

typedef struct frame {
    uint64_t module, address;
} frame;

typedef struct module {
    uint64_t id;
    char *path;
    uint8_t *build_id;
    size_t build_id_length;
} module;

// What is gathered from the trace before anything is appended, and the strings appended so far.
typedef struct symbols {
    frame *frames;
    size_t frame_count, frame_capacity;
    module *modules;
    size_t module_count, module_capacity;
    uint64_t last_string, started_ns;
    uint64_t valid_bytes, next_sequence, next_record;
    char *truncation;
    char **strings;         // appended under the ids from first_string on
    uint64_t *string_slots; // open addressing over `strings`: index + 1
    size_t string_count, string_capacity, slot_count;
    uint64_t first_string;
} symbols;

static gv_status no_memory(gv_error *error)
{
    return gv_fail(error, GV_ERR_MEMORY, "out of memory while source lines were looked up");
}

static void release(symbols *state)
{
    for (size_t i = 0; i < state->module_count; i++) {
        gv_free(state->modules[i].path);
        gv_free(state->modules[i].build_id);
    }
    for (size_t i = 0; i < state->string_count; i++)
        gv_free(state->strings[i]);
    gv_free(state->frames);
    gv_free(state->modules);
    gv_free(state->strings);
    gv_free(state->string_slots);
    gv_free(state->truncation);
}

// ---- Gathering ----------------------------------------------------------------------------------------------------

static bool take_module(symbols *state, const gv_module_record *record)
{
    if (!GV_GROW(state->modules, state->module_capacity, state->module_count + 1))
        return false;
    module *added = &state->modules[state->module_count++];
    *added = (module){
        .id = record->id,
        .path = gv_strndup(record->path.data ? record->path.data : "", record->path.length),
        .build_id = gv_malloc(record->build_id.length),
        .build_id_length = record->build_id.length,
    };
    if (added->build_id && record->build_id.length)
        memcpy(added->build_id, record->build_id.data, record->build_id.length);
    return added->path && added->build_id;
}

static bool take_stack(symbols *state, const gv_stack_record *record)
{
    size_t pairs = record->host.count / 2;
    if (!GV_GROW(state->frames, state->frame_capacity, state->frame_count + pairs))
        return false;
    for (size_t i = 0; i < pairs; i++)
        state->frames[state->frame_count++] = (frame){record->host.items[2 * i], record->host.items[2 * i + 1]};
    return true;
}

static int by_module(const void *left, const void *right)
{
    const frame *a = left, *b = right;
    if (a->module != b->module)
        return a->module < b->module ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

static void sort_frames(symbols *state)
{
    if (!state->frame_count)
        return;
    qsort(state->frames, state->frame_count, sizeof *state->frames, by_module);
    size_t kept = 1;
    for (size_t i = 1; i < state->frame_count; i++) {
        if (by_module(&state->frames[i], &state->frames[kept - 1]) != 0)
            state->frames[kept++] = state->frames[i];
    }
    state->frame_count = kept;
}

static gv_status gather(symbols *state, const char *path, gv_error *error)
{
    gv_reader *reader = NULL;
    gv_status status = gv_reader_open(path, &reader, error);
    gv_record record;
    bool more = status == GV_OK, enough = true;
    while (more && enough) {
        status = gv_reader_next(reader, &record, &more, error);
        if (status != GV_OK || !more)
            break;
        switch (record.type) {
        case GV_RECORD_process: state->started_ns = record.process.time_ns; break;
        case GV_RECORD_string:
            state->last_string = record.string.id > state->last_string ? record.string.id : state->last_string;
            break;
        case GV_RECORD_module: enough = take_module(state, &record.module); break;
        case GV_RECORD_stack: enough = take_stack(state, &record.stack); break;
        default: break;
        }
    }
    if (status == GV_OK && enough) {
        gv_reader_position(reader, &state->valid_bytes, &state->next_sequence, &state->next_record);
        const char *truncation = gv_reader_truncation(reader);
        state->truncation = truncation ? gv_strdup(truncation) : NULL;
        enough = !truncation || state->truncation;
    }
    gv_reader_close(reader);
    if (status == GV_OK && !enough)
        status = no_memory(error);
    sort_frames(state);
    return status;
}

// ---- Appending ----------------------------------------------------------------------------------------------------

static uint64_t hash(const char *text)
{
    uint64_t value = 14695981039346656037u; // FNV-1a
    for (; *text; text++)
        value = (value ^ (unsigned char)*text) * 1099511628211u;
    return value;
}

// The slot that holds `text`, or the empty one where it belongs.
static uint64_t *slot_of(symbols *state, const char *text)
{
    size_t place = hash(text) & (state->slot_count - 1);
    while (state->string_slots[place] && strcmp(state->strings[state->string_slots[place] - 1], text) != 0)
        place = (place + 1) & (state->slot_count - 1);
    return &state->string_slots[place];
}

static bool make_room(symbols *state)
{
    if (!GV_GROW(state->strings, state->string_capacity, state->string_count + 1))
        return false;
    if (2 * (state->string_count + 1) <= state->slot_count)
        return true;
    size_t wanted = state->slot_count ? 2 * state->slot_count : 64;
    uint64_t *slots = gv_calloc(wanted, sizeof *slots);
    if (!slots)
        return false;
    gv_free(state->string_slots);
    state->string_slots = slots;
    state->slot_count = wanted;
    for (size_t i = 0; i < state->string_count; i++)
        *slot_of(state, state->strings[i]) = i + 1;
    return true;
}

// Gives `text` an id, and writes it to the trace the first time. NULL and failure give 0.
static uint64_t string_id(symbols *state, gv_writer *writer, const char *text, gv_status *status)
{
    if (!text || *status != GV_OK)
        return 0;
    if (!make_room(state)) {
        *status = GV_ERR_MEMORY;
        return 0;
    }
    uint64_t *slot = slot_of(state, text);
    if (!*slot) {
        char *copy = gv_strdup(text);
        if (!copy) {
            *status = GV_ERR_MEMORY;
            return 0;
        }
        state->strings[state->string_count] = copy;
        *slot = ++state->string_count;
        gv_string_record record = {.id = state->first_string + *slot - 1, .text = {copy, strlen(copy)}};
        *status = gv_write_string(writer, &record);
    }
    return state->first_string + *slot - 1;
}

// The same for a function: elfutils adds a versioned symbol's version to its name, "memcpy@@GLIBC_2.14".
static uint64_t function_id(symbols *state, gv_writer *writer, const char *name, gv_status *status)
{
    if (!name || !strchr(name, '@'))
        return string_id(state, writer, name, status);
    char *plain = gv_strndup(name, strcspn(name, "@"));
    if (!plain && *status == GV_OK)
        *status = GV_ERR_MEMORY;
    uint64_t id = string_id(state, writer, plain, status);
    gv_free(plain);
    return id;
}

static const module *module_with(const symbols *state, uint64_t id)
{
    for (size_t i = 0; i < state->module_count; i++) {
        if (state->modules[i].id == id)
            return &state->modules[i];
    }
    return NULL;
}

// Resolves the frames of one module: state->frames[first] to [end - 1].
static gv_status append_module(symbols *state, gv_writer *writer, size_t first, size_t end, gv_symbolise_result *result)
{
    const module *owner = module_with(state, state->frames[first].module);
    // "[vdso]" and other names in brackets are no files.
    if (!owner || owner->path[0] != '/')
        return GV_OK;
    gv_binary *binary = NULL;
    gv_status status =
        gv_binary_open(owner->path, owner->build_id, owner->build_id_length, state->started_ns, &binary, NULL);
    if (status == GV_ERR_MEMORY)
        return status;
    if (status != GV_OK) {
        result->changed += status == GV_ERR_VERSION;
        result->unreadable += status == GV_ERR_MISSING;
        return GV_OK;
    }
    for (size_t i = first; i < end && status == GV_OK; i++) {
        gv_binary_place place = gv_binary_look_up(binary, state->frames[i].address);
        if (!place.function && !place.file)
            continue;
        gv_symbol_record record = {
            .module = state->frames[i].module,
            .address = state->frames[i].address,
            .function = function_id(state, writer, place.function, &status),
            .file = string_id(state, writer, place.file, &status),
            .line = place.line,
        };
        if (status == GV_OK)
            status = gv_write_symbol(writer, &record);
        result->functions += place.function != NULL;
        result->lines += place.file != NULL;
    }
    gv_binary_close(binary);
    return status;
}

static gv_status append(symbols *state, const char *path, gv_symbolise_result *result, gv_error *error)
{
    gv_writer *writer = NULL;
    gv_status status =
        gv_writer_append(path, state->valid_bytes, state->next_sequence, state->next_record, &writer, error);
    if (status != GV_OK)
        return status;
    state->first_string = state->last_string + 1;
    if (state->truncation) {
        gv_string text = {0};
        gv_string_add(&text, "the end of this trace was torn and was cut off by gravel run: %s", state->truncation);
        gv_note_record note = {.severity = GV_NOTE_FAILURE, .text = {gv_string_text(&text), text.length}};
        status = gv_write_note(writer, &note);
        gv_string_free(&text);
    }
    for (size_t first = 0; first < state->frame_count && status == GV_OK;) {
        size_t end = first;
        while (end < state->frame_count && state->frames[end].module == state->frames[first].module)
            end++;
        status = append_module(state, writer, first, end, result);
        first = end;
    }
    const char *failure = gv_writer_failure(writer);
    if (status != GV_OK)
        gv_fail(error, status, "%s: %s", path, failure ? failure : "out of memory while source lines were looked up");
    gv_status closed = gv_writer_close(writer);
    if (status == GV_OK && closed != GV_OK)
        status = gv_fail(error, closed, "%s: the source lines could not be appended; is the disk full?", path);
    return status;
}

gv_status gv_symbolise(const char *path, gv_symbolise_result *result, gv_error *error)
{
    symbols state = {0};
    *result = (gv_symbolise_result){0};
    gv_status status = gather(&state, path, error);
    result->frames = state.frame_count;
    if (status == GV_OK && (state.frame_count || state.truncation))
        status = append(&state, path, result, error);
    release(&state);
    return status;
}
