#include "api/internal.h"

#include "base/bits.h"
#include "io/clock.h"
#include "metrics/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PACKET_OVERHEAD_BYTES = 64,
    EVENTS_KEPT_MAX = 4096, /* most sends and receives in progress */
    CRITICAL_LEADING_MAX = 253,
};

/* Of the last open that failed in this thread: there is no transport to keep it. */
static _Thread_local struct weft_error open_error;

/* ---- life ------------------------------------------------------------------------------------ */

static uint32_t posted_max(const struct weft_driver_config *config)
{
    const struct weft_ep_config *ep = &config->udp.ep;
    uint64_t posts = (uint64_t)ep->peers_max * WEFT_MSGS_MAX + ep->expects_max;
    return (uint32_t)weft_min_u64(posts, EVENTS_KEPT_MAX);
}

static weft_status open_endpoint(struct weft_transport *t, const struct weft_transport_config *ours,
                                 const struct weft_driver_config *driver)
{
    const struct weft_api_security from = {ours->security, ours->key_file, ours->key};
    struct weft_security security;
    const struct weft_endpoint_config config = {.driver = *driver,
                                                .security = &security,
                                                .thread = ours->thread,
                                                .events_max = posted_max(driver)};
    weft_status status = weft_api_security_load(&from, &security, &open_error);
    if (status == WEFT_OK && !ours->thread &&
        (status = weft_api_queue_init(t, posted_max(driver))) != WEFT_OK) {
        (void)weft_fail(&open_error, status,
                        "no memory for events; lower peers_max or message_bytes_max");
    }
    if (status == WEFT_OK) {
        status = weft_endpoint_open(&config, &t->endpoint, &open_error);
    }
    weft_security_fini(&security);
    return status;
}

/* ---- metrics --------------------------------------------------------------------------------- */

struct transport_stats {
    struct weft_driver_counters counters;
    struct weft_ep_gauges gauges;
};

static void copy_stats(void *arg, void *object)
{
    struct transport_stats *stats = arg;
    struct weft_transport *t = object;
    (void)weft_endpoint_stats(&t->endpoint, &stats->counters, &stats->gauges);
}

static void write_stats(void *arg, const void *copy, struct weft_exposition *text)
{
    const struct transport_stats *stats = copy;
    (void)arg;
    weft_metrics_text_transport(text, &stats->counters);
    weft_metrics_text_gauges(text, &stats->gauges);
}

static void wake(void *object)
{
    struct weft_transport *t = object;
    weft_endpoint_wake(&t->endpoint);
}

static void open_metrics(struct weft_transport *t, const char *address)
{
    struct weft_metrics_live_config config = {
        .role = "transport",
        .rank = WEFT_TARGET_NO_RANK,
        .stats_bytes = sizeof(struct transport_stats),
        .copy = copy_stats,
        .write = write_stats,
        .wake = wake,
        .arg = t,
    };
    weft_api_metrics_open(address, &config, &t->metrics, &t->error);
}

const char *weft_transport_metrics(const struct weft_transport *transport)
{
    return weft_metrics_live_url(transport->metrics);
}

/* ---- open and close -------------------------------------------------------------------------- */

weft_status weft_transport_open(const struct weft_transport_config *config,
                                struct weft_transport **transport_p)
{
    struct weft_transport_config ours;
    struct weft_driver_config driver;
    weft_status status = weft_api_config_read(config, &ours, &driver, &open_error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return weft_fail(&open_error, WEFT_NOMEM, "no memory for a transport");
    }
    t->pid = getpid();
    t->message_bytes_max = ours.message_bytes_max;
    t->packet_bytes = ours.packet_bytes;
    t->peers_max = ours.peers_max;
    t->chunks_max = driver.udp.ep.chunks_max;
    t->up = calloc(WEFT_BITS_WORDS((size_t)ours.peers_max), sizeof(*t->up));
    t->critical_mask = calloc(WEFT_BITS_WORDS((size_t)driver.udp.ep.chunks_max), sizeof(uint64_t));
    if (t->up == NULL || t->critical_mask == NULL) {
        status = weft_fail(&open_error, WEFT_NOMEM, "no memory for a transport");
    } else {
        status = open_endpoint(t, &ours, &driver);
    }
    if (status != WEFT_OK) {
        weft_transport_close(t);
        return status;
    }
    open_metrics(t, ours.metrics);
    *transport_p = t;
    return WEFT_OK;
}

void weft_transport_close(struct weft_transport *transport)
{
    if (transport == NULL || transport->pid != getpid()) { /* the connections are the parent's */
        return;
    }
    weft_metrics_live_stop(transport->metrics);
    weft_endpoint_close(&transport->endpoint);
    weft_event_ring_fini(&transport->ring);
    free(transport->critical_mask);
    free(transport->up);
    free(transport);
}

uint16_t weft_transport_port(const struct weft_transport *transport)
{
    return weft_endpoint_port(&transport->endpoint);
}

