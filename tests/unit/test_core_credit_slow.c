/* A receiver that processes packets more slowly than its link delivers them. Packets wait in its
 * socket, as they do if its process waits for a processor, and the receiver keeps more credit
 * outstanding to compensate. That slack must not grow without limit: it stays within its two
 * bounds, and a port of 450 KB in front of the receiver loses nothing. */
#include "core_net.h"

enum {
    CHUNK_BYTES = 1408,
    CHUNKS = 400,
    MESSAGES = 60, /* messages of each sender */
    PORT_BYTES = 450000,
    WIRE_BYTES = 42,
    SLACK_BYTES_MOST = 256000,
    WAITS_MAX = 8192,
};

static const uint64_t late_ns_most = 12 * WEFT_NS_PER_MS;

static uint8_t source[CHUNKS * CHUNK_BYTES];
static uint8_t memory[CHUNKS * CHUNK_BYTES];

/* Bytes sent to the receiver: queued before its link or in its socket. */
struct waiting {
    uint64_t at_ns; /* arrival time in the socket */
    struct weft_addr from;
    uint32_t bytes;
    uint8_t *data;
};

static struct {
    uint64_t rate_bps;
    uint64_t packet_ns; /* processing time of a packet */
    struct waiting waits[WAITS_MAX];
    uint32_t first;
    uint32_t end;
    uint64_t link_free_ns;
    uint64_t busy_ns; /* end of the current processing */
    uint64_t lost;
    uint64_t port_most; /* maximum queue of the port, in bytes */
    uint64_t slack_most;
    uint64_t late_most_ns;
} slow;

static uint64_t wire_ns(uint64_t bytes)
{
    return bytes * 8 * WEFT_NS_PER_S / slow.rate_bps;
}

/* Intercept packets to the receiver. */
static bool port(struct net *net, struct net_datagram *d)
{
    if (!addr_equal(&d->to, &net->end[1].addr)) {
        return true;
    }
    uint64_t free_ns = weft_max_u64(slow.link_free_ns, net->now_ns);
    uint64_t queued = (free_ns - net->now_ns) * slow.rate_bps / (8 * WEFT_NS_PER_S);
    slow.port_most = weft_max_u64(slow.port_most, queued);
    if (queued + d->bytes > PORT_BYTES) {
        slow.lost++;
        return false;
    }
    slow.link_free_ns = free_ns + wire_ns(d->bytes + WIRE_BYTES);
    assert_true(slow.end - slow.first < WAITS_MAX);
    struct waiting *w = &slow.waits[slow.end++ % WAITS_MAX];
    *w = (struct waiting){slow.link_free_ns + NET_DELAY_NS, d->from, d->bytes, malloc(d->bytes)};
    memcpy(w->data, d->data, d->bytes);
    return false;
}

/* Time when the receiver has processed the oldest queued packet. */
static uint64_t next_ns(void)
{
    if (slow.first == slow.end) {
        return WEFT_NEVER;
    }
    return weft_max_u64(slow.waits[slow.first % WAITS_MAX].at_ns, slow.busy_ns) + slow.packet_ns;
}

static void take_one(struct net *net)
{
    struct waiting *w = &slow.waits[slow.first++ % WAITS_MAX];
    weft_ep_recv(net->end[1].ep, &w->from, WEFT_ECN_NOT, w->data, w->bytes, w->at_ns, net->now_ns);
    free(w->data);
    net_drain(net, 1);
    slow.busy_ns = net->now_ns;
    const struct credit *c = &net->end[1].ep->credit;
    slow.slack_most = weft_max_u64(slow.slack_most, c->slack_bytes);
    slow.late_most_ns = weft_max_u64(slow.late_most_ns, c->late_ns);
}

static void run(struct net *net, bool (*reached)(const struct net *net))
{
    uint64_t until_ns = net->now_ns + 60 * WEFT_NS_PER_S;
    while (!reached(net)) {
        uint64_t at_ns = next_ns();
        if (!net_step(net, weft_min_u64(at_ns, until_ns))) {
            assert_true(at_ns < until_ns);
            net->now_ns = weft_max_u64(net->now_ns, at_ns);
            take_one(net);
        }
    }
}

static void message(struct net *net, uint32_t from)
{
    net_message(net, from, 0, 1, source, sizeof(source), memory);
}

static bool up(const struct net *net)
{
    return net->end[1].ups == 2;
}

static bool done(const struct net *net)
{
    return net->end[0].sent + net->end[2].sent == 2 * MESSAGES;
}

static void simulate(uint64_t rate_bps, uint64_t packet_ns)
{
    struct net *net = calloc(1, sizeof(*net));
    memset(&slow, 0, sizeof(slow));
    slow.rate_bps = rate_bps;
    slow.packet_ns = packet_ns;
    net->now_ns = WEFT_NS_PER_S;
    net->tap = port;
    for (uint32_t end = 0; end < 3; end++) {
        struct weft_ep_config config;
        net_config(&config, WEFT_MODE_NONE);
        config.incarnation = 10 + end;
        config.rx_window = 4096;
        config.expects_max = 2 * MESSAGES;
        net_open(net, end, &config);
    }
    net_connect(net, 0, 1);
    net_connect(net, 2, 1);
    run(net, up);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        message(net, 0);
        message(net, 2);
    }
    run(net, done);
    assert_int_equal(net->end[1].received, 2 * MESSAGES);
    assert_int_equal(slow.lost, 0);
    while (slow.first != slow.end) {
        take_one(net);
    }
    net_free(net);
}

/* 12 us a packet on the link, 40 us in the processor: with 26 us the windows of two senders keep
 * the processor busy without slack. */
static void a_fast_link_has_at_most_256_kb_more_on_its_way(void **state)
{
    (void)state;
    simulate(UINT64_C(1000000000), 40 * WEFT_NS_PER_US);
    assert_in_range(slow.slack_most, SLACK_BYTES_MOST / 2, SLACK_BYTES_MOST);
    assert_true(slow.late_most_ns <= late_ns_most);
    assert_true(slow.port_most <= PORT_BYTES);
}

/* 240 us and 400 us per packet: the outstanding credit is at most the bytes processed in 12 ms,
 * plus a quarter. */
static void a_slow_link_has_at_most_12_ms_more_on_its_way(void **state)
{
    (void)state;
    simulate(UINT64_C(50000000), 400 * WEFT_NS_PER_US);
    uint64_t most_ns = late_ns_most + late_ns_most / 4;
    assert_int_equal(slow.late_most_ns, late_ns_most);
    assert_true(slow.slack_most <= slow.rate_bps / 8 * most_ns / WEFT_NS_PER_S);
    assert_true(slow.port_most <= PORT_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fast_link_has_at_most_256_kb_more_on_its_way),
        cmocka_unit_test(a_slow_link_has_at_most_12_ms_more_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
