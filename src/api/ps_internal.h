/* What the files of the parameter server's public face share. Not for anyone outside src/api.
 *
 *   ps_config.c    the structs that callers fill; the list of servers; the environment
 *   ps_join.c      a member of the job, by its coordinator
 *   ps_connect.c   a socket, connections to all shards, the client on top; and their end
 *   ps_reconnect.c servers that went away and come back
 *   ps_table.c     options in words -> a table's specification; opening
 *   ps_begin.c     push and pull: checked, and begun
 *   ps_metrics.c   /metrics of a worker
 *   ps_records.c   where the time of its RPCs went, for `weft trace`
 *   ps_missed.c    which rows an operation has missed
 *   ps_op.c        wait, test, both in one, clock, flush
 *   ps_words.c     why a server is gone or refuses, and what to do
 *
 * The face adds no protocol: all of that is in ps/client.h. It adds the crank, patience for servers
 * that start late, handles that cannot be mistaken for others, and words.
 */
#ifndef WEFT_API_PS_INTERNAL_H
#define WEFT_API_PS_INTERNAL_H

#include "api/internal.h"
#include "api/metrics.h"
#include "io/member_thread.h"
#include "job/launch.h"
#include "ps/client.h"
#include "ps/optimizer.h"

#include <weft/ps.h>

enum { WEFT_PS_HOST_BYTES = 64, WEFT_PS_SHARDS_MAX = 4096, WEFT_PS_NAME_BYTES = 64 };

struct ps_server {
    char host[WEFT_PS_HOST_BYTES];
    uint16_t port;
    weft_peer peer;
    bool is_up;
    bool is_down; /* with a client on top: for good */
    bool was_up;  /* when it went down */
    enum weft_msg_down down;
    uint64_t name;          /* of what answered */
    bool is_away;           /* it was up, and is waited for: is_down is not set */
    uint64_t again_ns;      /* when to connect next */
    uint64_t away_until_ns; /* when the client gives up */
};

/* One handle given out. `stamp` makes it unlike those that used the place before. */
struct ps_ticket {
    bool in_use;
    uint32_t stamp;
    weft_ps_op op;
    const struct weft_ps_table *table; /* of the first list; NULL = there was none */
    uint32_t more;                     /* lists behind it */
    size_t rows; /* of all lists */
    bool is_pull;
    bool is_checkpoint;
};

/* Rows that the operation that ended last has missed, or, of one in parts, those so far. */
struct ps_missed_rows {
    uint64_t *bits;
    size_t words_max; /* that there is memory for */
    size_t rows;
    size_t base; /* row that the part's first one is */
};

struct weft_ps_table {
    struct weft_ps *ps;
    struct weft_table_spec spec;
    void *last; /* memory of last values; NULL = there is none, as the next */
    void *kept; /* memory of error feedback */
    uint64_t deadline_ns; /* of operations that name none */
    bool opening; /* TABLE is under way: `op` */
    bool open;
    weft_ps_op op;
    char name[WEFT_PS_NAME_BYTES];
};

/* Of a job with a coordinator. */
struct ps_membership {
    struct weft_launch launch; /* coordinator_port 0 = there is none */
    const struct weft_security *security;
    struct weft_provider *provider; /* the thread's */
    struct weft_member_thread *thread;
};

struct weft_ps {
    struct ps_membership membership;
    struct weft_security security;
    struct weft_endpoint endpoint;
    struct weft_ps_client *client;    /* NULL until all shards are up */
    struct weft_recorder *recorder;   /* NULL = nothing is recorded, as the next */
    struct weft_record_ring *records; /* the recorder's */
    struct ps_metrics *metrics;       /* NULL = they are not served */

    uint32_t worker;
    uint32_t workers;
    uint32_t shards;
    uint32_t tables_max;
    uint32_t dim_max;
    uint32_t ops_max;
    uint32_t rows_max;
    uint32_t lists_max;
    uint64_t connect_timeout_ns;
    uint64_t call_timeout_ns;

    bool any_away;
    uint64_t reconnect_ns;        /* 0 = who goes is gone */
    uint64_t replay_bytes;        /* 0 = pushes are not kept */
    bool any_down;                /* one has been, at some time */
    struct ps_server *servers;    /* (shards,) */
    struct weft_ps_table *tables; /* (tables_max,) */
    struct ps_ticket *tickets;    /* (ops_max,) */
    struct ps_missed_rows missed;
    bool in_parts; /* the operation that is waited for is a part of a longer one */
    struct weft_io_error error;
};

/* ps_reconnect.c */

/* A server's connection ended; the client waits for it. */
void weft_api_ps_note_away(struct weft_ps *ps, struct ps_server *server);
/* Not inside a step: connect to what is away and due. Returns how long a sleep may last. */
uint64_t weft_api_ps_reconnect(struct weft_ps *ps);
/* PEER_UP: false when what answers at the place of a shard that is away is another one. */
bool weft_api_ps_is_shard(const struct weft_ps *ps, const struct weft_msg_event *event);

/* ps_config.c */

/* The caller's configuration of any age, checked, with what the environment says filled in. With a
 * coordinator in *launch_p, worker and workers are open: it gives them. */
weft_status weft_api_ps_config_read(const struct weft_ps_config *theirs,
                                    struct weft_ps_config *ours_p, struct weft_launch *launch_p,
                                    struct weft_io_error *error);
weft_status weft_api_ps_options_read(const struct weft_table_options *theirs,
                                     struct weft_table_options *ours_p,
                                     struct weft_io_error *error);

