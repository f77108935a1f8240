/* Lists of ids (key caching) at a shard: handmade requests, valid and invalid. */
#include "ps/layout.h"
#include "ps_keys_rig.h"

/* ---- what a shard makes of anything ---------------------------------------------------------- */

struct asked {
    struct cluster c;
    uint64_t message[512];
    uint8_t reply[64];
    uint32_t rpc_id;
    uint8_t number; /* of the last push */
};

static struct asked *asked_new(uint32_t chunks_max)
{
    struct asked *a = calloc(1, sizeof(*a));
    struct cluster_config config = keys_config(2);
    config.shard.chunks_max = chunks_max;
    config.shard.rows_per_rpc_max = 40;
    cluster_start(&a->c, &config, 1, 1);
    struct weft_table_spec spec = sums(0, 1);
    cluster_open(&a->c, &spec);
    spec.dim = 300; /* two blocks */
    a->rpc_id = 1000;
    return a;
}

static void asked_free(struct asked *a)
{
    cluster_stop(&a->c);
    free(a);
}

/* An id of shard 0. */
static uint64_t id_here(uint32_t i)
{
    uint64_t id = i;
    while (weft_table_shard_of(id, 2) != 0) {
        id += 1000;
    }
    return id;
}

/* Send a->message after a head, bypassing the client. Returns the status of the reply, -1 without a
 * reply. */
static int ask(struct asked *a, uint8_t op, uint32_t number, struct weft_rpc_request head,
               uint16_t elem_bytes, uint32_t total, uint16_t chunk_elems)
{
    struct fake_node *node = &a->c.net->nodes[2];
    uint64_t seq;
    weft_expect_id id = 0;
    head.rpc_id = ++a->rpc_id;
    if (op == WEFT_RPC_PUSH) {
        head.after_seq = ++a->number;
    }
    weft_rpc_request_pack(&head, a->message);
    memset(a->reply, 0xee, sizeof(a->reply));
    static uint8_t big[8192];
    const struct weft_msg_expect expect = {
        .peer = fake_peer(0), .sink = WEFT_SINK_COPY, .tag_mask = UINT64_MAX,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){.op = op | WEFT_RPC_REPLY_FLAG,
                                                       .number = head.rpc_id}),
        .memory = big, .memory_bytes = sizeof(big), .count = 1, .timeout_ns = WEFT_NEVER};
    memset(big, 0xee, sizeof(big));
    assert_int_equal(fake_expect(node, &expect, &id), WEFT_OK);
    const struct weft_msg_send send = {
        .peer = fake_peer(0), .base = a->message, .total = total, .elem_bytes = elem_bytes,
        .chunk_elems = chunk_elems, .critical = 1, .deadline_ns = WEFT_NEVER,
        .tag = weft_rpc_tag_pack((struct weft_rpc_tag){
            .op = op, .number = number, .low = op == WEFT_RPC_PUSH ? a->number : 0})};
    assert_int_equal(fake_send(node, &send, a->c.net->now_ns, &seq), WEFT_OK);
    cluster_run(&a->c);
    memcpy(a->reply, big, sizeof(a->reply));
    struct weft_rpc_reply reply;
    if (weft_rpc_reply_unpack(a->reply, WEFT_RPC_REPLY_BYTES, &reply) != WEFT_OK) {
        (void)fake_cancel(node, id);
        return -1;
    }
    assert_int_equal(reply.rpc_id, head.rpc_id);
    return reply.status;
}

static uint8_t *body(struct asked *a)
{
    return (uint8_t *)a->message + WEFT_RPC_REQUEST_BYTES;
}

/* Chunk 0 of a push of n rows from `first` on of a list. */
static int push_listed(struct asked *a, uint32_t rows, uint32_t first, uint32_t n, uint32_t list)
{
    struct weft_rpc_request head = {.rows = rows, .flags = WEFT_RPC_PACKED_IDS};
    memset(body(a), 0, sizeof(a->message) - WEFT_RPC_REQUEST_BYTES);
    weft_ps_listed_head(body(a), first, n, list);
    uint32_t total = WEFT_RPC_REQUEST_BYTES + WEFT_PS_LISTED_HEAD_BYTES + n * 4;
    return ask(a, WEFT_RPC_PUSH, 1, head, 1, total, (uint16_t)total);
}

