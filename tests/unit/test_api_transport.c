/* Transfers through <weft/transport.h> over loopback, caller-driven and with a thread: masks at
 * both ends, sinks, bounds, cancelling, many messages, flush and close. */
#include "api_pair.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 40000 };

static float *numbers(void)
{
    float *values = calloc(COUNT, sizeof(*values));
    assert_non_null(values);
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 1000 + 1);
    }
    return values;
}

struct ends {
    struct weft_transport *receiver;
    struct weft_transport *sender;
    uint32_t peer;
};

static struct ends open_ends(struct weft_transport_config config)
{
    struct ends e;
    config.accept = 1;
    config.name = 7;
    e.receiver = api_open(&config);
    config.accept = 0;
    config.name = 8;
    config.inject_loss_ppm = 0; /* the receiver loses elements; acknowledgements all arrive */
    e.sender = api_open(&config);
    e.peer = api_connect(e.sender, e.receiver);
    return e;
}

static void close_ends(struct ends *e)
{
    weft_transport_close(e->sender);
    weft_transport_close(e->receiver);
}

static void a_vector_arrives(bool thread)
{
    struct weft_transport_config config = api_config();
    config.thread = thread;
    struct ends e = open_ends(config);
    float *values = numbers();
    float *memory = calloc(COUNT, sizeof(*memory));
    struct weft_transport_event event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_UP);
    assert_int_equal(event.name, 7);
    assert_int_equal(event.peer, e.peer);
    uint64_t incarnation = event.incarnation;
    api_receive(e.receiver, memory, COUNT, WEFT_TRANSPORT_COPY, 5);
    api_send(e.sender, e.peer, values, COUNT, 0, 5);
    event = api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
    assert_ptr_equal(event.user, memory);
    assert_int_equal(event.tag, 5);
    assert_int_equal(event.outcome, WEFT_TRANSPORT_COMPLETE);
    assert_int_equal(event.mask.elements, COUNT);
    assert_int_equal(event.mask.chunks_received, event.mask.chunks);
    assert_int_equal(weft_mask_missing(&event.mask), 0);
    assert_memory_equal(memory, values, COUNT * sizeof(*values));
    event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
    assert_ptr_equal(event.user, values);
    assert_int_equal(event.mask.chunks_received, event.mask.chunks);
    assert_int_not_equal(incarnation, 0);
    close_ends(&e);
    free(memory);
    free(values);
}

static void a_vector_arrives_caller_driven(void **state)
{
    (void)state;
    a_vector_arrives(false);
}

static void a_vector_arrives_with_threads(void **state)
{
    (void)state;
    a_vector_arrives(true);
}

/* The gaps are equal at both ends, within the bound, and in memory. */
static void loss_within_the_bound(void **state)
{
    (void)state;
    struct weft_transport_config config = api_config();
    config.inject_loss_ppm = 50000;
    config.inject_seed = 11;
    struct ends e = open_ends(config);
    float *values = numbers();
    float *memory = calloc(COUNT, sizeof(*memory));
    uint32_t missing_all = 0;
    for (int round = 0; round < 20; round++) {
        memset(memory, 0, COUNT * sizeof(*memory));
        api_receive(e.receiver, memory, COUNT, WEFT_TRANSPORT_ADD, 1);
        api_send(e.sender, e.peer, values, COUNT, 200000, 1);
        struct weft_transport_event event =
            api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
        assert_int_equal(event.outcome, WEFT_TRANSPORT_COMPLETE);
        uint64_t bits[4] = {0};
        assert_true(event.mask.chunks <= 256);
        memcpy(bits, event.mask.bits, (event.mask.chunks + 63) / 64 * sizeof(bits[0]));
        struct weft_mask mask = event.mask;
        mask.bits = bits;
        event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
        assert_int_equal(event.mask.chunks, mask.chunks);
        assert_memory_equal(event.mask.bits, bits, (mask.chunks + 63) / 64 * sizeof(bits[0]));
        assert_true(weft_mask_missing(&mask) <= COUNT / 5);
        missing_all += weft_mask_missing(&mask);
        uint32_t first;
        uint32_t count;
        for (uint32_t at = 0; weft_mask_gap(&mask, at, &first, &count); at = first + count) {
            for (uint32_t i = first; i < first + count; i++) {
                assert_true(memory[i] == 0);
                memory[i] = values[i];
            }
        }
        assert_memory_equal(memory, values, COUNT * sizeof(*values));
    }
    assert_true(missing_all > 0);
    struct weft_transport_counters counters = {.size = sizeof(counters)};
    weft_transport_counters_get(e.receiver, &counters);
    assert_true(counters.injected_drops > 0 && counters.chunks_missing > 0);
    assert_int_equal(counters.messages_received, 20);
    close_ends(&e);
    free(memory);
    free(values);
}

