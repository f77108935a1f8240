/* A spool: the records of one process in the order of arrival, before they are written to a
 * database. It is not meant to be read by people; obs/records_db.h converts it.
 *
 * Blocks of 128 + 32 x units bytes, in this machine's byte order, since a spool never leaves it:
 * this head, and records in the formats of rpc/rpc_record.h:
 *
 *   offset bytes  head
 *     0     8    magic "WEFTREC3"
 *     8     8    hash: XXH3 of the units, then of the head from offset 16 with that as the seed
 *    16     8    records of the process before this block, texts included
 *    24     8    records dropped so far (full rings, full disk)
 *    32     8    CPU time of the process since the recorder was opened, ns
 *    40     8    wall time since the recorder was opened, ns
 *    48     8    time at which the recorder was opened, ns since 1970
 *    56     8    window of active workers, ns
 *    64     4    records that follow
 *    68     4    rank, number of the first shard, or number of the aggregator
 *    72     4    process id
 *    76     4    0x01020304
 *    80    16    role: "worker", "server", "aggregator"; ends with zero
 *    96     1    1 = the last block: the process ended normally
 *   100     4    units that follow
 *   104    24    zero
 *
 * Every block has all of these fields. So if the process is killed, only the records in its rings
 * are lost, and a damaged block does not affect the others.
 */
#ifndef WEFT_OBS_RECORD_SPOOL_H
#define WEFT_OBS_RECORD_SPOOL_H

#include "rpc/rpc_record.h"

enum { WEFT_SPOOL_ROLE_BYTES = 16, WEFT_SPOOL_UNITS_MAX = 1 << 17 };

#define WEFT_SPOOL_MAGIC       "WEFTREC3"
#define WEFT_SPOOL_MAGIC_START "WEFTREC" /* of this and other versions */
#define WEFT_SPOOL_ORDER UINT32_C(0x01020304)

/* A record written by the recorder itself: bytes[0] is a key, the text follows; the texts of one
 * key are concatenated. */
enum { WEFT_RPC_RECORD_TEXT = 255 };
enum weft_spool_text { WEFT_SPOOL_VERSION = 1, WEFT_SPOOL_COMMAND, WEFT_SPOOL_HOST };
enum { WEFT_SPOOL_TEXT_BYTES = sizeof(((struct weft_rpc_record *)0)->bytes) - 1 };

struct weft_spool_head {
    char magic[8];
    uint64_t hash;
    uint64_t first;
    uint64_t dropped;
    uint64_t cpu_ns;
    uint64_t wall_ns;
    uint64_t started_ns;
    uint64_t window_ns;
    uint32_t count;
    uint32_t rank;
    uint32_t pid;
    uint32_t order;
    char role[WEFT_SPOOL_ROLE_BYTES];
    uint8_t last;
    uint8_t zero[3];
    uint32_t units;
    uint8_t zero_too[24];
};

static_assert(sizeof(struct weft_spool_head) == 128, "the file's format");

/* The expected hash of the head. */
uint64_t weft_spool_hash(const struct weft_spool_head *head,
                         const struct weft_rpc_record_unit *units);

struct weft_spool_reader {
    int fd;
    uint64_t at;
    uint64_t bytes;                     /* of the file */
    struct weft_spool_head head;        /* of the last block read */
    struct weft_rpc_record_unit *units; /* (head.units,) of that block */
    uint64_t skipped;                   /* bytes outside of valid blocks */
};

/* Errors:  WEFT_IO  errno has the reason.  WEFT_INVALID  it is not a regular file.
 *          WEFT_STATE  its process is still writing it.  WEFT_NOMEM. */
weft_status weft_spool_reader_open(const char *path, struct weft_spool_reader *reader_p);
/* Read the next valid block into head and units: head.count complete records; false at the end. */
bool weft_spool_reader_next(struct weft_spool_reader *reader);
void weft_spool_reader_close(struct weft_spool_reader *reader);

#endif
