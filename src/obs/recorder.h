/* The recorder of a process: takes records out of rings and writes them to a spool, in a thread of
 * its own, so that the threads that make them never wait for a disk.
 *
 *     weft_recorder_open;  a weft_recorder_ring for each thread that makes records, given to its
 *     shard (ps/shard.h) or clients (ps/client.h; many clients of one thread share one);
 *     when no more are made: weft_recorder_finish;  weft_records_make of the spool (records_db.h);
 *     when shards and clients are gone: weft_recorder_free.
 *
 * The spool is FILE.spool-ROLE-RANK. It is locked while its process lives. One that a killed process
 * left is kept: it gets the first free name FILE.spool-ROLE-RANK.1, .2, ..., and that is said once.
 *
 * Full rings and full disks drop records, and count them; the first failure to write is said on
 * standard error, and as soon as the disk has room again, records are written again.
 *
 * A spool that is deleted while it is written is made again from what is still open; where that fails,
 * all records count as dropped. Either is said, within a period.
 *
 * Source: docs/RECORDS.md.
 */
#ifndef WEFT_OBS_RECORDER_H
#define WEFT_OBS_RECORDER_H

#include "base/error.h"
#include "obs/record_spool.h"

enum { WEFT_RECORDS_PATH_BYTES = 4096 };

struct weft_recorder_config {
    const char *path;    /* of the database to be */
    const char *role;    /* "worker", "server" */
    uint32_t rank;       /* of a server: its first shard's number */
    const char *version; /* these two for the database's `meta`; NULL = "" */
    const char *command;
    uint64_t window_ns; /* of active workers; 0 = this process has none */
    uint32_t
        ring_slots; /* of each ring, a power of two up to 65,536 (rpc/record.h); 64 bytes each */
    uint32_t period_us; /* between two looks at the rings */
};

/* 65,536 slots (4 MiB), looked at every 200 ms: 325,000 RPCs a second, or twice as many answers. A look
 * costs some 70 us by itself, for two changes of threads and for code and data that the cache has
 * forgotten; at 50 ms that was 0.3 % of a processor for a server and a worker. */
void weft_recorder_config_default(struct weft_recorder_config *config_p);

struct weft_recorder;

struct weft_recorder_counts {
    uint64_t records; /* written to the spool */
    uint64_t dropped;
    uint64_t cpu_ns; /* CPU time of the recorder's thread */
};

/* Make the spool and start the thread, which takes no signals.
 * Errors:  WEFT_EXISTS  another process writes this spool now.  WEFT_IO, WEFT_NOMEM. */
weft_status weft_recorder_open(const struct weft_recorder_config *config,
                               struct weft_recorder **recorder_p, struct weft_error *error);

/* A new ring, the recorder's until weft_recorder_free. One thread may fill it. NULL = no memory. */
struct weft_record_ring *weft_recorder_ring(struct weft_recorder *recorder);

/* Write records down at once, without a ring: for what a process knows at its end.
 * Thread:  any, but not the hot path's: it writes to the disk. */
void weft_recorder_add(struct weft_recorder *recorder, const struct weft_record *records,
                       uint32_t count);

/* What was written and dropped so far.   Thread: any. */
void weft_recorder_counts(struct weft_recorder *recorder, struct weft_recorder_counts *counts_p);

/* Write down what is in the rings and that this was all; end the thread. The rings stay, for they
 * may still be filled; nobody looks at them any more. Calling it again does nothing. */
void weft_recorder_finish(struct weft_recorder *recorder);

/* The spool's path; valid until free. */
const char *weft_recorder_spool(const struct weft_recorder *recorder);

/* Unlock the spool and give everything back. NULL is fine. */
void weft_recorder_free(struct weft_recorder *recorder);

#endif
