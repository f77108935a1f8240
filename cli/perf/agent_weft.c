/* Participants over weft's message interface: `weft`, its own transport over UDP, and `tcp`, the
 * same interface over kernel TCP (io/driver.h). One endpoint, progressed by the participant's only
 * thread. Incoming messages are copied into memory posted before the go signal (WEFT_SINK_COPY).
 */
#include "cli/perf/agent.h"

#include "base/bits.h"
#include "cli/output.h"
#include "io/clock.h"
#include "node/endpoint.h"
#include "node/tracing.h"

#include <stdio.h>
#include <string.h>

enum {
    ELEM_BYTES = 4,
    SURE_BYTES = 1200,       /* packets of a path start with this size, so chunks may, too */
    NET_BYTES = 14 + 20 + 8, /* Ethernet, IPv4, UDP */
    SEGMENT_BYTES = 1448,    /* TCP with time stamps, of an MTU of 1,500 */
    SEGMENT_HEAD_BYTES = 14 + 20 + 32,
    RECORD_HEAD_BYTES = WEFT_DATA_OVERHEAD_BYTES,
    PATH_BYTES = 4096,
    CONNECT_S = 60,
};

static const uint64_t step_ns = 20 * WEFT_NS_PER_MS;

struct end {
    struct weft_endpoint endpoint;
    uint32_t up;      /* peers */
    uint32_t waiting; /* an out for which there was no room; WEFT_PERF_NONE */
    bool broken;
    struct weft_tracing tracing;
    struct weft_tracing_feed feed;
    char trace[PATH_BYTES];
    char address[WEFT_PERF_ADDRESS_BYTES];       /* of this end */
    weft_peer peers[WEFT_PERF_PARTICIPANTS_MAX]; /* by participant */
};

