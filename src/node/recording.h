/* The option --records FILE of the verbs that run servers and workers: the recorder of this
 * process, and the file that is written at the end.
 */
#ifndef WEFT_NODE_RECORDING_H
#define WEFT_NODE_RECORDING_H

#include "node/log.h"
#include "obs/records_db.h"
#include "ps/shard.h"

struct weft_recording {
    const char *path; /* NULL = none */
    bool spool_only;  /* in a child of `weft train`: only its parent writes the file, from the
                       * spools of its children */
    uint32_t window_us; /* of a server, --active-window-us: width of the windows in which it counts
                         * the workers that sent a request */

    struct weft_node_log log;
    struct weft_recorder *recorder; /* NULL = off; every call then has no effect */
};

#define WEFT_RECORDING_DEFAULTS                                                                    \
    {                                                                                              \
        .window_us = 1000                                                                          \
    }

/* Start, when --records was given. rank: of a worker; of a server, its first shard; the number of
 * an aggregator.
 * Errors:  WEFT_EXISTS, WEFT_IO, WEFT_NOMEM with error->text. */
weft_status weft_recording_open(struct weft_recording *recording, const char *role, uint32_t rank,
                                struct weft_node_log log, struct weft_error *error);

/* Keep the arguments of the command line. Call it once in a process, before weft_options_parse. */
void weft_recording_command(int argc, char **argv);

/* A recorder for one thread; NULL = nothing is recorded. */
struct weft_rpc_record_ring *weft_recording_ring(struct weft_recording *recording);

/* Record the hottest rows of every table of a shard, whose number is `number`. recorder = NULL: no
 * effect.
 * Thread:  the shard's. */
void weft_recording_hot(struct weft_recorder *recorder, const struct weft_shard *shard,
                        uint32_t number);

/* Stop recording; the rings stay allocated. Returns the numbers of written and dropped records, and
 * the recorder's CPU time. */
struct weft_recorder_counts weft_recording_finish(struct weft_recording *recording);

/* Call after the users of the rings have ended: write the file, unless a parent does or nothing was
 * recorded, and log when that fails, or when records were dropped. Returns false when it failed. */
bool weft_recording_close(struct weft_recording *recording);

/* Merge the existing spools of several ended processes, FILE.spool-ROLE-RANK, into one file. The
 * spools are removed when it is complete. */
struct weft_recording_spools {
    uint32_t servers; /* processes; the rank of server i is i x shards_per_server */
    uint32_t shards_per_server;
    uint32_t workers;
    uint32_t aggregators;
};
bool weft_recording_merge(const char *path, const struct weft_recording_spools *spools,
                          struct weft_node_log log, struct weft_records_sum *sum_p);

#endif
