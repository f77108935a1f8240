#include "job/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

weft_status weft_job_fail(struct weft_job_error *error, weft_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list list;
        va_start(list, format);
        (void)vsnprintf(error->text, sizeof(error->text), format, list);
        va_end(list);
    }
    return status;
}

void *weft_job_need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "weft: out of memory\n");
        exit(1);
    }
    return memory;
}