static struct end *of(const struct weft_perf_agent *agent)
{
    return agent->self;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static uint64_t tag_of(const struct weft_perf_agent *agent, const struct weft_perf_end *end)
{
    return (uint64_t)(end->flow + 1) << 32 | (agent->round + end->trips);
}

static bool post(struct weft_perf_agent *agent, uint32_t in)
{
    struct weft_msg_expect expect = {
        .peer = of(agent)->peers[agent->ins[in].other],
        .sink = WEFT_SINK_COPY,
        .tag = tag_of(agent, &agent->ins[in]),
        .tag_mask = UINT64_MAX,
        .memory = agent->ins[in].memory,
        .memory_bytes = agent->job->bytes,
        .count = 1,
        .timeout_ns = WEFT_NEVER,
        .user = in,
    };
    weft_expect_id id;
    weft_status status =
        of(agent)->endpoint.msgr.ops->expect(of(agent)->endpoint.msgr.self, &expect, &id);
    return status == WEFT_OK ||
           weft_perf_fail(agent->error, "memory cannot be posted: %s", weft_status_text(status));
}

static uint64_t bytes_in(const struct weft_perf_agent *agent, const struct weft_msg_event *event)
{
    uint64_t chunk_bytes = (uint64_t)event->chunk_elems * event->elem_bytes;
    uint64_t bytes = event->received * chunk_bytes;
    if (weft_bits_test(event->mask, event->chunks - 1)) {
        bytes -= event->chunks * chunk_bytes - agent->job->bytes;
    }
    return bytes;
}

static bool on_received(struct weft_perf_agent *agent, const struct weft_msg_event *event,
                        uint64_t now_ns)
{
    struct weft_perf_end *in = &agent->ins[event->user];
    if (event->outcome != WEFT_MSG_COMPLETE && agent->job->deadline_ms == 0) {
        return weft_perf_fail(agent->error,
                              "round %u: the message of participant %u was closed "
                              "with %u of %u chunks, below its bound",
                              agent->round, in->other, event->received, event->chunks);
    }
    if (event->total * (uint64_t)event->elem_bytes != agent->job->bytes ||
        weft_bits_count(event->mask, event->chunks) != event->received) {
        return weft_perf_fail(agent->error,
                              "round %u: the mask of participant %u's message does "
                              "not fit what was received",
                              agent->round, in->other);
    }
    in->chunk_bytes = (uint32_t)event->chunk_elems * event->elem_bytes;
    memcpy(in->mask, event->mask, WEFT_BITS_WORDS((size_t)event->chunks) * sizeof(*in->mask));
    weft_perf_agent_received(agent, (uint32_t)event->user, event->received, event->chunks,
                             bytes_in(agent, event), now_ns);
    return in->trips == agent->trips || post(agent, (uint32_t)event->user);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_up(struct weft_perf_agent *agent, const struct weft_msg_event *event)
{
    if (event->name >= 1 && event->name <= WEFT_PERF_PARTICIPANTS_MAX) {
        of(agent)->peers[event->name - 1] = event->peer;
        of(agent)->up++;
    }
}

/* At the end, or when the coordinator has given up, all participants close, not at the same
 * time. */
static bool on_down(struct weft_perf_agent *agent, const struct weft_msg_event *event)
{
    static const char *const reasons[] = {
        [WEFT_DOWN_CLOSED] = "it closed",        [WEFT_DOWN_SILENT] = "it does not answer",
        [WEFT_DOWN_PROTOCOL] = "protocol violation", [WEFT_DOWN_LOCAL] = "closed here",
        [WEFT_DOWN_IDLE] = "idle",               [WEFT_DOWN_RESTARTED] = "it restarted",
        [WEFT_DOWN_CRYPTO] = "cryptography failed", [WEFT_DOWN_REPLACED] = "it was replaced",
    };
    bool ending = weft_perf_agent_is_through(agent) || atomic_load(&agent->shared->stopping);
    if (ending && event->down == WEFT_DOWN_CLOSED) {
        return true;
    }
    char hint[WEFT_SECURITY_HINT_BYTES];
    weft_security_hint(&agent->security, weft_endpoint_hint(&of(agent)->endpoint), hint,
                       sizeof(hint));
    char who[32] = "a participant";
    for (uint32_t i = 0; i < agent->peer_count; i++) {
        uint32_t other = agent->peers[i].other;
        if (of(agent)->peers[other] == event->peer) {
            (void)snprintf(who, sizeof(who), "participant %u", other);
        }
    }
    return weft_perf_fail(agent->error, "lost %s: %s%s%s", who, reasons[event->down],
                          hint[0] != '\0' ? "; " : "", hint);
}

static bool on_event(struct weft_perf_agent *agent, const struct weft_msg_event *event,
                     uint64_t now_ns)
{
    switch (event->type) {
    case WEFT_EVENT_PEER_UP:
        on_up(agent, event);
        return true;
    case WEFT_EVENT_PEER_DOWN:
        return on_down(agent, event);
    case WEFT_EVENT_RECEIVED:
        return on_received(agent, event, now_ns);
    case WEFT_EVENT_SENT:
        if (event->outcome != WEFT_MSG_UNKNOWN) {
            weft_perf_agent_finished(agent, (uint32_t)event->user);
        }
        return true; /* UNKNOWN: PEER_DOWN follows */
    case WEFT_EVENT_OPEN:
    case WEFT_EVENT_CHUNK:
        break;
    }
    return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

static weft_status send_one(struct weft_perf_agent *agent, uint32_t out)
{
    uint64_t now_ns = weft_clock_now_ns();
    uint64_t deadline_ns = agent->job->deadline_ms * WEFT_NS_PER_MS;
    struct weft_perf_end *end = &agent->outs[out];
    struct weft_msg_send send = {
        .peer = of(agent)->peers[end->other],
        .base = agent->source,
        .total = agent->job->bytes / ELEM_BYTES,
        .elem_bytes = ELEM_BYTES,
        .bound_ppm = agent->job->bound_ppm,
        .together = agent->job->plan->pattern == WEFT_PERF_ALLTOALL,
        /* In pingpong, use the number of the trip that starts, which is ahead of the completed
         * ones. */
        .tag = (uint64_t)(end->flow + 1) << 32 |
               (agent->round + (agent->started - 1) / agent->out_count),
        .deadline_ns = deadline_ns > 0 ? now_ns + deadline_ns : WEFT_NEVER,
        .user = out,
    };
    uint64_t seq;
    return of(agent)->endpoint.msgr.ops->send(of(agent)->endpoint.msgr.self, &send, now_ns, &seq);
}

static bool start(struct weft_perf_agent *agent)
{
    struct end *end = of(agent);
    for (;;) {
        uint32_t out = end->waiting;
        if (out == WEFT_PERF_NONE) {
            out = weft_perf_agent_next(agent);
        }
        if (out == WEFT_PERF_NONE) {
            return true;
        }
        weft_status status = send_one(agent, out);
        end->waiting = status == WEFT_AGAIN ? out : WEFT_PERF_NONE;
        if (status == WEFT_AGAIN) {
            return true;
        }
        if (status != WEFT_OK) {
            return weft_perf_fail(agent->error, "a message for participant %u cannot be sent: %s",
                                  agent->outs[out].other, weft_status_text(status));
        }
    }
}

static void on_turn(void *arg, uint64_t now_ns)
{
    struct weft_perf_agent *agent = arg;
    struct end *end = of(agent);
    struct weft_msg_event event;
    (void)now_ns; /* the batch's time; measure when the application knows instead */
    while (!end->broken && end->endpoint.msgr.ops->poll(end->endpoint.msgr.self, &event)) {
        end->broken = !on_event(agent, &event, weft_clock_now_ns());
    }
    end->broken = end->broken || !start(agent);
}

static bool turn(struct weft_perf_agent *agent, uint64_t timeout_ns)
{
    struct end *end = of(agent);
    end->broken = end->broken || !start(agent);
    if (!end->broken) {
        weft_endpoint_step(&end->endpoint, timeout_ns, on_turn, agent);
    }
    return !end->broken;
}

/* ---- life ------------------------------------------------------------------------------------ */

static uint32_t chunks_max(const struct weft_perf_job *job)
{
    uint32_t packet_bytes = (uint32_t)weft_min_u64(job->packet_bytes, SURE_BYTES);
    return (uint32_t)weft_div_ceil_u64(job->bytes, weft_perf_chunk_bytes(packet_bytes));
}

/* TCP's default congestion control: a setting of the host. */
static void note_cc(struct weft_perf_agent *agent)
{
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
    if (agent->job->tcp_cc != NULL) {
        (void)snprintf(agent->note->cc, sizeof(agent->note->cc), "%s", agent->job->tcp_cc);
    } else if (file == NULL || fscanf(file, "%15s", agent->note->cc) != 1) {
        (void)snprintf(agent->note->cc, sizeof(agent->note->cc), "default");
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void configure(const struct weft_perf_agent *agent, struct weft_driver_config *config)
{
    const struct weft_perf_job *job = agent->job;
    struct weft_ep_config *ep = &config->udp.ep;
    config->kind = job->transport->kernel_tcp ? WEFT_DRIVER_TCP : WEFT_DRIVER_UDP;
    config->tcp_cc = job->tcp_cc;
    config->tcp_rto_min_ns = job->tcp_rto_min_ms * WEFT_NS_PER_MS;
    config->udp.host = of(agent)->address;
    config->udp.busy_poll_us = (uint16_t)job->busy_poll_us;
    ep->name = agent->me + 1;
    ep->accept = 1;
    ep->cc_name = job->cc;
    ep->peer_timeout_ns = 2 * job->round_s * WEFT_NS_PER_S; /* the coordinator gives up earlier */
    ep->packet_bytes = (uint16_t)job->packet_bytes;
    ep->peers_max = (uint32_t)weft_max_u64(agent->peer_count, 1);
    ep->chunks_max = (uint32_t)weft_max_u64(chunks_max(job), ep->chunks_max);
    ep->expects_max = (uint32_t)weft_max_u64(agent->in_count, ep->expects_max);
    ep->senders_expected = (uint16_t)agent->in_count; /* known, as in a job */
}

/* Of a participant's own: they are processes. */
static void trace(struct weft_perf_agent *agent, struct weft_udp_config *config)
{
    struct end *end = of(agent);
    if (agent->job->trace != NULL) {
        (void)snprintf(end->trace, sizeof(end->trace), "%s.participant-%u", agent->job->trace,
                       agent->me);
        weft_tracing_open(&end->tracing, end->trace, weft_output_log(NULL, false));
    }
    weft_tracing_attach(&end->tracing, "participant", config, &end->feed);
}

static bool open_end(struct weft_perf_agent *agent)
{
    struct end *end = of(agent);
    end->waiting = WEFT_PERF_NONE;
    for (uint32_t i = 0; i < WEFT_PERF_PARTICIPANTS_MAX; i++) {
        end->peers[i] = WEFT_PEER_ANY;
    }
    weft_perf_layout_address(agent->job->layout, agent->me, end->address);
    struct weft_endpoint_config config;
    weft_endpoint_config_default(&config);
    config.security = &agent->security;
    configure(agent, &config.driver);
    trace(agent, &config.driver.udp);
    if (weft_endpoint_open(&config, &end->endpoint, agent->error) != WEFT_OK) {
        return false;
    }
    agent->note->port = weft_endpoint_port(&end->endpoint);
    note_cc(agent);
    return true;
}

static bool connect_to(struct weft_perf_agent *agent, uint32_t other)
{
    char address[WEFT_PERF_ADDRESS_BYTES];
    weft_perf_layout_address(agent->job->layout, other, address);
    return weft_endpoint_connect(&of(agent)->endpoint, address, agent->shared->agents[other].port,
                                 &of(agent)->peers[other], agent->error) == WEFT_OK;
}

static bool connect_all(struct weft_perf_agent *agent)
{
    uint64_t end_ns = weft_clock_now_ns() + CONNECT_S * WEFT_NS_PER_S;
    for (uint32_t i = 0; i < agent->peer_count; i++) {
        if (agent->peers[i].connects && !connect_to(agent, agent->peers[i].other)) {
            return false;
        }
    }
    while (of(agent)->up < agent->peer_count && !atomic_load(&agent->shared->stopping)) {
        if (!turn(agent, step_ns)) {
            return false;
        }
        if (weft_clock_now_ns() > end_ns) {
            return weft_perf_fail(agent->error,
                                  "only %u of %u connections were established within %d s",
                                  of(agent)->up, agent->peer_count, CONNECT_S);
        }
    }
    return true;
}

static bool prepare(struct weft_perf_agent *agent)
{
    for (uint32_t i = 0; i < agent->in_count; i++) {
        if (!post(agent, i)) {
            return false;
        }
    }
    return true;
}

static bool busy(struct weft_perf_agent *agent)
{
    struct weft_udp *udp = weft_driver_udp(of(agent)->endpoint.driver);
    return udp != NULL && weft_ep_busy(weft_udp_ep(udp));
}

/* Of one message, with its packets' headers. */
static uint64_t wire_bytes(const struct weft_perf_agent *agent, uint32_t chunk_bytes)
{
    uint64_t bytes = agent->job->bytes;
    uint64_t packets = weft_div_ceil_u64(bytes, chunk_bytes);
    if (agent->job->transport->kernel_tcp) {
        uint64_t stream = bytes + packets * RECORD_HEAD_BYTES;
        return stream + weft_div_ceil_u64(stream, SEGMENT_BYTES) * SEGMENT_HEAD_BYTES;
    }
    uint32_t tag = agent->job->mode == WEFT_MODE_NONE ? 0 : WEFT_TAG_BYTES;
    uint64_t rest = packets > 0 ? packets - 1 : 0; /* only the first describes the message */
    return bytes + packets * (NET_BYTES + WEFT_HEADER_BYTES + WEFT_DATA_BYTES + tag) -
           rest * WEFT_BRIEF_SAVED_BYTES;
}

static void account(struct weft_perf_agent *agent)
{
    struct weft_driver_counters now;
    weft_endpoint_counters(&of(agent)->endpoint, &now);
    agent->note->retransmitted = now.ep.retransmitted_packets;
    agent->note->kernel_drops = now.socket.kernel_drops;
    if (agent->out_count > 0) {
        uint32_t elems =
            weft_driver_grid(of(agent)->endpoint.driver, of(agent)->peers[agent->outs[0].other],
                             ELEM_BYTES, agent->job->bytes / ELEM_BYTES);
        agent->note->packet_bytes = elems * ELEM_BYTES;
        agent->note->wire_bytes = elems > 0 ? wire_bytes(agent, elems * ELEM_BYTES) : 0;
    }
}

static void counters(struct weft_perf_agent *agent, struct weft_driver_counters *counters_p)
{
    weft_endpoint_counters(&of(agent)->endpoint, counters_p);
}

static void close_all(struct weft_perf_agent *agent)
{
    weft_endpoint_close(&of(agent)->endpoint);
    weft_tracing_close(&of(agent)->tracing);
}

/* The two differ only in their names. */
#define OPS_OF_MESSAGES                                                                            \
    .secure = true, .bounded = true, .self_bytes = sizeof(struct end), .open = open_end,           \
    .connect = connect_all, .prepare = prepare, .turn = turn, .busy = busy, .account = account,    \
    .counters = counters, .close = close_all

const struct weft_perf_agent_ops weft_perf_agent_weft = {.name = "weft", OPS_OF_MESSAGES};
const struct weft_perf_agent_ops weft_perf_agent_tcp = {
    .name = "tcp", .kernel_tcp = true, OPS_OF_MESSAGES};
