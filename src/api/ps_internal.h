/* Shared by the files of <weft/ps.h>. Internal to src/api.
 *
 *   ps_config.c    the structs that callers fill; the environment
 *   ps_connect.c   a worker (node/worker.h) for a configuration; progress and close
 *   ps_table.c     conversion of options to a table's specification; opening
 *   ps_begin.c     push and pull: check and begin
 *   ps_metrics.c   /metrics of a worker
 *   ps_records.c   records of its RPCs, for `weft trace`
 *   ps_missed.c    rows missed by an operation
 *   ps_op.c        wait, test, begin and wait in one call, clock, flush
 *
 * The interface adds no protocol (ps/client.h) and no connections (node/worker.h). It adds the
 * caller's structs, unique handles, and timeouts of calls.
 */
#ifndef WEFT_API_PS_INTERNAL_H
#define WEFT_API_PS_INTERNAL_H

#include "api/internal.h"
#include "api/metrics.h"
#include "node/worker.h"
#include "ps/optimizer.h"

#include <weft/ps.h>

enum { WEFT_PS_SHARDS_MAX = 4096, WEFT_PS_NAME_BYTES = 64 };
enum { WEFT_PS_TAU_MAX_MAX = (1 << 23) - 1 }; /* the base of an update is sent modulo 2^24 */
enum { WEFT_PS_LINK_MBPS_MAX = 10000000 };

/* Rows missed by the last completed operation, or so far by an operation in parts. */
struct ps_missed_rows {
    uint64_t *bits;
    size_t words_max; /* allocated */
    size_t rows;
    size_t base; /* index of the part's first row */
};

struct weft_ps_table {
    struct weft_ps *ps;
    struct weft_table_spec spec;
    void *last;           /* memory of last values; NULL = none; like `kept` */
    void *kept;           /* memory of error feedback */
    uint64_t deadline_ns; /* of operations without their own */
    bool opening;         /* TABLE is in progress: `op` */
    bool open;
    weft_ps_op op;
    char name[WEFT_PS_NAME_BYTES];
};

struct weft_ps {
    pid_t pid; /* of the process that opened it; a forked copy of it has neither connections nor a
                  rank */
    struct weft_membership membership;
    struct weft_security security;
    struct weft_worker worker;
    struct weft_recorder *recorder;       /* NULL = nothing is recorded; like `records` */
    struct weft_rpc_record_ring *records; /* the recorder's */
    struct ps_metrics *metrics;           /* NULL = not served */

    uint32_t workers;
    uint32_t tables_max;
    uint32_t dim_max;
    uint32_t ops_max;
    uint32_t rows_max;
    uint32_t lists_max;
    uint64_t connect_timeout_ns;
    uint64_t call_timeout_ns;

    uint64_t replay_bytes; /* 0 = pushes are not kept */
    bool has_scheduler;
    uint8_t scheduled_mode;       /* enum weft_table_mode required of tables with a scheduler */
    struct weft_ps_table *tables; /* (tables_max,) */
    struct ps_missed_rows missed;
    bool in_parts; /* the operation that is waited for is a part of a longer list */
};

/* ps_config.c */

/* WEFT_KEY_CACHING: 1, the default, or 0. */
weft_status weft_api_ps_key_caching(bool *on_p, struct weft_error *error);

/* Read and check a caller's configuration of any release, and fill in settings from the
 * environment. With a coordinator in *launch_p, weft_ps_connect replaces worker and workers by what
 * the coordinator assigns. */
weft_status weft_api_ps_config_read(const struct weft_ps_config *theirs,
                                    struct weft_ps_config *ours_p, struct weft_launch *launch_p,
                                    struct weft_error *error);
weft_status weft_api_ps_options_read(const struct weft_table_options *theirs,
                                     struct weft_table_options *ours_p, struct weft_error *error);

/* "host:port,host:port", the field `name` of a configuration. Owns: gives *servers_p (count,), to
 * be freed. */
weft_status weft_api_ps_servers_parse(const char *name, const char *text,
                                      struct weft_launch_address **servers_p, uint32_t *count_p,
                                      struct weft_error *error);

weft_status weft_api_ps_op_options_read(const struct weft_op_options *theirs,
                                        struct weft_op_options *ours_p, struct weft_error *error);

