/* The servers of a load: external ones, or shards started for the run, one thread each.
 *
 * The CPU time of shards in this process is read from their threads' CPU clocks, separate from that
 * of the workers. On loopback the kernel does the receiver's work for a datagram in the sender's
 * system call: a shard is charged for that work of its replies, but not of the requests that it
 * receives. */
#ifndef WEFT_CLI_LOAD_SERVERS_H
#define WEFT_CLI_LOAD_SERVERS_H

#include "obs/active.h"
#include "cli/load/workload.h"
#include "node/recording.h"
#include "node/shard_thread.h"
#include "node/transport_options.h"

#include <stdatomic.h>

struct weft_load_servers;

/* A shard of this process, as seen by its thread. */
struct weft_load_local {
    struct weft_load_servers *servers;
    struct weft_shard_thread thread;
};

struct weft_load_servers {
    struct weft_launch_address shards[WEFT_LOAD_SHARDS_MAX];
    uint32_t count;
    uint32_t server_pid;           /* --server-pid; 0 = unknown */
    uint32_t rows_max;             /* over all local shards */
    struct weft_load_local *local; /* (count,); NULL = external servers */
    struct weft_active *active;
    struct weft_credit_share share;
    uint32_t running;
    /* Requests that arrive in this interval are counted as activity. */
    _Atomic uint64_t measure_from_ns;
    _Atomic uint64_t measure_to_ns;
};

struct weft_load;

/* Start the workload's shards on loopback, as load->servers.
 * Owns: call weft_load_servers_stop also after an error. Borrows all of load until then. */
weft_status weft_load_servers_start(struct weft_load *load, struct weft_error *error);
/* Stop the threads; their counters can be read afterwards. Idempotent. */
void weft_load_servers_stop(struct weft_load_servers *servers);
void weft_load_servers_fini(struct weft_load_servers *servers);

/* False if unknown: external servers without --server-pid, or the process has exited. */
bool weft_load_servers_cpu_ns(const struct weft_load_servers *servers, uint64_t *cpu_ns_p);

#endif
