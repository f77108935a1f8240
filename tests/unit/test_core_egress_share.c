/* The limit on the host's queue if other traffic shares that queue (core/egress_share.c). */
#include "core_net.h"

static const uint64_t rate_bps_first = 200000000;

/* A queue that a link drains. It contains `own` bytes of the endpoint and `other` bytes of another
 * sender, which keeps that amount constant. Both are treated as mixed, so each drains in
 * proportion. */
struct line {
    struct net *net;
    uint64_t rate_bps;
    double own;
    double other;
    double drained; /* of its own, in all */
    double sent;    /* by the link, in all */
    bool counts;    /* the driver counts what the link sends */
    bool counts_own; /* that count is of the endpoint's bytes only */
    bool in_turn;    /* flows are served in turn, as by fq_codel: the other traffic has its half */
    uint64_t late_ns;
};

static struct line *line_new(void)
{
    struct line *line = calloc(1, sizeof(*line));
    struct weft_ep_config config;
    net_config(&config, WEFT_MODE_NONE);
    config.host_queue = 1;
    line->net = calloc(1, sizeof(*line->net));
    line->net->now_ns = WEFT_NS_PER_S;
    line->rate_bps = rate_bps_first;
    line->late_ns = 20 * WEFT_NS_PER_US;
    net_open(line->net, 0, &config);
    return line;
}

static void line_free(struct line *line)
{
    net_free(line->net);
    free(line);
}

static void pass(struct line *line, uint64_t ns)
{
    double step_s = 2e-6;
    for (double left_s = (double)ns * 1e-9; left_s > 0 && line->own > 0; left_s -= step_s) {
        double bytes = (double)line->rate_bps / 8 * (left_s < step_s ? left_s : step_s);
        double part = bytes * line->own / (line->own + line->other);
        if (line->in_turn && line->other > 0) {
            part = bytes / 4;
        }
        part = part < line->own ? part : line->own;
        line->sent += line->other > 0 && !line->counts_own ? bytes : part;
        line->own -= part;
        line->drained += part;
    }
    line->net->now_ns += ns;
}

static void report(struct line *line)
{
    struct weft_ep *ep = line->net->end[0].ep;
    if (line->counts && weft_ep_link_asked(ep, (uint64_t)line->own)) {
        weft_ep_link_sent(ep, 1000000 + (uint64_t)line->sent);
    }
    weft_ep_queued(ep, (uint64_t)line->own, line->net->now_ns);
}

/* Run for this time with an endpoint that always has chunks to send. Returns its share of the
 * link. */
static double run(struct line *line, uint64_t ns)
{
    struct weft_ep *ep = line->net->end[0].ep;
    struct egress *e = &ep->egress;
    uint64_t until_ns = line->net->now_ns + ns;
    double before = line->drained;
    while (line->net->now_ns < until_ns) {
        weft_core_egress_turn(ep, line->net->now_ns);
        report(line);
        while (e->room_bytes > 0) {
            line->own += (double)e->room_bytes;
            weft_core_egress_sent(ep, e->room_bytes);
            report(line);
        }
        uint64_t wait_ns = e->report_ns - line->net->now_ns;
        pass(line, wait_ns + (wait_ns * 7919 + line->net->now_ns) % (2 * line->late_ns));
    }
    return (line->drained - before) * 8e9 / ((double)line->rate_bps * (double)ns);
}

static const struct egress *egress_of(const struct line *line)
{
    return &line->net->end[0].ep->egress;
}

static void alone_the_limit_stays_a_millisecond(void **state)
{
    (void)state;
    struct line *line = line_new();
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(run(line, 250 * WEFT_NS_PER_MS) > 0.98);
        assert_in_range(egress_of(line)->limit_bytes, 12000, 25100);
        assert_false(egress_of(line)->share.shared);
    }
    line_free(line);
}

