/* Records as a Chrome trace: JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 * Each worker and each server is a process, each stage a thread of it. RPCs of one process overlap;
 * a stage then has as many tracks as needed ("N_tx", "N_tx 2", ...), so that slices of a track do
 * not overlap. The tracks of a worker are RPC (the whole RPC; its args have every field), N_tx in
 * two slices, W_queue and W_proc. Those of a server are PS_queue, PS_wait and PS_proc. They are
 * drawn one after the other from the arrival of the request, because records have the duration of
 * each stage but not how the stages alternate.
 */
#ifndef WEFT_OBS_RECDB_CHROME_H
#define WEFT_OBS_RECDB_CHROME_H

#include "obs/recdb.h"

#include <stdio.h>

struct weft_recdb_chrome_sum {
    uint64_t slices;
    uint64_t unmatched; /* RPCs without their server's record on the same clock: their N_tx is
                         * split into two equal halves */
    uint64_t crowded;   /* slices left out: more than 999 at once in one stage of one process */
};

/* Write the trace; memory is used only for overlapping RPCs. where: of rpc ("WHERE rpc.worker = 3",
 * "" for all); served_where: of served.
 * Errors:  those of db; the caller checks out for write errors. */
weft_status weft_recdb_chrome(struct weft_recdb *db, const char *where, const char *served_where,
                              FILE *out, struct weft_recdb_chrome_sum *sum_p);

#endif
