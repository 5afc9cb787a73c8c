// How a stack becomes an id: the return addresses are unwound, resolved to (module, address within it), the Python
// frames read beside them, and the whole interned. The tables' lock is not held while the unwinder, the loader's
// lookups by name or the interpreter run, which may take locks of their own.
#include "record/stack.h"

#include "base/memory.h"
#include "record/python_stack.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

// ---- Interning ----------------------------------------------------------------------------------------------

typedef struct entry {
    uint64_t hash;
    uint64_t id; // 0: the slot is free
    void *key;
    size_t length;
} entry;

// Byte strings numbered from 1: an open-addressing hash table, at most two thirds full, its size a power of two.
typedef struct intern_table {
    entry *slots;
    size_t slot_count, count;
} intern_table;

static uint64_t hash_bytes(const void *data, size_t length)
{
    const unsigned char *bytes = data;
    uint64_t hash = length * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, length - i < sizeof word ? length - i : sizeof word);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

// The slot that holds the key, or the free one where it belongs. The table has a free slot.
static entry *find_slot(const intern_table *table, uint64_t hash, const void *key, size_t length)
{
    for (size_t i = hash & (table->slot_count - 1);; i = (i + 1) & (table->slot_count - 1)) {
        entry *slot = &table->slots[i];
        if (!slot->id || (slot->hash == hash && slot->length == length && memcmp(slot->key, key, length) == 0))
            return slot;
    }
}

static bool grow_table(intern_table *table)
{
    intern_table larger = {.slot_count = table->slot_count ? 2 * table->slot_count : 64, .count = table->count};
    larger.slots = gv_calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < table->slot_count; i++) {
        const entry *old = &table->slots[i];
        if (old->id)
            *find_slot(&larger, old->hash, old->key, old->length) = *old;
    }
    gv_free(table->slots);
    *table = larger;
    return true;
}

// The id of a key; *is_new says whether it was given just now. 0 when memory is out.
static uint64_t intern(intern_table *table, const void *key, size_t length, bool *is_new)
{
    *is_new = false;
    if (3 * (table->count + 1) > 2 * table->slot_count && !grow_table(table))
        return 0;
    uint64_t hash = hash_bytes(key, length);
    entry *slot = find_slot(table, hash, key, length);
    if (!slot->id) {
        void *copy = gv_malloc(length ? length : 1);
        if (!copy)
            return 0;
        memcpy(copy, key, length);
        *slot = (entry){.hash = hash, .id = ++table->count, .key = copy, .length = length};
        *is_new = true;
    }
    return slot->id;
}

static void free_table(intern_table *table)
{
    for (size_t i = 0; i < table->slot_count; i++)
        gv_free(table->slots[i].key);
    gv_free(table->slots);
}

// ---- Loaded objects -----------------------------------------------------------------------------------------
//
// Which object an address lies in is asked of the loader by _dl_find_object, which takes no lock. dl_iterate_phdr and
// dladdr take the loader's, and glibc leaves that one locked for ever in the child of a fork that another thread was
// holding it at.

enum { BUILD_ID_LIMIT = 64, NAME_LIMIT = PATH_MAX };

// A build id in mapped memory; NULL when the object has none.
typedef struct build_id {
    const char *bytes;
    size_t length;
} build_id;

// Finds the GNU build id in a note segment.
static build_id find_in_notes(const char *notes, size_t size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes, sizeof note);
        size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3, description = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        size_t room = size - sizeof note;
        if (name > room || note.n_descsz > room - name)
            break;
        const char *text = notes + sizeof note;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(text, "GNU", 4) == 0 &&
            note.n_descsz <= BUILD_ID_LIMIT)
            return (build_id){text + name, note.n_descsz};
        if (description > room - name)
            break;
        notes += sizeof note + name + description;
        size = room - name - description;
    }
    return (build_id){NULL, 0};
}

// Whether a readable segment of the object covers the header's, which is then in memory.
static bool is_mapped(const ElfW(Phdr) * headers, size_t count, const ElfW(Phdr) * wanted)
{
    for (size_t i = 0; i < count; i++) {
        const ElfW(Phdr) *load = &headers[i];
        if (load->p_type == PT_LOAD && (load->p_flags & PF_R) && wanted->p_vaddr >= load->p_vaddr &&
            wanted->p_memsz <= load->p_memsz && wanted->p_vaddr - load->p_vaddr <= load->p_memsz - wanted->p_memsz)
            return true;
    }
    return false;
}