/* A TCP connection was observed to keep the queue at half of four milliseconds of the link. */
static void beside_other_traffic_the_part_does_not_shrink(void **state)
{
    (void)state;
    static const double others[] = {12500, 25000, 50000, 100000, 160000};
    static const double least[] = {0.4, 0.35, 0.3, 0.2, 0.12};
    for (uint32_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct line *line = line_new();
        (void)run(line, WEFT_NS_PER_S / 4); /* the link's rate is now known */
        line->other = others[i];
        for (uint32_t j = 0; j < 40; j++) {
            double part = run(line, 250 * WEFT_NS_PER_MS);
            if (part < least[i]) {
                fail_msg("beside %.0f bytes a part of %.3f after %u quarters of a second",
                         others[i], part, j);
            }
            assert_in_range(egress_of(line)->limit_bytes, 12000, 160000);
        }
        line_free(line);
    }
}

/* The other traffic began first: only trials detect it. */
static void other_traffic_is_found_from_the_beginning(void **state)
{
    (void)state;
    struct line *line = line_new();
    line->other = 60000;
    (void)run(line, 2 * WEFT_NS_PER_S);
    assert_true(run(line, WEFT_NS_PER_S) > 0.3);
    line_free(line);
}

static void when_the_other_traffic_ends_the_limit_falls(void **state)
{
    (void)state;
    struct line *line = line_new();
    (void)run(line, WEFT_NS_PER_S);
    line->other = 60000;
    (void)run(line, 2 * WEFT_NS_PER_S);
    assert_true(egress_of(line)->limit_bytes > 25100);
    line->other = 0;
    (void)run(line, WEFT_NS_PER_S);
    assert_true(run(line, WEFT_NS_PER_S) > 0.98);
    assert_in_range(egress_of(line)->limit_bytes, 12000, 25100);
    line_free(line);
}

/* A link that becomes ten times slower resembles other traffic, but a trial distinguishes the
 * two. */
static void a_slower_link_is_told_from_other_traffic(void **state)
{
    (void)state;
    struct line *line = line_new();
    (void)run(line, WEFT_NS_PER_S);
    line->rate_bps /= 10;
    (void)run(line, WEFT_NS_PER_S);
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(run(line, 250 * WEFT_NS_PER_MS) > 0.98);
        assert_int_equal(egress_of(line)->limit_bytes, 12000);
    }
    line_free(line);
}

/* A process that is scheduled late finds an empty queue and cannot measure rates. */
static void late_looks_do_not_pass_for_other_traffic(void **state)
{
    (void)state;
    struct line *line = line_new();
    line->late_ns = 300 * WEFT_NS_PER_US;
    for (uint32_t i = 0; i < 20; i++) {
        (void)run(line, 250 * WEFT_NS_PER_MS);
        assert_in_range(egress_of(line)->limit_bytes, 12000, 25100);
    }
    line_free(line);
}

/* Four endpoints of one process: each detects three others and keeps the limit for its own drain
 * rate. */
static void siblings_are_not_other_traffic(void **state)
{
    (void)state;
    struct line *line = line_new();
    (void)run(line, WEFT_NS_PER_S);
    line->other = 60000;
    (void)run(line, 2 * WEFT_NS_PER_S);
    assert_true(egress_of(line)->limit_bytes > 25100);
    weft_ep_queue_siblings(line->net->end[0].ep, true);
    (void)run(line, WEFT_NS_PER_S);
    for (uint32_t i = 0; i < 20; i++) {
        (void)run(line, 250 * WEFT_NS_PER_MS);
        assert_in_range(egress_of(line)->limit_bytes, 5000, 12500);
        assert_false(egress_of(line)->share.trial);
    }
    weft_ep_queue_siblings(line->net->end[0].ep, false);
    (void)run(line, 2 * WEFT_NS_PER_S);
    assert_true(egress_of(line)->limit_bytes > 25100);
    line_free(line);
}

