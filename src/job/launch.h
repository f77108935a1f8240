/* Detect the role, rank and addresses of this process from flags and from the launcher's
 * environment variables.
 *
 * Sources are tried in this order, for each value separately; the first one that has the value is
 * used:
 *
 *     flags; WEFT_*; DMLC_* (ps-lite, MXNet, BytePS); torchrun (RANK, WORLD_SIZE, MASTER_ADDR ...);
 *     Open MPI (OMPI_COMM_WORLD_*); PMI_*; PMIX_RANK; Slurm (SLURM_*)
 *
 * Rank and size from one launcher belong together. A launcher counts processes, not workers. If an
 * earlier source gives another number of workers (or, for a server, another number of shards), the
 * launcher's ranks are those of a mixed launch and are not used. The coordinator then assigns the
 * rank. Open MPI reports the number of processes of each part of a mixed launch, and that is used.
 *
 * A value that is malformed, or contradicts another one of the same source, is an error that names
 * the variable; only variables that are needed are checked. Nothing is guessed from the name of a
 * host or a queue.
 *
 * Not here: connections, name lookups, and the job key (crypto/job_key.h).
 *
 * Source: docs/RUN.md sections 1 and 2.
 */
#ifndef WEFT_JOB_LAUNCH_H
#define WEFT_JOB_LAUNCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weft_launch_role {
    WEFT_LAUNCH_ANY = 0,
    WEFT_LAUNCH_SERVER = 1,
    WEFT_LAUNCH_WORKER = 2,
    WEFT_LAUNCH_COORDINATOR = 3,
    WEFT_LAUNCH_AGGREGATOR = 4,
};

/* Value of an unknown number. */
#define WEFT_LAUNCH_UNKNOWN UINT32_MAX

enum {
    WEFT_LAUNCH_HOST_BYTES = 256,
    WEFT_LAUNCH_ADDRESS_BYTES = 64,
    WEFT_LAUNCH_JOB_BYTES = 32,
    WEFT_LAUNCH_TEXT_BYTES = 640,
};

struct weft_launch {
    enum weft_launch_role role;
    uint32_t rank;       /* in the role; or UNKNOWN */
    uint32_t workers;    /* or UNKNOWN */
    uint32_t shards;     /* in the whole job; or UNKNOWN */
    uint32_t local_rank; /* on this machine; or UNKNOWN */
    uint32_t restart;    /* number of restarts of this slot; 0 if not given */
    uint64_t member;     /* name of this slot in the job; 0 = none */
    const char *servers; /* HOST:PORT,... of all shards; NULL = not given. Borrowed from its
                          * source */
    char job[WEFT_LAUNCH_JOB_BYTES];               /* "" = not given */
    char coordinator_host[WEFT_LAUNCH_HOST_BYTES]; /* a name or an address; "" = not given */
    uint16_t coordinator_port;
    /* The source of each value: "--rank", "WEFT_RANK", "OMPI_COMM_WORLD_*"; NULL = none. */
    const char *role_from;
    const char *rank_from;
    const char *workers_from;
    const char *shards_from;
    const char *servers_from;
    const char *coordinator_from;
    const char *rank_left_from; /* a launcher whose rank is not used; see above */
};

/* All values UNKNOWN: set the flags in it before weft_launch_detect. */
struct weft_launch weft_launch_nothing(void);

/* The value of a variable, or NULL. */
typedef const char *weft_launch_lookup(void *arg, const char *name);

/* getenv; arg is ignored. */
const char *weft_launch_environment(void *arg, const char *name);

/* Read a number from an environment variable set by a supervisor or a user; *number_p is unchanged
 * if the variable is not set.
 * Errors:  WEFT_INVALID  error->text (error may be NULL) names the variable and the valid range. */
weft_status weft_launch_number(const char *name, uint64_t min, uint64_t max, uint64_t *number_p,
                               struct weft_error *error);

/* WEFT_PEER_TIMEOUT_S: a peer is declared dead after this many seconds without a reply, unless a
 * program or an option overrides it. Returns fallback_s if it is not set, 0 if it is not a
 * number from 1 to 86400; weft_launch_peer_timeout_check reports that error. */
uint32_t weft_launch_peer_timeout_s(uint32_t fallback_s);
weft_status weft_launch_peer_timeout_check(struct weft_error *error);

/* Fill in the values that flags leave open.
 *
 * flags:             from the command line, else weft_launch_nothing. role: the role of this
 *                    process, if known; a different WEFT_ROLE or DMLC_ROLE is an error.
 * shards_per_server: of a server; converts a number of servers to a number of shards. Others: 1.
 * Errors:  WEFT_INVALID  error->text names the variable and its valid values. */
weft_status weft_launch_detect(const struct weft_launch *flags, uint32_t shards_per_server,
                               weft_launch_lookup *lookup, void *arg, struct weft_launch *launch_p,
                               struct weft_error *error);

/* Parse "HOST:PORT" or "[v6]:PORT" in the first `bytes` of text; false if it is neither. */
bool weft_launch_endpoint_parse(const char *text, size_t bytes, char *host_p, size_t host_bytes,
                                uint16_t *port_p);

/* One of a list of servers. */
struct weft_launch_address {
    char host[WEFT_LAUNCH_ADDRESS_BYTES]; /* numeric */
    uint16_t port;
};

/* Parse "HOST:PORT,HOST:PORT", at most max entries. Returns NULL, or the start of the first
 * entry that is malformed or exceeds max; *count_p is the number of entries before it. */
const char *weft_launch_servers_parse(const char *text, struct weft_launch_address *servers_p,
                                      uint32_t max, uint32_t *count_p);

/* One line: the detected values, and their sources. */
void weft_launch_text(const struct weft_launch *launch, char *text_p, size_t bytes);

#endif
