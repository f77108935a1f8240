/* Events, and progress, which generates them.
 *
 * The events of a caller-driven endpoint must be polled after every datagram, while the application
 * polls one at a time. In between they are stored in a ring. It never overflows: every posted send
 * and receive has a reserved slot, each datagram causes at most one event of a peer (UP, DOWN), and
 * progress is refused (WEFT_AGAIN) unless a whole batch of those fits. A progress thread has its
 * own ring, which poll reads directly.
 */
#include "api/internal.h"

#include "base/assert.h"
#include "base/bits.h"
#include "io/clock.h"

#include <stddef.h>
#include <time.h>

enum {
    PEER_EVENTS_MAX = 1024, /* of one batch: 8 buffers of at most 64 datagrams, twice over */
    EVENT_BYTES_MIN = offsetof(struct weft_transport_event, mask) + sizeof(struct weft_mask),
};

/* A wait of at least this time reads the counters, for its error text. */
static const uint64_t explained_ns = 100 * WEFT_NS_PER_MS;

/* Polling interval for scrapes, while a progress thread runs and a scrape cannot end the caller's
 * sleep. */
static const uint64_t scrape_poll_ns = 100 * WEFT_NS_PER_MS;

/* ---- the queue of a caller-driven transport -------------------------------------------------- */

static uint32_t peer_events_reserve(const struct weft_transport *t)
{
    return PEER_EVENTS_MAX + t->peers_max;
}

weft_status weft_api_queue_init(struct weft_transport *t, uint32_t posted_max)
{
    uint32_t slots = 2;
    while (slots < peer_events_reserve(t) + posted_max + 1) {
        slots *= 2;
    }
    return weft_event_ring_init(&t->ring, slots, t->chunks_max);
}

/* True if there is room for `more` further posts, and then a step. */
static bool queue_fits(const struct weft_transport *t, uint32_t more)
{
    return t->queued + t->posted + more + peer_events_reserve(t) <= t->ring.slots;
}

bool weft_api_queue_has_room(const struct weft_transport *t)
{
    return weft_endpoint_has_thread(&t->endpoint) || queue_fits(t, 1);
}

static void drain(struct weft_transport *t)
{
    struct weft_msgr msgr = t->endpoint.msgr;
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        if (event.type == WEFT_EVENT_OPEN) {
            continue;
        }
        t->posted -= event.type == WEFT_EVENT_SENT || event.type == WEFT_EVENT_RECEIVED;
        t->queued++;
        weft_event_ring_push(&t->ring, &event);
    }
}

static void handle(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct weft_transport *t = arg;
    if (!weft_endpoint_has_thread(&t->endpoint)) {
        drain(t);
    }
    weft_metrics_live_poll(t->metrics, 0, t);
}

static bool queue_poll(struct weft_transport *t, struct weft_msg_event *event_p)
{
    t->queued -= t->lent;
    t->lent = weft_event_ring_pop(&t->ring, event_p);
    return t->lent;
}

static bool thread_poll(struct weft_transport *t, struct weft_msg_event *event_p)
{
    struct weft_msgr msgr = t->endpoint.msgr;
    weft_metrics_live_poll(t->metrics, 0, t);
    do {
        if (!msgr.ops->poll(msgr.self, event_p)) {
            return false;
        }
    } while (event_p->type == WEFT_EVENT_OPEN);
    t->posted -= event_p->type == WEFT_EVENT_SENT || event_p->type == WEFT_EVENT_RECEIVED;
    return true;
}

/* ---- conversion from core to the public interface -------------------------------------------- */

static uint32_t public_down(enum weft_msg_down down, bool was_up)
{
    switch (down) {
    case WEFT_DOWN_CLOSED:
    case WEFT_DOWN_REPLACED: /* sent only by parameter servers, which do not connect to this
                              * interface */
        return WEFT_TRANSPORT_DOWN_CLOSED;
    case WEFT_DOWN_SILENT:
        return was_up ? WEFT_TRANSPORT_DOWN_SILENT : WEFT_TRANSPORT_DOWN_NO_ANSWER;
    case WEFT_DOWN_PROTOCOL:
        return WEFT_TRANSPORT_DOWN_PROTOCOL;
    case WEFT_DOWN_RESTARTED:
        return WEFT_TRANSPORT_DOWN_RESTARTED;
    case WEFT_DOWN_CRYPTO:
        return WEFT_TRANSPORT_DOWN_CRYPTO;
    case WEFT_DOWN_IDLE:
        return WEFT_TRANSPORT_DOWN_IDLE;
    case WEFT_DOWN_LOCAL:
        break;
    }
    return WEFT_TRANSPORT_DOWN_LOCAL;
}

static uint32_t public_outcome(enum weft_msg_outcome outcome)
{
    switch (outcome) {
    case WEFT_MSG_COMPLETE:
        return WEFT_TRANSPORT_COMPLETE;
    case WEFT_MSG_SHORT:
        return WEFT_TRANSPORT_SHORT;
    case WEFT_MSG_UNKNOWN:
    case WEFT_MSG_WITHDRAWN: /* this interface has no held messages */
        break;
    }
    return WEFT_TRANSPORT_UNKNOWN;
}

static void fill_message(const struct weft_msg_event *from, uint32_t type,
                         struct weft_transport_event *to)
{
    to->type = type;
    to->user = (void *)(uintptr_t)from->user;
    to->tag = from->tag;
    to->outcome = public_outcome(from->outcome);
    to->mask = (struct weft_mask){
        .bits = from->mask,
        .elements = from->total,
        .elem_bytes = from->elem_bytes,
        .chunk_elems = from->chunk_elems,
        .chunks = from->chunks,
        .chunks_received = from->received,
    };
}

