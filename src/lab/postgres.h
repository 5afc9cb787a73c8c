// PostgreSQL by libpq, loaded when it is first needed: `gravel` is one file that runs anywhere, and few ledgers are on
// a server.
#ifndef GV_LAB_POSTGRES_H
#define GV_LAB_POSTGRES_H

#include "lab/database.h"

typedef struct gv_postgres gv_postgres;

gv_status gv_postgres_open(const char *url, gv_postgres **server, gv_error *error);
void gv_postgres_close(gv_postgres *server);
gv_status gv_postgres_query(gv_postgres *server, const char *sql, const char *const *parameters, size_t count,
                            gv_row row, void *context, gv_error *error);
gv_status gv_postgres_script(gv_postgres *server, const char *sql, gv_error *error);

#endif
