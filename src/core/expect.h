/* The table of posted expectations: the memory for incoming messages.
 *
 * Both transports use it (core/endpoint.h, io/tcp). A server posts several for each worker, so a
 * linear search of the table would be too expensive. The expectations of each peer, and those for
 * any peer, are divided into a few lists by the kind of message, in the order of posting. Matching
 * searches only the lists of the message's kind, of its peer and for any peer; posting and
 * cancelling need no search. The cost is independent of the number of peers.
 */
#ifndef WEFT_CORE_EXPECT_H
#define WEFT_CORE_EXPECT_H

#include "core/msg.h"

enum { WEFT_EXPECTS_MAX = 65536 };

struct weft_expect {
    weft_expect_id id; /* count of posts << 16 | slot; 0 = free */
    struct weft_msg_expect e;
    uint32_t next; /* in its list, or in the free list */
    uint32_t prev;
};

/* Lists in the order of posting. of[0] contains the expectations whose mask does not include all of
 * the first byte of the tag, and is always searched. For the others that byte, modulo 6, is the
 * kind and selects the list. */
enum { WEFT_EXPECT_KINDS = 7 };

struct weft_expect_lists {
    struct weft_expect_list {
        uint32_t head;
        uint32_t tail;
    } of[WEFT_EXPECT_KINDS];
    uint32_t last; /* the list that matched the last message */
};

struct weft_expects {
    struct weft_expect *slots;       /* (max,) */
    struct weft_expect_lists *lists; /* (peers_max + 1,): the last list is for any peer */
    uint32_t max;
    uint32_t peers_max;
    uint32_t free_head;
    uint64_t posted; /* number of expectations ever posted */
};

/* max <= WEFT_EXPECTS_MAX. Owns: memory until weft_expects_fini. Errors: WEFT_NOMEM. */
weft_status weft_expects_init(struct weft_expects *expects, uint32_t max, uint32_t peers_max);
/* Free the table. A zeroed table is allowed. */
void weft_expects_fini(struct weft_expects *expects);

/* Post an expectation, as weft_msg_expect of core/msg.h; *slot_p is valid until the expectation is
 * used up or cancelled. */
weft_status weft_expects_post(struct weft_expects *expects, const struct weft_msg_expect *expect,
                              struct weft_expect **slot_p);

/* Cancel an expectation. WEFT_NOTFOUND: it is used up, or was never posted. */
weft_status weft_expects_cancel(struct weft_expects *expects, weft_expect_id id);

/* The expectation for the peer's next message if it is of the same kind as the last; NULL =
 * none. */
static inline const struct weft_expect *weft_expects_likely(const struct weft_expects *expects,
                                                            weft_peer peer)
{
    const struct weft_expect_lists *lists = &expects->lists[peer];
    uint32_t head = lists->of[lists->last].head;
    return head < expects->max ? &expects->slots[head] : NULL;
}

/* The oldest expectation that matches a message with this tag and size from peer; NULL = none.
 * Cost: linear in the expectations of this kind for this peer and for any peer. */
struct weft_expect *weft_expects_match(const struct weft_expects *expects, weft_peer peer,
                                       uint64_t tag, uint32_t total, uint16_t elem_bytes);

/* A message was bound to the expectation: decrement its count, and free the slot at zero. */
void weft_expects_use(struct weft_expects *expects, struct weft_expect *slot);

/* Time at which a message is closed SHORT if its first chunk arrives now. */
static inline uint64_t weft_expect_end(const struct weft_msg_expect *expect, uint64_t now_ns)
{
    uint64_t end_ns = weft_time_add(now_ns, expect->timeout_ns);
    return expect->until_ns > 0 ? weft_min_u64(end_ns, expect->until_ns) : end_ns;
}

#endif