// The build id of a loaded object. Linkers put the file's header, and behind it the program headers, at its start.
static build_id find_build_id(const struct dl_find_object *object)
{
    const ElfW(Ehdr) *file = object->dlfo_map_start;
    size_t size = (uintptr_t)object->dlfo_map_end - (uintptr_t)object->dlfo_map_start;
    enum { FIRST_PAGE = 4096 };
    if (size < FIRST_PAGE || memcmp(file->e_ident, ELFMAG, SELFMAG) != 0 || file->e_phentsize != sizeof(ElfW(Phdr)) ||
        file->e_phoff > FIRST_PAGE || file->e_phnum > (FIRST_PAGE - file->e_phoff) / sizeof(ElfW(Phdr)))
        return (build_id){NULL, 0};
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)((const char *)file + file->e_phoff);
    for (size_t i = 0; i < file->e_phnum; i++) {
        if (headers[i].p_type != PT_NOTE || !is_mapped(headers, file->e_phnum, &headers[i]))
            continue;
        const char *notes = (const char *)object->dlfo_link_map->l_addr + headers[i].p_vaddr;
        build_id found = find_in_notes(notes, headers[i].p_memsz);
        if (found.bytes)
            return found;
    }
    return (build_id){NULL, 0};
}

// Stores the absolute path of the object the loader calls `name` in `path` (PATH_MAX bytes). The loader leaves the
// program's own name empty. A name without a slash (the vDSO's) is no file and stays as it is.
static void absolute_path(const char *name, char *path)
{
    if (name[0] == '\0') {
        ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
        path[length > 0 ? length : 0] = '\0';
    } else if (name[0] == '/' || !strchr(name, '/') || !realpath(name, path)) {
        strcpy(path, name);
    }
}

// ---- The tables of a trace --------------------------------------------------------------------------------------

struct gv_stacks {
    pthread_mutex_t lock; // guards all but the last two members, which never change
    gv_writer *writer;
    intern_table strings, modules, stacks;
    uintptr_t own_start, own_end; // this library: its frames say nothing about the program
};

// Set while the thread is in here: the unwinder, the loader and the heap may be interposed by code that ends up in
// the recorder again. Initial-exec, because the other models may call malloc at a thread's first access.
static _Thread_local bool inside __attribute__((tls_model("initial-exec")));

// What the program must find unchanged when a call in here returns.
typedef struct thread_keep {
    int error, cancel_state;
} thread_keep;

// Writing a file is a cancellation point, and a thread that is cancelled there would keep the lock for ever.
static thread_keep enter(void)
{
    thread_keep keep = {.error = errno};
    inside = true;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &keep.cancel_state);
    return keep;
}

static void leave(thread_keep keep)
{
    pthread_setcancelstate(keep.cancel_state, NULL);
    inside = false;
    errno = keep.error;
}

gv_stacks *gv_stacks_create(gv_writer *writer)
{
    gv_stacks *stacks = gv_calloc(1, sizeof *stacks);
    if (!stacks)
        return NULL;
    pthread_mutex_init(&stacks->lock, NULL);
    stacks->writer = writer;
    struct dl_find_object own;
    if (_dl_find_object((void *)(uintptr_t)&gv_stacks_capture, &own) == 0) {
        stacks->own_start = (uintptr_t)own.dlfo_map_start;
        stacks->own_end = (uintptr_t)own.dlfo_map_end;
    }
    gv_python_stack_look_up();
    return stacks;
}

void gv_stacks_destroy(gv_stacks *stacks)
{
    if (!stacks)
        return;
    free_table(&stacks->strings);
    free_table(&stacks->modules);
    free_table(&stacks->stacks);
    pthread_mutex_destroy(&stacks->lock);
    gv_free(stacks);
}

void gv_stacks_reset_after_fork(gv_stacks *stacks, gv_writer *writer)
{
    if (!stacks)
        return;
    pthread_mutex_init(&stacks->lock, NULL);
    stacks->writer = writer;
    stacks->strings = stacks->modules = stacks->stacks = (intern_table){0};
}

// The lock is held.
static uint64_t intern_string(gv_stacks *stacks, const char *text, size_t length)
{
    bool is_new;
    uint64_t id = intern(&stacks->strings, text, length, &is_new);
    if (is_new) {
        gv_string_record record = {.id = id, .text = {text, length}};
        gv_write_string(stacks->writer, &record);
    }
    return id;
}

uint64_t gv_stacks_string(gv_stacks *stacks, const char *text, size_t length)
{
    if (!stacks || inside)
        return 0;
    thread_keep keep = enter();
    pthread_mutex_lock(&stacks->lock);
    uint64_t id = stacks->writer ? intern_string(stacks, text, length) : 0;
    pthread_mutex_unlock(&stacks->lock);
    leave(keep);
    return id;
}

