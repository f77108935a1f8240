/* The ring of records: records are read in order and unchanged, short or not, and a full ring drops
 * and counts. */
#include "rpc/rpc_record.h"

#include "base/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 8, ROUNDS = 20000 };

static bool put(struct weft_rpc_record_ring *ring, uint32_t number)
{
    uint64_t dropped = weft_rpc_record_ring_dropped(ring);
    weft_rpc_record_put_client(ring, 0, &(struct weft_rpc_record_client){.rpc = number});
    return weft_rpc_record_ring_dropped(ring) == dropped;
}

/* Read all records; the first must be `number`, and each further one larger by 1. Returns their
 * number. */
static uint32_t take(struct weft_rpc_record_ring *ring, uint32_t number)
{
    uint32_t all = 0;
    for (uint32_t units; weft_rpc_record_ring_peek(ring, &units), units > 0;) {
        const struct weft_rpc_record_unit *at = weft_rpc_record_ring_peek(ring, &units);
        for (uint32_t done = 0; done < units;) {
            struct weft_rpc_record record;
            done += weft_rpc_record_read(at + done, units - done, &record);
            assert_int_equal(record.rpc.rpc, number + all++);
        }
        weft_rpc_record_ring_take(ring, units);
    }
    return all;
}

static void in_order_over_the_edge(void **state)
{
    (void)state;
    struct weft_rpc_record_ring *ring;
    assert_int_equal(weft_rpc_record_ring_new(SLOTS, &ring), WEFT_OK);
    uint32_t made = 0;
    uint32_t taken = 0;
    for (uint32_t n = 0; n <= SLOTS; n++) {
        for (uint32_t i = 0; i < n; i++) {
            assert_true(put(ring, made++));
        }
        taken += take(ring, taken);
        assert_int_equal(taken, made);
    }
    assert_int_equal(weft_rpc_record_ring_dropped(ring), 0);
    weft_rpc_record_ring_free(ring);
}

static void full_drops_and_counts(void **state)
{
    (void)state;
    struct weft_rpc_record_ring *ring;
    assert_int_equal(weft_rpc_record_ring_new(SLOTS, &ring), WEFT_OK);
    for (uint32_t i = 0; i < SLOTS; i++) {
        assert_true(put(ring, i));
    }
    assert_false(put(ring, 100));
    assert_false(put(ring, 101));
    assert_int_equal(weft_rpc_record_ring_dropped(ring), 2);
    assert_int_equal(take(ring, 0), SLOTS);
    assert_true(put(ring, SLOTS));
    assert_int_equal(take(ring, SLOTS), 1);
    assert_int_equal(weft_rpc_record_ring_dropped(ring), 2);
    weft_rpc_record_ring_free(ring);
}

/* A claimed record is invisible until it is committed; without a ring nothing is recorded. */
static void claimed_is_not_there(void **state)
{
    (void)state;
    struct weft_rpc_record_ring *ring;
    uint32_t count;
    assert_int_equal(weft_rpc_record_ring_new(SLOTS, &ring), WEFT_OK);
    assert_non_null(weft_rpc_record_claim(ring, WEFT_RPC_RECORD_UNITS));
    (void)weft_rpc_record_ring_peek(ring, &count);
    assert_int_equal(count, 0);
    assert_true(put(ring, 7));
    assert_int_equal(take(ring, 7), 1);
    weft_rpc_record_ring_free(ring);
    weft_rpc_record_put_client(NULL, 0, &(struct weft_rpc_record_client){.rpc = 1});
    weft_rpc_record_put_served(NULL, 0, &(struct weft_rpc_record_served){.rpc = 1});
    weft_rpc_record_put(NULL, &(struct weft_rpc_record){.type = WEFT_RPC_RECORD_HOT});
    weft_rpc_record_ring_free(NULL);
}

/* ---- any record ------------------------------------------------------------------------------ */

