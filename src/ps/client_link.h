/* Between a client's tables and its shards: a link for each pair, with the state that orders pushes, clocks
 * and pulls; a shard's end with its connection and its queue; and a table. For the client's files alone.
 */
#ifndef WEFT_PS_CLIENT_LINK_H
#define WEFT_PS_CLIENT_LINK_H

#include "ps/client_part.h"
#include "ps/missed.h"
#include "ps/push_window.h"
#include "ps/row_store.h"

enum {
    PS_RESUME_REQUEST_BYTES = WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_RPC_PUSHES_BYTES
};

/* Between one table and one shard. */
struct ps_link {
    uint32_t pushes_open[2]; /* begun and not closed, by parity of their clock: those of the two
                              * clocks behind clock_closed. Later ones, of a shard that has to be
                              * told many clocks again, are counted when it is their turn */
    uint32_t pushes_flying;  /* of these, given to the transport */
    uint32_t flying_xor;     /* of their rpc_ids: with one flying, its rpc_id */
    uint64_t number;         /* of the last push made */
    uint64_t number_closed;  /* all pushes up to this one are closed */
    uint64_t pushed_ns;      /* when one was closed last; 0 = never, or there are no aggregators */
    struct weft_push_window closed; /* and of those behind it, these */
    uint32_t clock_closed;   /* last CLOCK that the shard has taken */
    uint32_t clock_known;    /* highest version seen in an answer */
    uint32_t clock_passed;   /* that the shard named when it went on after a break: pushes up to it that
                              * were under way may be too late */
    uint64_t blocked_round;  /* round in which a part of it could not go; later ones must wait */
    uint32_t clock_said;     /* the CLOCK in progress */
    bool clock_sending;
    bool clock_via; /* it is in progress by an aggregator */
    bool clock_refused;
    uint8_t clock_request[WEFT_RPC_REQUEST_BYTES];
    uint8_t probe_request[WEFT_RPC_REQUEST_BYTES];
    uint8_t probe_reply[WEFT_RPC_REPLY_BYTES];
    uint16_t can;            /* of enum weft_rpc_can: what the shard takes */
    uint8_t list_misses;     /* pushes whose list was unknown, since the last that was known */
    uint32_t list_pause;     /* so many pushes go with their ids */
    uint64_t durable;        /* pushes up to this number are */
    uint64_t durable_early;  /* the same, said before the shard's answer that it goes on */
    bool opened;             /* the shard has this table, as far as we know */
    bool resuming;       /* it has gone and has to say what it knows: all else waits */
    bool gone;           /* it could not go on: gone_status of gone_rpc_status */
    bool resumed_untold; /* `resumed` waits for the caller */
    weft_status gone_status;
    uint16_t gone_rpc_status;
    struct weft_push_window
        lost; /* numbers that are counted as lost; those behind `number` mean nothing */
    struct weft_ps_resumed resumed;
    uint8_t resume_request[PS_RESUME_REQUEST_BYTES];
    uint8_t resume_reply[WEFT_RPC_REPLY_BYTES + WEFT_RPC_PUSHES_BYTES];
};

enum ps_park_state {
    PARK_NONE,
    PARK_ASKED,  /* PARK is under way: nothing goes over the connection */
    PARK_ENDING, /* the shard has taken it: the driver has to end the connection */
    PARK_PARKED,
};

struct ps_shard_end {
    weft_peer peer;
    bool down;       /* for good */
    bool away;       /* waited for; nothing of it is in the transport */
    bool connecting; /* away, but `peer` is a new connection that is not up yet */
    uint64_t away_until_ns;
    uint64_t up_ns;             /* when the last connection was established */
    uint64_t retry_ns;          /* away: no attempt to connect before */
    uint64_t reconnect_interval_ns; /* 0: the last connection held */
    uint32_t begun_open; /* parts that are `begun`: others wait for them, for a shard keeps the
                          * chunks of few at a time */
    uint32_t resuming;   /* its links that are */
    bool durable_expected; /* memory is posted for what it says is durable */
    weft_expect_id durable_expect;
    uint32_t session;    /* of its connections; ps/aggregate.h */
    uint64_t incarnation; /* of its process */
    uint32_t rpc_id;     /* last used */
    uint32_t pulls_open; /* requests given to the transport and not closed */
    uint32_t pulls_asked; /* pulls given to the transport and not answered */
    uint32_t pulls_ahead; /* and of these, which wait for a clock that this worker has not ended */
    enum ps_park_state park;
    bool park_close;       /* ENDING, or a connection to another process: the driver is to end it */
    bool wants_connection; /* something waits for it */
    bool was_parked;       /* it resumes, or has resumed, for that reason alone */
    uint32_t packet_elems; /* PARKED: bytes in a chunk of the last connection */
    uint64_t direct_ns;    /* when something went over the connection last */
    uint64_t vouched_ns;   /* when the last request went that its aggregator committed */
    uint64_t park_pause_ns;
    uint8_t park_request[WEFT_RPC_REQUEST_BYTES];
    uint32_t list_part;  /* push whose list was given last, until it is closed; WEFT_PS_NONE */
    uint32_t queue_head;
    uint32_t queue_tail;
};

