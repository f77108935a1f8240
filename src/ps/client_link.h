/* State of a client per table, per shard, and per pair of both (the link). A link orders pushes,
 * clocks and pulls. A shard's end has its connection and its queue. Internal to the client's
 * files. */
#ifndef WEFT_PS_CLIENT_LINK_H
#define WEFT_PS_CLIENT_LINK_H

#include "ps/client_part.h"
#include "ps/missed.h"
#include "ps/push_window.h"
#include "ps/row_store.h"

enum {
    PS_RESUME_REQUEST_BYTES = WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_RPC_PUSHES_BYTES
};

/* State of one table at one shard. */
struct ps_link {
    uint32_t pushes_open[2]; /* begun and not closed, by parity of their clock: pushes of the two
                              * clocks after clock_closed. If many CLOCKs must be resent, pushes of
                              * later clocks are counted when they are within these two */
    uint32_t pushes_flying;  /* of these, passed to the transport */
    uint32_t flying_xor;     /* XOR of their rpc_ids: with one push in flight, its rpc_id */
    uint64_t number;         /* of the last push built */
    uint64_t number_closed;  /* all pushes up to this one are closed */
    uint64_t pushed_ns;      /* when a push was last closed; 0 = never, or no aggregators */
    struct weft_push_window closed; /* and these pushes after number_closed */
    uint32_t clock_closed;          /* last CLOCK that the shard has accepted */
    uint32_t clock_known;           /* highest version seen in a reply */
    uint32_t clock_passed;  /* the clock that the shard reported on resuming: pushes in flight up
                             * to this clock may be too late */
    uint64_t blocked_round; /* round in which a part could not be sent; later parts must wait */
    uint32_t clock_said;    /* the CLOCK in progress */
    bool clock_sending;
    bool clock_via; /* it is in progress through an aggregator */
    bool clock_refused;
    uint8_t clock_request[WEFT_RPC_REQUEST_BYTES];
    uint8_t probe_request[WEFT_RPC_REQUEST_BYTES];
    uint8_t probe_reply[WEFT_RPC_REPLY_BYTES];
    uint16_t can;           /* enum weft_rpc_can: granted by the shard */
    uint8_t list_misses;    /* pushes with an unknown list since the last known one */
    uint32_t list_pause;    /* number of next pushes to send with their ids */
    uint64_t durable;       /* pushes up to this number are durable */
    uint64_t durable_early; /* the same, reported before the shard's answer to RESUME */
    uint32_t applied;       /* pushes acknowledged on apply and not committed: client_applied.c */
    bool fence_due;         /* fencing: RESUME waits until nothing of the link is in flight */
    bool opened;            /* the shard is assumed to have this table */
    bool resuming;          /* after a reconnection, until the shard's answer to RESUME: all else
                             * waits */
    bool gone;              /* it could not be resumed: gone_status, gone_rpc_status */
    bool resumed_unreported; /* `resumed` is not reported yet */
    weft_status gone_status;
    uint16_t gone_rpc_status;
    struct weft_push_window
        lost; /* numbers counted as lost; entries after `number` are meaningless */
    struct weft_ps_resumed resumed;
    uint8_t resume_request[PS_RESUME_REQUEST_BYTES];
    uint8_t resume_reply[WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES];
};

enum ps_park_state {
    PARK_NONE,
    PARK_ASKED,  /* PARK is in flight: nothing else is sent on the connection */
    PARK_ENDING, /* the shard has accepted PARK: the driver must close the connection */
    PARK_PARKED,
};

struct ps_shard_end {
    weft_peer peer;
    bool down;       /* permanently */
    bool away;       /* disconnected, and the client waits for it; the transport has none of its
                      * messages */
    bool connecting; /* away, but `peer` is a new connection that is not up yet */
    uint64_t away_until_ns;
    uint64_t up_ns;                 /* when the last connection was established */
    uint64_t retry_ns;              /* away: time of the next connection attempt */
    uint64_t reconnect_interval_ns; /* 0: the last connection lasted */
    uint32_t begun_open; /* parts that are `begun`: others wait for them, because a shard keeps the
                          * chunks of only a few */
    uint32_t resuming;   /* number of its links that are resuming */
    bool fence_due; /* pushes acknowledged on apply may be lost: resume with a new session */
    bool fencing;   /* the links that are resuming do so for that, on the same connection */
    bool durable_expected; /* memory is posted for its DURABLE_UPTO */
    weft_expect_id durable_expect;
    uint32_t session;     /* number of the current connection; ps/aggregate.h */
    uint64_t incarnation; /* of its process */
    uint32_t rpc_id;      /* last used */
    uint32_t pulls_open;  /* pull requests passed to the transport and not closed */
    uint32_t pulls_asked; /* pulls passed to the transport and not answered */
    uint32_t pulls_ahead; /* of these, waiting for a clock that this worker has not ended */
    enum ps_park_state park;
    bool park_close;       /* ENDING, or a connection to another process: the driver must close
                            * it */
    bool wants_connection; /* a request waits for the connection */
    bool was_parked;       /* the current or last RESUME is only because it was parked */
    uint32_t packet_elems; /* PARKED: bytes in a chunk of the last connection */
    uint64_t direct_ns;    /* when the connection was last used */
    uint64_t vouched_ns;   /* when the last request was sent that its aggregator has committed */
    uint64_t park_pause_ns;
    uint8_t park_request[WEFT_RPC_REQUEST_BYTES];
    uint32_t list_part; /* push whose LIST was sent last, until the push is closed; WEFT_PS_NONE */
    uint32_t queue_head;
    uint32_t queue_tail;
};

