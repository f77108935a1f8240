#include "node/log.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINE_BYTES = 4096 + 1024 }; /* the longest path in a sentence */

static void say(const struct weft_node_log *log, enum weft_node_level level, const char *format,
                va_list list)
{
    char text[LINE_BYTES];
    if (log->say != NULL) {
        (void)vsnprintf(text, sizeof(text), format, list);
        log->say(log->arg, level, text);
    }
}

void weft_node_info(const struct weft_node_log *log, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(log, WEFT_NODE_INFO, format, list);
    va_end(list);
}

void weft_node_warn(const struct weft_node_log *log, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(log, WEFT_NODE_WARNING, format, list);
    va_end(list);
}
