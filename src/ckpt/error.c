#include "ckpt/error.h"

#include <stdarg.h>
#include <stdio.h>

weft_status weft_ckpt_fail(struct weft_ckpt_error *error, weft_status status, const char *format,
                           ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error->text, sizeof(error->text), format, list);
    va_end(list);
    return status;
}
