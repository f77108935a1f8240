/* A worker of a job: its endpoint, its connections to all shards, and the client on top
 * (ps/client.h). It connects, waits for servers that start late, makes progress, reconnects to a
 * server that disappeared, and reports in a sentence why one is lost. Pushes and pulls are issued
 * by its users: <weft/ps.h>, `weft worker`, `weft load`.
 *
 * Use:     weft_worker_open; operations of the client, and weft_worker_progress until they are done
 *          or weft_worker_is_lost; weft_worker_close.
 * Thread:  the one that opened it.
 */
#ifndef WEFT_NODE_WORKER_H
#define WEFT_NODE_WORKER_H

#include "node/endpoint.h"
#include "node/membership.h"
#include "ps/client.h"
#include "sched/daemon.h"

struct weft_worker_config {
    /* Set by open: name, peers_max, expects_max, role and rank of injected loss, and, where host is
     * NULL, the address to bind. */
    struct weft_endpoint_config endpoint;
    struct weft_ps_client_config client; /* worker, shards; set by open: missed_key, clock_ns,
                                          * park_lease_ns, park_pause_ns */
    const struct weft_launch_address *servers; /* (client.shards,), shard 0 first; copied */
    const struct weft_launch_address
        *via;             /* (max(client.aggregators, 1), client.shards): of the
                           * aggregators, where client.via_timeout_ns > 0; copied */
    bool via_coordinator; /* `via` is NULL, each shard has one aggregator, and `membership`, which
                           * joined with wants_aggregator, has its address. Without an address
                           * pushes are sent to the servers */
    struct weft_membership *membership; /* gives the new address of a server that disappeared; NULL
                                         * = none */
    const struct weft_launch_address
        *replicas; /* (client.shards,): of the servers' replicas, which are tried as well while a
                    * server is disconnected; without a coordinator. NULL = none; copied */
    /* > 0: open returns when all servers are connected, and fails when one does not answer in this
     * time, or is not the shard in the list. 0: operations wait for the connections, and fail when
     * a server has not answered for the endpoint's peer timeout. */
    uint64_t connect_timeout_ns;
    /* The address of the job's transfer scheduler, which grants updates before they are sent
     * (ps/update.h); NULL = no scheduler. Copied. Nothing waits for its connection. With a
     * scheduler, client.update_bytes_min 0 becomes WEFT_PS_UPDATE_BYTES_MIN. */
    const struct weft_launch_address *scheduler;
    uint32_t workers;          /* of the job; this and the next ones only with a scheduler */
    enum weft_sched_mode mode; /* of its tables */
    uint64_t tau_max;          /* delay bound; WEFT_NEVER = none */
    uint64_t link_bps;         /* of this host's links; 0 = not known */
    /* After each batch of events, within a step; NULL = none. */
    void (*on_progress)(void *arg, uint64_t now_ns);
    void *arg;
};

struct weft_worker_sched;

struct weft_worker_server {
    struct weft_launch_address address; /* address of the current or last connection */
    struct weft_launch_address first;   /* with a replica: the address in the list of servers */
    struct weft_launch_address replica; /* port 0 = none */
    uint32_t attempts;                  /* with a replica: connections begun */
    weft_peer peer;
    uint64_t name;           /* name of the process that answered */
    uint64_t incarnation;    /* incarnation of that process */
    enum weft_msg_down down; /* reason of its last PEER_DOWN */
    bool is_up;
    bool was_up;       /* before it last went down */
    bool is_down;      /* down; with a client, permanently */
    bool is_away;      /* disconnected, and the client waits for it; is_down is not set */
    uint64_t retry_ns; /* when to connect next */
    uint64_t until_ns; /* away: when the client gives up */
};

struct weft_worker {
    uint64_t check_ns; /* when to check next whether a shard has moved */
    struct weft_endpoint endpoint;
    struct weft_ps_client *client;
    struct weft_worker_sched *sched;    /* NULL = no scheduler */
    struct weft_worker_server *servers; /* (shards,) */
    struct weft_launch_address *vias;   /* (via_total,): index aggregator x shards + shard */
    uint32_t via_total;
    uint32_t shards;
    uint32_t rank;
    bool any_away;
    bool has_via;
    bool via_coordinator;
    bool any_down; /* is_down of a server was set */
    uint64_t reconnect_ns;
    uint64_t peer_timeout_ns;
    const struct weft_security *security;
    struct weft_membership *membership;
    void (*on_progress)(void *arg, uint64_t now_ns);
    void *arg;
    struct weft_error error; /* a sentence, after a status other than OK */
};