const char *weft_transport_error(const struct weft_transport *transport)
{
    return transport != NULL ? transport->error.text : open_error.text;
}

/* ---- peers ----------------------------------------------------------------------------------- */

weft_status weft_transport_connect(struct weft_transport *transport, const char *host,
                                   uint16_t port, uint32_t *peer_p)
{
    struct weft_transport *t = transport;
    if (host == NULL) {
        return weft_fail(&t->error, WEFT_INVALID, "host is NULL; name the address to reach");
    }
    weft_status status = weft_endpoint_connect(&t->endpoint, host, port, peer_p, &t->error);
    if (status == WEFT_NOMEM) {
        return weft_fail(&t->error, status,
                         "all %u connections are in use; raise peers_max or disconnect one",
                         t->peers_max);
    }
    return status;
}

void weft_transport_disconnect(struct weft_transport *transport, uint32_t peer)
{
    weft_endpoint_disconnect(&transport->endpoint, peer);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Check the ranges of the fields of a send. */
static weft_status send_check(struct weft_transport *t, const struct weft_transport_send *s)
{
    struct weft_error *error = &t->error;
    uint32_t elem_bytes_max = t->packet_bytes - PACKET_OVERHEAD_BYTES;
    if (s->data == NULL || s->elements == 0) {
        return weft_fail(error, WEFT_INVALID,
                         "there is nothing to send: data is NULL or elements is 0");
    }
    if (s->elem_bytes == 0 || s->elem_bytes > elem_bytes_max) {
        return weft_fail(error, WEFT_INVALID,
                         "elem_bytes is %u; it must be from 1 to %u, because an element must fit "
                         "into one packet",
                         (unsigned)s->elem_bytes, elem_bytes_max);
    }
    uint64_t bytes = (uint64_t)s->elements * s->elem_bytes;
    if (bytes > t->message_bytes_max) {
        return weft_fail(error, WEFT_INVALID,
                         "the message has %llu bytes and message_bytes_max is %llu; raise that "
                         "at both ends, or send it in parts",
                         (unsigned long long)bytes, (unsigned long long)t->message_bytes_max);
    }
    if (s->bound_ppm >= WEFT_PPM) {
        return weft_fail(error, WEFT_INVALID,
                         "bound_ppm is %u; it must be below 1000000, because some elements must "
                         "arrive",
                         s->bound_ppm);
    }
    if (s->priority > 7) {
        return weft_fail(error, WEFT_INVALID, "priority is %u; it must be from 0 to 7",
                         (unsigned)s->priority);
    }
    if (s->critical == NULL && s->critical_count > 0) {
        return weft_fail(error, WEFT_INVALID,
                         "critical is NULL and critical_count is %u; pass the ranges or set 0",
                         s->critical_count);
    }
    for (uint32_t i = 0; i < s->critical_count; i++) {
        struct weft_range range = s->critical[i];
        if (range.first > s->elements || range.count > s->elements - range.first) {
            return weft_fail(error, WEFT_INVALID,
                             "critical range %u is %u elements from %u on; the message has %u", i,
                             range.count, range.first, s->elements);
        }
    }
    return WEFT_OK;
}

/* Arguments of a send, for the endpoint's thread. */
struct post {
    const struct weft_transport_send *send;
    uint64_t *mask;
    uint32_t chunks_max;
    weft_status status;
};

/* A chunk is critical if it has a critical element. */
static void mark_critical(const struct weft_transport_send *s, uint32_t chunk_elems,
                          uint32_t chunks, uint64_t *mask)
{
    memset(mask, 0, WEFT_BITS_WORDS((size_t)chunks) * sizeof(*mask));
    for (uint32_t i = 0; i < s->critical_count; i++) {
        struct weft_range range = s->critical[i];
        uint32_t end =
            (uint32_t)weft_div_ceil_u64((uint64_t)range.first + range.count, chunk_elems);
        for (uint32_t c = range.first / chunk_elems; range.count > 0 && c < end; c++) {
            weft_bits_set(mask, c);
        }
    }
}

/* Runs as one call on the endpoint, so that the grid cannot change between the query and the
 * send. */
static void post_send(struct weft_driver *driver, void *arg)
{
    struct post *post = arg;
    const struct weft_transport_send *s = post->send;
    struct weft_msgr msgr = weft_driver_msgr(driver);
    uint64_t now_ns = weft_clock_now_ns();
    struct weft_msg_send core = {
        .peer = s->peer,
        .base = s->data,
        .total = s->elements,
        .elem_bytes = s->elem_bytes,
        .priority = (uint8_t)s->priority,
        .bound_ppm = s->bound_ppm,
        .tag = s->tag,
        .deadline_ns = weft_time_add(now_ns, s->timeout_ns),
        .user = (uintptr_t)s->user,
    };
    uint32_t chunk_elems = weft_driver_grid(driver, s->peer, s->elem_bytes, s->elements);
    uint64_t chunks = chunk_elems > 0 ? weft_div_ceil_u64(s->elements, chunk_elems) : UINT64_MAX;
    if (s->critical_count > 0 && chunks <= post->chunks_max) { /* otherwise send refuses it */
        mark_critical(s, chunk_elems, (uint32_t)chunks, post->mask);
        size_t leading = weft_bits_next_zero(post->mask, chunks, 0);
        core.critical = (uint8_t)weft_min_u64(leading, CRITICAL_LEADING_MAX);
        core.critical_mask = post->mask;
    }
    uint64_t seq;
    post->status = msgr.ops->send(msgr.self, &core, now_ns, &seq);
}

static weft_status send_failed(struct weft_transport *t, weft_status status, uint32_t peer)
{
    if (status == WEFT_PEER) {
        return weft_fail(&t->error, status,
                         "peer %u is not connected; its DOWN event says why; connect again", peer);
    }
    if (status == WEFT_AGAIN) {
        return weft_fail(&t->error, status,
                         "%d messages to peer %u are unconfirmed; wait for an event, then send",
                         WEFT_MSGS_MAX, peer);
    }
    return weft_fail(&t->error, status, "send: %s", weft_status_text(status));
}

static weft_status queue_full(struct weft_transport *t)
{
    return weft_fail(&t->error, WEFT_AGAIN,
                     "%u messages are in progress and %u events wait; take events with "
                     "weft_transport_poll, then try again",
                     t->posted, t->queued);
}

weft_status weft_transport_send(struct weft_transport *transport,
                                const struct weft_transport_send *send)
{
    struct weft_transport *t = transport;
    struct weft_transport_send s;
    weft_status status = weft_api_send_read(send, &s, &t->error);
    if (status == WEFT_OK) {
        status = send_check(t, &s);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (!weft_api_queue_has_room(t)) {
        return queue_full(t);
    }
    struct post post = {.send = &s, .mask = t->critical_mask, .chunks_max = t->chunks_max};
    weft_endpoint_call(&t->endpoint, post_send, &post);
    if (post.status != WEFT_OK) {
        return send_failed(t, post.status, s.peer);
    }
    t->posted++;
    return WEFT_OK;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static weft_status receive_check(struct weft_transport *t, const struct weft_transport_receive *r)
{
    struct weft_error *error = &t->error;
    if (r->memory == NULL || r->memory_bytes == 0) {
        return weft_fail(error, WEFT_INVALID,
                         "there is no memory to receive into: memory is NULL or memory_bytes is "
                         "0");
    }
    if ((r->tag & ~r->tag_mask) != 0) {
        return weft_fail(error, WEFT_INVALID,
                         "tag has bits outside tag_mask, so no message can match; clear them");
    }
    if (r->sink != WEFT_TRANSPORT_COPY && r->sink != WEFT_TRANSPORT_ADD) {
        return weft_fail(error, WEFT_INVALID,
                         "sink is %u; it must be WEFT_TRANSPORT_COPY or WEFT_TRANSPORT_ADD",
                         r->sink);
    }
    return WEFT_OK;
}

weft_status weft_transport_receive(struct weft_transport *transport,
                                   const struct weft_transport_receive *receive,
                                   uint64_t *receive_id_p)
{
    struct weft_transport *t = transport;
    struct weft_transport_receive r;
    weft_status status = weft_api_receive_read(receive, &r, &t->error);
    if (status == WEFT_OK) {
        status = receive_check(t, &r);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (!weft_api_queue_has_room(t)) {
        return queue_full(t);
    }
    struct weft_msg_expect core = {
        .peer = r.peer,
        .sink = r.sink == WEFT_TRANSPORT_ADD ? WEFT_SINK_ADD : WEFT_SINK_COPY,
        .tag = r.tag,
        .tag_mask = r.tag_mask,
        .memory = r.memory,
        .memory_bytes = r.memory_bytes,
        .count = 1,
        .timeout_ns = r.timeout_ns,
        .user = (uintptr_t)r.user,
    };
    weft_expect_id id;
    status = t->endpoint.msgr.ops->expect(t->endpoint.msgr.self, &core, &id);
    if (status == WEFT_NOMEM) {
        return weft_fail(&t->error, status,
                         "receives_max receives are posted; wait for an event of one, or raise "
                         "receives_max");
    }
    if (status != WEFT_OK) {
        return weft_fail(&t->error, status, "receive: %s", weft_status_text(status));
    }
    t->posted++;
    *receive_id_p = id;
    return WEFT_OK;
}

weft_status weft_transport_cancel(struct weft_transport *transport, uint64_t receive_id)
{
    struct weft_msgr msgr = transport->endpoint.msgr;
    weft_status status = msgr.ops->cancel(msgr.self, receive_id);
    if (status != WEFT_OK) {
        return weft_fail(&transport->error, status,
                         "a message has matched this receive; wait for its RECEIVED event, unless "
                         "it was polled already");
    }
    transport->posted--;
    return WEFT_OK;
}