/* Error feedback over a real connection: whole numbers, so the sums are exact. */
static void feedback_over_a_connection(void **state)
{
    (void)state;
    struct weft_transport_config config = api_config();
    config.inject_loss_ppm = 100000;
    config.inject_seed = 12;
    struct ends e = open_ends(config);
    float *values = numbers();
    float *vector = calloc(COUNT, sizeof(*vector));
    float *residual = calloc(COUNT, sizeof(*residual));
    float *sum = calloc(COUNT, sizeof(*sum));
    uint32_t kept = 0;
    enum { STEPS = 12 };
    for (int step = 0; step < STEPS; step++) {
        memcpy(vector, values, COUNT * sizeof(*vector));
        weft_residual_add(residual, vector, COUNT);
        api_receive(e.receiver, sum, COUNT, WEFT_TRANSPORT_ADD, 1);
        api_send(e.sender, e.peer, vector, COUNT, 300000, 1);
        (void)api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
        struct weft_transport_event event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
        assert_int_equal(weft_residual_keep(residual, vector, &event.mask), WEFT_OK);
        kept += weft_mask_missing(&event.mask);
    }
    assert_true(kept > 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(sum[i] + residual[i] == STEPS * values[i]);
    }
    close_ends(&e);
    free(sum);
    free(residual);
    free(vector);
    free(values);
}

/* Critical ranges arrive at any loss: a prefix, which needs no mask on the wire, and scattered
 * ones. */
static void critical_ranges_arrive(bool thread)
{
    struct weft_transport_config config = api_config();
    config.inject_loss_ppm = 200000;
    config.inject_seed = 13;
    config.thread = thread;
    struct ends e = open_ends(config);
    float *values = numbers();
    float *memory = calloc(COUNT, sizeof(*memory));
    const struct weft_range ranges[] = {
        {.first = 0, .count = 1}, {.first = 351, .count = 2}, {.first = 20000, .count = 900},
        {.first = COUNT - 1, .count = 1}};
    uint32_t missing = 0;
    for (uint32_t round = 0; round < 12; round++) {
        memset(memory, 0, COUNT * sizeof(*memory));
        api_receive(e.receiver, memory, COUNT, WEFT_TRANSPORT_COPY, 1);
        struct weft_transport_send send;
        weft_transport_send_init(&send, sizeof(send));
        send.peer = e.peer;
        send.data = values;
        send.elements = COUNT;
        send.bound_ppm = 500000;
        send.tag = 1;
        send.critical = ranges;
        send.critical_count = round % 2 == 0 ? 4 : 2; /* the first two are a prefix of chunks */
        assert_int_equal(weft_transport_send(e.sender, &send), WEFT_OK);
        struct weft_transport_event event =
            api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
        assert_int_equal(event.outcome, WEFT_TRANSPORT_COMPLETE);
        missing += weft_mask_missing(&event.mask);
        for (uint32_t r = 0; r < send.critical_count; r++) {
            size_t bytes = ranges[r].count * sizeof(*values);
            assert_memory_equal(memory + ranges[r].first, values + ranges[r].first, bytes);
        }
        (void)api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
    }
    assert_true(missing > 0);
    close_ends(&e);
    free(memory);
    free(values);
}

