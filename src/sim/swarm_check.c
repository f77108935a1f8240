/* The checks of a swarm: everything is closed, and the final state is correct. */
#include "sim/swarm_internal.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdlib.h>

/* Returns NULL if the message is complete, else the event that is missing. */
static const char *msg_waits(const struct swarm *s, const struct weft_oracle_msg *msg)
{
    /* Abandoned before a chunk arrived, by the sender's deadline or with the connection. */
    bool nothing = msg->sent && msg->sent_received == 0 &&
                   (msg->sent_outcome == WEFT_MSG_SHORT || s->plan.closes > 0);
    if (!swarm_died(s, msg->plan->src) && msg->queued && !msg->sent) {
        return "waits for SENT";
    }
    if (!msg->queued && !swarm_died(s, msg->plan->src) && !swarm_died(s, msg->plan->dst)) {
        return "was never queued";
    }
    if (swarm_died(s, msg->plan->dst) || msg->received) {
        return NULL;
    }
    if (msg->opened) {
        return "waits for RECEIVED";
    }
    return swarm_died(s, msg->plan->src) || nothing ? NULL : "was never opened";
}

/* If a death is monitored, by probes or the sleep timeout, all connected hosts must have detected
 * it. */
static bool holds_the_dead(const struct swarm *s, uint32_t host)
{
    for (uint32_t i = 0; s->plan.watched && i < s->plan.host[host].ep.peers_max; i++) {
        if (s->host[host].host_of[i] == s->plan.victim) {
            return true;
        }
    }
    return false;
}

bool weft_swarm_all_closed(struct swarm *s, bool complain)
{
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const char *waits = msg_waits(s, &s->msgs[i]);
        if (waits != NULL) {
            if (complain) {
                weft_swarm_fail_msg(s, i, waits);
            }
            return false;
        }
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        if (!swarm_died(s, i) && holds_the_dead(s, i)) {
            if (complain) {
                weft_world_fail(s->world, "host %" PRIu32 " did not detect a death", i);
            }
            return false;
        }
        if (s->host[i].reconnecting) {
            if (complain) {
                weft_world_fail(s->world, "host %" PRIu32 " did not reconnect", i);
            }
            return false;
        }
        if (!swarm_died(s, i) && weft_ep_busy(weft_world_ep(s->world, i))) {
            if (complain) {
                weft_world_fail(s->world, "host %" PRIu32 " is busy although all is closed", i);
            }
            return false;
        }
    }
    /* Packets sent before the death may open a connection or a message, and count like any
     * other. */
    if (s->plan.victim != NOBODY && weft_world_orphans(s->world)) {
        if (complain) {
            weft_world_fail(s->world, "packets of a process that died are still in flight");
        }
        return false;
    }
    return true;
}

static void check_accumulator(struct swarm *s, uint32_t host)
{
    const struct swarm_host *h = &s->host[host];
    uint64_t count = h->accumulator_bytes / 4;
    float *sums = malloc(h->accumulator_bytes);
    WEFT_ASSERT(sums != NULL);
    for (uint64_t i = 0; i < count; i++) {
        sums[i] = weft_oracle_float_before(i);
    }
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_plan_msg *plan = &s->plan.msg[i];
        if (plan->dst == host && plan->shared && plan->sink == WEFT_SINK_ADD) {
            weft_oracle_accumulate(&s->msgs[i], sums);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        if (sums[i] != h->accumulator[i]) {
            weft_world_fail(s->world, "host %" PRIu32 ": accumulator[%" PRIu64 "] is %g, not %g",
                            host, i, (double)h->accumulator[i], (double)sums[i]);
            break;
        }
    }
    free(sums);
}

static void check_counter(struct swarm *s, uint32_t host, const char *name, uint64_t counted,
                          uint64_t seen)
{
    if (counted != seen) {
        weft_world_fail(s->world,
                        "host %" PRIu32 ": counter %s is %" PRIu64 ", but %" PRIu64 " were seen",
                        host, name, counted, seen);
    }
}

static void check_counters(struct swarm *s, uint32_t host)
{
    const struct weft_ep_counters *c = weft_ep_counters(weft_world_ep(s->world, host));
    const struct weft_world_host_counters *w = weft_world_counters(s->world, host);
    const struct swarm_totals *t = &s->host[host].totals;
    check_counter(s, host, "datagrams_received", c->datagrams_received, w->packets_received);
    check_counter(s, host, "bytes_received", c->bytes_received, w->bytes_received);
    check_counter(s, host, "datagrams_sent", c->datagrams_sent, w->packets_sent);
    check_counter(s, host, "bytes_sent", c->bytes_sent, w->bytes_sent);
    check_counter(s, host, "messages_sent", c->messages_sent, t->sent);
    check_counter(s, host, "messages_unknown", c->messages_unknown, t->unknown);
    check_counter(s, host, "messages_received", c->messages_received, t->received);
    check_counter(s, host, "messages_short", c->messages_short, t->received_short);
    check_counter(s, host, "chunks_missing", c->chunks_missing, t->missing);
    check_counter(s, host, "data_received", c->data_received, t->chunks);
}

void weft_swarm_check_end(struct swarm *s)
{
    for (uint32_t i = 0; i < s->plan.msgs; i++) {
        const struct weft_oracle_msg *msg = &s->msgs[i];
        /* If a receiver died with the message open, its mask is unknown. */
        const char *wrong =
            msg->received || !swarm_died(s, msg->plan->dst) ? weft_oracle_memory(msg) : NULL;
        if (wrong != NULL) {
            weft_swarm_fail_msg(s, i, wrong);
        }
    }
    for (uint32_t i = 0; i < s->plan.hosts; i++) {
        if (swarm_died(s, i)) {
            continue;
        }
        check_counters(s, i);
        if (s->host[i].accumulator != NULL) {
            check_accumulator(s, i);
        }
    }
    const char *wrong = weft_net_check(weft_world_net(s->world), true);
    if (wrong != NULL) {
        weft_world_fail(s->world, "%s", wrong);
    }
}
