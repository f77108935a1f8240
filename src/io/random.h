/* Bytes of the operating system's random source: for numbers that cannot be guessed. Cryptographic
 * keys are made in src/crypto.
 */
#ifndef WEFT_IO_RANDOM_H
#define WEFT_IO_RANDOM_H

#include <stddef.h>

enum { WEFT_OS_RANDOM_MAX = 256 };

/* Shape:   out (bytes,), at most WEFT_OS_RANDOM_MAX: such requests are not truncated or rejected.
 * Cost:    a system call. */
void weft_os_random(void *out, size_t bytes);

#endif