/* The shard has something of this worker by its aggregator that went then. */
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
    bool passed;    /* a shard has finished it for this worker, which has not ended its step since,
                     * nor pushed for the next clock */
    struct weft_ps_missed missed;
    struct weft_ps_missed push_missed; /* of pushes */
    struct weft_row_store last; /* values that were pulled */
    struct weft_row_store kept; /* gradients that were lost */
};

/* A push is under way from now on, or will be when its list is there. */
static inline void ps_part_take_off(struct ps_link *link, struct ps_part *part)
{
    link->pushes_flying += !part->in_air;
    link->flying_xor ^= part->in_air ? 0 : part->rpc_id;
    part->in_air = true;
}

/* client_clock.c */

/* Tell the link's shard of a clock that is over, if its turn has come. */
void weft_ps_clock_send(struct weft_ps_client *client, uint32_t link, uint64_t now_ns);
/* SENT of it. */
void weft_ps_clock_sent(struct weft_ps_client *client, uint32_t link,
                        const struct weft_msg_event *event);
/* The shard has taken it. */
void weft_ps_clock_taken(struct weft_ps_client *client, uint32_t link, uint32_t clock);
/* Compute clocks_open again. */
void weft_ps_clocks_count(struct weft_ps_client *client);
/* The shard takes no CLOCK of this table any more; or, after a break, it may again. */
void weft_ps_clock_refuse(struct weft_ps_client *client, struct ps_link *link, bool refused);

/* client_park.c */

/* May something go over the connection to the shard now? False: later, and it is opened for that. */
bool weft_ps_connection_goes(struct weft_ps_client *client, uint32_t shard);
/* Elements in a chunk to the shard. */
uint32_t weft_ps_packet_elems(const struct weft_ps_client *client, uint32_t shard,
                              uint16_t elem_bytes);
/* PARK was SENT; the connection has ended, true: as it was to. */
void weft_ps_park_sent(struct weft_ps_client *client, uint32_t shard,
                       const struct weft_msg_event *event);
bool weft_ps_park_down(struct weft_ps_client *client, uint32_t shard, enum weft_msg_down down);
void weft_ps_parks_progress(struct weft_ps_client *client, uint64_t now_ns);
/* When a connection must be opened again; WEFT_NEVER. */
uint64_t weft_ps_park_deadline(const struct weft_ps_client *client);

/* client_resume.c */
void weft_ps_resumes_init(struct weft_ps_client *client);
/* The connection to a shard that is waited for has ended, by PEER_DOWN. */
void weft_ps_shard_away(struct weft_ps_client *client, uint32_t shard, uint64_t now_ns);
/* The new connection is up. */
void weft_ps_shard_back(struct weft_ps_client *client, uint32_t shard);
/* The shard is gone for good: what is unfinished of it fails. */
void weft_ps_shard_down(struct weft_ps_client *client, uint32_t shard);
/* Give those up that were away too long. */
void weft_ps_shards_overdue(struct weft_ps_client *client, uint64_t now_ns);
/* The answer to what resumes a table; NULL: it made no sense. */
void weft_ps_resume_answered(struct weft_ps_client *client, const struct ps_part *part,
                             const struct weft_rpc_reply *reply);
/* CLOCK was taken, the one before was `from`: pushes of later clocks have come into reach. */
void weft_ps_clock_moved(struct weft_ps_client *client, uint16_t table, uint32_t shard,
                         uint32_t from);
/* Of the first push that is not sent; UINT32_MAX: there is none. */
uint32_t weft_ps_first_push_clock(const struct weft_ps_client *client, uint16_t table,
                                  uint32_t shard);

#endif
