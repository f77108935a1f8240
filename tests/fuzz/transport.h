/* The transport of a shard or an aggregator under arbitrary messages: the minimum that fulfils the
 * contract of core/msg.h. Each target implements sending; here are posted memory, chunks of exact
 * size, the grid of a message, and a clock that always advances. */
#ifndef WEFT_TESTS_FUZZ_TRANSPORT_H
#define WEFT_TESTS_FUZZ_TRANSPORT_H

#include "../lib/posted.h"
#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum {
    EXPECTS = 64,
    PACKET_BYTES = 1408,
    MESSAGE_BYTES_MAX = 16384,
    RECORDS_MAX = 24,
    RECORD_BYTES = 12
};

/* First member of the object that `self` of the operations points to. */
struct transport {
    struct posted expects[EXPECTS];
    uint64_t ids;
    uint64_t now_ns;
    bool again; /* send returns AGAIN */
};

static uint64_t transport_clock_ns(void *arg)
{
    return ((struct transport *)arg)->now_ns++;
}

static uint32_t transport_chunk_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    (void)self, (void)peer;
    return PACKET_BYTES / elem_bytes;
}

static weft_status transport_expect(void *self, const struct weft_msg_expect *expect,
                                    weft_expect_id *id_p)
{
    struct transport *t = self;
    const weft_expect_id id = t->ids + 1;
    weft_status status = posted_add(t->expects, EXPECTS, expect, id);
    if (status == WEFT_OK) {
        *id_p = t->ids = id;
    }
    return status;
}

static weft_status transport_cancel(void *self, weft_expect_id id)
{
    struct transport *t = self;
    return posted_cancel(t->expects, EXPECTS, id);
}

static void transport_refuse(void *self, weft_peer peer, uint64_t seq)
{
    (void)self, (void)peer, (void)seq;
}

/* The transport's operations, with the target's send. */
static inline struct weft_msg_ops
transport_ops(weft_status (*send)(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                                  uint64_t *seq_p))
{
    return (struct weft_msg_ops){
        .chunk_elems = transport_chunk_elems,
        .send = send,
        .expect = transport_expect,
        .cancel = transport_cancel,
        .refuse = transport_refuse,
    };
}

/* The expectation that the message matches; the event gets its `user`. It accepts `count` more
 * messages. NULL: no match; or with `fits`, the message is too long for the match. */
static inline const struct weft_msg_expect *transport_match(struct transport *t,
                                                            struct weft_msg_event *event, bool fits)
{
    for (int i = 0; i < EXPECTS; i++) {
        struct weft_msg_expect *e = &t->expects[i].expect;
        if (t->expects[i].live && e->peer == event->peer && (event->tag & e->tag_mask) == e->tag &&
            (!fits || (uint64_t)event->total * event->elem_bytes <= e->memory_bytes)) {
            t->expects[i].live = --e->count > 0;
            event->user = e->user;
            return e;
        }
    }
    return NULL;
}

/* Chunk k of the message in `bytes`. */
static inline void transport_chunk(struct weft_msg_event *event, uint32_t k)
{
    const uint32_t begin = k * event->chunk_elems;
    event->type = WEFT_EVENT_CHUNK;
    event->chunk = k;
    event->elems = (uint32_t)weft_min_u64(event->chunk_elems, event->total - begin);
}

/* Its data, of exact size at an odd address. Owns: gives memory, to be freed by
 * transport_data_free. */
static inline void transport_data(struct weft_msg_event *event, const uint8_t *bytes)
{
    const size_t count = (size_t)event->elems * event->elem_bytes;
    uint8_t *copy = malloc(count + 1);
    WEFT_ASSERT(copy != NULL);
    memcpy(copy + 1, bytes + (size_t)event->chunk * event->chunk_elems * event->elem_bytes, count);
    event->data = copy + 1;
}

static inline void transport_data_free(const struct weft_msg_event *event)
{
    free((uint8_t *)(uintptr_t)event->data - 1);
}

static inline uint16_t u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

/* A message's grid, from {elem_bytes u16, chunk_elems u16, total u16}. */
static inline void transport_grid(struct weft_msg_event *event, const uint8_t *at)
{
    event->elem_bytes = (uint16_t)(u16(at) % PACKET_BYTES + 1);
    const uint32_t chunk_max = PACKET_BYTES / event->elem_bytes;
    event->chunk_elems = (uint16_t)(u16(at + 2) % chunk_max + 1);
    event->total = u16(at + 4) % (MESSAGE_BYTES_MAX / event->elem_bytes) + 1;
    event->chunks = (event->total + event->chunk_elems - 1) / event->chunk_elems;
}

/* True: the transport borrows no memory of the target. */
static inline void transport_end(const struct transport *t)
{
    for (int i = 0; i < EXPECTS; i++) {
        WEFT_ASSERT(!t->expects[i].live);
    }
}

#endif
