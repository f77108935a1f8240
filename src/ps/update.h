/* Updates of a job with a transfer scheduler: pushes wait for a grant, are sent at its rate, or are
 * dropped.
 *
 * An update is the set of all pushes of one worker for one clock, over all tables and shards. With
 * update_bytes_min in its configuration a client holds the pushes of an update until the update is
 * complete:
 *
 *   - weft_ps_clock has ended the clock of every table with pushes in the update; or
 *   - the worker continues without that: it pushes for a later clock of such a table, ends that
 *     clock again (weft_ps_clock returns AGAIN), queues a pull that must see such a push, or calls
 *     weft_ps_update_end.
 *
 * A complete update of fewer than update_bytes_min bytes is sent at once. For a larger one the
 * client emits an ASK event, and sends no byte of it before the decision:
 *
 *     weft_ps_update_grant     for each of its shards: the start, the rate and the rank
 *     weft_ps_update_drop      send nothing of it, if no byte was sent yet
 *     weft_ps_update_direct    send all of it at once: the scheduler does not answer
 *
 * The decision also holds for later pushes of the same clock. CLOCK and pulls do not wait for
 * grants, but a CLOCK waits, as always, for the pushes before it.
 *
 *     after weft_ps_client_progress:  while weft_ps_update_poll: ASK -> query the scheduler, ...
 *
 * A shard counts the updates that it has opened. An update is named by rank and clock, and opens
 * with its first chunk. Replies to a client's pulls carry the count; its pushes carry the count of
 * the last reply as their base. With delay_max in its configuration a shard refuses (LATE) the
 * whole of an update that would open more than delay_max updates after its base.
 * weft_shard_take_committed reports each closed update.
 *
 * Read admission. If the scheduler admits reads, a worker requests admission before each read. One
 * read is all pulls of one step; the step is the clock after the highest clock that the worker has
 * ended in any table. The first pull of a step requests it. Every pull of the step that begins
 * before weft_ps_read_begin is held in its queue until then, and later ones are sent at once. Three
 * kinds of pulls are never held: pulls without rows, pulls outside of a step (weft_ps_how.aside),
 * and pulls of a step that has begun to push. The next read is requested only while no update
 * without a grant is in progress, because the scheduler does not learn the end of such an update.
 *
 *     weft_ps_reads_wait(client, true or false);
 *     if (weft_ps_read_over(client)) report it;
 *     if (weft_ps_read_wanted(client, &clock)) request admission;
 *     admitted: weft_ps_read_begin(client, clock)
 *
 * Not here: the planning (src/sched), and the messages between client and scheduler.
 *
 * Source: docs/PROTOCOL.md section 7, "Updates"; [mlfabric] section 3. */
#ifndef WEFT_PS_UPDATE_H
#define WEFT_PS_UPDATE_H

#include "ps/client.h"
#include "ps/shard.h"

/* Updates in progress of one client. If a worker makes more, the newest are sent at once. */
enum { WEFT_PS_UPDATES_MAX = 8 };

enum {
    WEFT_PS_UPDATE_BYTES_MIN = 65536
}; /* for a shorter update a decision costs more than it
    * saves */

/* ---- the worker ------------------------------------------------------------------------------ */

enum weft_ps_update_event_type {
    WEFT_PS_UPDATE_ASK,       /* the update is complete: request grants */
    WEFT_PS_UPDATE_DELIVERED, /* the transport of `shard` has acknowledged all pushes of the update
                               * to it */
    WEFT_PS_UPDATE_OVER, /* all shards have acknowledged, or it was dropped; its number is invalid
                          * now */
};

struct weft_ps_update_event {
    enum weft_ps_update_event_type type;
    uint64_t update; /* from 1 */
    uint32_t clock;  /* highest of its pushes */
    uint32_t shards; /* ASK: number of shards with pushes */
    uint64_t bytes;  /* of the pushes' messages. ASK, OVER: to all shards. DELIVERED: to `shard` */
    double norm;     /* ASK: Euclidean norm of all values pushed; not finite if a value is not */
    uint32_t shard;  /* DELIVERED */
    uint64_t begun_ns; /* DELIVERED: time when its first push was passed to the transport, or the
                        * start of the grant, whichever is later */
    uint64_t ended_ns; /* DELIVERED: time when the last of them was acknowledged */
    bool dropped;      /* OVER: by weft_ps_update_drop */
    bool late;         /* OVER: a shard refused its part (LATE) */
};

/* The part of an update for one shard. */
struct weft_ps_update_part {
    uint32_t pushes; /* messages; 0 = none: requires no grant */
    uint64_t bytes;  /* of these messages */
    bool based;      /* the shard has reported a count */
    uint32_t base;   /* that count, modulo 2^32 */
};

/* The next event; false when there is none. The events of one update are in order; those of
 * different updates may interleave. */
bool weft_ps_update_poll(struct weft_ps_client *client, struct weft_ps_update_event *event_p);