static void critical_ranges_arrive_caller_driven(void **state)
{
    (void)state;
    critical_ranges_arrive(false);
}

static void critical_ranges_arrive_with_threads(void **state)
{
    (void)state;
    critical_ranges_arrive(true);
}

/* Elements missing twice in a row are critical the third time, so none is missing three times. */
static void nothing_is_missing_thrice(void **state)
{
    (void)state;
    struct weft_transport_config config = api_config();
    config.inject_loss_ppm = 300000;
    config.inject_seed = 14;
    struct ends e = open_ends(config);
    float *values = numbers();
    float *memory = calloc(COUNT, sizeof(*memory));
    uint8_t *missed = calloc(weft_grains(COUNT), 1);
    static struct weft_range ranges[8]; /* too few ranges, so they cover more than necessary */
    uint32_t twice = 0;
    for (int step = 0; step < 20; step++) {
        struct weft_transport_send send;
        weft_transport_send_init(&send, sizeof(send));
        send.peer = e.peer;
        send.data = values;
        send.elements = COUNT;
        send.bound_ppm = 400000;
        send.critical = ranges;
        send.critical_count = weft_missed_ranges(missed, COUNT, 2, ranges, 8);
        twice += send.critical_count;
        api_receive(e.receiver, memory, COUNT, WEFT_TRANSPORT_COPY, 0);
        assert_int_equal(weft_transport_send(e.sender, &send), WEFT_OK);
        (void)api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
        struct weft_transport_event event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
        assert_int_equal(weft_missed_note(missed, &event.mask), WEFT_OK);
        for (size_t g = 0; g < weft_grains(COUNT); g++) {
            assert_true(missed[g] <= 2);
        }
    }
    assert_true(twice > 0);
    close_ends(&e);
    free(missed);
    free(memory);
    free(values);
}

/* Many unpolled events: 64 sends at a time and their receives, polled only at the end. */
static void events_wait_to_be_polled(void **state)
{
    (void)state;
    struct weft_transport_config config = api_config();
    struct ends e = open_ends(config);
    static float out[64];
    static float in[64];
    for (uint32_t i = 0; i < 64; i++) {
        out[i] = (float)(i + 1);
        api_receive(e.receiver, &in[i], 1, WEFT_TRANSPORT_COPY, i);
        api_send(e.sender, e.peer, &out[i], 1, 0, i);
    }
    struct weft_transport_send send;
    weft_transport_send_init(&send, sizeof(send));
    send.data = out;
    send.elements = 1;
    send.peer = e.peer;
    assert_int_equal(weft_transport_send(e.sender, &send), WEFT_AGAIN);
    assert_non_null(strstr(weft_transport_error(e.sender), "wait for an event"));
    struct weft_transport_counters counters = {.size = sizeof(counters)};
    uint64_t end_ns = weft_clock_now_ns() + api_limit_ns;
    do {
        assert_int_equal(weft_transport_progress(e.sender, api_slice_ns), WEFT_OK);
        assert_int_equal(weft_transport_progress(e.receiver, 0), WEFT_OK);
        weft_transport_counters_get(e.sender, &counters);
    } while (counters.messages_sent < 64 && weft_clock_now_ns() < end_ns);
    uint32_t received = 0;
    struct weft_transport_event event = {.size = sizeof(event)};
    while (weft_transport_poll(e.receiver, &event)) {
        received += event.type == WEFT_TRANSPORT_RECEIVED;
    }
    assert_int_equal(received, 64);
    assert_memory_equal(in, out, sizeof(in));
    close_ends(&e);
}

