// The two databases a ledger may be in, behind one interface: a SQLite file, or a PostgreSQL database that workers on
// several hosts share. Both take the same SQL with $1, $2, ... in order of use. libpq is loaded when it is first
// needed.
#ifndef GV_LAB_DATABASE_H
#define GV_LAB_DATABASE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct gv_database gv_database;

// A row's columns as texts, NULL for null; valid during the call. Anything but GV_OK ends the query with that status.
typedef gv_status (*gv_row)(void *context, const char *const *columns, size_t count);

// True for postgresql://... and postgres://...
bool gv_database_is_url(const char *where);

// Opens `where`. A SQLite file is made when `create` says so and it is not there. A URL's password is never shown.
gv_status gv_database_open(const char *where, bool create, gv_database **database, gv_error *error);
void gv_database_close(gv_database *database);
bool gv_database_is_postgres(const gv_database *database);

// Runs one statement. Parameters are texts or NULL. `row` may be NULL.
gv_status gv_database_query(gv_database *database, const char *sql, const char *const *parameters, size_t count,
                            gv_row row, void *context, gv_error *error);

// Runs several statements without parameters.
gv_status gv_database_script(gv_database *database, const char *sql, gv_error *error);

// A transaction that writes: no other writer's changes come in between (SQLite locks the file at its beginning).
gv_status gv_database_begin(gv_database *database, gv_error *error);
gv_status gv_database_commit(gv_database *database, gv_error *error);
void gv_database_rollback(gv_database *database);

#endif