/* Mostly small values, often at the limit of short records, sometimes arbitrary. */
static uint64_t figure(struct weft_prng *prng, uint32_t bits)
{
    const uint64_t edge = UINT64_C(1) << bits;
    switch (weft_prng_below(prng, 40)) {
    case 0:
        return edge - 1;
    case 1:
        return edge;
    case 2:
        return UINT64_MAX;
    case 3:
        return weft_prng_u64(prng);
    default:
        return weft_prng_below(prng, 1 << 10);
    }
}

static struct weft_rpc_record_client any_rpc(struct weft_prng *prng)
{
    struct weft_rpc_record_client rpc = {
        .worker = (uint32_t)figure(prng, 16),
        .server = (uint32_t)figure(prng, 16),
        .rpc = (uint32_t)figure(prng, 32),
        .iteration = (uint32_t)figure(prng, 32),
        .rows = (uint32_t)figure(prng, 32),
        .status = (uint16_t)figure(prng, 8),
        .kind = (uint8_t)weft_prng_below(prng, 20),
        .t0_ns = weft_prng_u64(prng),
        .request_bytes = figure(prng, 32),
        .reply_bytes = figure(prng, 32),
        .latency = {figure(prng, 32), figure(prng, 32), figure(prng, 32), figure(prng, 32),
                    figure(prng, 32), figure(prng, 32), 0},
    };
    rpc.t1_ns = rpc.t0_ns + figure(prng, 32);
    rpc.latency.n_tx_ns = rpc.t1_ns - rpc.t0_ns - rpc.latency.ps_queue_ns - rpc.latency.ps_proc_ns -
                          rpc.latency.ps_wait_ns;
    /* a server that reports too long a duration */
    rpc.latency.n_tx_ns += weft_prng_below(prng, 20) == 0;
    return rpc;
}

static struct weft_rpc_record_served any_served(struct weft_prng *prng)
{
    struct weft_rpc_record_served served = {
        .server = (uint32_t)figure(prng, 16),
        .worker = (uint32_t)figure(prng, 16),
        .rpc = (uint32_t)figure(prng, 32),
        .kind = (uint8_t)weft_prng_below(prng, 20),
        .arrival_ns = weft_prng_u64(prng),
        .ps_proc_ns = figure(prng, 32),
        .ps_wait_ns = figure(prng, 32),
    };
    uint64_t inside_ns = figure(prng, 32);
    served.departure_ns = served.arrival_ns + inside_ns;
    served.ps_queue_ns = inside_ns - served.ps_proc_ns - served.ps_wait_ns;
    served.ps_queue_ns += weft_prng_below(prng, 20) == 0;
    return served;
}

/* Also returns the expected number of units. */
static struct weft_rpc_record any_record(struct weft_prng *prng, uint32_t *units_p)
{
    struct weft_rpc_record record = {.table = (uint16_t)weft_prng_u64(prng)};
    switch (weft_prng_below(prng, 3)) {
    case 0:
        record.type = WEFT_RPC_RECORD_CLIENT;
        record.rpc = any_rpc(prng);
        *units_p = weft_rpc_record_client_fits(&record.rpc) ? WEFT_RPC_RECORD_CLIENT_UNITS
                                                            : WEFT_RPC_RECORD_UNITS;
        break;
    case 1:
        record.type = WEFT_RPC_RECORD_SERVED;
        record.served = any_served(prng);
        *units_p = weft_rpc_record_served_fits(&record.served) ? WEFT_RPC_RECORD_SERVED_UNITS
                                                               : WEFT_RPC_RECORD_UNITS;
        break;
    default:
        record.type = WEFT_RPC_RECORD_ACTIVE;
        record.active = (struct weft_rpc_record_active){.start_ns = weft_prng_u64(prng)};
        *units_p = WEFT_RPC_RECORD_UNITS;
    }
    return record;
}

static void put_any(struct weft_rpc_record_ring *ring, const struct weft_rpc_record *record)
{
    if (record->type == WEFT_RPC_RECORD_CLIENT) {
        weft_rpc_record_put_client(ring, record->table, &record->rpc);
    } else if (record->type == WEFT_RPC_RECORD_SERVED) {
        weft_rpc_record_put_served(ring, record->table, &record->served);
    } else {
        weft_rpc_record_put(ring, record);
    }
}