/* "host:port,host:port". Owns: gives *servers_p (count,), to be freed. */
weft_status weft_api_ps_servers_parse(const char *text, struct ps_server **servers_p,
                                      uint32_t *count_p, struct weft_io_error *error);

weft_status weft_api_ps_op_options_read(const struct weft_op_options *theirs,
                                        struct weft_op_options *ours_p,
                                        struct weft_io_error *error);

/* Least sizes of structs that the library writes into. */
void weft_api_ps_result_out(struct weft_result *result_p, const struct weft_result *ours);
void weft_api_ps_counters_out(struct weft_ps_counters *counters_p,
                              const struct weft_ps_counters *ours);

/* ps_join.c */

/* Become a member and wait for the list of the shards: worker, workers, shards and servers of ps.
 * ps->membership.launch is set; weft_api_ps_leave is due in any case.
 * Errors:  as weft_member_thread_wait; WEFT_NOMEM. */
weft_status weft_api_ps_join(struct weft_ps *ps, const struct weft_ps_config *config);

/* `done`: its work is. Who never joined is fine. */
void weft_api_ps_leave(struct weft_ps *ps, bool done);

/* ps_table.c: what tables keep in this process. */
void weft_api_ps_tables_free(struct weft_ps *ps);

/* ps_connect.c */

enum weft_driver_kind weft_api_ps_driver_kind(const struct weft_ps_config *config);

/* Sleep until something happens, at most timeout_ns, and take it. */
void weft_api_ps_step(struct weft_ps *ps, uint64_t timeout_ns);

/* An operation has begun, and its caller may compute before it waits: its first packets leave. */
void weft_api_ps_flush(struct weft_ps *ps);

/* ps_begin.c */

/* One table's part of an operation: struct weft_push_list and weft_pull_list alike. */
struct ps_piece {
    struct weft_ps_table *table;
    const uint64_t *ids; /* NULL = a piece of a dense table, or n is 0 */
    uint64_t first;
    const float *in; /* push */
    float *out;      /* pull */
    size_t n;
};

struct ps_pieces {
    const struct ps_piece *all; /* (count,) */
    uint32_t count;
    bool is_pull;
    struct weft_op_options how;
};

/* Does this make sense, but for the limits of one operation? */
weft_status weft_api_ps_check(struct weft_ps *ps, const struct ps_pieces *pieces);

/* Where ids are a must, in a dense table, too. */
weft_status weft_api_ps_need_ids(struct weft_ps_table *table, const uint64_t *ids, size_t n);

/* Check all, begin, and give a handle. Errors: WEFT_TIMEOUT also, after call_timeout_ns. */
weft_status weft_api_ps_begin(struct weft_ps *ps, const struct ps_pieces *pieces, uint64_t *op_p);

/* ps_missed.c */

/* An operation of so many rows has ended, or is begun in parts: none is missed yet.
 * Errors: WEFT_NOMEM; not with up to rows_max rows. */
weft_status weft_api_ps_missed_begin(struct weft_ps *ps, size_t rows);
/* Those that the client's operation has missed; or all of so many. */
void weft_api_ps_missed_take(struct weft_ps *ps, weft_ps_op op);
void weft_api_ps_missed_all(struct weft_ps *ps, size_t rows);

/* ps_op.c: every push and every clock has arrived. */
bool weft_api_ps_is_flushed(const struct weft_ps *ps);

/* ps_records.c */

/* When records are wanted, by the configuration or the environment; needs the rank. */
weft_status weft_api_ps_records_open(struct weft_ps *ps, const char *path);

/* ps_metrics.c */

/* Serve /metrics, if the configuration or the environment asks for it; needs the client. That it
 * cannot be is no failure; ps->error says why. */
void weft_api_ps_metrics_open(struct weft_ps *ps, const char *address);
void weft_api_ps_metrics_close(struct weft_ps *ps);

/* Within a step: the endpoint may be looked at. */
void weft_api_ps_metrics_look(struct weft_ps *ps);
/* This worker's clock of a table is over. */
void weft_api_ps_metrics_step(struct weft_ps *ps, const struct weft_ps_table *table);
/* How long a sleep may last: a thread's cannot be ended by who asks. */
uint64_t weft_api_ps_metrics_sleep(const struct weft_ps *ps, uint64_t timeout_ns);

/* ps_connect.c: a call waits, for at most most_ns at a time; *end_ns_p is 0 before the first time.
 * Errors:  WEFT_TIMEOUT  it has waited for call_timeout_ns. */
weft_status weft_api_ps_linger(struct weft_ps *ps, uint64_t most_ns, uint64_t *end_ns_p);

/* ps_words.c: each leaves a sentence and hands the status back. */

/* Shard `shard` (any, when it is none) is gone. */
weft_status weft_api_ps_gone(struct weft_ps *ps, uint32_t shard);
/* True when one is gone: which. */
bool weft_api_ps_any_down(const struct weft_ps *ps, uint32_t *shard_p);
/* True when one is gone, or takes no clocks of this worker any more, so that what waits for those
 * never ends: which. weft_api_ps_lost says it. */
bool weft_api_ps_any_lost(const struct weft_ps *ps, uint32_t *shard_p);
weft_status weft_api_ps_lost(struct weft_ps *ps);
/* An operation ended with another status than OK. `what` such as "push to weights". */
weft_status weft_api_ps_refused(struct weft_ps *ps, const char *what,
                                const struct weft_ps_result *result);
/* What the network or a server said about connections that do not come about; "" for nothing. True
 * when waiting longer will not mend it. */
bool weft_api_ps_hint(struct weft_ps *ps, char text_p[WEFT_UDP_UNREACHED_BYTES]);

#endif
