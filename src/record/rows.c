#include "record/rows.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// A program that declares new rows for ever must not make every launch slow.
enum { MOST_ROWS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gv_rows *table; // ascending by address
static size_t table_count, table_capacity;
static atomic_ullong declared; // table_count, to look at without the lock

// How many rows are real, as any thread said last.
static atomic_ullong last_real, last_captured;
static atomic_bool any_real;
static __thread uint64_t thread_real __attribute__((tls_model("initial-exec")));
static __thread uint64_t thread_captured __attribute__((tls_model("initial-exec")));
static __thread bool thread_has_real __attribute__((tls_model("initial-exec")));

// The index of the first rows that begin at or behind `address`. Under the lock.
static size_t place_of(uint64_t address)
{
    size_t low = 0, high = table_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const char *insert(const gv_rows *rows, bool *fresh)
{
    *fresh = true;
    size_t place = place_of(rows->address);
    for (size_t i = place; i < table_count && table[i].address == rows->address; i++)
        if (!((table[i].flags ^ rows->flags) & GV_ROWS_SCRATCH)) {
            *fresh = memcmp(&table[i], rows, sizeof *rows) != 0;
            table[i] = *rows;
            return NULL;
        }
    if (table_count >= MOST_ROWS)
        return "4,096 are declared already";
    if (!GV_GROW(table, table_capacity, table_count + 1))
        return "memory ran out";
    memmove(&table[place + 1], &table[place], (table_count - place) * sizeof *table);
    table[place] = *rows;
    atomic_store(&declared, ++table_count);
    return NULL;
}

const char *gv_rows_check(const gv_rows *rows)
{
    uint64_t bytes, end;
    unsigned marks = rows->flags & GV_ROWS_MARKS;
    if (!rows->address)
        return "the address is null";
    if (!rows->row_bytes || !rows->rows)
        return "they have no bytes";
    if (__builtin_mul_overflow(rows->row_bytes, rows->rows, &bytes) ||
        __builtin_add_overflow(rows->address, bytes, &end))
        return "they do not fit into the address space";
    if (rows->flags >= GV_ROWS_ONE_IS_PAD << 1 || (rows->flags & GV_ROWS_SCRATCH && rows->flags != GV_ROWS_SCRATCH))
        return "they have flags that this gravel does not know";
    if (rows->flags != GV_ROWS_SCRATCH && !(rows->flags & (GV_ROWS_IN | GV_ROWS_OUT)))
        return "they are neither input (GRAVEL_ROWS_IN) nor output (GRAVEL_ROWS_OUT)";
    if (marks && !(rows->flags & GV_ROWS_INDEX))
        return "a value that stands for padding belongs to indices (GRAVEL_ROWS_INDEX)";
    if (marks & (marks - 1))
        return "one value stands for padding, not several";
    if (marks == GV_ROWS_ONE_IS_PAD && rows->row_bytes != 4 && rows->row_bytes != 8)
        return "a row that is marked by 1 is one integer of 4 or 8 bytes";
    return NULL;
}

const char *gv_rows_declare(const gv_rows *rows, bool *fresh)
{
    pthread_mutex_lock(&lock);
    const char *why = insert(rows, fresh);
    pthread_mutex_unlock(&lock);
    return why;
}

static uint64_t end_of(const gv_rows *rows)
{
    return rows->address + rows->row_bytes * rows->rows;
}

bool gv_rows_find(uint64_t address, gv_rows *rows)
{
    bool found = false;
    if (!atomic_load_explicit(&declared, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table_count && table[i].address <= address && !found; i++)
        if (address < end_of(&table[i]) && !(table[i].flags & GV_ROWS_SCRATCH)) {
            *rows = table[i];
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool gv_rows_list(gv_rows **items, size_t *count)
{
    bool enough = true;
    *items = NULL;
    *count = 0;
    pthread_mutex_lock(&lock);
    if (table_count) {
        *items = gv_malloc(table_count * sizeof **items);
        enough = *items != NULL;
        if (enough) {
            memcpy(*items, table, table_count * sizeof **items);
            *count = table_count;
        }
    }
    pthread_mutex_unlock(&lock);
    return enough;
}

void gv_rows_freed(uint64_t id, uint64_t address, uint64_t size)
{
    if (!atomic_load_explicit(&declared, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    size_t kept = 0;
    for (size_t i = 0; i < table_count; i++) {
        // The address may have been given out, and declared, again before the end of the old life came to be told.
        bool gone = table[i].address < address + size && end_of(&table[i]) > address && table[i].oldest <= id &&
                    id <= table[i].newest;
        if (!gone)
            table[kept++] = table[i];
    }
    if (!kept) {
        gv_free(table);
        table = NULL;
        table_capacity = 0;
    }
    table_count = kept;
    atomic_store(&declared, kept);
    pthread_mutex_unlock(&lock);
}

void gv_rows_set_real(uint64_t real, uint64_t captured)
{
    thread_real = real;
    thread_captured = captured;
    thread_has_real = true;
    atomic_store(&last_real, real);
    atomic_store(&last_captured, captured);
    atomic_store(&any_real, true);
}

bool gv_rows_batch(uint64_t *real, uint64_t *captured)
{
    bool any = thread_has_real || atomic_load(&any_real);
    *real = !any ? UINT64_MAX : thread_has_real ? thread_real : atomic_load(&last_real);
    *captured = !any ? UINT64_MAX : thread_has_real ? thread_captured : atomic_load(&last_captured);
    return any;
}

bool gv_rows_real(uint64_t *count)
{
    uint64_t captured;
    return gv_rows_batch(count, &captured);
}

bool gv_rows_padded(uint64_t real, uint64_t captured)
{
    bool found = false;
    if (!atomic_load_explicit(&declared, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table_count && !found; i++)
        found =
            table[i].flags & GV_ROWS_IN && gv_rows_real_end(&table[i], real) < gv_rows_real_end(&table[i], captured);
    pthread_mutex_unlock(&lock);
    return found;
}

uint64_t gv_rows_end(const gv_rows *rows, uint64_t captured)
{
    return gv_rows_real_end(rows, captured);
}

uint64_t gv_rows_real_end(const gv_rows *rows, uint64_t real)
{
    return rows->address + rows->row_bytes * (real < rows->rows ? real : rows->rows);
}

void gv_rows_forget(void)
{
    pthread_mutex_init(&lock, NULL);
    table = NULL;
    table_count = table_capacity = 0;
    atomic_store(&declared, 0);
    atomic_store(&last_real, 0);
    atomic_store(&last_captured, 0);
    atomic_store(&any_real, false);
    thread_has_real = false;
}
