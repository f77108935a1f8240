#include "ml/error.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void weft_ml_error_place(struct weft_error *error, const char *path, uint64_t line)
{
    enum { PATH_BYTES_MAX = 256 };
    if (error == NULL) {
        return;
    }
    char what[sizeof(error->text)];
    memcpy(what, error->text, sizeof(what));
    what[sizeof(what) - 1] = '\0';
    size_t path_bytes = strlen(path);
    const char *mark = "";
    if (path_bytes > PATH_BYTES_MAX) {
        path += path_bytes - PATH_BYTES_MAX;
        mark = "...";
    }
    char place[24] = "";
    if (line > 0) {
        (void)snprintf(place, sizeof(place), "%" PRIu64 ":", line);
    }
    int written = snprintf(error->text, sizeof(error->text), "%s%s:%s ", mark, path, place);
    WEFT_ASSERT(written > 0 && (size_t)written < sizeof(error->text));
    size_t room = sizeof(error->text) - (size_t)written;
    size_t bytes = strnlen(what, room - 1);
    memcpy(error->text + written, what, bytes);
    error->text[(size_t)written + bytes] = '\0';
    error->line = line;
}

struct weft_ml_quote weft_ml_quote(const char *text, size_t bytes)
{
    struct weft_ml_quote quote;
    size_t shown = weft_min_u64(bytes, WEFT_ML_QUOTE_BYTES);
    for (size_t i = 0; i < shown; i++) {
        quote.text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    strcpy(quote.text + shown, bytes > shown ? "..." : "");
    return quote;
}