/* Errors:  WEFT_NOTFOUND  the update is over.   WEFT_INVALID  shard. */
weft_status weft_ps_update_part(const struct weft_ps_client *client, uint64_t update,
                                uint32_t shard, struct weft_ps_update_part *part_p);

/* True: an update waits for the end of its clock. */
bool weft_ps_update_is_open(const struct weft_ps_client *client);

/* Complete the update that waits for the end of its clock. Call it before waiting for one of its
 * pushes, which would otherwise never complete. No effect if no update is waiting. */
void weft_ps_update_end(struct weft_ps_client *client, uint64_t now_ns);

/* Send the update's pushes to this shard from pace->start_ns on, at pace->rate_bps. A second grant
 * changes the pace of the data not sent yet. The transport holds the messages until the start. Held
 * messages count toward the limit of 64 open messages per shard, so grant a start in the near
 * future.
 * Errors:  WEFT_NOTFOUND  the update is over.   WEFT_INVALID  shard.
 *          WEFT_STATE     the update is not complete, or was dropped. */
weft_status weft_ps_update_grant(struct weft_ps_client *client, uint64_t update, uint32_t shard,
                                 const struct weft_msg_pace *pace, uint64_t now_ns);

/* Call before the grant for this shard. Send the update's pushes to the shard through this
 * aggregator, which must be the same for all shards. The aggregator adds them to the pushes of
 * other updates with the same group. members: number of updates in the group, this one included,
 * with pushes for this shard (1 .. 256). Pushes that cannot be sent there are sent to the shard
 * (ps/client.h). DELIVERED then occurs twice: when the aggregator has received the pushes, and when
 * they are committed.
 * Errors:  as of weft_ps_update_grant; WEFT_INVALID  aggregator, members. */
weft_status weft_ps_update_by(struct weft_ps_client *client, uint64_t update, uint32_t shard,
                              uint32_t aggregator, uint32_t group, uint32_t members);

/* Drop the update: no byte of it is sent. Its pushes complete with status OK and rpcs_dropped, the
 * residual of its tables (weft_ps_client_feedback) keeps all values, and its CLOCKs are sent. The
 * worker should pull again.
 * Errors:  WEFT_NOTFOUND, as above.   WEFT_STATE  a byte of it was sent, or it was dropped. */
weft_status weft_ps_update_drop(struct weft_ps_client *client, uint64_t update, uint64_t now_ns);

/* Grant every shard without a grant: start now, at rate_bps to each (0 = no limit).
 * Errors:  as of weft_ps_update_grant. */
weft_status weft_ps_update_direct(struct weft_ps_client *client, uint64_t update, uint64_t rate_bps,
                                  uint64_t now_ns);

/* Set whether reads wait for admission; initially false. */
void weft_ps_reads_wait(struct weft_ps_client *client, bool wait, uint64_t now_ns);

/* True: pulls wait for admission of the read of step *clock_p. */
bool weft_ps_read_wanted(const struct weft_ps_client *client, uint32_t *clock_p);

/* The read of the step is admitted: send its pulls. */
void weft_ps_read_begin(struct weft_ps_client *client, uint32_t clock, uint64_t now_ns);

/* True, once: the update of the step that was admitted is over, or the read is no longer needed. */
bool weft_ps_read_over(struct weft_ps_client *client);

/* ---- the shard ------------------------------------------------------------------------------- */

/* A closed update: the shard has closed all its pushes, and processed the CLOCK that ends it. */
struct weft_shard_committed {
    uint32_t rank;
    uint32_t clock;
    uint64_t number; /* position in the order in which this shard opened updates, from 1 */
    uint64_t base;   /* updates opened in the model from which it was computed */
    uint64_t opened; /* updates opened so far */
    uint64_t closed; /* of these, closed, this one included */
    bool late;       /* refused: delay_max; not counted in `closed` nor applied */
    double norm;     /* Euclidean, of the values that were applied, before the optimizer */
    /* bit/s of messages, idle periods excluded; 0 = too little data. Of an update that arrived
     * directly only the periods count in which no AGGREGATE arrived. */
    uint64_t rate_bps;  /* of this update */
    uint64_t alone_bps; /* of this update, in periods in which at least nine tenths of the bytes
                         * that arrived were its own; 0 also if it was only in AGGREGATEs */
    uint64_t all_bps;   /* of all updates, while this one arrived */
    uint32_t members;   /* updates in the AGGREGATE that contained its pushes, the most if they were
                         * in several; 0 = in none */
    uint64_t sum_bytes; /* of these AGGREGATEs */
};

/* The oldest closed update that was not taken yet. False: there is none. The queue holds 1,024, or
 * one for each rank if that is more; beyond that the oldest is dropped (counter
 * updates_unreported). */
bool weft_shard_take_committed(struct weft_shard *shard, struct weft_shard_committed *committed_p);

/* Updates opened so far, late ones not counted. */
uint64_t weft_shard_updates_opened(const struct weft_shard *shard);

#endif
