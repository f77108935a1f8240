/* Wire format of the messages between the members of a job and its coordinator: requests, replies,
 * addresses.
 *
 * Only formats. All decoding is bounds-checked (base/cursor.h); a decoder that fails does not
 * change its output. The coordinator's journal contains requests in the same format
 * (job/coordinator_journal.h).
 *
 * Source: docs/PROTOCOL.md section 11.
 */
#ifndef WEFT_MEMBER_FORMAT_H
#define WEFT_MEMBER_FORMAT_H

#include "base/names.h"
#include "rpc/head.h"

enum {
    WEFT_MEMBER_ELEM_BYTES = 8, /* element size; every length below is a multiple of it */
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

/* A rank or a first shard to be chosen by the coordinator. */
#define WEFT_MEMBER_NONE UINT32_MAX

/* In the op byte of the tag (rpc/head.h); distinct from the parameter server's ops. */
enum weft_member_op {
    WEFT_MEMBER_REGISTER = 32,        /* join, or renew with the current addresses */
    WEFT_MEMBER_LIST = 33,            /* addresses of all shards; answered when all are known */
    WEFT_MEMBER_HEARTBEAT = 34,       /* renew the lease */
    WEFT_MEMBER_LEAVE = 35,           /* leave the job */
    WEFT_MEMBER_FIND_AGGREGATOR = 36, /* the worker's aggregator; answered when it differs from the
                                       * one it has */
};

/* X(name, meaning; remedy) */
#define WEFT_MEMBER_STATUS_MAP(X)                                                                  \
    X(OK, "done")                                                                                  \
    X(BAD_REQUEST, "the request contradicts itself")                                               \
    X(OTHER_JOB, "the coordinator serves a job of another name")                                   \
    X(OTHER_WORKERS, "the job has another number of workers")                                      \
    X(OTHER_SHARDS, "the job has another number of shards")                                        \
    X(CLAIMED, "another process has this rank or shard, and its lease has not ended")              \
    X(SUPERSEDED, "another process has taken this one's slot")                                     \
    X(UNKNOWN_MEMBER, "not registered, or the lease has ended and was given away")                 \
    X(FULL, "every rank or shard is taken")                                                        \
    X(RANGE, "the job has no such rank or shard")                                                  \
    X(SIZE_UNKNOWN, "the number of workers or shards of the job is not known yet")                 \
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

enum { WEFT_MEMBER_DONE = 0x01 }; /* flag of LEAVE: the work is finished */

struct weft_member_request {
    uint32_t rpc_id;      /* counted by the member, from 1 */
    uint8_t role;         /* WEFT_ROLE_SERVER, WEFT_ROLE_WORKER or WEFT_ROLE_AGGREGATOR */
    uint8_t flags;        /* LEAVE: WEFT_MEMBER_DONE */
    uint64_t member;      /* identifies a slot of the job; random unless a supervisor gave it;
                           * not 0 */
    uint64_t incarnation; /* of the process in that slot; a later process has a larger one */
    uint32_t rank;        /* or NONE; aggregator: its number */
    uint32_t workers;     /* of the job; 0 = unknown to the member */
    uint32_t shards;      /* the same */
    uint32_t first;       /* server: its first shard, or NONE; others: NONE */
    uint32_t span;  /* server: shards from there on, 1 .. SPAN_MAX; worker: 0; aggregator: shards
                     * that  it has an endpoint for, 0 .. SPAN_MAX */
    uint32_t rack;  /* rack or host, as a hash; 0 = not given */
    uint64_t epoch; /* of the lease it holds or held; 0 = never had one */
    uint64_t have_version;           /* LIST, FIND_AGGREGATOR: version that it has; 0 = none */
    char job[WEFT_MEMBER_JOB_BYTES]; /* zero after its end; may be empty */
    uint32_t count; /* addresses: 0 (not reachable yet) or span; other ops than REGISTER: 0 */
    struct weft_member_address addresses[WEFT_MEMBER_SPAN_MAX];
};

enum {
    WEFT_MEMBER_JOB_DONE = 0x01
}; /* flag of a reply: all workers have finished, servers may end */

struct weft_member_reply {
    uint32_t rpc_id;
    uint16_t status;  /* may be unknown to this release */
    uint32_t rank;    /* of the member, or NONE */
    uint32_t first;   /* of the member, or NONE */
    uint32_t workers; /* of the job; 0 = not known yet */
    uint32_t shards;
    uint64_t epoch; /* of the member's lease */
    uint64_t
        version; /* of the list of shards; FIND_AGGREGATOR: of the assignment, 0 = no aggregator */
    uint32_t lease_ms; /* a member without a request for this time may be replaced */
    uint32_t retry_ms; /* CLAIMED, FULL: until a lease ends */
    uint32_t detail;   /* CLAIMED: the rank or shard */
    uint8_t flags;     /* WEFT_MEMBER_JOB_DONE */
    char job[WEFT_MEMBER_JOB_BYTES];
    uint32_t count; /* LIST: shards; FIND_AGGREGATOR: the same, 0 = no aggregator; CLAIMED: 1 if the
                     * holder's address is known; else 0 */
    struct weft_member_address addresses[WEFT_MEMBER_SHARDS_MAX];
};

/* Returns the bytes used: REQUEST_BYTES + count x ADDRESS_BYTES, REPLY_BYTES + the same. out
 * must have room for the longest. */
size_t weft_member_request_pack(const struct weft_member_request *request, uint8_t *out);
size_t weft_member_reply_pack(const struct weft_member_reply *reply, uint8_t *out);

/* Errors:  WEFT_PROTO  too short or too long, a reserved field is not zero, a field out of range.
 */
weft_status weft_member_request_unpack(uint8_t op, const uint8_t *bytes, size_t count,
                                       struct weft_member_request *request_p);
weft_status weft_member_reply_unpack(const uint8_t *bytes, size_t count,
                                     struct weft_member_reply *reply_p);

/* FNV-1a hash of a rack's or host's name; 0 for NULL or "", otherwise never 0. */
uint32_t weft_member_rack(const char *name);

#endif
