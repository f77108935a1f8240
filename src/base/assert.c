#include "base/assert.h"

#include <stddef.h>

static weft_assert_fn *assert_handler;

void weft_assert_set_handler(weft_assert_fn *handler)
{
    assert_handler = handler;
}

void weft_assert_fail(const char *file, int line, const char *expression)
{
    if (assert_handler != NULL) {
        assert_handler(file, line, expression);
    }
    __builtin_trap();
}
