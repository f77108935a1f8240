#include "cli/options.h"
#include "cli/perf/agent.h"

#include "base/assert.h"
#include "base/bits.h"
#include "base/prng.h"
#include "io/clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const uint64_t turn_ns = 20 * WEFT_NS_PER_MS;
static const uint64_t idle_turn_ns = 2 * WEFT_NS_PER_MS; /* between rounds, to check for a message
                                                          * of the coordinator */

enum { CHUNK_BYTES_MIN = 64 }; /* no transport has smaller chunks; the size of masks */

/* ---- contents -------------------------------------------------------------------------------- */

/* Word i of a participant's message in a round. 0 only by chance, because gaps are zeros. */
static uint32_t first_word(uint32_t from, uint32_t round)
{
    return (uint32_t)weft_mix64((uint64_t)from << 32 | round);
}

static const uint32_t word_step = 0x9e3779b1;

static void fill(struct weft_perf_agent *agent)
{
    uint32_t word = first_word(agent->me, agent->round);
    for (uint32_t i = 0; i < agent->job->bytes / sizeof(word); i++) {
        agent->source[i] = word;
        word += word_step;
    }
}

/* True when `memory` has bytes [at, at + count) of the message; both are multiples of 4. */
static bool holds(const uint8_t *memory, uint32_t at, uint32_t count, uint32_t first)
{
    uint32_t word = first + at / 4 * word_step;
    for (uint32_t i = 0; i < count; i += 4) {
        uint32_t found;
        memcpy(&found, memory + i, sizeof(found));
        if (found != word) {
            return false;
        }
        word += word_step;
    }
    return true;
}

static bool all_zero(const uint8_t *memory, uint32_t count)
{
    return count == 0 || (memory[0] == 0 && memcmp(memory, memory + 1, count - 1) == 0);
}

/* Check that received chunks are correct, and that nothing was written in the gaps. */
static bool chunks_are_right(const struct weft_perf_agent *agent, const struct weft_perf_end *in)
{
    uint32_t bytes = agent->job->bytes;
    uint32_t first = first_word(in->other, agent->round);
    uint32_t put = 0;
    for (uint32_t at = 0, chunk = 0; at < bytes; at += in->chunk_bytes, chunk++) {
        uint32_t count = (uint32_t)weft_min_u64(in->chunk_bytes, bytes - at);
        bool arrived = weft_bits_test(in->mask, chunk);
        const uint8_t *memory = in->memory + (in->compact ? put : at);
        if (arrived ? !holds(memory, at, count, first) : !in->compact && !all_zero(memory, count)) {
            return false;
        }
        put += arrived ? count : 0;
    }
    return true;
}

/* Clear the previous round; nothing was received before the first. */
static bool check(struct weft_perf_agent *agent)
{
    for (uint32_t i = 0; i < agent->in_count && agent->received > 0; i++) {
        const struct weft_perf_end *in = &agent->ins[i];
        bool right = in->chunk_bytes > 0 ? chunks_are_right(agent, in)
                                         : holds(in->memory, 0, agent->job->bytes,
                                                 first_word(in->other, agent->round));
        if (!right) {
            return weft_perf_fail(agent->error,
                                  "round %u: the data received from participant %u is not what it "
                                  "sent",
                                  agent->round, in->other);
        }
    }
    agent->received = 0;
    return true;
}

/* ---- starting messages ----------------------------------------------------------------------- */

/* The number of messages that may have started by now. */
static uint32_t released(const struct weft_perf_agent *agent)
{
    if (weft_perf_is_pingpong(agent->job->plan)) {
        return (uint32_t)weft_min_u64(agent->received + (agent->me == 0), agent->trips);
    }
    return agent->out_count * agent->trips; /* before the first round: none */
}

uint32_t weft_perf_agent_next(struct weft_perf_agent *agent)
{
    if (agent->started >= released(agent) ||
        agent->started - agent->finished >= agent->job->plan->parallel) {
        return WEFT_PERF_NONE;
    }
    uint32_t out = agent->order[agent->started++ % agent->out_count];
    agent->trip_began_ns = weft_clock_now_ns();
    agent->shared->flows[agent->outs[out].flow].started_ns = agent->trip_began_ns;
    return out;
}

void weft_perf_agent_finished(struct weft_perf_agent *agent, uint32_t out)
{
    agent->outs[out].trips++;
    agent->finished++;
}

void weft_perf_agent_received(struct weft_perf_agent *agent, uint32_t in, uint32_t received,
                              uint32_t chunks, uint64_t bytes, uint64_t now_ns)
{
    struct weft_perf_flow_note *note = &agent->shared->flows[agent->ins[in].flow];
    note->done_ns = now_ns;
    note->chunks += chunks;
    note->received += received;
    note->bytes += bytes;
    if (weft_perf_is_pingpong(agent->job->plan) && agent->me == 0) {
        agent->shared->trip_ns[agent->received] = now_ns - agent->trip_began_ns;
    }
    agent->ins[in].trips++;
    agent->received++;
}

bool weft_perf_agent_is_through(const struct weft_perf_agent *agent)
{
    return agent->received == agent->in_count * agent->trips &&
           agent->finished == agent->out_count * agent->trips;
}

