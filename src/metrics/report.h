/* Counters and latencies by name, as JSON: the final report of a process, and the sum of several
 * reports. docs/REPORT.md defines each name; text.h has the names of /metrics.
 *
 * Latencies are one exact histogram per kind (push, pull) and part, so that quantiles of several
 * workers are computed over all their RPCs, not as means of means.
 *
 * Source: docs/PROTOCOL.md section 7; [imc20] section 2.2.
 */
#ifndef WEFT_METRICS_REPORT_H
#define WEFT_METRICS_REPORT_H

#include "io/driver.h"
#include "ps/client.h"
#include "ps/replica.h"
#include "ps/shard.h"
#include "ps/transfer.h"
#include "sched/daemon.h"

#include <cjson/cJSON.h>

/* ---- counters -------------------------------------------------------------------------------- */

/* Add to the number of that name, or create it. */
void weft_report_add(cJSON *into, const char *name, uint64_t value);

/* The same for all counters; the names for a shard begin with "shard_", for tables with
 * "table_", for a client with "client_". */
void weft_report_add_transport(cJSON *into, const struct weft_driver_counters *counters);
void weft_report_add_shard(cJSON *into, const struct weft_shard_counters *shard);
void weft_report_add_tables(cJSON *into, const struct weft_shard_table_sums *tables);
/* For a shard with replicas, and for one that was a replica; the names begin with "replica_".
 * divergence_max of several shards is summed. */
void weft_report_add_replication(cJSON *into, const struct weft_replication *replication,
                                 const struct weft_replica_state *replica);
void weft_report_add_client(cJSON *into, const struct weft_ps_client_counters *client);

/* A worker's requests to the scheduler; the names begin with "sched_". NULL = no scheduler;
 * nothing is added. */
void weft_report_add_sched(cJSON *into, const struct weft_sched_daemon_counters *sched);

/* Add every number of `from`.   Errors: WEFT_DATA  it is not an object of numbers; some may have
 * been added. */
weft_status weft_report_add_all(cJSON *into, const cJSON *from);

/* ---- latencies ------------------------------------------------------------------------------- */

enum { WEFT_REPORT_KINDS = 2, WEFT_REPORT_PARTS = 6 };

struct weft_report_part {
    const char *name; /* "W_proc" */
    const char *meaning;
    size_t at; /* offset of a histogram in struct weft_ps_latencies */
};

extern const char
    *const weft_report_kinds[WEFT_REPORT_KINDS]; /* push, pull: the index of of[] below */
extern const struct weft_report_part weft_report_parts[WEFT_REPORT_PARTS];

const struct weft_hist *weft_report_part(const struct weft_ps_latencies *of, unsigned part);

/* All non-empty buckets: {"push": {"W_proc": {"sum": s, "max": m, "buckets": [index, count...]}}}.
 * Owns:    gives the object; NULL when out of memory. */
cJSON *weft_report_pack(const struct weft_ps_latencies *const of[WEFT_REPORT_KINDS]);
/* Add the output of weft_report_pack.   Errors: WEFT_DATA  not of that form; some may have been
 * added. */
weft_status weft_report_unpack_add(const cJSON *object,
                                   struct weft_ps_latencies of[WEFT_REPORT_KINDS]);

/* The same for a single histogram. */
cJSON *weft_report_pack_one(const struct weft_hist *hist);
weft_status weft_report_unpack_one_add(const cJSON *object, struct weft_hist *hist);

/* {"push": {"W_proc": {"p50": us, "p99": us}, ...}, "pull": ...}; NULL when out of memory. */
cJSON *weft_report_quantiles_us(const struct weft_ps_latencies *const of[WEFT_REPORT_KINDS]);

#endif