static int list(struct asked *a, uint32_t number, uint32_t n, uint32_t rows)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = id_here(i);
        memcpy(body(a) + i * 8, &id, 8);
    }
    const struct weft_rpc_request head = {.rows = rows};
    return ask(a, WEFT_RPC_LIST, number, head, 8, 5 + n, 0);
}

static void hostile(void **state)
{
    (void)state;
    struct asked *a = asked_new(64);
    const struct weft_shard_counters *counters = weft_shard_counters(a->c.shard[0]);
    assert_int_equal(push_listed(a, 5, 0, 5, 77), WEFT_RPC_UNKNOWN_LIST);
    assert_int_equal(counters->lists_unknown, 1);
    a->number--; /* the number is still open, whatever its grid */
    assert_int_equal(list(a, 77, 5, 5), WEFT_RPC_OK);
    assert_int_equal(push_listed(a, 5, 1, 4, 77), WEFT_RPC_OK);
    assert_int_equal(counters->elements_applied, 4);
    a->number--; /* closed: accepted and not applied, although it names another list */
    assert_int_equal(push_listed(a, 5, 1, 4, 78), WEFT_RPC_OK);
    assert_int_equal(counters->elements_applied, 4);
    /* Rows beyond the list, no rows, no list, or a count that differs from the list's. */
    assert_int_equal(push_listed(a, 5, 2, 4, 77), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 5, UINT32_MAX, 4, 77), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 5, 5, 1, 77), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 5, 0, 0, 77), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 5, 0, 4, 0), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 4, 0, 4, 77), WEFT_RPC_BAD_REQUEST);
    /* A chunk that ends within its values, or within its head. */
    struct weft_rpc_request head = {.rows = 5, .flags = WEFT_RPC_PACKED_IDS};
    memset(body(a), 0, 64);
    weft_ps_listed_head(body(a), 0, 5, 77);
    assert_int_equal(ask(a, WEFT_RPC_PUSH, 1, head, 1, 40 + 12 + 5 * 4 - 1, 200),
                     WEFT_RPC_BAD_REQUEST);
    assert_int_equal(ask(a, WEFT_RPC_PUSH, 1, head, 1, 40 + 11, 200), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(counters->elements_applied, 4);
    /* Send a list again: valid twice; then with too many ids, no ids, ids of another shard, packed
     * ids, no number. */
    assert_int_equal(list(a, 77, 5, 5), WEFT_RPC_OK);
    assert_int_equal(list(a, 77, 5, 5), WEFT_RPC_OK);
    assert_int_equal(push_listed(a, 5, 0, 5, 77), WEFT_RPC_OK);
    assert_int_equal(list(a, 78, 41, 41), WEFT_RPC_TOO_LARGE);
    assert_int_equal(push_listed(a, 5, 0, 5, 77), WEFT_RPC_UNKNOWN_LIST); /* its slot was reused */
    assert_int_equal(list(a, 78, 5, 4), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(list(a, 78, 0, 0), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(list(a, 0, 5, 5), WEFT_RPC_BAD_REQUEST);
    head = (struct weft_rpc_request){.rows = 1};
    uint64_t elsewhere = 0;
    while (weft_table_shard_of(elsewhere, 2) == 0) {
        elsewhere++;
    }
    memcpy(body(a), &elsewhere, 8);
    assert_int_equal(ask(a, WEFT_RPC_LIST, 79, head, 8, 6, 0), WEFT_RPC_WRONG_SHARD);
    head.flags = WEFT_RPC_PACKED_IDS;
    assert_int_equal(ask(a, WEFT_RPC_LIST, 79, head, 1, 60, 0), WEFT_RPC_BAD_REQUEST);
    head = (struct weft_rpc_request){.rows = 1, .flags = WEFT_RPC_KEEP_IDS};
    assert_int_equal(ask(a, WEFT_RPC_LIST, 79, head, 8, 6, 0), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 1, 0, 1, 79), WEFT_RPC_UNKNOWN_LIST);
    assert_int_equal(push_listed(a, 1, 0, 1, 78), WEFT_RPC_UNKNOWN_LIST);
    /* Keep the ids of an empty pull; of a push. */
    head = (struct weft_rpc_request){.flags = WEFT_RPC_KEEP_IDS};
    assert_int_equal(ask(a, WEFT_RPC_PULL, 0, head, 8, 5, 0), WEFT_RPC_BAD_REQUEST);
    head.flags |= WEFT_RPC_PACKED_IDS;
    assert_int_equal(ask(a, WEFT_RPC_PUSH, 1, head, 1, 40, 0), WEFT_RPC_BAD_REQUEST);
    /* A PULL that names a list. */
    head = (struct weft_rpc_request){.rows = 5, .flags = WEFT_RPC_PACKED_IDS};
    assert_int_equal(list(a, 77, 5, 5), WEFT_RPC_OK);
    memset(body(a), 0, 64);
    weft_ps_listed_head(body(a), 0, 5, 77);
    assert_int_equal(ask(a, WEFT_RPC_PULL, 0, head, 1, 60, 200), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(counters->elements_applied, 9);
    asked_free(a);
}

/* A pull of n ids that requests to keep them. */
static void keep(struct asked *a, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = id_here(first + i);
        memcpy(body(a) + i * 8, &id, 8);
    }
    const struct weft_rpc_request head = {.rows = n, .flags = WEFT_RPC_KEEP_IDS};
    assert_int_equal(ask(a, WEFT_RPC_PULL, 0, head, 8, 5 + n, 0), WEFT_RPC_OK);
}

/* A list from LIST has the same number as a later pull whose list was dropped: the older list must
 * not be used for it. */
static void the_older_list_of_a_number(void **state)
{
    (void)state;
    struct asked *a = asked_new(64);
    const struct weft_shard_counters *counters = weft_shard_counters(a->c.shard[0]);
    uint32_t number = a->rpc_id + 2;
    assert_int_equal(list(a, number, 5, 5), WEFT_RPC_OK);
    keep(a, 100, 5);
    assert_int_equal(a->rpc_id, number);
    for (uint32_t i = 0; i < 600; i++) {
        keep(a, 200, 1);
    }
    assert_int_equal(counters->lists_stored, 601);
    assert_int_equal(push_listed(a, 5, 0, 5, number), WEFT_RPC_UNKNOWN_LIST);
    assert_int_equal(counters->elements_applied, 0);
    asked_free(a);
}

/* A push of two chunks that name different lists; one of many pushes whose list is unknown. */
static void two_lists(void **state)
{
    (void)state;
    struct asked *a = asked_new(64);
    for (uint32_t i = 0; i < 60; i++) { /* more pushes than a shard keeps masks of */
        assert_int_equal(push_listed(a, 5, 0, 5, 1000 + i), WEFT_RPC_UNKNOWN_LIST);
    }
    assert_int_equal(list(a, 77, 5, 5), WEFT_RPC_OK);
    assert_int_equal(push_listed(a, 5, 0, 5, 77), WEFT_RPC_OK);
    struct weft_rpc_request head = {.rows = 5, .flags = WEFT_RPC_PACKED_IDS};
    memset(body(a), 0, 200);
    weft_ps_listed_head(body(a), 0, 2, 77);
    weft_ps_listed_head((uint8_t *)a->message + 60, 2, 3, 76);
    int status = ask(a, WEFT_RPC_PUSH, 1, head, 1, 60 + 24, 60);
    assert_true(status == WEFT_RPC_BAD_REQUEST || status == WEFT_RPC_UNKNOWN_LIST);
    asked_free(a);
}

/* A shard without masks of pushes accepts no lists. */
static void no_lists(void **state)
{
    (void)state;
    struct asked *a = asked_new(0);
    assert_int_equal(list(a, 77, 5, 5), WEFT_RPC_BAD_REQUEST);
    assert_int_equal(push_listed(a, 5, 0, 5, 77), WEFT_RPC_BAD_REQUEST);
    const struct weft_rpc_request head = {.rows = 1, .flags = WEFT_RPC_KEEP_IDS};
    assert_int_equal(ask(a, WEFT_RPC_PULL, 0, head, 8, 6, 0), WEFT_RPC_BAD_REQUEST);
    asked_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile),
        cmocka_unit_test(the_older_list_of_a_number),
        cmocka_unit_test(two_lists),
        cmocka_unit_test(no_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
