#include "node/tracing.h"

#include "io/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { RING_RECORDS = 65536 }; /* 2 MB: the events of an endpoint between two steps */

static const uint64_t file_bytes_max = UINT64_C(1) << 30;

void weft_tracing_open(struct weft_tracing *tracing, const char *path, struct weft_node_log log)
{
    *tracing = (struct weft_tracing){.path = path, .log = log};
    if (path == NULL) {
        return;
    }
    weft_status status = weft_trace_writer_open(path, file_bytes_max, &tracing->writer);
    if (status != WEFT_OK) {
        weft_node_warn(&log, "no trace: %s: %s", path,
                       status == WEFT_NOMEM ? "out of memory" : strerror(errno));
    }
}

static void check(const struct weft_tracing *tracing, weft_status status)
{
    if (status != WEFT_OK) {
        weft_node_warn(&tracing->log, "the trace %s ends here: %s", tracing->path, strerror(errno));
    }
}

static void look(void *arg, struct weft_ep *ep, bool last)
{
    struct weft_tracing_feed *feed = arg;
    check(feed->tracing, weft_trace_feed_drain(&feed->feed, ep, feed->ring_records, last));
}

/* The offset from weft_clock_now_ns to the time since 1970. */
static uint64_t wall_offset_ns(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t wall_ns = (uint64_t)wall.tv_sec * WEFT_NS_PER_S + (uint64_t)wall.tv_nsec;
    return wall_ns - weft_clock_now_ns();
}

void weft_tracing_attach(struct weft_tracing *tracing, const char *label,
                         struct weft_udp_config *config, struct weft_tracing_feed *feed_p)
{
    *feed_p = (struct weft_tracing_feed){.tracing = tracing, .ring_records = RING_RECORDS};
    if (tracing == NULL || tracing->writer == NULL) {
        return;
    }
    config->ep.trace_records = RING_RECORDS;
    config->observer = (struct weft_udp_observer){.observe = look, .arg = feed_p};
    check(tracing, weft_trace_feed_init(tracing->writer, label, config->ep.name,
                                        config->ep.incarnation, wall_offset_ns(), &feed_p->feed));
}

void weft_tracing_close(struct weft_tracing *tracing)
{
    check(tracing, weft_trace_writer_close(tracing->writer));
    *tracing = (struct weft_tracing){0};
}
