/* The share of acknowledgements in the reverse direction, and the sender's knowledge of their
 * delay: incast rounds at rates at which a packet needs 1.2 us to 2.5 ms, and all-to-all with
 * loss. */
#include "core_inspect.h"
#include "sim/exchange.h"
#include "sim/incast.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ROUNDS = 20, CHUNK_BYTES = 1408 };

struct look {
    uint32_t senders;
    uint64_t forth_bytes;
    uint64_t back_bytes;
    uint64_t acks;
    uint64_t announced_ns_max;
    uint64_t known_ns_max;
};

static void on_packet(void *arg, uint64_t now_ns, uint32_t from, uint32_t to, enum weft_ecn ecn,
                      const void *bytes, uint32_t count)
{
    (void)now_ns;
    (void)to;
    (void)ecn;
    (void)bytes;
    struct look *look = arg;
    uint64_t wire = count + WEFT_NET_OVERHEAD_BYTES + WEFT_TAG_BYTES;
    look->forth_bytes += from < look->senders ? wire : 0;
    look->back_bytes += from < look->senders ? 0 : wire;
    look->acks += from >= look->senders;
}

/* The sender uses the delay that the receiver announced. */
static void on_host(void *arg, uint32_t host, struct weft_ep *ep, bool last)
{
    (void)last;
    struct look *look = arg;
    const struct peer *p = inspect_peer(ep, 0);
    if (host < look->senders) {
        look->known_ns_max = weft_max_u64(look->known_ns_max, p->recovery.peer_delay_ns);
    }
    for (uint32_t i = 0; host >= look->senders && i < ep->peers_used; i++) {
        look->announced_ns_max =
            weft_max_u64(look->announced_ns_max, inspect_peer(ep, i)->ack.delay_ns);
    }
}

static struct weft_incast_result run(struct weft_incast_config *config, struct look *look)
{
    *look = (struct look){.senders = config->senders};
    struct weft_world_tap tap = {.arg = look, .packet = on_packet, .host = on_host};
    struct weft_incast_result result;
    config->tap = &tap;
    weft_incast_run(config, &result);
    config->tap = NULL;
    if (!result.ok) {
        fail_msg("%s", result.failure);
    }
    return result;
}

static struct weft_incast_config config_of(uint32_t senders, uint64_t rate_mbps, uint64_t chunks)
{
    struct weft_incast_config config;
    weft_incast_config_default(&config);
    config.senders = senders;
    config.message_bytes = chunks * CHUNK_BYTES;
    config.rate_bps = rate_mbps * 1000000;
    config.rounds = ROUNDS;
    return config;
}

/* At most 2.5 % for messages of at least 64 packets, and no round is longer because of it. */
static void the_way_back_is_nearly_free(void **state)
{
    (void)state;
    static const uint64_t rates_mbps[] = {5, 25, 100, 1000, 10000};
    static const uint32_t senders[] = {1, 2, 8, 16};
    static const uint64_t chunks[] = {64, 178};
    for (size_t r = 0; r < WEFT_ARRAY_COUNT(rates_mbps); r++) {
        for (size_t w = 0; w < WEFT_ARRAY_COUNT(senders); w++) {
            for (size_t c = 0; c < WEFT_ARRAY_COUNT(chunks); c++) {
                struct weft_incast_config config = config_of(senders[w], rates_mbps[r], chunks[c]);
                struct look look;
                struct weft_incast_result result = run(&config, &look);
                uint64_t back_ppm = look.back_bytes * WEFT_PPM / look.forth_bytes;
                print_message("%5" PRIu64 " Mbit/s, %2" PRIu32 " senders, %3" PRIu64
                              " packets: back %.2f %%, p50 %.4f x ideal\n",
                              rates_mbps[r], senders[w], chunks[c], (double)back_ppm / 1e4,
                              (double)result.p50_ns / (double)result.ideal_ns);
                assert_true(back_ppm <= 25000);
                assert_true(result.p50_ns <= result.ideal_ns + result.ideal_ns / 40);
                assert_true(look.known_ns_max <= look.announced_ns_max);
            }
        }
    }
}

