/* A test over many seeds stores its current seed here; if it fails, its teardown prints the
 * seed. */
#ifndef WEFT_TESTS_PRINT_SEED_H
#define WEFT_TESTS_PRINT_SEED_H

#include "base/prng.h" /* before `seed`, which it would shadow */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint64_t seed;

static inline int print_seed(void **state)
{
    (void)state;
    print_message("# last seed %llu\n", (unsigned long long)seed);
    return 0;
}

#endif
