#include "lab/database.h"

#include "base/memory.h"
#include "lab/postgres.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_MILLISECONDS = 30000, MOST_COLUMNS = 32 };

struct gv_database {
    sqlite3 *file;
    gv_postgres *server;
    char *name;
};

bool gv_database_is_url(const char *where)
{
    return strncmp(where, "postgresql://", 13) == 0 || strncmp(where, "postgres://", 11) == 0;
}

bool gv_database_is_postgres(const gv_database *database)
{
    return database->server != NULL;
}

// ---- SQLite -------------------------------------------------------------------------------------------------------

static gv_status sqlite_fail(const gv_database *database, gv_error *error)
{
    int code = sqlite3_errcode(database->file);
    if (code == SQLITE_BUSY)
        return gv_fail(error, GV_ERR_IO, "the ledger %s is locked by another program for over %d s", database->name,
                       BUSY_MILLISECONDS / 1000);
    if (code == SQLITE_NOTADB)
        return gv_fail(error, GV_ERR_FORMAT, "%s is no ledger (no SQLite database); name another file", database->name);
    return gv_fail(error, code == SQLITE_NOMEM ? GV_ERR_MEMORY : GV_ERR_IO, "the ledger %s: %s", database->name,
                   sqlite3_errmsg(database->file));
}

static gv_status sqlite_open(gv_database *database, bool create, gv_error *error)
{
    // Not through SQLITE_OPEN_CREATE alone: "not there" and "cannot be opened" are told apart.
    if (!create && access(database->name, F_OK) != 0)
        return gv_fail(error, GV_ERR_MISSING,
                       "there is no ledger %s; `gravel lab run` makes it, or name it with --ledger", database->name);
    int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
    if (sqlite3_open_v2(database->name, &database->file, flags, NULL) != SQLITE_OK)
        return database->file ? sqlite_fail(database, error)
                              : gv_fail(error, GV_ERR_MEMORY, "out of memory for the ledger");
    sqlite3_busy_timeout(database->file, BUSY_MILLISECONDS);
    // The journal that works on every file system, synchronised before a commit returns: a commit survives the power
    // too.
    return gv_database_script(
        database, "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON", error);
}

static gv_status sqlite_query(gv_database *database, const char *sql, const char *const *parameters, size_t count,
                              gv_row row, void *context, gv_error *error)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database->file, sql, -1, &statement, NULL) != SQLITE_OK)
        return sqlite_fail(database, error);
    for (size_t i = 0; i < count; i++) {
        // By name: $1 is a name to SQLite, whatever place it stands in.
        char name[32];
        snprintf(name, sizeof name, "$%zu", i + 1);
        int index = sqlite3_bind_parameter_index(statement, name);
        if (index)
            sqlite3_bind_text(statement, index, parameters[i], -1, SQLITE_STATIC);
    }
    gv_status status = GV_OK;
    int stepped;
    while (status == GV_OK && (stepped = sqlite3_step(statement)) != SQLITE_DONE) {
        if (stepped != SQLITE_ROW) {
            status = sqlite_fail(database, error);
            break;
        }
        const char *columns[MOST_COLUMNS];
        int columns_count = sqlite3_column_count(statement);
        for (int i = 0; i < columns_count && i < MOST_COLUMNS; i++)
            columns[i] = (const char *)sqlite3_column_text(statement, i);
        if (row)
            status = row(context, columns, (size_t)columns_count);
    }
    sqlite3_finalize(statement);
    return status;
}

// ---- Either -------------------------------------------------------------------------------------------------------

gv_status gv_database_open(const char *where, bool create, gv_database **result, gv_error *error)
{
    *result = NULL;
    gv_database *database = gv_calloc(1, sizeof *database);
    if (!database || !(database->name = gv_strdup(where))) {
        gv_free(database);
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the ledger");
    }
    gv_status status = gv_database_is_url(where) ? gv_postgres_open(where, &database->server, error)
                                                 : sqlite_open(database, create, error);
    if (status != GV_OK) {
        gv_database_close(database);
        return status;
    }
    *result = database;
    return GV_OK;
}

void gv_database_close(gv_database *database)
{
    if (!database)
        return;
    sqlite3_close(database->file);
    gv_postgres_close(database->server);
    gv_free(database->name);
    gv_free(database);
}

gv_status gv_database_query(gv_database *database, const char *sql, const char *const *parameters, size_t count,
                            gv_row row, void *context, gv_error *error)
{
    return database->server ? gv_postgres_query(database->server, sql, parameters, count, row, context, error)
                            : sqlite_query(database, sql, parameters, count, row, context, error);
}

gv_status gv_database_script(gv_database *database, const char *sql, gv_error *error)
{
    if (database->server)
        return gv_postgres_script(database->server, sql, error);
    return sqlite3_exec(database->file, sql, NULL, NULL, NULL) == SQLITE_OK ? GV_OK : sqlite_fail(database, error);
}

gv_status gv_database_begin(gv_database *database, gv_error *error)
{
    return gv_database_script(database, database->server ? "BEGIN" : "BEGIN IMMEDIATE", error);
}

gv_status gv_database_commit(gv_database *database, gv_error *error)
{
    gv_status status = gv_database_script(database, "COMMIT", error);
    if (status != GV_OK)
        gv_database_rollback(database);
    return status;
}

void gv_database_rollback(gv_database *database)
{
    gv_database_script(database, "ROLLBACK", NULL);
}