/* At 25 Mbit/s an ACK is delayed by milliseconds. The sender knows the delay, so it sends no probe
 * meanwhile; it probes only for the first ACK, before it has a round trip. */
static void the_sender_knows_the_delay(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(1, 25, 178);
    struct look look;
    struct weft_incast_result result = run(&config, &look);
    assert_true(look.announced_ns_max > WEFT_NS_PER_MS);
    assert_int_equal(look.known_ns_max, look.announced_ns_max);
    assert_true(result.probes <= 1);
    assert_int_equal(result.data_lost, 0);
    assert_int_equal(result.retransmitted_ppm, 0);
}

/* The probe timeout includes the delay if the acknowledgement of the newest packet may be delayed.
 * A measured round trip excludes the delay, but at most the announced one. */
static void timers_and_round_trips_count_it(void **state)
{
    (void)state;
    const uint64_t ms = WEFT_NS_PER_MS;
    struct peer p = {.recovery.srtt_ns = 4 * ms,
                     .recovery.rttvar_ns = ms / 4,
                     .recovery.rtt_ns_min = ms,
                     .recovery.peer_delay_ns = ack_delay_ns_min};
    uint64_t least_ns = weft_core_pto_base(&p);
    assert_int_equal(least_ns, 4 * ms + ms + ack_delay_ns_min);
    p.recovery.peer_delay_ns = 3 * ms;
    assert_int_equal(weft_core_pto_base(&p), least_ns);
    p.recovery.bulk_last = true;
    assert_int_equal(weft_core_pto_base(&p), least_ns + 3 * ms - ack_delay_ns_min);
    weft_core_rtt_sample(&p, 7 * ms, 3 * ms);
    assert_int_equal(p.recovery.rtt_latest_ns, 4 * ms);
    weft_core_rtt_sample(&p, 9 * ms, 5 * ms);
    assert_int_equal(p.recovery.rtt_latest_ns, 6 * ms);
}

/* If a packet needs microseconds, no acknowledgement waits longer than before. */
static void fast_links_have_the_shortest_delay(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(1, 40000, 178);
    config.rtt_ns = 10 * WEFT_NS_PER_US;
    struct look look;
    (void)run(&config, &look);
    assert_int_equal(look.announced_ns_max, ack_delay_ns_min);
}

/* A lossy path also loses ACKs, so they are sent more often. */
static void lossy_paths_have_more(void **state)
{
    (void)state;
    struct weft_incast_config config = config_of(1, 25, 178);
    struct look clean;
    struct look lossy;
    (void)run(&config, &clean);
    config.loss_ppm = 50000;
    (void)run(&config, &lossy);
    print_message("ACKs: %" PRIu64 " without loss, %" PRIu64 " with 5 %%\n", clean.acks,
                  lossy.acks);
    assert_true(lossy.acks > clean.acks + clean.acks / 3);
}

/* Senders that take turns wait for grants. With one packet in twenty lost an ACK waits for a third
 * of a turn: 0.39 to 0.40 control packets per chunk; 0.47 if it waits for four packets, and 0.33 to
 * 0.36 if for a turn and a quarter, as with few losses. */
static void turns_save_some_where_many_are_lost(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct weft_exchange_config config;
        struct weft_exchange_result result;
        weft_exchange_config_default(&config);
        config.message_bytes = 62500;
        config.rate_bps = 25000000;
        config.buffer_bytes = 450000;
        config.rounds = 6;
        config.loss_ppm = 50000;
        config.seed = seed;
        weft_exchange_run(&config, &result);
        assert_true(result.ok);
        uint64_t control = result.packets - result.data_sent;
        uint64_t milli = control * 1000 / result.data_sent;
        print_message("control packets for 1,000 chunks: %" PRIu64 "\n", milli);
        assert_in_range(milli, 370, 440);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_back_is_nearly_free),
        cmocka_unit_test(the_sender_knows_the_delay),
        cmocka_unit_test(timers_and_round_trips_count_it),
        cmocka_unit_test(fast_links_have_the_shortest_delay),
        cmocka_unit_test(lossy_paths_have_more),
        cmocka_unit_test(turns_save_some_where_many_are_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
