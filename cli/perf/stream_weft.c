/* weft itself: two endpoints over weft_udp, bound 0, ADD sink. DEPTH messages are open at a time,
 * so that the end of one overlaps the next, as with a model's tensors. */
#include "cli/perf/stream.h"

#include "io/clock.h"
#include "node/endpoint.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { DEPTH = 4 };

static const uint64_t STEP_NS = 20 * WEFT_NS_PER_MS;
static const uint64_t GIVE_UP_NS = 120 * WEFT_NS_PER_S;

struct end {
    const struct weft_stream_job *job;
    struct weft_endpoint endpoint;
    weft_peer peer; /* sender: the receiver */
    uint16_t port;  /* sender: address of the receiver */
    uint32_t begun; /* sender: messages sent; receiver: expectations posted */
    uint32_t done;  /* sender: SENT; receiver: RECEIVED */
    bool broken;    /* the peer went down, a call was refused, or there is no progress */
    uint32_t done_seen;
    uint64_t moved_ns; /* when done_seen was reached */
    atomic_bool *sender_through;
    struct weft_stream_result *result;
};

static uint32_t messages_of(const struct end *end)
{
    return end->job->warmup_messages + end->job->messages;
}

/* Abort when no message completed for a long time: the benchmark must end. */
static void notice_stall(struct end *end)
{
    uint64_t now_ns = weft_clock_now_ns();
    if (end->done != end->done_seen || end->moved_ns == 0) {
        end->done_seen = end->done;
        end->moved_ns = now_ns;
    }
    end->broken = end->broken || now_ns - end->moved_ns > GIVE_UP_NS;
}

/* ---- sender ---------------------------------------------------------------------------------- */

static void send_more(struct end *end)
{
    while (end->begun < messages_of(end) && end->begun - end->done < DEPTH && !end->broken) {
        struct weft_msg_send send = {
            .peer = end->peer,
            .base = end->job->vector,
            .total = end->job->message_floats,
            .elem_bytes = sizeof(float),
            .tag = 1,
            .deadline_ns = WEFT_NEVER,
        };
        uint64_t seq;
        end->broken = end->endpoint.msgr.ops->send(end->endpoint.msgr.self, &send,
                                                   weft_clock_now_ns(), &seq) != WEFT_OK;
        end->begun++;
    }
}

static void on_sender(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct end *end = arg;
    struct weft_msg_event event;
    while (end->endpoint.msgr.ops->poll(end->endpoint.msgr.self, &event)) {
        if (event.type == WEFT_EVENT_SENT) {
            end->done++;
            end->broken = end->broken || event.outcome != WEFT_MSG_COMPLETE;
        } else if (event.type == WEFT_EVENT_PEER_DOWN) {
            end->broken = true;
        }
    }
    send_more(end);
}

static void *send_all(void *arg)
{
    struct end *end = arg;
    weft_stream_pin(end->job->cpus[0]);
    weft_clock_timers_exact(); /* the socket was opened by another thread */
    char address[WEFT_PERF_ADDRESS_BYTES];
    weft_perf_layout_address(end->job->layout, WEFT_STREAM_RECEIVER, address);
    end->broken =
        weft_endpoint_connect(&end->endpoint, address, end->port, &end->peer, NULL) != WEFT_OK;
    send_more(end);
    while (end->done < messages_of(end) && !end->broken) {
        weft_endpoint_step(&end->endpoint, STEP_NS, on_sender, end);
        notice_stall(end);
    }
    atomic_store(end->sender_through, true);
    return NULL;
}

/* ---- receiver -------------------------------------------------------------------------------- */

static void expect_more(struct end *end)
{
    while (end->begun < messages_of(end) && end->begun - end->done < DEPTH && !end->broken) {
        struct weft_msg_expect expect = {
            .peer = WEFT_PEER_ANY,
            .sink = WEFT_SINK_ADD,
            .tag = 1,
            .tag_mask = UINT64_MAX,
            .memory = end->job->accumulator,
            .memory_bytes = end->job->message_floats * sizeof(float),
            .count = 1,
            .timeout_ns = WEFT_NEVER,
        };
        weft_expect_id id;
        end->broken =
            end->endpoint.msgr.ops->expect(end->endpoint.msgr.self, &expect, &id) != WEFT_OK;
        end->begun++;
    }
}

static void on_receiver(void *arg, uint64_t now_ns)
{
    (void)now_ns;
    struct end *end = arg;
    struct weft_msg_event event;
    while (end->endpoint.msgr.ops->poll(end->endpoint.msgr.self, &event)) {
        if (event.type == WEFT_EVENT_RECEIVED) {
            end->done++;
            end->broken = end->broken || event.outcome != WEFT_MSG_COMPLETE;
            if (end->done == end->job->warmup_messages) {
                end->result->start = weft_stream_mark();
            }
            if (end->done == messages_of(end)) {
                end->result->end = weft_stream_mark();
            }
        }
    }
    expect_more(end);
}