struct queue {
    struct weft_rpc_record records[2 * SLOTS]; /* contents of the ring, oldest first */
    uint32_t count;
    uint32_t units; /* units in use */
};

/* Read up to `most` records; each must be the oldest one. Returns the number of short ones. */
static uint32_t take_some(struct weft_rpc_record_ring *ring, struct queue *queue, uint32_t most)
{
    uint32_t units, brief = 0, taken = 0;
    const struct weft_rpc_record_unit *at;
    while (at = weft_rpc_record_ring_peek(ring, &units), units > 0 && taken < most) {
        struct weft_rpc_record record;
        uint32_t used = weft_rpc_record_read(at, units, &record);
        assert_in_range(used, 1, units);
        assert_int_equal(weft_rpc_record_count(at, used), record.type != WEFT_RPC_RECORD_NOTHING);
        weft_rpc_record_ring_take(ring, used);
        if (record.type != WEFT_RPC_RECORD_NOTHING) {
            assert_memory_equal(&record, &queue->records[taken], sizeof(record));
            brief += used < WEFT_RPC_RECORD_UNITS;
            queue->units -= used;
            taken++;
        }
    }
    queue->count -= taken;
    memmove(queue->records, queue->records + taken, queue->count * sizeof(queue->records[0]));
    return brief;
}

/* True: there was room. */
static bool put_queued(struct weft_rpc_record_ring *ring, struct queue *queue,
                       struct weft_prng *prng)
{
    uint32_t units;
    while (weft_prng_below(prng, 4) == 0) {
        (void)weft_rpc_record_claim(ring,
                                    1 + (uint32_t)weft_prng_below(prng, WEFT_RPC_RECORD_UNITS));
    }
    uint64_t dropped = weft_rpc_record_ring_dropped(ring);
    struct weft_rpc_record record = any_record(prng, &units);
    put_any(ring, &record);
    if (weft_rpc_record_ring_dropped(ring) > dropped) {
        /* At most the units before the end of the ring can be lost. */
        assert_true(queue->units + units + WEFT_RPC_RECORD_UNITS - 1 > ring->units);
        return false;
    }
    queue->records[queue->count++] = record;
    queue->units += units;
    assert_true(queue->units <= ring->units);
    return true;
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    struct weft_rpc_record_ring *ring;
    struct queue queue = {.count = 0};
    struct weft_prng prng;
    uint32_t all = 0, brief = 0;
    weft_prng_init(&prng, 1);
    assert_int_equal(weft_rpc_record_ring_new(SLOTS, &ring), WEFT_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint64_t n = weft_prng_below(&prng, 12); n > 0; n--) {
            all += put_queued(ring, &queue, &prng);
        }
        brief += take_some(ring, &queue, (uint32_t)weft_prng_below(&prng, 12));
    }
    brief += take_some(ring, &queue, UINT32_MAX);
    assert_int_equal(queue.count, 0);
    assert_true(all > ROUNDS && brief > all / 10 && brief < all - all / 10);
    assert_true(weft_rpc_record_ring_dropped(ring) > 0);
    weft_rpc_record_ring_free(ring);
}

/* The records come from an untrusted file. */
static void half_a_record_is_none(void **state)
{
    (void)state;
    struct weft_rpc_record_unit units[WEFT_RPC_RECORD_UNITS];
    struct weft_rpc_record record;
    memset(units, 0, sizeof(units));
    assert_int_equal(weft_rpc_record_read(units, 0, &record), 0);
    for (uint32_t form = 0; form < 256; form++) {
        units[0].bytes[0] = (uint8_t)form;
        uint32_t need = weft_rpc_record_read(units, WEFT_RPC_RECORD_UNITS, &record);
        assert_in_range(need, 1, WEFT_RPC_RECORD_UNITS);
        assert_int_equal(weft_rpc_record_read(units, need - 1, &record), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_over_the_edge), cmocka_unit_test(full_drops_and_counts),
        cmocka_unit_test(claimed_is_not_there),   cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(half_a_record_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
