/* Rows of a statement as JSON and as comma-separated values. */
#ifndef WEFT_OBS_RECDB_TEXT_H
#define WEFT_OBS_RECDB_TEXT_H

#include "obs/recdb.h"

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