/* Slots of the queue are reused: far more messages than its capacity. */
static void thousands_of_messages(void **state)
{
    (void)state;
    struct ends e = open_ends(api_config());
    for (uint32_t i = 0; i < 3000; i++) {
        float value = (float)i;
        float memory = -1;
        api_receive(e.receiver, &memory, 1, WEFT_TRANSPORT_COPY, i);
        api_send(e.sender, e.peer, &value, 1, 0, i);
        (void)api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
        assert_true(memory == value);
        uint64_t id = api_receive(e.receiver, &memory, 1, WEFT_TRANSPORT_COPY, UINT64_MAX);
        assert_int_equal(weft_transport_cancel(e.receiver, id), WEFT_OK);
        (void)api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
    }
    close_ends(&e);
}

/* The receiver flushes, then closes: the sender gets SENT before DOWN. */
static void flush_before_close(bool thread)
{
    struct weft_transport_config config = api_config();
    config.thread = thread;
    struct ends e = open_ends(config);
    float value = 3;
    float memory = 0;
    api_receive(e.receiver, &memory, 1, WEFT_TRANSPORT_COPY, 0);
    api_send(e.sender, e.peer, &value, 1, 0, 0);
    (void)api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
    uint64_t end_ns = weft_clock_now_ns() + api_limit_ns;
    while (weft_transport_flush(e.receiver, api_slice_ns) != WEFT_OK) {
        assert_int_equal(weft_transport_progress(e.sender, 0), WEFT_OK);
        assert_true(weft_clock_now_ns() < end_ns);
    }
    weft_transport_close(e.receiver);
    struct weft_transport_event event = api_await(e.sender, NULL, WEFT_TRANSPORT_SENT);
    assert_int_equal(event.outcome, WEFT_TRANSPORT_COMPLETE);
    event = api_await(e.sender, NULL, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_CLOSED);
    assert_int_equal(event.name, 7);
    weft_transport_close(e.sender);
}

static void flush_before_close_caller_driven(void **state)
{
    (void)state;
    flush_before_close(false);
}

static void flush_before_close_with_threads(void **state)
{
    (void)state;
    flush_before_close(true);
}

/* A forked child has a copy of the transport, but the connections belong to its parent. */
static void a_forked_child_ends_no_connection(void **state)
{
    (void)state;
    struct ends e = open_ends(api_config());
    float value = 3, memory = 0;
    int status;
    (void)api_await(e.sender, e.receiver, WEFT_TRANSPORT_UP);
    pid_t pid = fork();
    if (pid == 0) {
        weft_transport_close(e.sender);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    api_receive(e.receiver, &memory, 1, WEFT_TRANSPORT_COPY, 0);
    api_send(e.sender, e.peer, &value, 1, 0, 0);
    const struct weft_transport_event event =
        api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
    assert_int_equal(event.outcome, WEFT_TRANSPORT_COMPLETE);
    assert_true(memory == 3);
    close_ends(&e);
}

static void cancelled_memory_is_not_written(void **state)
{
    (void)state;
    struct ends e = open_ends(api_config());
    float value = 3;
    float wrong = 0;
    float right = 0;
    uint64_t id = api_receive(e.receiver, &wrong, 1, WEFT_TRANSPORT_COPY, 0);
    assert_int_equal(weft_transport_cancel(e.receiver, id), WEFT_OK);
    assert_int_equal(weft_transport_cancel(e.receiver, id), WEFT_NOTFOUND);
    api_receive(e.receiver, &right, 1, WEFT_TRANSPORT_COPY, 0);
    api_send(e.sender, e.peer, &value, 1, 0, 0);
    (void)api_await(e.receiver, e.sender, WEFT_TRANSPORT_RECEIVED);
    assert_true(right == 3 && wrong == 0);
    close_ends(&e);
}

static void disconnect_ends_what_is_unfinished(void **state)
{
    (void)state;
    struct ends e = open_ends(api_config());
    float value = 3;
    (void)api_await(e.sender, e.receiver, WEFT_TRANSPORT_UP);
    api_send(e.sender, e.peer, &value, 1, 0, 0);
    weft_transport_disconnect(e.sender, e.peer);
    struct weft_transport_event event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
    assert_int_equal(event.outcome, WEFT_TRANSPORT_UNKNOWN);
    event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_LOCAL);
    close_ends(&e);
}

