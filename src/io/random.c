#include "io/random.h"

#include "base/assert.h"

#include <sys/random.h>

void weft_os_random(void *out, size_t bytes)
{
    WEFT_ASSERT(bytes <= WEFT_OS_RANDOM_MAX);
    ssize_t got = getrandom(out, bytes, 0);
    WEFT_ASSERT(got == (ssize_t)bytes);
}
