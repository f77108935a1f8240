#include "core/trace.h"

#include "base/assert.h"
#include "core/internal.h"

#include <stdlib.h>

static_assert((int)WEFT_TRACE_HAS_DATA == (int)TX_PACKET_DATA &&
                  (int)WEFT_TRACE_HAS_DONE == (int)TX_PACKET_DONE &&
                  (int)WEFT_TRACE_HAS_PROBE == (int)TX_PACKET_PROBE &&
                  (int)WEFT_TRACE_HAS_FINISH == (int)TX_PACKET_FINISH &&
                  (int)WEFT_TRACE_HAS_CRITICAL == (int)TX_PACKET_CRITICAL,
              "packet kinds are recorded without conversion");

const char *weft_trace_type_name(unsigned type)
{
    static const char *const names[] = {NULL,
#define NAME(name, text) text,
                                        WEFT_TRACE_TYPES(NAME)
#undef NAME
    };
    return type < WEFT_ARRAY_COUNT(names) ? names[type] : NULL;
}

const char *weft_trace_drop_name(unsigned reason)
{
    static const char *const names[] = {
#define NAME(name) #name,
        WEFT_TRACE_DROPS(NAME)
#undef NAME
    };
    return reason < WEFT_ARRAY_COUNT(names) ? names[reason] : NULL;
}

static uint32_t u32_of(uint64_t value)
{
    return (uint32_t)weft_min_u64(value, UINT32_MAX);
}

bool weft_core_trace_init(struct weft_ep *ep)
{
    size_t records = ep->config.trace_records;
    if (records == 0) {
        return true;
    }
    ep->trace.records = calloc(records, sizeof(*ep->trace.records));
    ep->trace.mask = (uint32_t)records - 1;
    return ep->trace.records != NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

void weft_core_trace_write(struct weft_ep *ep, const struct peer *p, enum weft_trace_type type,
                           unsigned flags, uint64_t number, uint64_t a, uint64_t b, uint64_t c)
{
    struct trace *t = &ep->trace;
    t->records[t->written & t->mask] = (struct weft_trace_record){
        .time_ns = t->now_ns,
        .number = number,
        .a = u32_of(a),
        .b = u32_of(b),
        .c = u32_of(c),
        .peer = p == NULL ? WEFT_TRACE_NO_PEER : (uint16_t)peer_idx(ep, p),
        .type = (uint8_t)type,
        .flags = (uint8_t)flags,
    };
    t->written++;
}

/* The state after a round of congestion control: two records. */
void weft_core_trace_round(struct weft_ep *ep, const struct peer *p)
{
    int32_t credit = (int32_t)(p->allowed.limit - p->allowed.sent);
    weft_core_trace_write(ep, p, WEFT_TRACE_CC, 0, p->cc.cwnd_bytes, p->cc.rate_bps / 1000,
                          p->recovery.in_flight_bytes, credit > 0 ? (uint32_t)credit : 0);
    weft_core_trace_write(ep, p, WEFT_TRACE_PATH, 0, 0, weft_cc_loss_ppm(&p->cc),
                          p->recovery.ce_seen, ep->counters.lost_packets);
}

/* Record the packets of a burst that have no packet number (handshake packets), by class. */
void weft_core_trace_burst(struct weft_ep *ep, const struct peer *p, const struct weft_tx *tx)
{
    unsigned klass = *(const uint8_t *)tx->iov[0].base & 0x0f;
    if (klass >= WEFT_CLASS_HELLO) {
        weft_core_trace_write(ep, p, WEFT_TRACE_HANDSHAKE_SENT, klass, 0, 0, 0, tx->bytes);
    }
}

/* Drops are counted in many places, some of them before the peer is known. Comparing the counters
 * after each batch finds all of them; a new counter only needs its name in WEFT_TRACE_DROPS. */
void weft_core_trace_drops_find(struct weft_ep *ep)
{
    const uint64_t now[] = {
#define VALUE(name) ep->counters.name,
        WEFT_TRACE_DROPS(VALUE)
#undef VALUE
    };
    static_assert(WEFT_ARRAY_COUNT(now) == WEFT_ARRAY_COUNT(ep->trace.drops), "one per counter");
    for (unsigned i = 0; i < WEFT_ARRAY_COUNT(now); i++) {
        if (now[i] != ep->trace.drops[i]) {
            weft_core_trace_write(ep, NULL, WEFT_TRACE_DROPPED, i, 0, now[i] - ep->trace.drops[i],
                                  0, 0);
            ep->trace.drops[i] = now[i];
        }
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

uint64_t weft_ep_trace_written(const struct weft_ep *ep)
{
    return ep->trace.written;
}

size_t weft_ep_trace_read(struct weft_ep *ep, uint64_t *from_p, struct weft_trace_record *records,
                          size_t records_max, uint64_t *overwritten_p)
{
    struct trace *t = &ep->trace;
    *overwritten_p = 0;
    if (t->records == NULL) {
        return 0;
    }
    weft_core_trace_drops_find(ep);
    uint64_t size = (uint64_t)t->mask + 1;
    uint64_t oldest = t->written > size ? t->written - size : 0;
    if (*from_p < oldest) {
        *overwritten_p = oldest - *from_p;
        *from_p = oldest;
    }
    size_t count = 0;
    while (count < records_max && *from_p < t->written) {
        records[count++] = t->records[(*from_p)++ & t->mask];
    }
    return count;
}
