/* Pushes, pulls and clocks through an aggregator. Internal to the client's files. */
#ifndef WEFT_PS_CLIENT_VIA_H
#define WEFT_PS_CLIENT_VIA_H

#include "ps/client_part.h"

/* Errors: WEFT_NOMEM. */
weft_status weft_ps_via_init(struct weft_ps_client *client);
void weft_ps_via_fini(struct weft_ps_client *client);
/* PEER_UP or PEER_DOWN. False: the peer is not an aggregator. */
bool weft_ps_via_peer(struct weft_ps_client *client, const struct weft_msg_event *event,
                      uint64_t now_ns);
void weft_ps_via_table_event(struct weft_ps_client *client, const struct weft_msg_event *event);
void weft_ps_via_progress(struct weft_ps_client *client, uint64_t now_ns);
/* Time when the next aggregator times out; WEFT_NEVER = none. */
uint64_t weft_ps_via_deadline(const struct weft_ps_client *client);
/* True: pushes of this table are sent to the shard's aggregator now. */
bool weft_ps_via_open(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* The same for pulls and clocks. */
bool weft_ps_via_has_all(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* The same for pulls. */
bool weft_ps_via_has_pulls(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* True: some pushes may be sent through an aggregator, at least with a grant. */
bool weft_ps_via_any(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* The aggregator that this part would be sent to. */
uint32_t weft_ps_via_index(const struct weft_ps_client *client, const struct ps_part *part);
/* True: the push has too many rows for a sum. */
bool weft_ps_via_too_long(const struct weft_ps_client *client, const struct ps_part *part);
/* True: this part would be sent to an aggregator. */
bool weft_ps_via_takes(const struct weft_ps_client *client, const struct ps_part *part);
/* The same for a pull that is not due yet. */
bool weft_ps_via_takes_pull(const struct weft_ps_client *client, const struct ps_part *part);
/* Maximum age of its rows in microseconds, so that they are no older than this worker's last push.
 * UINT32_MAX: any age. */
uint32_t weft_ps_via_age(const struct weft_ps_client *client, const struct ps_part *part);
weft_peer weft_ps_via_peer_of(const struct weft_ps_client *client, const struct ps_part *part);
/* The part was passed to the transport (went); it leaves the aggregator, and its route becomes `to`
 * (leave). */
void weft_ps_via_went(struct weft_ps_client *client, struct ps_part *part, uint64_t now_ns);
void weft_ps_via_leave(struct weft_ps_client *client, struct ps_part *part, enum ps_part_route to);
/* The same while the aggregator is connected; its answer may be arriving. */
void weft_ps_via_recall(struct weft_ps_client *client, struct ps_part *part);
/* The answer to a recalled push was closed. */
void weft_ps_via_answer_over(struct weft_ps_client *client, uint32_t part);
/* Close the connection to its aggregator. */
void weft_ps_via_close(struct weft_ps_client *client, const struct ps_part *part);
void weft_ps_via_sent(struct weft_ps_client *client, uint32_t part,
                      const struct weft_msg_event *event);
/* True: this CLOCK would be sent to the shard's aggregator. */
bool weft_ps_via_takes_clock(const struct weft_ps_client *client, uint16_t table, uint32_t shard,
                             uint32_t clock);
/* Send CLOCK to the aggregator; false: the transport does not accept it now. */
bool weft_ps_via_clock(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                       uint32_t number, uint64_t now_ns);
/* The connection to the shard has ended: discard the aggregators' outstanding answers to CLOCKs. */
void weft_ps_via_clocks_void(struct weft_ps_client *client, uint32_t shard);
/* The aggregator's reply arrived; committed: the shard has applied the push. */
void weft_ps_via_answered(struct weft_ps_client *client, uint32_t part, bool committed);
/* The aggregator has acknowledged the push on apply. */
void weft_ps_via_applied(struct weft_ps_client *client, uint32_t part);

/* client_applied.c */

/* Errors: WEFT_NOMEM. */
weft_status weft_ps_applied_init(struct weft_ps_client *client);
void weft_ps_applied_fini(struct weft_ps_client *client);
/* True: the shard and this client allow that pushes are acknowledged on apply. */
bool weft_ps_applied_allowed(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* Post memory for COMMITTED of this aggregator. */
void weft_ps_applied_expect(struct weft_ps_client *client, uint32_t via);
/* True: this push, which is sent to the aggregator part->via_index, may be acknowledged on
 * apply. */
bool weft_ps_applied_takes(const struct weft_ps_client *client, const struct ps_part *part);
/* True: pushes of this table may be acknowledged on apply now, or some are and are not committed. A
 * pull must not wait for one of them at the shard, which may never get it. */
bool weft_ps_applied_holds(const struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* True: a new session voids no sum of an aggregator that acknowledges on apply. */
bool weft_ps_applied_settled(const struct weft_ps_client *client, uint32_t shard);
/* Make a record of the push, which was acknowledged. */
void weft_ps_applied_add(struct weft_ps_client *client, struct ps_part *part);
/* Number of records of pushes that precede this part. */
uint32_t weft_ps_applied_before(const struct weft_ps_client *client, const struct ps_part *part);
void weft_ps_applied_event(struct weft_ps_client *client, const struct weft_msg_event *event);
/* The connection to the aggregator has ended; that to the shard has, which is resumed. */
void weft_ps_applied_down(struct weft_ps_client *client, uint32_t via);
void weft_ps_applied_away(struct weft_ps_client *client, uint32_t shard);
/* RESUME was answered. True: it was sent because of such pushes. */
bool weft_ps_applied_resumed(struct weft_ps_client *client, uint16_t table, uint32_t shard);
void weft_ps_applied_progress(struct weft_ps_client *client);

#endif
