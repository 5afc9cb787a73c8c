// The ledger's tables (docs/lab.md describes them). The same for both databases but for the type of a row number that
// the database gives.
#include "lab/schema.h"

#include <stddef.h>

const char gv_schema_sqlite_number[] = "INTEGER PRIMARY KEY";
const char gv_schema_postgres_number[] = "BIGSERIAL PRIMARY KEY";

const char gv_schema_tables[] =
    "CREATE TABLE IF NOT EXISTS lab_schema(version BIGINT PRIMARY KEY);"
    "INSERT INTO lab_schema VALUES(1) ON CONFLICT DO NOTHING;"
    "CREATE TABLE IF NOT EXISTS lab_experiment("
    "  id BIGINT PRIMARY KEY, kind TEXT NOT NULL, plan_sha256 TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL,"
    "  plan TEXT NOT NULL, begun TEXT NOT NULL, host TEXT NOT NULL, version TEXT NOT NULL, UNIQUE(kind, plan_sha256));"
    "CREATE TABLE IF NOT EXISTS lab_trial("
    "  experiment BIGINT NOT NULL REFERENCES lab_experiment, number BIGINT NOT NULL, block BIGINT NOT NULL,"
    "  subject TEXT NOT NULL, seed BIGINT NOT NULL, planned TEXT NOT NULL, PRIMARY KEY(experiment, number));"
    "CREATE TABLE IF NOT EXISTS lab_attempt("
    "  experiment BIGINT NOT NULL, trial BIGINT NOT NULL, attempt BIGINT NOT NULL, outcome TEXT NOT NULL, reason TEXT,"
    "  log_tail TEXT, sessions BIGINT NOT NULL, corrupt BIGINT NOT NULL, failed BIGINT NOT NULL, final BIGINT NOT NULL,"
    "  seconds DOUBLE PRECISION NOT NULL, start_seconds DOUBLE PRECISION NOT NULL, ended TEXT NOT NULL,"
    "  host TEXT NOT NULL, folder TEXT NOT NULL, PRIMARY KEY(experiment, trial, attempt),"
    "  FOREIGN KEY(experiment, trial) REFERENCES lab_trial);"
    // At most one attempt ends a trial, whatever two workers believe.
    "CREATE UNIQUE INDEX IF NOT EXISTS lab_attempt_final ON lab_attempt(experiment, trial) WHERE final = 1;"
    "CREATE TABLE IF NOT EXISTS lab_session("
    "  experiment BIGINT NOT NULL, trial BIGINT NOT NULL, attempt BIGINT NOT NULL, number BIGINT NOT NULL,"
    "  verdict TEXT NOT NULL, PRIMARY KEY(experiment, trial, attempt, number));"
    "CREATE TABLE IF NOT EXISTS lab_manifest(sha256 TEXT PRIMARY KEY, manifest TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS lab_attempt_manifest("
    "  experiment BIGINT NOT NULL, trial BIGINT NOT NULL, attempt BIGINT NOT NULL, stage TEXT NOT NULL,"
    "  sha256 TEXT NOT NULL REFERENCES lab_manifest, PRIMARY KEY(experiment, trial, attempt, stage));"
    "CREATE TABLE IF NOT EXISTS lab_decision("
    "  experiment BIGINT NOT NULL, number BIGINT NOT NULL, subject TEXT NOT NULL, verdict TEXT NOT NULL,"
    "  sessions BIGINT NOT NULL, corrupt BIGINT NOT NULL, error DOUBLE PRECISION NOT NULL, decided TEXT NOT NULL,"
    "  PRIMARY KEY(experiment, number));"
    "CREATE TABLE IF NOT EXISTS lab_event("
    "  number @NUMBER@, experiment BIGINT NOT NULL, at TEXT NOT NULL, host TEXT NOT NULL, what TEXT NOT NULL,"
    "  text TEXT NOT NULL);";

const char *const gv_schema_names[] = {"lab_experiment", "lab_trial",    "lab_attempt",
                                       "lab_session",    "lab_manifest", "lab_attempt_manifest",
                                       "lab_decision",   "lab_event",    NULL};

const char gv_schema_sqlite_guard[] = "CREATE TRIGGER IF NOT EXISTS @TABLE@_no_update BEFORE UPDATE ON @TABLE@ BEGIN"
                                      "  SELECT RAISE(ABORT, 'the ledger is append-only'); END;"
                                      "CREATE TRIGGER IF NOT EXISTS @TABLE@_no_delete BEFORE DELETE ON @TABLE@ BEGIN"
                                      "  SELECT RAISE(ABORT, 'the ledger is append-only'); END;";

const char gv_schema_postgres_function[] =
    "CREATE OR REPLACE FUNCTION lab_append_only() RETURNS trigger LANGUAGE plpgsql AS"
    " $$BEGIN RAISE EXCEPTION 'the ledger is append-only'; END$$;";

const char gv_schema_postgres_guard[] =
    "DROP TRIGGER IF EXISTS append_only ON @TABLE@;"
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON @TABLE@ EXECUTE FUNCTION lab_append_only();";
