/* Calls of <weft/ps.h> that must succeed, and the error texts of calls that must fail. */
#ifndef WEFT_TESTS_API_PS_CALLS_H
#define WEFT_TESTS_API_PS_CALLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <weft/ps.h>

static inline struct weft_ps *connect_with(const struct weft_ps_config *config)
{
    struct weft_ps *ps = NULL;
    weft_status status = weft_ps_connect(config, &ps);
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_ps_error(NULL));
    }
    return ps;
}

static inline void must(const struct weft_ps *ps, weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s: %s", weft_status_name(status), weft_ps_error(ps));
    }
}

static inline void says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

#endif
