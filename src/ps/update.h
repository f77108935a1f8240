/* Updates of a job with a transfer scheduler: pushes wait for a grant, go at its rate, or are dropped.
 *
 * An update is all that one worker pushes for one clock, over all tables and shards. With
 * update_bytes_min in its configuration a client keeps the pushes of an update until it is complete:
 *
 *   - weft_ps_clock has ended the clock of every table that it has pushes for; or
 *   - the worker goes on without that: it pushes for a later clock of such a table, ends that clock again
 *     (weft_ps_clock is at AGAIN), has a pull queued that must see such a push, or says weft_ps_update_end.
 *
 * One of fewer bytes is sent then, at once. Of one that is larger the client hands out an ASK, and sends
 * nothing of it, no byte and no word that there will be some, before the answer:
 *
 *     weft_ps_update_grant     for each of its shards: when to begin, how fast, and before whom
 *     weft_ps_update_drop      nothing of it is sent, if nothing was
 *     weft_ps_update_direct    all of it at once: nobody answers
 *
 * What is pushed for the same clock after that shares its update's fate. CLOCK and pulls do not wait for
 * grants, but a CLOCK waits as ever for the pushes before it.
 *
 *     after weft_ps_client_progress:  while weft_ps_update_poll: ASK -> ask the scheduler, ...
 *
 * A shard counts the updates that it has opened: one opens with its first chunk there, and rank and clock
 * name it. Answers to a client's pulls carry that count, its pushes the count of the last answer as their
 * base. With delay_max in its configuration a shard refuses (LATE) all of an update that would open more
 * than that many updates behind its base. It tells its owner when an update is closed: weft_shard_take_committed.
 *
 * Not here: when to send what, which is src/sched's, and the way there and back.
 *
 * Source: docs/PROTOCOL.md section 7, "Updates"; [mlfabric] section 3.
 */
#ifndef WEFT_PS_UPDATE_H
#define WEFT_PS_UPDATE_H

#include "ps/client.h"
#include "ps/shard.h"

/* Updates of one client that are not over. Of a worker that makes more the newest are sent at once. */
enum { WEFT_PS_UPDATES_MAX = 8 };

enum { WEFT_PS_UPDATE_BYTES_MIN = 65536 }; /* what is shorter is not worth a decision */

/* ---- the worker ------------------------------------------------------------------------------ */

enum weft_ps_update_event_type {
    WEFT_PS_UPDATE_ASK,       /* it is complete: ask for grants */
    WEFT_PS_UPDATE_DELIVERED, /* `shard` has confirmed all that this client has for it */
    WEFT_PS_UPDATE_OVER,      /* all shards have, or it was dropped; its number means nothing now */
};

struct weft_ps_update_event {
    enum weft_ps_update_event_type type;
    uint64_t update; /* from 1 */
    uint32_t clock;  /* highest of its pushes */
    uint32_t shards; /* ASK: for how many it has pushes */
    uint64_t bytes; /* ASK, OVER: of its pushes' messages, all shards. DELIVERED: of this shard's */
    double norm;    /* ASK: Euclidean, of all values pushed; not finite where one is not */
    uint32_t shard; /* DELIVERED */
    uint64_t begun_ns; /* DELIVERED: when its first push was given to the transport to be sent: its
                        * start, or then when that was later */
    uint64_t ended_ns; /* DELIVERED: when the last of them was confirmed */
    bool dropped;      /* OVER: by weft_ps_update_drop */
    bool late;         /* OVER: a shard refused some of it (LATE) */
};

/* What an update has for one shard. */
struct weft_ps_update_part {
    uint32_t pushes; /* messages; 0 = nothing: no grant is wanted */
    uint64_t bytes;  /* of these */
    bool based;      /* the shard has told a count */
    uint32_t base;   /* it, modulo 2^32 */
};

/* The next event; false when there is none. Those of one update come in order; of several in any. */
bool weft_ps_update_poll(struct weft_ps_client *client, struct weft_ps_update_event *event_p);

