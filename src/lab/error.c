#include "lab/error.h"

#include <stdarg.h>
#include <stdio.h>

weft_status weft_lab_fail(struct weft_lab_error *error, weft_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(error->text, sizeof(error->text), format, args);
        va_end(args);
    }
    return status;
}