/* With a count no trial is needed: the link's rate is known after the first phase. */
static void a_count_of_the_link_finds_other_traffic_at_once(void **state)
{
    (void)state;
    static const double others[] = {30000, 60000, 160000};
    for (uint32_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct line *line = line_new();
        line->counts = true;
        line->other = others[i];
        line->net->end[0].ep->egress.receivers = 8;
        (void)run(line, 300 * WEFT_NS_PER_MS);
        const struct egress_share *share = &egress_of(line)->share;
        assert_true(share->shared);
        assert_in_range(share->link_bps, rate_bps_first / 100 * 95, rate_bps_first / 100 * 105);
        for (uint32_t j = 0; j < 20; j++) {
            double part = run(line, 250 * WEFT_NS_PER_MS);
            assert_true(part > 0.38 && part < 0.75);
            assert_false(share->trial);
        }
        line->other = 0;
        (void)run(line, WEFT_NS_PER_S);
        assert_true(run(line, WEFT_NS_PER_S) > 0.98);
        assert_in_range(egress_of(line)->limit_bytes, 12000, 25100);
        assert_false(weft_ep_link_asked(line->net->end[0].ep, 1000000));
        line_free(line);
    }
}

/* While no rate is known, a count would be of use, but not beside a report of a nearly empty queue,
 * as of a worker whose packets always leave at once. */
static void an_empty_queue_needs_no_count(void **state)
{
    (void)state;
    struct line *line = line_new();
    const struct weft_ep *ep = line->net->end[0].ep;
    assert_int_equal(egress_of(line)->share.rate_bps, 0);
    uint64_t limit_bytes = egress_of(line)->limit_bytes;
    assert_true(limit_bytes >= 4);
    assert_false(weft_ep_link_asked(ep, 0));
    assert_false(weft_ep_link_asked(ep, limit_bytes / 4 - 1));
    assert_true(weft_ep_link_asked(ep, limit_bytes / 4));
    line_free(line);
}

/* In a container the interface counts this endpoint's bytes only. */
static void a_count_of_own_bytes_changes_nothing(void **state)
{
    (void)state;
    struct line *line = line_new();
    line->other = 60000;
    (void)run(line, 2 * WEFT_NS_PER_S);
    double without = run(line, WEFT_NS_PER_S);
    line_free(line);
    line = line_new();
    line->other = 60000;
    line->counts = line->counts_own = true;
    (void)run(line, 2 * WEFT_NS_PER_S);
    assert_true(run(line, WEFT_NS_PER_S) > without - 0.05);
    line_free(line);
}

/* A longer queue of its own gains an endpoint nothing there, so the limit returns to one unit and
 * stays there most of the time. */
static void where_flows_are_served_in_turn_the_limit_is_one_unit(void **state)
{
    (void)state;
    struct line *line = line_new();
    line->counts = true;
    line->in_turn = true;
    line->net->end[0].ep->egress.receivers = 8;
    (void)run(line, WEFT_NS_PER_S);
    line->other = 60000;
    (void)run(line, 4 * WEFT_NS_PER_S);
    assert_true(egress_of(line)->share.shared);
    uint32_t longer = 0;
    for (uint32_t i = 0; i < 400; i++) {
        (void)run(line, 25 * WEFT_NS_PER_MS);
        longer += egress_of(line)->limit_bytes > 25100;
    }
    assert_in_range(longer, 0, 60);
    line_free(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_the_limit_stays_a_millisecond),
        cmocka_unit_test(beside_other_traffic_the_part_does_not_shrink),
        cmocka_unit_test(other_traffic_is_found_from_the_beginning),
        cmocka_unit_test(when_the_other_traffic_ends_the_limit_falls),
        cmocka_unit_test(a_slower_link_is_told_from_other_traffic),
        cmocka_unit_test(late_looks_do_not_pass_for_other_traffic),
        cmocka_unit_test(a_count_of_the_link_finds_other_traffic_at_once),
        cmocka_unit_test(an_empty_queue_needs_no_count),
        cmocka_unit_test(a_count_of_own_bytes_changes_nothing),
        cmocka_unit_test(where_flows_are_served_in_turn_the_limit_is_one_unit),
        cmocka_unit_test(siblings_are_not_other_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