/* Timeout for an aggregator that sends no reply while pushes are in progress. PLANNED: the same in
 * a job with a scheduler, which uses aggregators where the server's link is slow. */
enum { WEFT_WORKER_VIA_TIMEOUT_MS = 1000, WEFT_WORKER_VIA_PLANNED_MS = 3000 };

/* Set the fields of config_p for aggregators from `text`, the user's setting: one aggregator as
 * below, several separated by '/' in a job with a scheduler, which chooses among them, or
 * "coordinator".
 *
 * Shape:   config_p: client.shards, scheduler and membership are set; membership has joined, with
 *          wants_aggregator for "coordinator". *via_p: memory that config_p then points to; free it
 *          after weft_worker_open, also after an error.
 * Errors:  each with a sentence that begins with `option`, the user's name of the setting.
 *          WEFT_INVALID  text is none of these, or "coordinator" without one or with a scheduler.
 *          WEFT_NOMEM. */
weft_status weft_worker_via_read(struct weft_worker_config *config_p, const char *option,
                                 const char *text, struct weft_launch_address **via_p,
                                 struct weft_error *error);

/* "HOST:PORT" of an aggregator process, which has shard s at PORT + s; or one HOST:PORT for each
 * shard. Shape: via_p (shards,). False: it is neither. */
bool weft_worker_via_parse(const char *text, struct weft_launch_address *via_p, uint32_t shards);

void weft_worker_config_default(struct weft_worker_config *config_p);

/* Owns:    borrows security and membership until weft_worker_close, which must be called also after
 *          an error.
 * Errors:  as weft_endpoint_open and _connect, weft_ps_client_new; with connect_timeout_ns
 *          WEFT_TIMEOUT  a server does not answer.   WEFT_PEER  it refused the connection.
 *          WEFT_INVALID  what answers is not that shard. */
weft_status weft_worker_open(struct weft_worker *worker, const struct weft_worker_config *config);

/* Select the address of the next connection to a server that has a replica. Internal to
 * node/worker. */
void weft_worker_select_address(struct weft_worker_server *server);

/* Connect to servers that are away and due; sleep until something happens, at most timeout_ns, and
 * feed it to the client. */
void weft_worker_progress(struct weft_worker *worker, uint64_t timeout_ns);

/* True: a server is permanently lost; its shard is in *shard_p. */
bool weft_worker_is_down(const struct weft_worker *worker, uint32_t *shard_p);

/* The same, or one no longer accepts clocks of this worker, so operations that wait for those never
 * end. weft_worker_lost gives the reason. */
bool weft_worker_is_lost(const struct weft_worker *worker, uint32_t *shard_p);

/* Reason why connections are not established, as reported by this end, the other end or the
 * network; "" = no report. True: waiting longer does not help. */
bool weft_worker_hint(struct weft_worker *worker, char text_p[WEFT_SECURITY_HINT_BYTES]);

/* Counters of the requests to the scheduler; NULL without one. */
const struct weft_sched_daemon_counters *weft_worker_sched(const struct weft_worker *worker);

/* Each leaves a sentence with the next action in worker->error, and returns the status. */

weft_status weft_worker_lost(struct weft_worker *worker);
/* Shard `shard` is lost; if it is not, any shard that is. */
weft_status weft_worker_gone(struct weft_worker *worker, uint32_t shard);
/* An operation ended with a status other than OK. what: such as "push to weights". */
weft_status weft_worker_refused(struct weft_worker *worker, const char *what,
                                const struct weft_ps_result *result);

/* Announce that the caller makes no progress for a while (weft_endpoint_idle). Parked connections
 * are reopened first, because a parked rank that is silent is declared dead when its lease ends.
 * This blocks for at most the peer timeout (limited to 1 s .. WEFT_RPC_PARK_MS_MAX) plus 1 s. */
void weft_worker_idle(struct weft_worker *worker);

/* A zeroed struct is allowed. */
void weft_worker_close(struct weft_worker *worker);

#endif