/* The aggregator has committed a request of this worker that was sent at this time. */
static inline void ps_vouched(struct ps_shard_end *end, uint64_t sent_ns)
{
    end->vouched_ns = sent_ns > end->vouched_ns ? sent_ns : end->vouched_ns;
}

static inline void ps_pull_answered(struct ps_shard_end *end, struct ps_part *part)
{
    if (part->via_pull) {
        return;
    }
    end->pulls_asked--;
    end->pulls_ahead -= part->is_ahead;
    part->is_ahead = false;
}

enum ps_table_state { TABLE_CLOSED, TABLE_OPENING, TABLE_OPEN };

struct ps_table {
    enum ps_table_state state;
    struct weft_table_spec spec;
    uint32_t clock; /* finished by this worker */
    bool passed;    /* a shard ended it for this worker, and since then the worker has neither ended
                     * its step nor pushed for the next clock */
    struct weft_ps_missed missed;
    struct weft_ps_missed push_missed; /* missed ids of pushes */
    struct weft_row_store last;        /* last pulled values */
    struct weft_row_store kept;        /* lost gradients (error feedback) */
};

/* The push counts as in flight from now on, also while its LIST is sent first. */
static inline void ps_part_take_off(struct ps_link *link, struct ps_part *part)
{
    link->pushes_flying += !part->in_air;
    link->flying_xor ^= part->in_air ? 0 : part->rpc_id;
    part->in_air = true;
}

/* client_clock.c */

/* Send CLOCK for a finished clock of the link, if it is due. */
void weft_ps_clock_send(struct weft_ps_client *client, uint32_t link, uint64_t now_ns);
/* SENT of a CLOCK. */
void weft_ps_clock_sent(struct weft_ps_client *client, uint32_t link,
                        const struct weft_msg_event *event);
/* The shard has accepted this CLOCK. */
void weft_ps_clock_taken(struct weft_ps_client *client, uint32_t link, uint32_t clock);
/* Recompute clocks_open. */
void weft_ps_clocks_count(struct weft_ps_client *client);
/* The shard accepts no further CLOCK of this table; or, after a reconnection, it may again. */
void weft_ps_clock_refuse(struct weft_ps_client *client, struct ps_link *link, bool refused);

/* client_park.c */

/* True: a message can be sent on the connection to the shard now. False: the connection is reopened
 * first. */
bool weft_ps_connection_goes(struct weft_ps_client *client, uint32_t shard);
/* Elements in a chunk to the shard. */
uint32_t weft_ps_packet_elems(const struct weft_ps_client *client, uint32_t shard,
                              uint16_t elem_bytes);
/* PARK was SENT; the connection has ended (true: by parking). */
void weft_ps_park_sent(struct weft_ps_client *client, uint32_t shard,
                       const struct weft_msg_event *event);
bool weft_ps_park_down(struct weft_ps_client *client, uint32_t shard, enum weft_msg_down down);
void weft_ps_parks_progress(struct weft_ps_client *client, uint64_t now_ns);
/* When a connection must be reopened; WEFT_NEVER. */
uint64_t weft_ps_park_deadline(const struct weft_ps_client *client);

/* client_resume.c */
void weft_ps_resumes_init(struct weft_ps_client *client);
/* PEER_DOWN of a shard that the client waits for. */
void weft_ps_shard_away(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns);
/* The new connection is up. */
void weft_ps_shard_back(struct weft_ps_client *client, uint32_t shard);
/* Queue RESUME of a table. */
void weft_ps_resume_queue(struct weft_ps_client *client, uint16_t table, uint32_t shard);
/* The shard is permanently gone: its unfinished parts fail. */
void weft_ps_shard_down(struct weft_ps_client *client, uint32_t shard);
/* Give up the shards that were disconnected for too long. */
void weft_ps_shards_overdue(struct weft_ps_client *client, uint64_t now_ns);
/* The answer to RESUME of a table; NULL: it was malformed. */
void weft_ps_resume_answered(struct weft_ps_client *client, const struct ps_part *part,
                             const struct weft_rpc_reply *reply);
/* A CLOCK was accepted, the previous one was `from`: count the pushes of the clocks that are now
 * within two of it. */
void weft_ps_clock_moved(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         uint32_t from);
/* Clock of the first unsent push; UINT32_MAX: none. */
uint32_t weft_ps_first_push_clock(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard);

#endif