/* Write to a caller's struct of any release; result_p may be NULL. */
void weft_api_ps_result_out(struct weft_result *result_p, const struct weft_result *ours);
void weft_api_ps_counters_out(struct weft_ps_counters *counters_p,
                              const struct weft_ps_counters *ours);

/* "bsp" (NULL), "ssp:3", "asp".   Errors:  WEFT_INVALID. */
weft_status weft_api_ps_consistency_parse(const char *text, uint8_t *mode_p, uint32_t *staleness_p,
                                          struct weft_error *error);

/* "host:port", numeric.   Errors:  WEFT_INVALID. */
weft_status weft_api_ps_scheduler_parse(const char *text, struct weft_launch_address *address_p,
                                        struct weft_error *error);

/* Read the scheduler's fields of a configuration. address_p: its address; unchanged without one. */
weft_status weft_api_ps_scheduler_read(const struct weft_ps_config *config,
                                       struct weft_launch_address *address_p, uint8_t *mode_p,
                                       struct weft_error *error);

/* ps_table.c: memory of tables in this process. */
void weft_api_ps_tables_free(struct weft_ps *ps);

/* ps_connect.c */

/* Make progress: send, sleep until a packet arrives or a timer expires, at most for timeout_ns, and
 * process what has arrived. */
void weft_api_ps_step(struct weft_ps *ps, uint64_t timeout_ns);

/* A call cannot proceed yet: make progress for at most most_ns, then the caller retries. *end_ns_p
 * is 0 before the first call.   Errors:  WEFT_TIMEOUT  call_timeout_ns has passed. */
weft_status weft_api_ps_wait_and_retry(struct weft_ps *ps, uint64_t most_ns, uint64_t *end_ns_p);

/* ps_begin.c */

/* A requested operation. The lists are the client's: rows of one table each, all of this ps. */
struct ps_call {
    const struct weft_ps_list *lists; /* (count,) */
    uint32_t count;
    bool is_pull;
    bool waits; /* the caller waits for it at once, which sends it; otherwise begin sends it */
    struct weft_op_options how;
};

/* Is the call valid, apart from the limits of one operation? */
weft_status weft_api_ps_check(struct weft_ps *ps, const struct ps_call *call);

/* Check that ids is not NULL, for calls in which it is required even in a dense table. */
weft_status weft_api_ps_need_ids(struct weft_ps_table *table, const uint64_t *ids, size_t n);

/* Check the call and the limits of one operation, begin it, and return a handle. Blocks while the
 * client has no room for it, but not while ops_max operations are held (WEFT_AGAIN).
 * Errors:  as weft_push; WEFT_TIMEOUT after call_timeout_ns. */
weft_status weft_api_ps_begin(struct weft_ps *ps, const struct ps_call *call, uint64_t *op_p);

/* ps_missed.c */

/* Reset the missed rows, for an operation of this many rows that has ended or begins in parts.
 * Errors: WEFT_NOMEM; not with up to rows_max rows. */
weft_status weft_api_ps_missed_begin(struct weft_ps *ps, size_t rows);
/* Add the rows missed by the client's operation; or mark all of `rows`. */
void weft_api_ps_missed_take(struct weft_ps *ps, weft_ps_op op);
void weft_api_ps_missed_all(struct weft_ps *ps, size_t rows);

/* ps_op.c: every push and every clock has arrived. */
bool weft_api_ps_is_flushed(const struct weft_ps *ps);

/* ps_records.c */

/* Start recording, if the configuration or the environment enables it; the rank must be known. */
weft_status weft_api_ps_records_open(struct weft_ps *ps, const struct weft_ps_config *from);

/* ps_metrics.c */

/* Serve /metrics, if the configuration or the environment enables it; the client must exist. An
 * error is no failure; ps->worker.error has the reason. */
void weft_api_ps_metrics_open(struct weft_ps *ps, const char *address);
void weft_api_ps_metrics_close(struct weft_ps *ps);

/* Answer a scrape that waits. Reads the endpoint, so call it only from within a step. */
void weft_api_ps_metrics_look(struct weft_ps *ps);
/* This worker has ended a clock of the table. */
void weft_api_ps_metrics_step(struct weft_ps *ps, const struct weft_ps_table *table);
/* timeout_ns, shortened if /metrics is served: with a progress thread a scrape cannot end the
 * caller's sleep. */
uint64_t weft_api_ps_metrics_sleep(const struct weft_ps *ps, uint64_t timeout_ns);

#endif
