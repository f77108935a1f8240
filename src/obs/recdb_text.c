#include "obs/recdb_text.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void weft_recdb_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text != '\0') {
        unsigned char c = (unsigned char)*text;
        unsigned bytes = weft_utf8_bytes(text);
        if (bytes == 0) {
            fputs("\\ufffd", out);
        } else if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < ' ' || c == 0x7f) {
            fprintf(out, "\\u%04x", c);
        } else {
            fwrite(text, 1, bytes, out);
        }
        text += bytes == 0 ? 1 : bytes;
    }
    fputc('"', out);
}

static void json_cell(FILE *out, sqlite3_stmt *statement, int column)
{
    int type = sqlite3_column_type(statement, column);
    if (type == SQLITE_INTEGER) {
        fprintf(out, "%" PRId64, (int64_t)sqlite3_column_int64(statement, column));
    } else if (type == SQLITE_FLOAT && isfinite(sqlite3_column_double(statement, column))) {
        fprintf(out, "%.17g", sqlite3_column_double(statement, column));
    } else if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
        const char *text = (const char *)sqlite3_column_text(statement, column);
        weft_recdb_json_text(out, text != NULL ? text : "");
    } else {
        fputs("null", out);
    }
}

void weft_recdb_json_row(FILE *out, sqlite3_stmt *statement, const char *table)
{
    const char *comma = "{";
    if (table != NULL) {
        fputs("{\"table\":", out);
        weft_recdb_json_text(out, table);
        comma = ",";
    }
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        fputs(comma, out);
        weft_recdb_json_text(out, sqlite3_column_name(statement, i));
        fputc(':', out);
        json_cell(out, statement, i);
        comma = ",";
    }
    fputc('}', out);
}

static void csv_cell(FILE *out, const char *text, const char *comma)
{
    fputs(comma, out);
    if (text == NULL || strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text != NULL ? text : "", out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    }
    fputc('"', out);
}

void weft_recdb_csv_head(FILE *out, sqlite3_stmt *statement)
{
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        csv_cell(out, sqlite3_column_name(statement, i), i == 0 ? "" : ",");
    }
    fputc('\n', out);
}

void weft_recdb_csv_row(FILE *out, sqlite3_stmt *statement)
{
    for (int i = 0; i < sqlite3_column_count(statement); i++) {
        csv_cell(out, (const char *)sqlite3_column_text(statement, i), i == 0 ? "" : ",");
    }
    fputc('\n', out);
}
