/* Rows of a statement as JSON and as comma-separated values. */
#ifndef WEFT_CLI_TRACE_CELL_H
#define WEFT_CLI_TRACE_CELL_H

#include "cli/trace/records.h"

#include <stdio.h>

/* One object, its members named as the columns. Bytes that are no UTF-8 become U+FFFD.
 * table: a first member "table" of this value, or NULL. */
void weft_recdb_json_row(FILE *out, sqlite3_stmt *statement, const char *table);
/* A text as a string of JSON, with its quotes. */
void weft_recdb_json_text(FILE *out, const char *text);

/* A line each (RFC 4180, with a bare newline). */
void weft_recdb_csv_head(FILE *out, sqlite3_stmt *statement);
void weft_recdb_csv_row(FILE *out, sqlite3_stmt *statement);

#endif
