/* What the members of a job and its coordinator say to each other: requests, replies, addresses.
 *
 * Only formats. Everything is decoded here, through the checked cursor; a decoder that fails leaves
 * its output alone. The coordinator's journal holds requests in the same format (job/journal.h).
 *
 * Source: docs/PROTOCOL.md section 11.
 */
#ifndef WEFT_MEMBER_FORMAT_H
#define WEFT_MEMBER_FORMAT_H

#include "base/names.h"
#include "rpc/head.h"

enum {
    WEFT_MEMBER_ELEM_BYTES = 8, /* of the messages: every length below is a multiple */
    WEFT_MEMBER_REQUEST_BYTES = 96,
    WEFT_MEMBER_REPLY_BYTES = 88,
    WEFT_MEMBER_ADDRESS_BYTES = 24,
    WEFT_MEMBER_SPAN_MAX = 64,    /* shards of one server */
    WEFT_MEMBER_SHARDS_MAX = 256, /* shards of a job */
    WEFT_MEMBER_AGGREGATORS_MAX = 256,
    WEFT_MEMBER_JOB_BYTES = WEFT_JOB_NAME_BYTES,
    WEFT_MEMBER_REQUEST_BYTES_MAX =
        WEFT_MEMBER_REQUEST_BYTES + WEFT_MEMBER_SPAN_MAX * WEFT_MEMBER_ADDRESS_BYTES,
};

/* Bytes of a reply that lists `shards` shards. */
static inline size_t weft_member_reply_bytes(uint32_t shards)
{
    return WEFT_MEMBER_REPLY_BYTES + (size_t)shards * WEFT_MEMBER_ADDRESS_BYTES;
}

/* A rank or a first shard that the coordinator shall choose. */
#define WEFT_MEMBER_NONE UINT32_MAX

/* In the op byte of the tag (rpc/head.h); apart from the parameter server's. */
enum weft_member_op {
    WEFT_MEMBER_REGISTER = 32,  /* join, or say again who I am and where my shards are */
    WEFT_MEMBER_LIST = 33,      /* where all shards are; answered when all are there */
    WEFT_MEMBER_HEARTBEAT = 34, /* I live */
    WEFT_MEMBER_LEAVE = 35,     /* I end */
    WEFT_MEMBER_NEAR = 36,      /* which aggregator is mine; answered when it is another one than I have */
};

/* X(name, what happened; what to do) */
#define WEFT_MEMBER_STATUS_MAP(X)                                                                  \
    X(OK, "done")                                                                                  \
    X(BAD_REQUEST, "the request contradicts itself")                                               \
    X(OTHER_JOB, "the coordinator serves a job of another name")                                   \
    X(OTHER_WORKERS, "the job has another number of workers")                                      \
    X(OTHER_SHARDS, "the job has another number of shards")                                        \
    X(CLAIMED, "another process has this rank or shard, and its lease has not ended")              \
    X(SUPERSEDED, "another process has taken this one's place")                                    \
    X(UNKNOWN_MEMBER, "not registered, or the lease has ended and was given away")                 \
    X(FULL, "every rank or shard is taken")                                                        \
    X(RANGE, "the job has no such rank or shard")                                                  \
    X(UNTOLD, "nobody has said how many workers or shards the job has")                            \
    X(UNAVAILABLE, "the coordinator cannot write its journal")

enum weft_member_status {
#define X(name, text) WEFT_MEMBER_##name,
    WEFT_MEMBER_STATUS_MAP(X)
#undef X
        WEFT_MEMBER_STATUS_COUNT
};

/* Never NULL, whatever the number. */
const char *weft_member_status_name(uint16_t status);
const char *weft_member_status_text(uint16_t status);

struct weft_member_address {
    uint8_t ip[16]; /* IPv6; IPv4 as ::ffff:a.b.c.d */
    uint16_t port;  /* never 0 on the wire */
};

enum { WEFT_MEMBER_DONE = 0x01 }; /* flag of LEAVE: my work is finished */

struct weft_member_request {
    uint32_t rpc_id;       /* counted by the member, from 1 */
    uint8_t role;          /* WEFT_ROLE_SERVER, WEFT_ROLE_WORKER or WEFT_ROLE_AGGREGATOR */
    uint8_t flags;         /* LEAVE: WEFT_MEMBER_DONE */
    uint64_t member;       /* names a place in the job; random unless a supervisor gave it; not 0 */
    uint64_t incarnation;  /* of the process in that place; the larger one is the later one */
    uint32_t rank;         /* or NONE; aggregator: its number */
    uint32_t workers;      /* as far as the member knows; 0 = it does not */
    uint32_t shards;       /* the same */
    uint32_t first;        /* server: its first shard, or NONE; others: NONE */
    uint32_t span;         /* server: shards from there on, 1 .. SPAN_MAX; worker: 0; aggregator: shards that
                            * it has an endpoint for, 0 .. SPAN_MAX */
    uint32_t place;        /* of the rack or host, as a number; 0 = not told */
    uint64_t epoch;        /* of the lease it holds or held; 0 = never had one */
    uint64_t have_version; /* LIST, NEAR: what it has; 0 = nothing */
    char job[WEFT_MEMBER_JOB_BYTES]; /* zero after its end; may be empty */
    uint32_t count;        /* addresses: 0 (not reachable yet) or span; other ops than REGISTER: 0 */
    struct weft_member_address addresses[WEFT_MEMBER_SPAN_MAX];
};

enum { WEFT_MEMBER_OVER = 0x01 }; /* flag of a reply: all workers are done, servers may end */

struct weft_member_reply {
    uint32_t rpc_id;
    uint16_t status;   /* may be one that this release does not know */
    uint32_t rank;     /* of the member, or NONE */
    uint32_t first;    /* of the member, or NONE */
    uint32_t workers;  /* of the job; 0 = not told yet */
    uint32_t shards;
    uint64_t epoch;    /* of the member's lease */
    uint64_t version;  /* of the list of shards; NEAR: of what is near, 0 = no aggregator */
    uint32_t lease_ms; /* a member that was silent so long may be replaced */
    uint32_t retry_ms; /* CLAIMED, FULL: until a lease ends */
    uint32_t detail;   /* CLAIMED: the rank or shard */
    uint8_t flags;     /* WEFT_MEMBER_OVER */
    char job[WEFT_MEMBER_JOB_BYTES];
    uint32_t count;    /* LIST: shards; NEAR: the same, 0 = no aggregator; CLAIMED: 1 when the holder's address is known; else 0 */
    struct weft_member_address addresses[WEFT_MEMBER_SHARDS_MAX];
};

/* Returns the bytes used: REQUEST_BYTES + count x ADDRESS_BYTES, REPLY_BYTES + the same. out is as
 * long as the largest. */
size_t weft_member_request_pack(const struct weft_member_request *request, uint8_t *out);
size_t weft_member_reply_pack(const struct weft_member_reply *reply, uint8_t *out);

/* Errors:  WEFT_PROTO  too short or too long, a reserved field is not zero, a field out of range. */
weft_status weft_member_request_unpack(uint8_t op, const uint8_t *bytes, size_t count,
                                       struct weft_member_request *request_p);
weft_status weft_member_reply_unpack(const uint8_t *bytes, size_t count,
                                     struct weft_member_reply *reply_p);

/* Of a rack's or host's name; NULL or "": 0. Never 0 else. */
uint32_t weft_member_place(const char *name);

#endif
