/* Requests and replies of members from arbitrary bytes: a decoder refuses them, or its result packs
 * into the same bytes; and the roster's reply to any request can be decoded. The first byte is the
 * op of a request, or 0 for a reply. */
#include "base/assert.h"
#include "member/roster.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reply(const uint8_t *data, size_t size)
{
    static struct weft_member_reply a;
    static uint8_t
        bytes[WEFT_MEMBER_REPLY_BYTES + WEFT_MEMBER_SHARDS_MAX * WEFT_MEMBER_ADDRESS_BYTES];
    if (weft_member_reply_unpack(data, size, &a) == WEFT_OK) {
        WEFT_ASSERT(weft_member_reply_pack(&a, bytes) == size);
        WEFT_ASSERT(memcmp(bytes, data, size) == 0);
        WEFT_ASSERT(weft_member_status_text(a.status) != NULL);
    }
}

/* The same request three times, at increasing times, to a roster that already has a server. */
static void ask(uint8_t op, const struct weft_member_request *q)
{
    static struct weft_member_reply a;
    static struct weft_member_reply back;
    static uint8_t
        bytes[WEFT_MEMBER_REPLY_BYTES + WEFT_MEMBER_SHARDS_MAX * WEFT_MEMBER_ADDRESS_BYTES];
    struct weft_member_request record;
    struct weft_member_request who;
    struct weft_roster *roster;
    struct weft_roster_config config;
    weft_roster_config_default(&config);
    config.members_max = 4;
    WEFT_ASSERT(weft_roster_new(&config, &roster) == WEFT_OK);
    struct weft_member_request first = {.rpc_id = 1,
                                        .role = WEFT_ROLE_SERVER,
                                        .member = 7,
                                        .incarnation = 2,
                                        .rank = WEFT_MEMBER_NONE,
                                        .workers = q->workers,
                                        .shards = 2,
                                        .span = 1};
    memcpy(first.job, q->job, sizeof(first.job));
    (void)weft_roster_handle(roster, WEFT_MEMBER_REGISTER, &first, 0, &a, &record);
    for (uint64_t now_ns = 0; now_ns < 3 * config.lease_ns; now_ns += config.lease_ns) {
        while (weft_roster_expire_next(roster, now_ns, &who)) {
        }
        bool changed = weft_roster_handle(roster, op, q, now_ns, &a, &record);
        size_t count = weft_member_reply_pack(&a, bytes);
        WEFT_ASSERT(weft_member_reply_unpack(bytes, count, &back) == WEFT_OK);
        WEFT_ASSERT(!changed || a.status == WEFT_MEMBER_OK);
        WEFT_ASSERT(!changed || weft_roster_restore(roster, op, &record, now_ns) == WEFT_OK);
        WEFT_ASSERT(weft_roster_members(roster) <= 4);
        (void)weft_roster_list(roster, &a);
    }
    weft_roster_free(roster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_member_request q;
    uint8_t bytes[WEFT_MEMBER_REQUEST_BYTES_MAX];
    if (size == 0) {
        return 0;
    }
    if (data[0] == 0) {
        reply(data + 1, size - 1);
    } else if (weft_member_request_unpack(data[0], data + 1, size - 1, &q) == WEFT_OK) {
        WEFT_ASSERT(weft_member_request_pack(&q, bytes) == size - 1);
        WEFT_ASSERT(memcmp(bytes, data + 1, size - 1) == 0);
        if (data[0] != WEFT_MEMBER_LIST) {
            ask(data[0], &q);
        }
    }
    return 0;
}
