/* The table of posted expectations: which memory the next message goes to.
 *
 * Both transports match with it (core/endpoint.h, io/tcp). A server posts some for each worker, so
 * the table must not be searched as a whole: expectations of one peer are a list, those of any peer
 * another, both in the order of posting; matching looks at these two alone, and posting and taking
 * back need no search. Cost is then independent of the number of peers.
 */
#ifndef WEFT_CORE_EXPECT_H
#define WEFT_CORE_EXPECT_H

#include "core/msg.h"

enum { WEFT_EXPECTS_MAX = 65536 };

struct weft_expect {
    weft_expect_id id; /* count of posts << 16 | slot; 0 = free */
    struct weft_msg_expect e;
    uint32_t next; /* in its list, or in that of the free ones */
    uint32_t prev;
};

/* In the order of posting: `of[0]` what takes tags of several first bytes, the others what takes one,
 * by that byte. So a request of one kind does not walk past the memory for the others. */
enum { WEFT_EXPECT_KINDS = 7 };

struct weft_expect_lists {
    struct weft_expect_list {
        uint32_t head;
        uint32_t tail;
    } of[WEFT_EXPECT_KINDS];
    uint32_t last; /* that the last message was taken from */
};

struct weft_expects {
    struct weft_expect *slots; /* (max,) */
    struct weft_expect_lists *lists; /* (peers_max + 1,): the last are those of any peer */
    uint32_t max;
    uint32_t peers_max;
    uint32_t free_head;
    uint64_t posted; /* ever */
};

/* max <= WEFT_EXPECTS_MAX. Owns: weft_expects_fini is due. Errors: WEFT_NOMEM. */
weft_status weft_expects_init(struct weft_expects *expects, uint32_t max, uint32_t peers_max);
/* A zeroed table is fine. */
void weft_expects_fini(struct weft_expects *expects);

/* As expect of core/msg.h; *slot_p is where it is until it is used up or cancelled. */
weft_status weft_expects_post(struct weft_expects *expects, const struct weft_msg_expect *expect,
                              struct weft_expect **slot_p);

/* WEFT_NOTFOUND: used up, or never posted. */
weft_status weft_expects_cancel(struct weft_expects *expects, weft_expect_id id);

/* What takes the peer's next message if that is of the kind of the last one; NULL: nothing. */
static inline const struct weft_expect *weft_expects_likely(const struct weft_expects *expects,
                                                            weft_peer peer)
{
    const struct weft_expect_lists *lists = &expects->lists[peer];
    uint32_t head = lists->of[lists->last].head;
    return head < expects->max ? &expects->slots[head] : NULL;
}

/* The expectation posted first that takes a message with this tag and size from peer; NULL: none.
 * Cost: the number of expectations for this peer and for any that take tags of its kind. */
struct weft_expect *weft_expects_match(const struct weft_expects *expects, weft_peer peer,
                                       uint64_t tag, uint32_t total, uint16_t elem_bytes);

/* A message was bound to it: one less of its count, and its place is free when that was the last. */
void weft_expects_use(struct weft_expects *expects, struct weft_expect *slot);

/* Latest time at which a message is closed whose first chunk arrives now. */
static inline uint64_t weft_expect_end(const struct weft_msg_expect *expect, uint64_t now_ns)
{
    uint64_t end_ns = weft_time_add(now_ns, expect->timeout_ns);
    return expect->until_ns > 0 ? weft_min_u64(end_ns, expect->until_ns) : end_ns;
}

#endif
