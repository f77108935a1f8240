/* The recorder of a process: it reads records from rings and writes them to a spool, in a separate
 * thread, so that the threads that produce records never wait for a disk.
 *
 *     weft_recorder_open;  a weft_recorder_ring for each thread that makes records, given to its
 *     shard (ps/shard.h) or clients (ps/client.h; many clients of one thread share one);
 *     after the last record: weft_recorder_finish;  weft_records_make of the spool (records_db.h);
 *     after shards and clients are freed: weft_recorder_free.
 *
 * The spool is FILE.spool-ROLE-RANK. It is locked while its process runs. A spool left by a killed
 * process is kept: it is renamed to the first free name FILE.spool-ROLE-RANK.1, .2, ..., which is
 * reported once.
 *
 * If a ring or the disk is full, records are dropped and counted. The first write failure is
 * reported on standard error. Writing resumes as soon as the disk has free space.
 *
 * A spool that is deleted while in use is recreated from the open file. If that fails, all its
 * records are counted as dropped. Both cases are reported within period_us.
 *
 * Source: docs/RECORDS.md.
 */
#ifndef WEFT_OBS_RECORDER_H
#define WEFT_OBS_RECORDER_H

#include "base/error.h"
#include "obs/record_spool.h"

enum { WEFT_RECORDS_PATH_BYTES = 4096 };

struct weft_recorder_config {
    const char *path;    /* of the database to create */
    const char *role;    /* "worker", "server", "aggregator" */
    uint32_t rank;       /* of a server: its first shard's number; of an aggregator: its number */
    const char *version; /* version and command are for the database's `meta`; NULL = "" */
    const char *command;
    uint64_t window_ns; /* of active workers; 0 = this process has none */
    uint32_t
        ring_slots; /* per ring, a power of two up to 65,536 (rpc/rpc_record.h); 64 bytes each */
    uint32_t period_us; /* time between two reads of the rings */
};

/* 65,536 slots (4 MiB), read every 200 ms, suffice for 325,000 RPCs per second, or twice as many
 * replies. A read costs some 70 us by itself, for two thread switches and for code and data that
 * were evicted from the cache. With a period of 50 ms these reads used 0.3 % of a processor for a
 * server and a worker. */
void weft_recorder_config_default(struct weft_recorder_config *config_p);

struct weft_recorder;

struct weft_recorder_counts {
    uint64_t records; /* written to the spool */
    uint64_t dropped;
    uint64_t cpu_ns; /* CPU time of the recorder's thread */
};

/* Create the spool and start the thread, which blocks all signals.
 * Errors:  WEFT_EXISTS  another process is writing this spool.  WEFT_IO, WEFT_NOMEM. */
weft_status weft_recorder_open(const struct weft_recorder_config *config,
                               struct weft_recorder **recorder_p, struct weft_error *error);

/* Create a ring, owned by the recorder until weft_recorder_free. One thread may write to it.
 * NULL = out of memory. */
struct weft_rpc_record_ring *weft_recorder_ring(struct weft_recorder *recorder);

/* Write records immediately, without a ring: for data that is known only at the end.
 * Thread:  any, but not on the hot path: it writes to the disk. */
void weft_recorder_add(struct weft_recorder *recorder, const struct weft_rpc_record *records,
                       uint32_t count);

/* Counts of records written and dropped so far.   Thread: any. */
void weft_recorder_counts(struct weft_recorder *recorder, struct weft_recorder_counts *counts_p);

/* Write the records in the rings and the end mark, and end the thread. The rings stay allocated,
 * because threads may still write to them, but are no longer read. A second call does nothing. */
void weft_recorder_finish(struct weft_recorder *recorder);

/* The spool's path; valid until free. */
const char *weft_recorder_spool(const struct weft_recorder *recorder);

/* Unlock the spool and free everything. NULL is allowed. */
void weft_recorder_free(struct weft_recorder *recorder);

#endif
