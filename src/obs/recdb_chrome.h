/* Records as a Chrome trace: JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 * Each worker and each server is a process, each stage a thread of it. RPCs of one process overlap;
 * a stage then has as many tracks as are needed ("N_tx", "N_tx 2", ...), so that no two slices of a
 * track do. The tracks: of a worker RPC (all of it, its args hold every field), N_tx in two slices, W_queue,
 * W_proc; of a server PS_queue, PS_wait, PS_proc, laid end to end from the arrival of the request, because
 * records hold how long each took but not in which turns.
 */
#ifndef WEFT_OBS_RECDB_CHROME_H
#define WEFT_OBS_RECDB_CHROME_H

#include "obs/recdb.h"

#include <stdio.h>

struct weft_recdb_chrome_sum {
    uint64_t slices;
    uint64_t unmatched; /* RPCs without their server's record on the same clock: their N_tx is cut in
                         * halves */
    uint64_t crowded;   /* slices left out: over 999 at once in one stage of one process */
};

/* Stream them; memory is taken for what overlaps only.
 * where: of rpc ("WHERE rpc.worker = 3", "" for all); served_where: of served.
 * Errors:  those of db; whether out took it all is the caller's to find out. */
weft_status weft_recdb_chrome(struct weft_recdb *db, const char *where, const char *served_where,
                              FILE *out, struct weft_recdb_chrome_sum *sum_p);

#endif
