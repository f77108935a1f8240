/* Rows of a statement as JSON and as comma-separated values. */
#ifndef WEFT_OBS_RECDB_TEXT_H
#define WEFT_OBS_RECDB_TEXT_H

#include "obs/recdb.h"

#include <stdio.h>

/* Write one object, with the columns' names as member names. Bytes that are not UTF-8 become
 * U+FFFD. table: value of a first member "table", or NULL. */
void weft_recdb_json_row(FILE *out, sqlite3_stmt *statement, const char *table);
/* Write a JSON string, with quotes. */
void weft_recdb_json_text(FILE *out, const char *text);

/* One line each (RFC 4180, but ended by a newline alone). */
void weft_recdb_csv_head(FILE *out, sqlite3_stmt *statement);
void weft_recdb_csv_row(FILE *out, sqlite3_stmt *statement);

#endif