/* Errors:  WEFT_NOTFOUND  no such update any more.   WEFT_INVALID  shard. */
weft_status weft_ps_update_part(const struct weft_ps_client *client, uint64_t update,
                                uint32_t shard, struct weft_ps_update_part *part_p);

/* Is there an update that waits for its clock's end? */
bool weft_ps_update_gathers(const struct weft_ps_client *client);

/* What was pushed and waits for its clock's end is complete: whoever waits for a push has to say so, or
 * never completes. No effect when no update is being gathered. */
void weft_ps_update_end(struct weft_ps_client *client, uint64_t now_ns);

/* Its pushes to this shard may go, from pace->start_ns on, at pace->rate_bps. Said again it changes that
 * for what has not been sent. The transport holds them until then: they are among the 64 messages that may
 * be open to a shard, and after 63 more nothing goes to it before they are done. So grant for soon.
 * Errors:  WEFT_NOTFOUND  no such update any more: it is over.   WEFT_INVALID  shard.
 *          WEFT_STATE     it is not complete, or was dropped. */
weft_status weft_ps_update_grant(struct weft_ps_client *client, uint64_t update, uint32_t shard,
                                 const struct weft_msg_pace *pace, uint64_t now_ns);

/* In front of its grants: its pushes go by this aggregator of their shards, to be added up with those of others
 * that have the same group, of which there are so many members (1 .. 256) with this one. What cannot go there
 * goes to its shard, as ever (ps/client.h). Its DELIVERED then comes when the aggregator has it, and again.
 * Errors:  as of weft_ps_update_grant; WEFT_INVALID  aggregator, members. */
weft_status weft_ps_update_by(struct weft_ps_client *client, uint64_t update, uint32_t aggregator,
                              uint32_t group, uint32_t members);

/* Nothing of it is sent. Its pushes are done with status OK and rpcs_dropped; what a table keeps of
 * losses (weft_ps_client_feedback) keeps all of it; its CLOCKs follow. The worker should pull again.
 * Errors:  WEFT_NOTFOUND, as above.   WEFT_STATE  a byte of it was sent, or it was dropped. */
weft_status weft_ps_update_drop(struct weft_ps_client *client, uint64_t update, uint64_t now_ns);

/* As a grant for each shard that has none: from now on, at rate_bps to each (0 = no limit).
 * Errors:  as of weft_ps_update_grant. */
weft_status weft_ps_update_direct(struct weft_ps_client *client, uint64_t update, uint64_t rate_bps,
                                  uint64_t now_ns);

/* ---- the shard ------------------------------------------------------------------------------- */

/* An update is closed at a shard: all its pushes are, and the CLOCK that says so was taken. */
struct weft_shard_committed {
    uint32_t rank;
    uint32_t clock;
    uint64_t number; /* it was the number-th that this shard opened, from 1 */
    uint64_t base;   /* updates opened in the model that it was computed from */
    uint64_t opened; /* opened by now */
    uint64_t closed; /* of these, closed, with this one */
    bool late;       /* refused: delay_max; not counted in `closed` nor applied */
    double norm;     /* Euclidean, of the values that were applied, before the optimizer */
    /* bit/s of messages, without pauses in which nothing arrived; 0 = too little data. */
    uint64_t rate_bps;  /* how fast it came */
    uint64_t alone_bps; /* the same, while no other update did */
    uint64_t all_bps;   /* how fast all updates came, while it did */
};

/* The next that is not taken yet, oldest first. False: there is none. More than 1,024 untaken ones, or as
 * many as ranks where that is more, push the oldest out (counter updates_untold). */
bool weft_shard_take_committed(struct weft_shard *shard, struct weft_shard_committed *committed_p);

/* Updates opened so far, late ones not counted. */
uint64_t weft_shard_updates_opened(const struct weft_shard *shard);

#endif