static void receive_all(struct end *end)
{
    end->result->start = weft_stream_mark();
    /* After its last message the receiver still makes progress, until the sender has its
     * acknowledgement. */
    while (!atomic_load(end->sender_through) && !end->broken) {
        weft_endpoint_step(&end->endpoint, STEP_NS, on_receiver, end);
        notice_stall(end);
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool open_end(const struct weft_stream_job *job, const struct weft_security *security,
                     bool accept, struct end *end, struct weft_error *error)
{
    struct weft_endpoint_config config;
    weft_endpoint_config_default(&config);
    config.security = security;
    struct weft_udp_config *udp = &config.driver.udp;
    uint32_t chunks = (job->message_floats - 1) / job->chunk_floats + 1;
    udp->ep.chunks_max = chunks > udp->ep.chunks_max ? chunks : udp->ep.chunks_max;
    udp->ep.packet_bytes = (uint16_t)job->packet_bytes;
    udp->ep.accept = accept;
    udp->busy_poll_us = (uint16_t)job->busy_poll_us;
    char address[WEFT_PERF_ADDRESS_BYTES];
    uint32_t participant = accept ? WEFT_STREAM_RECEIVER : WEFT_STREAM_SENDER;
    weft_perf_layout_address(job->layout, participant, address);
    udp->host = address;
    int home;
    if (!weft_perf_netns_enter(job->layout, participant, &home, error)) {
        return false;
    }
    weft_status status = weft_endpoint_open(&config, &end->endpoint, error);
    weft_perf_netns_leave(home);
    return status == WEFT_OK;
}

static struct weft_udp *udp_of(const struct end *end)
{
    return weft_driver_udp(end->endpoint.driver);
}

static void describe(const struct end *sender, const struct end *receiver,
                     struct weft_stream_result *result_p)
{
    const struct weft_ep_counters *ep = weft_ep_counters(weft_udp_ep(udp_of(sender)));
    const struct weft_socket_counters *tx = weft_udp_counters(udp_of(sender));
    const struct weft_socket_counters *rx = weft_udp_counters(udp_of(receiver));
    double kilo = 1000 / (double)(tx->datagrams_sent + !tx->datagrams_sent);
    result_p->retransmitted = ep->retransmitted_packets;
    (void)snprintf(
        result_p->note, sizeof(result_p->note),
        "%.1f packets a burst, %.1f a buffer, %llu resent, %llu kernel drops, srtt %llu us; per "
        "1,000 packets: sender %.2f sendmmsg, %.2f recvmmsg, %.2f sleeps, receiver %.2f, %.2f, "
        "%.2f",
        (double)tx->datagrams_sent / (double)(tx->bursts_sent + !tx->bursts_sent),
        (double)rx->datagrams_received / (double)(rx->buffers_received + !rx->buffers_received),
        (unsigned long long)ep->retransmitted_packets, (unsigned long long)rx->kernel_drops,
        (unsigned long long)weft_ep_srtt_ns(weft_udp_ep(udp_of(sender)), sender->peer) / 1000,
        (double)tx->send_calls * kilo, (double)tx->recv_calls * kilo, (double)tx->sleeps * kilo,
        (double)rx->send_calls * kilo, (double)rx->recv_calls * kilo, (double)rx->sleeps * kilo);
}

static bool run_threads(struct end *sender, struct end *receiver, struct weft_error *error)
{
    pthread_t thread;
    sender->port = weft_driver_port(receiver->endpoint.driver);
    expect_more(receiver);
    if (pthread_create(&thread, NULL, send_all, sender) != 0) {
        return weft_perf_fail(error, "no thread");
    }
    receive_all(receiver);
    (void)pthread_join(thread, NULL);
    if (sender->broken || receiver->broken || receiver->done != messages_of(receiver)) {
        return weft_perf_fail(
            error,
            "weft: %u of %u messages sent, %u received, %llu packets lost, %llu without memory",
            sender->done, messages_of(sender), receiver->done,
            (unsigned long long)weft_ep_counters(weft_udp_ep(udp_of(sender)))->lost_packets,
            (unsigned long long)weft_ep_counters(weft_udp_ep(udp_of(receiver)))->no_memory);
    }
    return true;
}

bool weft_stream_weft(const struct weft_stream_job *job, struct weft_stream_result *result_p,
                      struct weft_error *error)
{
    /* A lab's network has no other users. */
    struct weft_security security = {.mode = (uint8_t)job->security,
                                     .insecure_network = job->security == WEFT_MODE_NONE &&
                                                         job->layout->lab != NULL};
    if (job->security != WEFT_MODE_NONE && weft_security_load(&security, true, error) != WEFT_OK) {
        return false;
    }
    atomic_bool sender_through = false;
    struct end sender = {.job = job, .sender_through = &sender_through, .result = result_p};
    struct end receiver = sender;
    bool good = open_end(job, &security, true, &receiver, error) &&
                open_end(job, &security, false, &sender, error) &&
                run_threads(&sender, &receiver, error);
    if (good) {
        describe(&sender, &receiver, result_p);
    }
    weft_endpoint_close(&sender.endpoint);
    weft_endpoint_close(&receiver.endpoint);
    weft_security_fini(&security);
    return good;
}
