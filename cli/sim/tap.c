#include "cli/sim/tap.h"

#include "base/assert.h"
#include "obs/pcap.h"
#include "obs/trace_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING_RECORDS = 4096 };

static const uint64_t file_bytes_max = UINT64_C(1) << 30;

struct sim_feed {
    struct weft_trace_feed feed;
    bool ended; /* the endpoint is gone */
};

struct weft_sim_tap_state {
    struct weft_trace_writer *writer;
    FILE *pcap;
    struct sim_feed *feeds; /* by host */
    uint32_t feed_count;
    const char *trace;
    bool failed; /* the trace is incomplete */
};

static void check(struct weft_sim_tap_state *state, weft_status status)
{
    if (status != WEFT_OK) {
        state->failed = true;
        fprintf(stderr, "weft sim: the trace %s ends here: %s\n", state->trace, strerror(errno));
    }
}

static void on_packet(void *arg, uint64_t now_ns, uint32_t from, uint32_t to, enum weft_ecn ecn,
                      const void *bytes, uint32_t count)
{
    const struct weft_sim_tap_state *state = arg;
    weft_pcap_write(state->pcap, now_ns, from, to, ecn, bytes, count);
}

static void feed_begin(struct weft_sim_tap_state *state, uint32_t host)
{
    char label[32];
    snprintf(label, sizeof(label), "host %u", host);
    check(state,
          weft_trace_feed_init(state->writer, label, host, 0, 0, &state->feeds[host].feed));
    state->feeds[host].ended = false;
}

static void feed_add(struct weft_sim_tap_state *state)
{
    size_t bytes = (state->feed_count + 1) * sizeof(*state->feeds);
    state->feeds = realloc(state->feeds, bytes);
    WEFT_ASSERT(state->feeds != NULL);
    feed_begin(state, state->feed_count++);
}

/* Endpoints have the numbers of their hosts in the simulated world; the new endpoint of a restarted
 * host is appended, with the same label. */
static void on_host(void *arg, uint32_t host, struct weft_ep *ep, bool last)
{
    struct weft_sim_tap_state *state = arg;
    while (state->feed_count <= host) {
        feed_add(state);
    }
    if (state->feeds[host].ended) {
        feed_begin(state, host);
    }
    check(state, weft_trace_feed_drain(&state->feeds[host].feed, ep, RING_RECORDS, last));
    state->feeds[host].ended = last;
}

bool weft_sim_tap_open(struct weft_sim_tap *tap)
{
    struct weft_sim_tap_state *state = calloc(1, sizeof(*state));
    WEFT_ASSERT(state != NULL);
    tap->state = state;
    tap->tap = (struct weft_world_tap){.arg = state};
    const char *wrong = NULL;
    if (tap->trace != NULL) {
        state->trace = tap->trace;
        bool good = weft_trace_writer_open(tap->trace, file_bytes_max, &state->writer) == WEFT_OK;
        wrong = good ? NULL : tap->trace;
        tap->tap.trace_records = RING_RECORDS;
        tap->tap.host = on_host;
    }
    if (wrong == NULL && tap->pcap != NULL) {
        wrong = weft_pcap_open(tap->pcap, &state->pcap) == WEFT_OK ? NULL : tap->pcap;
        tap->tap.packet = on_packet;
    }
    if (wrong != NULL) {
        fprintf(stderr, "weft sim: %s: %s\n", wrong, strerror(errno));
    }
    return wrong == NULL;
}

bool weft_sim_tap_close(struct weft_sim_tap *tap)
{
    struct weft_sim_tap_state *state = tap->state;
    check(state, weft_trace_writer_close(state->writer));
    bool good = !state->failed;
    if (state->pcap != NULL) {
        bool failed = ferror(state->pcap) != 0;
        failed |= fclose(state->pcap) != 0;
        if (failed) {
            fprintf(stderr, "weft sim: %s is incomplete: %s\n", tap->pcap, strerror(errno));
            good = false;
        }
    }
    free(state->feeds);
    free(state);
    tap->state = NULL;
    return good;
}
