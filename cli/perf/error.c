#include "cli/perf/error.h"

#include <stdarg.h>
#include <stdio.h>

bool weft_perf_fail(struct weft_error *error, const char *format, ...)
{
    if (error->text[0] == '\0') {
        va_list list;
        va_start(list, format);
        (void)vsnprintf(error->text, sizeof(error->text), format, list);
        va_end(list);
    }
    return false;
}
