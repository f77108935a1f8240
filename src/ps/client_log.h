/* Pushes that a client keeps until they are durable, to resend them to a shard that restarts
 * without them. Internal to the client's files. */
#ifndef WEFT_PS_CLIENT_LOG_H
#define WEFT_PS_CLIENT_LOG_H

#include "ps/client_part.h"

/* Two rings in the same order: the parts of the kept pushes, and the bytes of their requests. */
struct ps_log {
    uint8_t *memory;
    uint64_t bytes;
    uint64_t end;   /* offset of the next request, if it fits before the end of the memory */
    uint32_t first; /* part index of the ring's first slot */
    uint32_t slots;
    uint32_t head; /* slot of the oldest */
    uint32_t count;
    uint64_t slow_ns; /* nearly full: no push before this time; 0 = not nearly full */
    uint64_t full_ns; /* full since this time; 0 = not full */
};

/* client_log.c: pushes that are kept until they are durable */
weft_status weft_ps_log_init(struct weft_ps_client *client);
void weft_ps_log_fini(struct weft_ps_client *client);
/* Check for room for a push of these lists. Errors: WEFT_AGAIN, WEFT_NOMEM as weft_ps_push. */
weft_status weft_ps_log_room(struct weft_ps_client *client, const struct weft_ps_list *lists,
                             uint32_t count, uint64_t now_ns);
/* Allocate the next part, then memory for its request and reply. There must be room (log_room). */
struct ps_part *weft_ps_log_take(struct weft_ps_client *client);
uint8_t *weft_ps_log_memory(struct weft_ps_client *client, size_t bytes);
/* Return the last `bytes` of the newest allocation. */
void weft_ps_log_give_back(struct weft_ps_client *client, size_t bytes);
/* A part of the log is done or has failed. It is freed as soon as it need not be resent. */
void weft_ps_log_done(struct weft_ps_client *client, struct ps_part *part);
/* Queue the pushes that `theirs` lacks once more. Returns their number. */
uint32_t weft_ps_log_resend(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                            const struct weft_rpc_pushes *theirs);
/* Mark the kept pushes as unfinished in `ours`. */
void weft_ps_log_hold(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                      struct weft_rpc_pushes *ours);
/* Free the parts that are not needed any more. */
void weft_ps_log_sweep(struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* True: the log is so full that the next push should request a checkpoint. */
bool weft_ps_log_filling(const struct weft_ps_client *client);
/* Post and cancel the expectation of a shard's DURABLE_UPTO messages, and handle them. */
void weft_ps_durable_expect(struct weft_ps_client *client, uint32_t shard);
void weft_ps_durable_cancel(struct weft_ps_client *client, uint32_t shard);
void weft_ps_durable_event(struct weft_ps_client *client, const struct weft_msg_event *event);

#endif
