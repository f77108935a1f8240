/* A trace file: the records of one process's endpoints (core/trace.h), in blocks.
 *
 * All numbers are little-endian. The file is a list of blocks of (1 + count) x 32 bytes:
 *
 *   offset bytes  block head                     kind ENDPOINT, 2 entries
 *     0     4    magic "WEFT"                    0  8 name, 8 incarnation, 8 wall clock - trace
 *     4     1    version, 1                         clock in ns (0 = virtual time), 8 zero
 *     5     1    kind                            1  label, text, padded with zeros
 *     6     2    endpoint, from 0                kind RECORDS
 *     8     4    count: entries that follow         8 time ns, 8 number, 4 a, 4 b, 4 c, 2 peer,
 *    12     4    zero                               1 type, 1 flags
 *    16     8    number of the first record      kind COUNTERS
 *    24     8    records overwritten before it      24 name, padded with zeros, 8 value
 *
 * An endpoint's ENDPOINT block precedes its RECORDS; COUNTERS is last, if the endpoint ended
 * normally. Only complete blocks are written. If the disk is full or the limit is reached, no more
 * records are written; one caller gets the error, and later calls do nothing. If a file ends
 * inside a block (its process was killed, or is still writing), a reader accepts it up to the last
 * complete entry and reports that.
 *
 * Thread:  many threads may write through one writer.
 * Source:  docs/TRACING.md.
 */
#ifndef WEFT_OBS_TRACE_FILE_H
#define WEFT_OBS_TRACE_FILE_H

#include "core/trace.h"

enum weft_trace_block_kind {
    WEFT_TRACE_BLOCK_ENDPOINT = 1,
    WEFT_TRACE_BLOCK_RECORDS = 2,
    WEFT_TRACE_BLOCK_COUNTERS = 3,
};

enum { WEFT_TRACE_ENTRY_BYTES = 32, WEFT_TRACE_NAME_BYTES = 24 };

/* ---- writing --------------------------------------------------------------------------------- */

struct weft_trace_writer;

/* State of one endpoint in the file. */
struct weft_trace_feed {
    struct weft_trace_writer *writer; /* NULL = not traced; every call does nothing then */
    uint16_t endpoint;
    uint64_t from; /* next record to read from the ring */
};

/* Create an empty file; an existing one is replaced.
 * Shape:   bytes_max  limit of the file's size; a smaller one than 1 MiB counts as 1 MiB.
 * Owns:    gives *writer_p.
 * Errors:  WEFT_IO  errno has the reason.  WEFT_NOMEM. */
weft_status weft_trace_writer_open(const char *path, uint64_t bytes_max,
                                   struct weft_trace_writer **writer_p);

/* If a write fails, or would exceed the limit, one of the functions below returns the error: this
 * call, or the next one for the same file. Later calls return WEFT_OK and write nothing.
 * Errors:  WEFT_IO  the file is incomplete, and ends after the last complete block; errno has the
 *                   reason, EFBIG if the limit is reached. */

/* Close; NULL is allowed. */
weft_status weft_trace_writer_close(struct weft_trace_writer *writer);

/* Announce an endpoint. wall_ns: offset from its times to the wall clock; 0 = virtual time.
 * *feed_p is also valid if an error is returned. */
weft_status weft_trace_feed_init(struct weft_trace_writer *writer, const char *label, uint64_t name,
                                 uint64_t incarnation, uint64_t wall_ns,
                                 struct weft_trace_feed *feed_p);

/* Move records from the endpoint's ring to the file: once a quarter of the ring is full or, with
 * `last`, all of them and the endpoint's counters.   Thread: the endpoint's. */
weft_status weft_trace_feed_drain(struct weft_trace_feed *feed, struct weft_ep *ep,
                                 uint32_t ring_records, bool last);

/* ---- reading --------------------------------------------------------------------------------- */

/* One block; entries are decoded one by one. */
struct weft_trace_block {
    enum weft_trace_block_kind kind;
    uint16_t endpoint;
    uint32_t count; /* complete entries available */
    uint64_t first;
    uint64_t overwritten;
    const uint8_t *entries;
};

struct weft_trace_endpoint {
    uint64_t name;
    uint64_t incarnation;
    uint64_t wall_ns;
    char label[WEFT_TRACE_ENTRY_BYTES + 1];
};

/* Reads a file in memory; `bytes` is borrowed. */
struct weft_trace_reader {
    const uint8_t *bytes;
    size_t count;
    size_t at;
    bool truncated; /* the file ends inside a block */
    bool bad;       /* the bytes at `at` are not a block: not a trace file, or damaged */
};

void weft_trace_reader_init(struct weft_trace_reader *reader, const void *bytes, size_t count);

/* Read the next block; false at the end (see truncated and bad). */
bool weft_trace_reader_next(struct weft_trace_reader *reader, struct weft_trace_block *block_p);

/* Entry i of a block of that kind. */
void weft_trace_block_record(const struct weft_trace_block *block, uint32_t i,
                             struct weft_trace_record *record_p);
void weft_trace_block_endpoint(const struct weft_trace_block *block,
                               struct weft_trace_endpoint *endpoint_p);
uint64_t weft_trace_block_counter(const struct weft_trace_block *block, uint32_t i,
                                  char name_p[WEFT_TRACE_NAME_BYTES + 1]);

#endif