static void a_timeout_ends_a_send_short(void **state)
{
    (void)state;
    struct ends e = open_ends(api_config());
    float value = 3;
    struct weft_transport_send send;
    weft_transport_send_init(&send, sizeof(send));
    send.peer = e.peer;
    send.data = &value;
    send.elements = 1;
    send.timeout_ns = 20 * WEFT_NS_PER_MS;
    assert_int_equal(weft_transport_send(e.sender, &send), WEFT_OK);
    struct weft_transport_event event = api_await(e.sender, e.receiver, WEFT_TRANSPORT_SENT);
    assert_int_equal(event.outcome, WEFT_TRANSPORT_SHORT);
    assert_int_equal(weft_mask_missing(&event.mask), 1);
    close_ends(&e);
}

/* Nothing is outstanding, so only a keep-alive detects that the other end does not respond. */
static void a_keepalive_detects_a_peer_that_does_not_respond(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.accept = 1;
    struct weft_transport *deaf = api_open(&c);
    c.accept = 0;
    c.keepalive_ns = 300 * WEFT_NS_PER_MS;
    c.peer_timeout_ns = WEFT_NS_PER_S;
    struct weft_transport *t = api_open(&c);
    (void)api_connect(t, deaf);
    (void)api_await(t, deaf, WEFT_TRANSPORT_UP);
    (void)api_await(deaf, t, WEFT_TRANSPORT_UP);
    uint64_t from_ns = weft_clock_now_ns();
    struct weft_transport_event event = api_await(t, NULL, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_SILENT);
    assert_true(weft_clock_now_ns() - from_ns >= WEFT_NS_PER_S);
    weft_transport_close(t);
    weft_transport_close(deaf);
}

static void an_idle_connection_is_closed(void **state)
{
    (void)state;
    struct weft_transport_config c = api_config();
    c.accept = 1;
    c.idle_timeout_ns = 50 * WEFT_NS_PER_MS;
    struct weft_transport *server = api_open(&c);
    c.accept = 0;
    c.idle_timeout_ns = WEFT_NEVER;
    c.thread = 1;
    struct weft_transport *t = api_open(&c);
    (void)api_connect(t, server);
    struct weft_transport_event event = api_await(server, NULL, WEFT_TRANSPORT_UP);
    event = api_await(server, NULL, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_IDLE);
    event = api_await(t, server, WEFT_TRANSPORT_DOWN);
    assert_int_equal(event.down, WEFT_TRANSPORT_DOWN_CLOSED);
    weft_transport_close(t);
    weft_transport_close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vector_arrives_caller_driven),
        cmocka_unit_test(a_vector_arrives_with_threads),
        cmocka_unit_test(loss_within_the_bound),
        cmocka_unit_test(feedback_over_a_connection),
        cmocka_unit_test(critical_ranges_arrive_caller_driven),
        cmocka_unit_test(critical_ranges_arrive_with_threads),
        cmocka_unit_test(nothing_is_missing_thrice),
        cmocka_unit_test(events_wait_to_be_polled),
        cmocka_unit_test(thousands_of_messages),
        cmocka_unit_test(flush_before_close_caller_driven),
        cmocka_unit_test(flush_before_close_with_threads),
        cmocka_unit_test(a_forked_child_ends_no_connection),
        cmocka_unit_test(cancelled_memory_is_not_written),
        cmocka_unit_test(disconnect_ends_what_is_unfinished),
        cmocka_unit_test(a_timeout_ends_a_send_short),
        cmocka_unit_test(a_keepalive_detects_a_peer_that_does_not_respond),
        cmocka_unit_test(an_idle_connection_is_closed),
    };
    return cmocka_run_group_tests_name("api_transport", tests, NULL, NULL);
}
