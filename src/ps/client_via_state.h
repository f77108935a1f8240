/* State of a client's connections to aggregators. For client_via.c and client_via_clock.c alone.
 */
#ifndef WEFT_PS_CLIENT_VIA_STATE_H
#define WEFT_PS_CLIENT_VIA_STATE_H

#include "ps/aggregate.h"
#include "ps/client_internal.h"

enum via_link_state { VIA_LINK_NONE, VIA_LINK_ASKED, VIA_LINK_OPEN, VIA_LINK_REFUSED };

enum via_clock_state {
    VIA_CLOCK_NONE,
    VIA_CLOCK_ASKED,
    VIA_CLOCK_VOID /* the reply will be
                    * ignored */
};

/* A CLOCK sent to an aggregator. */
struct ps_via_clock {
    enum via_clock_state state;
    bool sending; /* the transport owns `request` */
    uint32_t clock;
    uint64_t sent_ns;
    uint32_t direct; /* this clock is sent directly to the shard */
    uint32_t rpc_id;
    weft_expect_id expect;
    uint8_t request[WEFT_RPC_REQUEST_BYTES];
    uint8_t reply[WEFT_RPC_REPLY_BYTES];
};

struct ps_via_link {
    enum via_link_state state;
    bool sending; /* the transport has `request` */
    bool expected; /* a reply; to a probe unless in VIA_LINK_ASKED */
    weft_expect_id expect;
    uint32_t rpc_id;
    uint32_t pulls; /* most pulls in progress that it accepts */
    bool takes_clocks;
    bool applies; /* it acknowledges pushes on apply */
    struct ps_via_clock clock;
    uint64_t incarnation; /* of the shard, as sent to the aggregator */
    uint8_t request[WEFT_RPC_REQUEST_BYTES + WEFT_RPC_SPEC_BYTES + WEFT_AGGREGATE_SHARD_BYTES];
    uint8_t reply[WEFT_RPC_REPLY_BYTES];
};

struct ps_via {
    weft_peer peer;
    uint32_t shard;
    bool given; /* `peer` is a connection, or will be */
    bool up;
    bool close;        /* the driver must close it */
    uint32_t flying;   /* pushes, pulls and clocks without an answer, or without the second one */
    uint32_t applied;  /* of these, pushes without the second one */
    bool commits_expected; /* memory is posted for COMMITTED */
    weft_expect_id commits_expect;
    uint32_t pulls;    /* of these, pulls */
    uint32_t sending;  /* parts whose memory the transport owns */
    uint32_t members;  /* most members of a sum of a push since it was idle; 0 = no scheduler */
    uint64_t heard_ns; /* with requests outstanding: time of the last reply, to a probe too, or of
                        * the first request since it was idle */
    uint64_t replied_ns; /* the same without probes */
    uint64_t probe_ns;   /* no probe before this time */
    uint64_t incarnation; /* of its last connected process */
    uint64_t answer_ns;   /* of that process: longest recent time from idle to an answer */
    uint64_t upload_ns;   /* longest recent time that sending a push took */
    uint64_t retry_ns;
    struct ps_via_link *links; /* (tables_max,) */
};

/* A reply arrived. */
void weft_ps_via_heard(struct weft_ps_client *client, struct ps_via *via);

/* A request is sent. Call it before the request is counted. */
static inline void ps_via_begun(struct ps_via *via, uint64_t now_ns)
{
    if (via->flying + via->sending == 0) {
        via->heard_ns = via->replied_ns = via->probe_ns = now_ns;
        via->members = 0;
    }
}

/* client_via_clock.c */

/* The connection to the aggregator has ended. */
void weft_ps_via_clock_down(struct weft_ps_client *client, uint32_t via, uint16_t table);
void weft_ps_via_clock_event(struct weft_ps_client *client, uint32_t via, uint16_t table,
                             const struct weft_msg_event *event);

#endif
