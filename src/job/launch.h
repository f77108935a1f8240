/* Who am I in the job? Answered from flags and from the environment that the launcher left.
 *
 * In this order, each question by itself, the first that answers wins:
 *
 *     flags; WEFT_*; DMLC_* (ps-lite, MXNet, BytePS); torchrun (RANK, WORLD_SIZE, MASTER_ADDR ...);
 *     Open MPI (OMPI_COMM_WORLD_*); PMIX_*, PMI_*; Slurm (SLURM_*)
 *
 * Rank and size that come from one launcher belong together. A launcher counts processes, not
 * workers: when a source before it says that the job has another number of workers (or a server's
 * launch another number of shards), its ranks are those of a mixed launch and mean nothing here;
 * the rank is then left open for the coordinator to give. Open MPI says how many processes
 * each part of a mixed launch has, and that is used.
 *
 * What is malformed, or contradicts itself within one source, is an error that names the variable;
 * only what is asked for is looked at. Nothing is guessed from a host's name or a queue's.
 *
 * It makes no connection and does not look up names. The job key is not its business
 * (crypto/job_key.h).
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

/* A number that nobody has told. */
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
    uint32_t restart;    /* times that this place was restarted; 0 unless told */
    uint64_t member;     /* name of this place in the job; 0 = none */
    const char *servers; /* HOST:PORT,... of all shards; NULL = not told. Borrowed from where it was */
    char job[WEFT_LAUNCH_JOB_BYTES];               /* "" = not told */
    char coordinator_host[WEFT_LAUNCH_HOST_BYTES]; /* a name or an address; "" = not told */
    uint16_t coordinator_port;
    /* Where the answers come from: "--rank", "WEFT_RANK", "OMPI_COMM_WORLD_*"; NULL = nowhere. */
    const char *role_from;
    const char *rank_from;
    const char *workers_from;
    const char *shards_from;
    const char *servers_from;
    const char *coordinator_from;
    const char *rank_left_from; /* a launcher whose rank is not used; see above */
};

/* Everything UNKNOWN: what to fill in with flags before weft_launch_detect. */
struct weft_launch weft_launch_nothing(void);

/* The value of a variable, or NULL. */
typedef const char *weft_launch_lookup(void *arg, const char *name);

/* getenv; arg is not used. */
const char *weft_launch_environment(void *arg, const char *name);

/* A number in the environment, which a supervisor or a user sets; *number_p stays as it is where the
 * variable is not set.
 * Errors:  WEFT_INVALID  error->text (error may be NULL) names the variable and what it must be. */
weft_status weft_launch_number(const char *name, uint64_t min, uint64_t max, uint64_t *number_p,
                               struct weft_error *error);

/* WEFT_PEER_TIMEOUT_S: a peer is declared dead after so many seconds without a reply, unless a program
 * or an option says otherwise. fallback_s when it is not set, 0 when it is no number from 1 to 86400,
 * which weft_launch_peer_timeout_check says. */
uint32_t weft_launch_peer_timeout_s(uint32_t fallback_s);
weft_status weft_launch_peer_timeout_check(struct weft_error *error);

/* Fill in what flags leave open.
 *
 * flags:             what the command line says, else weft_launch_nothing. role: what this process
 *                    is, if it knows; a WEFT_ROLE or DMLC_ROLE that says otherwise is an error.
 * shards_per_server: of a server; turns a number of servers into one of shards. Others: 1.
 * Errors:  WEFT_INVALID  error->text names the variable and what it must be. */
weft_status weft_launch_detect(const struct weft_launch *flags, uint32_t shards_per_server,
                               weft_launch_lookup *lookup, void *arg, struct weft_launch *launch_p,
                               struct weft_error *error);

/* "HOST:PORT", "[v6]:PORT" in the first `bytes` of text; false when it is not that. */
bool weft_launch_endpoint_parse(const char *text, size_t bytes, char *host_p, size_t host_bytes,
                                uint16_t *port_p);

/* One of a list of servers. */
struct weft_launch_address {
    char host[WEFT_LAUNCH_ADDRESS_BYTES]; /* numeric */
    uint16_t port;
};

/* "HOST:PORT,HOST:PORT", of at most max entries. Returns NULL, or where the entry begins that is not
 * that, or is one too many; *count_p are those before it. */
const char *weft_launch_servers_parse(const char *text, struct weft_launch_address *servers_p,
                                      uint32_t max, uint32_t *count_p);

/* One line: what was detected, and from where. */
void weft_launch_text(const struct weft_launch *launch, char *text_p, size_t bytes);

#endif
