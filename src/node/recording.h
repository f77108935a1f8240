/* --records FILE of the verbs that run servers and workers: the recorder of this process, and the
 * file that is made at the end.
 */
#ifndef WEFT_NODE_RECORDING_H
#define WEFT_NODE_RECORDING_H

#include "node/log.h"
#include "obs/records_db.h"
#include "ps/shard.h"

struct weft_recording {
    const char *path; /* NULL = none */
    bool spool_only;  /* a child of `weft train`, which makes the file */
    uint32_t window_us;

    struct weft_node_log log;
    struct weft_recorder *recorder; /* NULL = off; every call is then nothing */
};

#define WEFT_RECORDING_DEFAULTS                                                                    \
    {                                                                                              \
        .window_us = 1000                                                                          \
    }

/* Start, when --records was given.
 * Errors:  WEFT_EXISTS, WEFT_IO, WEFT_NOMEM with error->text. */
weft_status weft_recording_open(struct weft_recording *recording, const char *role, uint32_t rank,
                                struct weft_node_log log, struct weft_error *error);

/* Remember the words of the command line; before weft_options_parse, once in a process. */
void weft_recording_command(int argc, char **argv);

/* For one thread; NULL = nothing is recorded. */
struct weft_rpc_record_ring *weft_recording_ring(struct weft_recording *recording);

/* Write down the hottest rows of every table of a shard. recorder = NULL: nothing.
 * Thread:  the shard's. */
void weft_recording_hot(struct weft_recorder *recorder, const struct weft_shard *shard,
                        uint32_t number);

/* No more records are made; the rings stay. Returns what there are. */
struct weft_recorder_counts weft_recording_finish(struct weft_recording *recording);

/* After the rings' users are gone: make the file, unless a parent does, and log when that fails, or
 * when records were dropped. Returns false when there is no file. */
bool weft_recording_close(struct weft_recording *recording);

/* One file of the spools of several processes that have ended, FILE.spool-ROLE-RANK: those that
 * exist. They are removed when it is made. */
struct weft_recording_spools {
    uint32_t servers; /* processes; the rank of server i is i x shards_per_server */
    uint32_t shards_per_server;
    uint32_t workers;
};
bool weft_recording_merge(const char *path, const struct weft_recording_spools *spools,
                          struct weft_node_log log, struct weft_records_sum *sum_p);

#endif