// The module id of a loaded object. The loader's name for it and its build id are the module's identity: one that is
// unloaded and loaded again elsewhere is the same module. The lock is held.
static uint64_t intern_module(gv_stacks *stacks, const struct dl_find_object *object, bool *is_new)
{
    *is_new = false;
    const char *name = object->dlfo_link_map->l_name ? object->dlfo_link_map->l_name : "";
    size_t name_length = strlen(name);
    if (name_length >= NAME_LIMIT)
        return 0;
    build_id build = find_build_id(object);
    char key[NAME_LIMIT + BUILD_ID_LIMIT];
    memcpy(key, name, name_length + 1);
    if (build.bytes)
        memcpy(key + name_length + 1, build.bytes, build.length);

    uint64_t id = intern(&stacks->modules, key, name_length + 1 + build.length, is_new);
    if (*is_new) {
        char path[PATH_MAX];
        absolute_path(name, path);
        gv_module_record record = {
            .id = id, .path = {path, strlen(path)}, .build_id = {(const uint8_t *)build.bytes, build.length}};
        gv_write_module(stacks->writer, &record);
    }
    return id;
}

// ---- Capture ------------------------------------------------------------------------------------------------

typedef struct host_stack {
    const gv_stacks *stacks;
    uintptr_t addresses[GV_HOST_FRAMES]; // return addresses
    size_t count;
} host_stack;

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *data)
{
    host_stack *host = data;
    int is_exact = 0;
    uintptr_t address = _Unwind_GetIPInfo(context, &is_exact);
    if (!address)
        return _URC_END_OF_STACK;
    // A signal interrupts at an instruction, not after a call; the trace holds return addresses throughout.
    address += is_exact ? 1 : 0;
    if (address - 1 >= host->stacks->own_start && address - 1 < host->stacks->own_end)
        return _URC_NO_REASON;
    host->addresses[host->count++] = address;
    return host->count == GV_HOST_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// Stores the pair (module, address within it) of each frame in `pairs` and returns how many numbers that are; *has_new
// says whether one of the modules was not seen before. Takes the lock.
static size_t resolve(gv_stacks *stacks, const host_stack *host, uint64_t *pairs, bool *has_new)
{
    size_t used = 0;
    struct dl_find_object object = {.dlfo_map_start = NULL};
    uint64_t module = 0;
    *has_new = false;
    pthread_mutex_lock(&stacks->lock);
    for (size_t i = 0; stacks->writer && i < host->count; i++) {
        // A call that does not return may be a module's last instruction, its return address beyond the end.
        uintptr_t address = host->addresses[i] - 1;
        if (address < (uintptr_t)object.dlfo_map_start || address >= (uintptr_t)object.dlfo_map_end) {
            bool is_new;
            if (_dl_find_object((void *)address, &object) != 0) {
                // Code that no file holds, made at run time.
                object = (struct dl_find_object){.dlfo_map_start = NULL};
                continue;
            }
            module = intern_module(stacks, &object, &is_new);
            *has_new |= is_new;
        }
        if (module) {
            pairs[used++] = module;
            pairs[used++] = host->addresses[i] - object.dlfo_link_map->l_addr;
        }
    }
    pthread_mutex_unlock(&stacks->lock);
    return used;
}

// The numbers of a stack as they stand in its record: the pairs of its host frames, then the triples of its Python
// frames. The count of the former comes first, so that all of it is a key.
typedef struct stack_key {
    uint64_t host_count;
    uint64_t numbers[2 * GV_HOST_FRAMES + 3 * GV_PYTHON_FRAMES];
} stack_key;

// Interns the stack. Takes the lock.
static uint64_t intern_stack(gv_stacks *stacks, stack_key *key, const gv_python_stack *python)
{
    uint64_t id = 0;
    size_t used = key->host_count;
    pthread_mutex_lock(&stacks->lock);
    for (size_t i = 0; stacks->writer && i < python->count; i++) {
        const gv_python_line *frame = &python->frames[i];
        key->numbers[used++] = intern_string(stacks, python->text + frame->file, frame->file_length);
        key->numbers[used++] = intern_string(stacks, python->text + frame->function, frame->function_length);
        key->numbers[used++] = frame->line;
    }
    if (stacks->writer && used) {
        bool is_new;
        id = intern(&stacks->stacks, key, offsetof(stack_key, numbers) + used * sizeof key->numbers[0], &is_new);
        if (is_new) {
            gv_stack_record record = {.id = id,
                                      .host = {key->numbers, key->host_count},
                                      .python = {key->numbers + key->host_count, used - key->host_count}};
            gv_write_stack(stacks->writer, &record);
        }
    }
    pthread_mutex_unlock(&stacks->lock);
    return id;
}

uint64_t gv_stacks_capture(gv_stacks *stacks)
{
    if (!stacks || inside)
        return 0;
    thread_keep keep = enter();
    host_stack host = {.stacks = stacks};
    _Unwind_Backtrace(add_frame, &host);
    stack_key key;
    bool has_new;
    key.host_count = resolve(stacks, &host, key.numbers, &has_new);
    // An interpreter that is loaded late is in the way of its first call to the driver.
    if (has_new)
        gv_python_stack_look_up();
    gv_python_stack python;
    gv_python_stack_read(&python);
    uint64_t id = intern_stack(stacks, &key, &python);
    gv_python_stack_release(&python);
    leave(keep);
    return id;
}
