#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

weft_status weft_fail(struct weft_error *error, weft_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list list;
        va_start(list, format);
        (void)vsnprintf(error->text, sizeof(error->text), format, list);
        va_end(list);
        error->line = 0;
    }
    return status;
}
