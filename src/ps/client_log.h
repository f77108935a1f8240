/* Pushes that a client keeps until they are durable, to send them again to a shard that comes back without
 * them. For the client's files alone.
 */
#ifndef WEFT_PS_CLIENT_LOG_H
#define WEFT_PS_CLIENT_LOG_H

#include "ps/client_part.h"

/* Pushes that are kept: a ring of parts, and one of bytes with their requests, in the same order. */
struct ps_log {
    uint8_t *memory;
    uint64_t bytes;
    uint64_t end;        /* where the next request begins, if it fits there */
    uint32_t first;      /* part number of the ring's first place */
    uint32_t places;
    uint32_t head;       /* place of the oldest */
    uint32_t count;
    uint64_t slow_ns;    /* nearly full: not before this time; 0 = it is not */
    uint64_t full_ns;    /* full since; 0 = it is not */
};

/* client_log.c: pushes that are kept until they are durable */
weft_status weft_ps_log_init(struct weft_ps_client *client);
void weft_ps_log_fini(struct weft_ps_client *client);
/* Is there room for a push of these lists? Errors: WEFT_AGAIN, WEFT_NOMEM: as weft_ps_push. */
weft_status weft_ps_log_room(struct weft_ps_client *client, const struct weft_ps_list *lists,
                             uint32_t count, uint64_t now_ns);
/* The next place, and memory for its request and reply: there is room. */
struct ps_part *weft_ps_log_take(struct weft_ps_client *client);
uint8_t *weft_ps_log_memory(struct weft_ps_client *client, size_t bytes);
/* The last `bytes` of what was taken last are not needed. */
void weft_ps_log_give_back(struct weft_ps_client *client, size_t bytes);
/* A part of it is finished, or has failed: it goes when nobody needs it any more. */
void weft_ps_log_done(struct weft_ps_client *client, struct ps_part *part);
/* Those that `theirs` lacks are unfinished again. Returns how many. */
uint32_t weft_ps_log_resend(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                           const struct weft_rpc_pushes *theirs);
/* Those that are kept are not over. */
void weft_ps_log_hold(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                      struct weft_rpc_pushes *ours);
/* What is not needed any more goes. */
void weft_ps_log_sweep(struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* Ask for a checkpoint? */
bool weft_ps_log_filling(const struct weft_ps_client *client);
/* Post memory for what a shard says is durable; take it back. */
void weft_ps_durable_expect(struct weft_ps_client *client, uint32_t shard);
void weft_ps_durable_cancel(struct weft_ps_client *client, uint32_t shard);
void weft_ps_durable_event(struct weft_ps_client *client, const struct weft_msg_event *event);

#endif