uint32_t weft_perf_agent_in(const struct weft_perf_agent *agent, uint32_t flow)
{
    for (uint32_t i = 0; i < agent->in_count; i++) {
        if (agent->ins[i].flow == flow) {
            return i;
        }
    }
    return WEFT_PERF_NONE;
}

/* ---- for sockets programs -------------------------------------------------------------------- */

bool weft_perf_agent_bind(struct weft_perf_agent *agent, int fd)
{
    struct sockaddr_in addr;
    bool good = weft_perf_layout_bind(agent->job->layout, agent->me, fd, &addr);
    agent->note->port = ntohs(addr.sin_port);
    return good;
}

void weft_perf_agent_sockaddr(const struct weft_perf_agent *agent, uint32_t participant,
                              struct sockaddr_in *addr_p)
{
    weft_perf_layout_sockaddr(agent->job->layout, participant,
                              agent->shared->agents[participant].port, addr_p);
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* Between two iterations: has the coordinator requested counters? */
static void answer_query(struct weft_perf_agent *agent)
{
    uint32_t asked = atomic_load_explicit(&agent->shared->asked, memory_order_acquire);
    if (asked != agent->answered && agent->job->transport->counters != NULL) {
        agent->job->transport->counters(agent, &agent->note->counters);
        agent->answered = asked;
        atomic_store(&agent->note->answered, asked);
    }
}

/* ---- a round --------------------------------------------------------------------------------- */

/* A shuffle's mappers send to their reducers in a new order each round. */
static void shuffle_order(struct weft_perf_agent *agent)
{
    struct weft_prng prng;
    weft_prng_split(&prng, agent->job->seed, (uint64_t)agent->me << 32 | agent->round);
    for (uint32_t i = agent->out_count; i > 1; i--) {
        uint32_t j = (uint32_t)weft_prng_below(&prng, i);
        uint32_t kept = agent->order[i - 1];
        agent->order[i - 1] = agent->order[j];
        agent->order[j] = kept;
    }
}

static bool prepare(struct weft_perf_agent *agent, const cJSON *message)
{
    agent->round = (uint32_t)weft_channel_number(message, "round");
    agent->trips = (uint32_t)weft_channel_number(message, "count");
    agent->timed = weft_channel_number(message, "timed") != 0;
    WEFT_ASSERT(agent->trips >= 1 && agent->trips <= WEFT_PERF_TRIPS_MAX);
    agent->started = 0;
    agent->finished = 0;
    fill(agent);
    if (agent->job->plan->pattern == WEFT_PERF_SHUFFLE && agent->out_count > 0) {
        shuffle_order(agent);
    }
    for (uint32_t i = 0; i < agent->in_count; i++) {
        struct weft_perf_flow_note *note = &agent->shared->flows[agent->ins[i].flow];
        memset(agent->ins[i].memory, 0, agent->job->bytes);
        agent->ins[i].trips = 0;
        note->done_ns = 0;
        note->chunks = 0;
        note->received = 0;
        note->bytes = 0;
    }
    for (uint32_t i = 0; i < agent->out_count; i++) {
        agent->outs[i].trips = 0;
    }
    return agent->job->transport->prepare(agent);
}

static bool say(struct weft_perf_agent *agent, const char *event)
{
    return weft_channel_send(&agent->channel, weft_channel_event(event)) == WEFT_OK;
}

static bool run_round(struct weft_perf_agent *agent, uint32_t seen)
{
    const struct weft_perf_agent_ops *ops = agent->job->transport;
    bool good = weft_perf_shared_wait(agent->shared, seen);
    uint64_t cpu_before_ns = weft_clock_cpu_ns();
    while (good && !weft_perf_agent_is_through(agent) && !atomic_load(&agent->shared->stopping)) {
        good = ops->turn(agent, turn_ns);
        answer_query(agent);
    }
    while (good && ops->busy != NULL && ops->busy(agent) &&
           !atomic_load(&agent->shared->stopping)) {
        good = ops->turn(agent, turn_ns);
    }
    if (agent->timed) {
        agent->note->cpu_ns += weft_clock_cpu_ns() - cpu_before_ns;
    }
    ops->account(agent);
    return good || atomic_load(&agent->shared->stopping);
}

static bool on_prepare(struct weft_perf_agent *agent, const cJSON *message)
{
    uint32_t seen = atomic_load(&agent->shared->go);
    if (!check(agent) || !prepare(agent, message) || !say(agent, "ready") ||
        !run_round(agent, seen)) {
        return false;
    }
    if (atomic_load(&agent->shared->stopping)) {
        agent->received = 0; /* an incomplete round is not checked */
        return true;
    }
    return say(agent, "through");
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Wait for the next message of the coordinator; the transport makes progress meanwhile. NULL: the
 * coordinator is gone, or the transport failed. */
static cJSON *hear(struct weft_perf_agent *agent)
{
    cJSON *message = NULL;
    while (weft_channel_next(&agent->channel, &message) == WEFT_OK && message == NULL &&
           agent->job->transport->turn(agent, idle_turn_ns)) {
        answer_query(agent);
    }
    return message;
}

static bool on_count(struct weft_perf_agent *agent)
{
    agent->job->transport->account(agent);
    return say(agent, "counted");
}

/* False: the participant failed. */
static bool handle_one(struct weft_perf_agent *agent, const cJSON *message, bool *quit_p)
{
    const char *event = weft_channel_text(message, "event");
    *quit_p = strcmp(event, "quit") == 0;
    return *quit_p ? check(agent)
           : strcmp(event, "connect") == 0
               ? agent->job->transport->connect(agent) && say(agent, "connected")
           : strcmp(event, "count") == 0 ? on_count(agent)
                                         : on_prepare(agent, message);
}

static bool obey(struct weft_perf_agent *agent)
{
    bool quit = false;
    bool good = true;
    while (good && !quit) {
        cJSON *message = hear(agent);
        good = message != NULL && handle_one(agent, message, &quit);
        cJSON_Delete(message);
    }
    return good;
}

/* The first flow between the two decides which end opens their connection. */
static struct weft_perf_peer *peer_of(struct weft_perf_agent *agent, uint32_t other, bool sends)
{
    struct weft_perf_peer *peer = agent->peers;
    while (peer < agent->peers + agent->peer_count && peer->other != other) {
        peer++;
    }
    if (peer == agent->peers + agent->peer_count) {
        agent->peer_count++;
        *peer = (struct weft_perf_peer){
            .other = other, .in = WEFT_PERF_NONE, .out = WEFT_PERF_NONE, .connects = sends};
    }
    return peer;
}

static bool add_in(struct weft_perf_agent *agent, uint32_t flow, uint32_t from)
{
    struct weft_perf_end *in = &agent->ins[agent->in_count];
    in->flow = flow;
    in->other = from;
    in->memory = calloc(1, agent->job->bytes);
    in->mask = calloc(WEFT_BITS_WORDS(agent->job->bytes / CHUNK_BYTES_MIN + 1), 8);
    peer_of(agent, from, false)->in = agent->in_count++;
    return in->memory != NULL && in->mask != NULL;
}

static void add_out(struct weft_perf_agent *agent, uint32_t flow, uint32_t to)
{
    agent->outs[agent->out_count] = (struct weft_perf_end){.flow = flow, .other = to};
    agent->order[agent->out_count] = agent->out_count;
    peer_of(agent, to, true)->out = agent->out_count++;
}

static bool outfit(struct weft_perf_agent *agent)
{
    const struct weft_perf_plan *plan = agent->job->plan;
    agent->ins = calloc(plan->participants, sizeof(*agent->ins));
    agent->outs = calloc(plan->participants, sizeof(*agent->outs));
    agent->peers = calloc(plan->participants, sizeof(*agent->peers));
    agent->order = calloc(plan->participants, sizeof(*agent->order));
    agent->source = malloc(agent->job->bytes);
    agent->self = calloc(1, agent->job->transport->self_bytes);
    bool good = agent->ins != NULL && agent->outs != NULL && agent->peers != NULL &&
                agent->order != NULL && agent->source != NULL && agent->self != NULL;
    for (uint32_t i = 0; good && i < plan->flow_count; i++) {
        const struct weft_perf_pair *pair = &plan->flows[i];
        if (pair->to == agent->me) {
            good = add_in(agent, i, pair->from);
        } else if (pair->from == agent->me) {
            add_out(agent, i, pair->to);
        }
    }
    return good || weft_perf_fail(agent->error, "no memory for the messages");
}

static void discard(struct weft_perf_agent *agent)
{
    for (uint32_t i = 0; i < agent->in_count; i++) {
        free(agent->ins[i].memory);
        free(agent->ins[i].mask);
    }
    free(agent->ins);
    free(agent->outs);
    free(agent->peers);
    free(agent->order);
    free(agent->source);
    free(agent->self);
    weft_security_fini(&agent->security);
    weft_channel_fini(&agent->channel);
}

static bool settle_in(struct weft_perf_agent *agent, int key_fd)
{
    agent->security = (struct weft_security){.mode = agent->job->mode,
                                             .insecure_network = agent->job->mode == WEFT_MODE_NONE,
                                             .key_fd = key_fd > 0 ? (uint32_t)key_fd : 0};
    return weft_security_load(&agent->security, false, agent->error) == WEFT_OK && outfit(agent);
}

int weft_perf_agent_run(const struct weft_perf_job *job, struct weft_perf_shared *shared,
                        uint32_t me, int channel, int key_fd)
{
    struct weft_perf_agent agent = {.job = job,
                                    .shared = shared,
                                    .note = &shared->agents[me],
                                    .error = &shared->agents[me].error,
                                    .me = me,
                                    .channel = {.fd = channel}};
    (void)fcntl(channel, F_SETFL, O_NONBLOCK);
    bool good = settle_in(&agent, key_fd);
    if (good) {
        good = job->transport->open(&agent) && say(&agent, "open") && obey(&agent);
        job->transport->close(&agent);
    }
    if (!good) {
        (void)say(&agent, "failed");
    }
    discard(&agent);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}
