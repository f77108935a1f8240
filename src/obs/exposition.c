#include "obs/exposition.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Edges of histograms: 2^first .. 2^last ns. */
enum { EDGE_FIRST = 10, EDGE_LAST = 34 };

static bool make_room(struct weft_exposition *text, size_t more)
{
    size_t room = text->room != 0 ? text->room : 16384;
    while (room < text->bytes + more) {
        room *= 2;
    }
    if (room == text->room) {
        return true;
    }
    char *grown = realloc(text->text, room);
    if (grown == NULL) {
        weft_exposition_fini(text);
        text->failed = true;
        return false;
    }
    text->text = grown;
    text->room = room;
    return true;
}

[[gnu::format(printf, 2, 3)]] static void add(struct weft_exposition *text, const char *format, ...)
{
    va_list args, again;
    if (text->failed) {
        return;
    }
    va_start(args, format);
    va_copy(again, args);
    int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (bytes >= 0 && make_room(text, (size_t)bytes + 1)) {
        text->bytes +=
            (size_t)vsnprintf(text->text + text->bytes, (size_t)bytes + 1, format, again);
    }
    va_end(again);
}

void weft_exposition_fini(struct weft_exposition *text)
{
    free(text->text);
    *text = (struct weft_exposition){0};
}

void weft_exposition_family(struct weft_exposition *text, const char *name, const char *type,
                            const char *help)
{
    add(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Write the name with its labels, to be followed by the value. */
static void add_name(struct weft_exposition *text, const char *name, const char *suffix,
                     const char *labels)
{
    if (labels != NULL && labels[0] != '\0') {
        add(text, "%s%s{%s} ", name, suffix, labels);
    } else {
        add(text, "%s%s ", name, suffix);
    }
}

void weft_exposition_u64(struct weft_exposition *text, const char *name, const char *labels,
                         uint64_t value)
{
    add_name(text, name, "", labels);
    add(text, "%llu\n", (unsigned long long)value);
}

void weft_exposition_real(struct weft_exposition *text, const char *name, const char *labels,
                          double value)
{
    add_name(text, name, "", labels);
    add(text, "%.15g\n", value);
}

void weft_exposition_one(struct weft_exposition *text, const char *name, const char *type,
                         const char *help, uint64_t value)
{
    weft_exposition_family(text, name, type, help);
    weft_exposition_u64(text, name, NULL, value);
}

void weft_exposition_hist(struct weft_exposition *text, const char *name, const char *labels,
                          const struct weft_hist *hist_ns)
{
    const char *given = labels != NULL ? labels : "";
    const char *comma = given[0] != '\0' ? "," : "";
    for (uint32_t log2 = EDGE_FIRST; log2 <= EDGE_LAST; log2++) {
        add(text, "%s_bucket{%s%sle=\"%.12g\"} %llu\n", name, given, comma,
            (double)(UINT64_C(1) << log2) / 1e9,
            (unsigned long long)weft_hist_below_log2(hist_ns, log2));
    }
    add(text, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, given, comma,
        (unsigned long long)hist_ns->count);
    add_name(text, name, "_sum", labels);
    add(text, "%.9f\n", (double)hist_ns->sum / 1e9);
    add_name(text, name, "_count", labels);
    add(text, "%llu\n", (unsigned long long)hist_ns->count);
}

const char *weft_exposition_label(char *label_p, size_t bytes, const char *name, const char *value)
{
    int head = snprintf(label_p, bytes, "%s=\"", name);
    size_t at = head > 0 ? (size_t)head : 0;
    for (; *value != '\0' && at + 4 <= bytes; value++) {
        if (*value == '"' || *value == '\\' || *value == '\n') {
            label_p[at++] = '\\';
        }
        label_p[at++] = *value == '\n' ? 'n' : *value;
    }
    if (at + 2 <= bytes) {
        label_p[at++] = '"';
        label_p[at] = '\0';
    }
    return label_p;
}
