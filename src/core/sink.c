/* The ADD sink: little-endian floats of a packet added to those of an accumulator, both at any
 * alignment.
 *
 * The loop is unrolled by hand to 16 floats: gcc 12 does not vectorize a loop of unknown length at
 * -O2, and the scalar addition was two thirds of the receiving thread's time. The results are
 * identical to those of the scalar loop below, element by element. Wider vectors (AVX2, AVX-512)
 * and prefetching gave no speed-up when the accumulator exceeded the second-level cache:
 * bench/NOTEBOOK.md.
 */
#include "core/sink.h"

typedef float floats4 __attribute__((vector_size(16), aligned(1), may_alias));
typedef float float1 __attribute__((aligned(1), may_alias));

void weft_sink_add(uint8_t *to, const uint8_t *from, size_t bytes)
{
    size_t i = 0;
    for (; i + 4 * sizeof(floats4) <= bytes; i += 4 * sizeof(floats4)) {
        floats4 *t = (floats4 *)(to + i);
        const floats4 *f = (const floats4 *)(from + i);
        t[0] += f[0];
        t[1] += f[1];
        t[2] += f[2];
        t[3] += f[3];
    }
    for (; i + sizeof(float) <= bytes; i += sizeof(float)) {
        *(float1 *)(to + i) += *(const float1 *)(from + i);
    }
}
