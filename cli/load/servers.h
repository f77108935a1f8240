/* The servers of a load: those that are named, or shards started for the run, a thread each.
 *
 * What shards of this process cost is read from their threads' CPU clocks, so that it is apart from
 * what the workers of the same process cost. On loopback the kernel does the receiving side's work
 * of a datagram in the sender's system call: a shard's share holds that of its answers, and not that
 * of the requests that come to it.
 */
#ifndef WEFT_CLI_LOAD_SERVERS_H
#define WEFT_CLI_LOAD_SERVERS_H

#include "obs/active.h"
#include "cli/load/workload.h"
#include "node/recording.h"
#include "node/shard_thread.h"
#include "node/transport_options.h"

#include <stdatomic.h>

struct weft_load_servers;

/* One shard that runs here, as its thread sees it. */
struct weft_load_local {
    struct weft_load_servers *servers;
    struct weft_shard_thread thread;
};

struct weft_load_servers {
    struct weft_launch_address shards[WEFT_LOAD_SHARDS_MAX];
    uint32_t count;
    uint32_t server_pid;           /* --server-pid; 0 = not known */
    uint32_t rows_max;             /* of all shards together; local ones */
    struct weft_load_local *local; /* (count,); NULL = elsewhere */
    struct weft_active *active;
    struct weft_credit_share share;
    uint32_t running;
    /* Requests that arrive in between count as activity. */
    _Atomic uint64_t measure_from_ns;
    _Atomic uint64_t measure_to_ns;
};

struct weft_load;

/* Start the workload's shards on loopback, as load->servers.
 * Owns:    weft_load_servers_stop is due, also after an error. Borrows all of load until then. */
weft_status weft_load_servers_start(struct weft_load *load, struct weft_error *error);
/* Ends the threads; their counters can be read then. Calling it twice is fine. */
void weft_load_servers_stop(struct weft_load_servers *servers);
void weft_load_servers_fini(struct weft_load_servers *servers);

/* False when it is not known: servers elsewhere without --server-pid, or a process that is gone. */
bool weft_load_servers_cpu_ns(const struct weft_load_servers *servers, uint64_t *cpu_ns_p);

#endif
