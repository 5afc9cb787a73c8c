// The texts that make a ledger's tables.
#ifndef GV_LAB_SCHEMA_H
#define GV_LAB_SCHEMA_H

enum { GV_SCHEMA_VERSION = 1 };

// Statements; @NUMBER@ is to be replaced by one of the two types.
extern const char gv_schema_tables[], gv_schema_sqlite_number[], gv_schema_postgres_number[];

// The append-only tables, and for each of them the statements that guard it (@TABLE@ is to be replaced).
extern const char *const gv_schema_names[];
extern const char gv_schema_sqlite_guard[], gv_schema_postgres_function[], gv_schema_postgres_guard[];

#endif