static void fill_peer(struct weft_transport *t, const struct weft_msg_event *from,
                      struct weft_transport_event *to)
{
    to->name = from->name;
    to->incarnation = from->incarnation;
    if (from->type == WEFT_EVENT_PEER_UP) {
        to->type = WEFT_TRANSPORT_UP;
        weft_bits_set(t->up, from->peer);
    } else {
        to->type = WEFT_TRANSPORT_DOWN;
        to->down = public_down(from->down, weft_bits_test(t->up, from->peer));
        weft_bits_clear(t->up, from->peer);
        weft_api_explain_down(t, (enum weft_transport_down)to->down);
    }
}

bool weft_transport_poll(struct weft_transport *transport, struct weft_transport_event *event_p)
{
    struct weft_msg_event from;
    if (!(weft_endpoint_has_thread(&transport->endpoint) ? thread_poll(transport, &from)
                                                         : queue_poll(transport, &from))) {
        return false;
    }
    struct weft_transport_event to = {.peer = from.peer};
    switch (from.type) {
    case WEFT_EVENT_SENT:
        fill_message(&from, WEFT_TRANSPORT_SENT, &to);
        break;
    case WEFT_EVENT_RECEIVED:
        fill_message(&from, WEFT_TRANSPORT_RECEIVED, &to);
        break;
    case WEFT_EVENT_PEER_UP:
    case WEFT_EVENT_PEER_DOWN:
        fill_peer(transport, &from, &to);
        break;
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        WEFT_ASSERT(!"OPEN was filtered, CHUNK belongs to a sink that is not offered");
    }
    weft_api_struct_out(event_p, &to, sizeof(to), EVENT_BYTES_MIN);
    return true;
}

/* ---- progress -------------------------------------------------------------------------------- */

weft_status weft_transport_progress(struct weft_transport *transport, uint64_t timeout_ns)
{
    if (weft_endpoint_has_thread(&transport->endpoint)) {
        weft_metrics_live_poll(transport->metrics, 0, transport);
        return WEFT_OK;
    }
    if (!queue_fits(transport, 0)) {
        return weft_fail(&transport->error, WEFT_AGAIN,
                         "%u events wait; take them with weft_transport_poll", transport->queued);
    }
    weft_endpoint_step(&transport->endpoint, timeout_ns, handle, transport);
    return WEFT_OK;
}

/* Sleep until there may be an event, or end_ns. */
static void step(struct weft_transport *t, uint64_t end_ns, uint64_t now_ns)
{
    uint64_t left_ns = end_ns == WEFT_NEVER ? WEFT_NEVER : end_ns - now_ns;
    if (!weft_endpoint_has_thread(&t->endpoint)) {
        WEFT_ASSERT(queue_fits(t, 0)); /* the ring is empty: it has room for all posted
                                        * operations */
    } else if (t->metrics != NULL) {
        left_ns = weft_min_u64(left_ns, scrape_poll_ns);
    }
    weft_endpoint_step(&t->endpoint, left_ns, handle, t);
}

static bool wait_until(struct weft_transport *t, uint64_t end_ns,
                       struct weft_transport_event *event_p)
{
    bool got = weft_transport_poll(t, event_p);
    for (uint64_t now_ns = weft_clock_now_ns(); !got; now_ns = weft_clock_now_ns()) {
        step(t, weft_max_u64(end_ns, now_ns), now_ns);
        got = weft_transport_poll(t, event_p);
        if (now_ns >= end_ns) {
            break;
        }
    }
    return got;
}

weft_status weft_transport_wait(struct weft_transport *transport, uint64_t timeout_ns,
                                struct weft_transport_event *event_p)
{
    uint64_t start_ns = weft_clock_now_ns();
    uint64_t end_ns = weft_time_add(start_ns, timeout_ns);
    uint64_t first_ns = weft_min_u64(end_ns, weft_time_add(start_ns, explained_ns));
    if (wait_until(transport, first_ns, event_p)) {
        return WEFT_OK;
    }
    if (first_ns == end_ns) {
        return weft_api_explain_timeout(transport, NULL, timeout_ns);
    }
    struct weft_driver_counters before;
    weft_endpoint_counters(&transport->endpoint, &before);
    if (wait_until(transport, end_ns, event_p)) {
        return WEFT_OK;
    }
    return weft_api_explain_timeout(transport, &before, timeout_ns);
}

static void read_busy(struct weft_driver *driver, void *arg)
{
    *(bool *)arg = weft_driver_busy(driver);
}

static bool busy(struct weft_transport *t)
{
    bool is_busy;
    weft_endpoint_call(&t->endpoint, read_busy, &is_busy);
    return is_busy;
}

weft_status weft_transport_flush(struct weft_transport *transport, uint64_t timeout_ns)
{
    static const uint64_t recheck_ns = WEFT_NS_PER_MS;
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    while (busy(transport)) {
        uint64_t now_ns = weft_clock_now_ns();
        if (now_ns >= end_ns) {
            return weft_fail(&transport->error, WEFT_TIMEOUT,
                             "messages are unfinished after %llu ms; wait for their events, or "
                             "give up with weft_transport_close",
                             (unsigned long long)(timeout_ns / WEFT_NS_PER_MS));
        }
        if (weft_endpoint_has_thread(&transport->endpoint)) {
            struct timespec pause = {.tv_nsec = (long)weft_min_u64(recheck_ns, end_ns - now_ns)};
            (void)nanosleep(&pause, NULL);
        } else {
            uint64_t left_ns = end_ns == WEFT_NEVER ? WEFT_NEVER : end_ns - now_ns;
            weft_status status = weft_transport_progress(transport, left_ns);
            if (status != WEFT_OK) {
                return status;
            }
        }
    }
    return WEFT_OK;
}
