#include "lab/postgres.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <libpq-fe.h>
#include <string.h>

#define PQ_FUNCTIONS(X) \
    X(PQconnectdb)      \
    X(PQstatus)         \
    X(PQerrorMessage)   \
    X(PQfinish)         \
    X(PQexec)           \
    X(PQexecParams)     \
    X(PQresultStatus)   \
    X(PQclear) X(PQntuples) X(PQnfields) X(PQgetvalue) X(PQgetisnull) X(PQresultErrorField) X(PQsetNoticeProcessor)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    PQ_FUNCTIONS(MEMBER)
#undef MEMBER
} pq;

struct gv_postgres {
    PGconn *connection;
};

static gv_status load(gv_error *error)
{
    static void *library;
    if (library)
        return GV_OK;
    void *opened = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return gv_fail(error, GV_ERR_MISSING,
                       "libpq was not found (libpq.so.5), and a ledger at postgresql:// needs it; "
                       "install it, on Debian and Ubuntu with `apt-get install libpq5`");
    const char *missing = NULL;
    void *symbol;
#define FIND(name)                 \
    symbol = dlsym(opened, #name); \
    if (!symbol)                   \
        missing = #name;           \
    memcpy(&pq.name, &symbol, sizeof symbol);
    PQ_FUNCTIONS(FIND)
#undef FIND
    if (missing)
        return gv_fail(error, GV_ERR_MISSING, "the libpq that was found has no %s; install PostgreSQL 12's or later",
                       missing);
    library = opened;
    return GV_OK;
}

// libpq's messages end with a line feed.
static gv_status complain(gv_postgres *server, const char *what, gv_error *error)
{
    const char *text = pq.PQerrorMessage(server->connection);
    return gv_fail(error, GV_ERR_IO, "%s: %.*s", what, (int)strcspn(text, "\n"), text);
}

static void ignore_notice(void *context, const char *message)
{
}

gv_status gv_postgres_open(const char *url, gv_postgres **result, gv_error *error)
{
    *result = NULL;
    gv_status status = load(error);
    if (status != GV_OK)
        return status;
    gv_postgres *server = gv_calloc(1, sizeof *server);
    if (!server)
        return gv_fail(error, GV_ERR_MEMORY, "out of memory for the ledger");
    server->connection = pq.PQconnectdb(url);
    if (pq.PQstatus(server->connection) != CONNECTION_OK)
        status = complain(server, "the ledger's server cannot be reached", error);
    if (status == GV_OK) {
        pq.PQsetNoticeProcessor(server->connection, ignore_notice, NULL);
        // A commit that was answered is on disk; and a claim is held in a transaction that is idle for a whole trial.
        status = gv_postgres_script(server, "SET synchronous_commit = on; SET idle_in_transaction_session_timeout = 0",
                                    error);
    }
    if (status != GV_OK) {
        gv_postgres_close(server);
        return status;
    }
    *result = server;
    return GV_OK;
}

void gv_postgres_close(gv_postgres *server)
{
    if (!server)
        return;
    pq.PQfinish(server->connection);
    gv_free(server);
}

gv_status gv_postgres_query(gv_postgres *server, const char *sql, const char *const *parameters, size_t count,
                            gv_row row, void *context, gv_error *error)
{
    PGresult *result = pq.PQexecParams(server->connection, sql, (int)count, NULL, parameters, NULL, NULL, 0);
    ExecStatusType done = pq.PQresultStatus(result);
    gv_status status = GV_OK;
    if (done != PGRES_COMMAND_OK && done != PGRES_TUPLES_OK)
        status = complain(server, "the ledger", error);
    int rows = status == GV_OK ? pq.PQntuples(result) : 0, fields = status == GV_OK ? pq.PQnfields(result) : 0;
    for (int i = 0; status == GV_OK && row && i < rows; i++) {
        const char *columns[32];
        for (int c = 0; c < fields && c < 32; c++)
            columns[c] = pq.PQgetisnull(result, i, c) ? NULL : pq.PQgetvalue(result, i, c);
        status = row(context, columns, (size_t)fields);
    }
    pq.PQclear(result);
    return status;
}

gv_status gv_postgres_script(gv_postgres *server, const char *sql, gv_error *error)
{
    PGresult *result = pq.PQexec(server->connection, sql);
    ExecStatusType done = pq.PQresultStatus(result);
    gv_status status = done == PGRES_COMMAND_OK || done == PGRES_TUPLES_OK || done == PGRES_EMPTY_QUERY
                           ? GV_OK
                           : complain(server, "the ledger", error);
    pq.PQclear(result);
    return status;
}
