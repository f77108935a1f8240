#include "obs/recdb_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 character at text, or 0 (RFC 3629). */
static unsigned utf8(const unsigned char *text)
{
    unsigned char lead = text[0];
    unsigned bytes = lead < 0x80   ? 1
                     : lead < 0xc2 ? 0
                     : lead < 0xe0 ? 2
                     : lead < 0xf0 ? 3
                     : lead < 0xf5 ? 4
                                   : 0;
    for (unsigned i = 1; i < bytes; i++) {
        unsigned char low = i == 1 && lead == 0xe0 ? 0xa0 : i == 1 && lead == 0xf0 ? 0x90 : 0x80;
        unsigned char high = i == 1 && lead == 0xed ? 0x9f : i == 1 && lead == 0xf4 ? 0x8f : 0xbf;
        if (text[i] < low || text[i] > high) {
            return 0;
        }
    }
    return bytes;
}

void weft_recdb_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text != '\0') {
        unsigned char c = (unsigned char)*text;
        unsigned bytes = utf8((const unsigned char *)text);
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
