/* What the three ways of streaming float vectors over loopback share (stream.c has the essay).
 *
 * A flow moves `rounds` messages of `message_floats` floats from one thread to another. The
 * receiver adds each into the same accumulator and keeps the time: the clock runs from the end of
 * the warm-up rounds to the end of the last.
 */
#ifndef WEFT_BENCH_STREAM_H
#define WEFT_BENCH_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STREAM_CHUNK_FLOATS = 352, /* as weft cuts a 1,472-byte packet */
    STREAM_HEADER_BYTES = 48,  /* weft's packet and DATA headers, mode none */
    STREAM_ERROR_BYTES = 320,
};

struct stream_job {
    const float *vector; /* small whole numbers, so that sums are exact in any order */
    float *accumulator;  /* zero at the start */
    uint32_t message_floats;
    uint32_t warmup_rounds;
    uint32_t rounds; /* timed */
};

/* A moment: time, and CPU time of all threads of the process, kernel's part included. */
struct stream_mark {
    uint64_t at_ns;
    uint64_t cpu_ns;
};

struct stream_result {
    struct stream_mark start; /* the receiver had the last warm-up round */
    struct stream_mark end;   /* it had the last round */
    uint64_t lost;            /* packets that did not arrive (raw) or were declared lost (weft) */
    bool adds;                /* the accumulator holds the sum and can be checked */
    char note[160];           /* for a person; may be empty */
};

/* Returns false with a reason in error (STREAM_ERROR_BYTES). */
typedef bool stream_run(const struct stream_job *job, struct stream_result *result_p, char *error);

stream_run stream_run_weft;
stream_run stream_run_raw;
stream_run stream_run_tcp_add;
stream_run stream_run_tcp_read;

struct stream_mark stream_mark(void);

/* acc[i] += values[i]; values lie on a multiple of 4. The same work in every flow but weft's, which
 * has its own. */
void stream_add(float *acc, const void *values, size_t count);

#endif
