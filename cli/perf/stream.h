/* Shared by the transports of `weft perf stream`, which stream.c describes.
 *
 * A flow moves messages of `message_floats` floats from one thread to another. The receiver adds
 * each to the same accumulator and measures the time, from the end of the warm-up messages to the
 * end of the last message.
 */
#ifndef WEFT_CLI_PERF_STREAM_H
#define WEFT_CLI_PERF_STREAM_H

#include "cli/perf/layout.h"
#include "wire/packet.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_STREAM_RECEIVER = 0, /* participants of the layout (layout.h) */
    WEFT_STREAM_SENDER = 1,
    WEFT_STREAM_HEADER_BYTES = WEFT_HEADER_BYTES + WEFT_DATA_BYTES,
};

struct weft_stream_job {
    const float *vector; /* small whole numbers, so that sums are exact in any order */
    float *accumulator;  /* zero at the start */
    uint32_t message_floats;
    uint32_t warmup_messages;
    uint32_t messages;     /* timed */
    uint32_t packet_bytes; /* UDP payload, including room for an authentication tag */
    uint32_t chunk_floats; /* of a full packet */
    uint32_t busy_poll_us; /* weft: busy-poll for this time before a sleep */
    enum weft_wire_mode security;
    const struct weft_perf_layout *layout;
    int cpus[2]; /* sender's, receiver's; -1 = not pinned */
};

/* The time, and the CPU time of all threads of the process, user and system. */
struct weft_stream_mark {
    uint64_t at_ns;
    uint64_t cpu_ns;
};

struct weft_stream_result {
    struct weft_stream_mark start; /* the receiver had the last warm-up message */
    struct weft_stream_mark end;   /* it had the last message */
    uint64_t retransmitted;        /* retransmitted packets (TCP: segments), warm-up included */
    uint64_t lost;                 /* udp-raw: packets that did not arrive; others recover: 0 */
    char note[320];                /* for the user; may be empty */
};

/* Returns false with a reason in error. When nothing was lost, the
 * accumulator holds warmup_messages + messages times the vector. */
typedef bool weft_stream_run(const struct weft_stream_job *job, struct weft_stream_result *result_p,
                             struct weft_error *error);

weft_stream_run weft_stream_weft;
weft_stream_run weft_stream_udp_raw;
weft_stream_run weft_stream_tcp_raw;

struct weft_stream_mark weft_stream_mark(void);

/* Pin the calling thread to that CPU; -1 = do not pin. A failure is ignored: the figure is then
 * that of an unpinned thread. */
void weft_stream_pin(int cpu);

#endif
