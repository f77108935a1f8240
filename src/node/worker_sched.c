#include "node/worker_sched.h"

#include "base/assert.h"
#include "io/clock.h"
#include "node/sched_link.h"
#include "ps/update.h"

#include <math.h>
#include <stdlib.h>

struct asked {
    uint64_t update;
    uint32_t clock;
    double norm;
};

struct weft_worker_sched {
    struct weft_sched_link *link;
    struct weft_launch_address address;
    uint32_t shards;
    uint32_t aggregators; /* aggregators per shard */
    bool is_bounded;      /* the job has a delay bound */
    uint64_t update;      /* the update that the daemon requests or that was granted; 0 = none */
    uint32_t clock;       /* clock of the last request */
    uint32_t read;        /* the step whose read the daemon requests or that was begun; 0 = none */
    struct asked waiting[WEFT_PS_UPDATES_MAX]; /* complete, and not requested */
    uint32_t count;
};

weft_status weft_worker_sched_new(const struct weft_worker_config *config, struct weft_msgr msgr,
                                  struct weft_worker_sched **sched_p)
{
    struct weft_sched_daemon_config daemon;
    struct weft_worker_sched *sched = calloc(1, sizeof(*sched));
    if (sched == NULL) {
        return WEFT_NOMEM;
    }
    weft_sched_daemon_config_default(&daemon);
    daemon.role = WEFT_SCHED_WORKER;
    daemon.index = config->client.worker;
    daemon.workers = config->workers;
    daemon.shards = config->client.shards;
    daemon.mode = config->mode;
    daemon.tau_max = config->tau_max;
    daemon.up_bps = daemon.down_bps = config->link_bps;
    weft_status status = weft_sched_link_new(&daemon, msgr, &sched->link);
    if (status != WEFT_OK) {
        free(sched);
        return status;
    }
    sched->address = *config->scheduler;
    sched->shards = config->client.shards;
    sched->aggregators = config->client.via_timeout_ns == 0 ? 0
                         : config->client.aggregators > 1   ? config->client.aggregators
                                                            : 1;
    weft_sched_daemon_aggregators(weft_sched_link_daemon(sched->link), sched->aggregators, 0);
    sched->is_bounded = config->tau_max != WEFT_NEVER;
    *sched_p = sched;
    return WEFT_OK;
}

void weft_worker_sched_free(struct weft_worker_sched *sched)
{
    if (sched != NULL) {
        weft_sched_link_free(sched->link);
        free(sched);
    }
}

bool weft_worker_sched_event(struct weft_worker_sched *sched, const struct weft_msg_event *event,
                             uint64_t now_ns)
{
    return weft_sched_link_event(sched->link, event, now_ns);
}

const struct weft_sched_daemon_counters *
weft_worker_sched_counters(const struct weft_worker_sched *sched)
{
    return weft_sched_daemon_counters(weft_sched_link_daemon(sched->link));
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Shape: shares (shards,). False: it cannot be planned. The base that the delay bound is checked
 *        against must be known; a clock is requested once. */
static bool fill_shares(const struct weft_worker_sched *sched, const struct weft_ps_client *client,
                        const struct asked *asked, struct weft_sched_share *shares)
{
    bool any = false;
    for (uint32_t s = 0; s < sched->shards; s++) {
        struct weft_ps_update_part part;
        if (weft_ps_update_part(client, asked->update, s, &part) != WEFT_OK ||
            (sched->is_bounded && part.pushes > 0 && !part.based)) {
            return false;
        }
        shares[s] =
            (struct weft_sched_share){.bytes = part.bytes, .base = part.based ? part.base : 0};
        any |= part.bytes > 0;
    }
    return any && isfinite(asked->norm) && asked->clock > sched->clock;
}

static void remove_waiting(struct weft_worker_sched *sched, uint32_t at)
{
    sched->count--;
    for (uint32_t i = at; i < sched->count; i++) {
        sched->waiting[i] = sched->waiting[i + 1];
    }
}

static struct asked take_lowest(struct weft_worker_sched *sched)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < sched->count; i++) {
        at = sched->waiting[i].clock < sched->waiting[at].clock ? i : at;
    }
    struct asked asked = sched->waiting[at];
    remove_waiting(sched, at);
    return asked;
}

static void ask_next(struct weft_worker_sched *sched, struct weft_ps_client *client,
                     uint64_t now_ns)
{
    struct weft_sched_share shares[WEFT_SCHED_SHARDS_MAX];
    while (sched->update == 0 && sched->count > 0) {
        struct asked asked = take_lowest(sched);
        if (fill_shares(sched, client, &asked, shares)) {
            sched->update = asked.update;
            sched->clock = asked.clock;
            weft_sched_daemon_ask(weft_sched_link_daemon(sched->link), asked.clock, asked.norm,
                                  shares, now_ns);
        } else {
            /* NOTFOUND: the update has failed meanwhile. */
            (void)weft_ps_update_direct(client, asked.update, 0, now_ns);
        }
    }
}

/* ---- the client's events --------------------------------------------------------------------- */

static void over(struct weft_worker_sched *sched, uint64_t update)
{
    if (update == sched->update) {
        sched->update = 0;
        weft_sched_daemon_ended(weft_sched_link_daemon(sched->link));
        return;
    }
    for (uint32_t i = 0; i < sched->count; i++) {
        if (sched->waiting[i].update == update) {
            remove_waiting(sched, i);
            return;
        }
    }
}

static void take_event(struct weft_worker_sched *sched, const struct weft_ps_update_event *event)
{
    switch (event->type) {
    case WEFT_PS_UPDATE_ASK:
        WEFT_ASSERT(sched->count < WEFT_PS_UPDATES_MAX); /* one for each slot of the client */
        sched->waiting[sched->count++] =
            (struct asked){.update = event->update, .clock = event->clock, .norm = event->norm};
        break;
    case WEFT_PS_UPDATE_DELIVERED:
        if (event->update == sched->update) {
            uint64_t begun_ns = weft_min_u64(event->begun_ns, event->ended_ns);
            weft_sched_daemon_delivered(weft_sched_link_daemon(sched->link), event->shard,
                                        event->ended_ns - begun_ns);
        }
        break;
    case WEFT_PS_UPDATE_OVER:
        over(sched, event->update);
        break;
    }
}

/* ---- the scheduler's answers ----------------------------------------------------------------- */

/* A grant that the client refuses because the update has ended or was dropped needs no reply. */
static void take_answer(struct weft_worker_sched *sched, struct weft_ps_client *client,
                        const struct weft_sched_answer *answer, uint64_t now_ns)
{
    const struct weft_msg_pace pace = {.start_ns = answer->start_ns,
                                       .rate_bps = answer->rate_bps,
                                       .rank = (uint8_t)weft_min_u64(answer->rank, UINT8_MAX)};
    switch (answer->kind) {
    case WEFT_SCHED_SEND:
        if (answer->hop > 0) { /* ignore a route that cannot be used: the update is sent to its
                                * shards */
            (void)weft_ps_update_by(client, sched->update, answer->shard, answer->hop - 1,
                                    answer->group, answer->members);
        }
        (void)weft_ps_update_grant(client, sched->update, answer->shard, &pace, now_ns);
        break;
    case WEFT_SCHED_DROP:
        /* A push that is resent over a new connection cannot be dropped. */
        if (weft_ps_update_drop(client, sched->update, now_ns) == WEFT_STATE) {
            (void)weft_ps_update_direct(client, sched->update, 0, now_ns);
        }
        break;
    case WEFT_SCHED_SEND_DIRECT:
        (void)weft_ps_update_direct(client, sched->update, answer->rate_bps, now_ns);
        break;
    }
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* True: a read has begun. */
static bool take_reads(struct weft_worker_sched *sched, struct weft_ps_client *client,
                       uint64_t now_ns)
{
    struct weft_sched_daemon *daemon = weft_sched_link_daemon(sched->link);
    weft_ps_reads_wait(client, weft_sched_daemon_reads_wait(daemon), now_ns);
    if (weft_ps_read_over(client)) {
        sched->read = 0;
        weft_sched_daemon_read_over(daemon);
    }
    uint32_t clock;
    if (weft_ps_read_wanted(client, &clock) && clock != sched->read) {
        sched->read = clock;
        weft_sched_daemon_read(daemon, clock, now_ns);
    }
    if (!weft_sched_daemon_may_read(daemon, now_ns)) {
        return false;
    }
    weft_ps_read_begin(client, sched->read, now_ns);
    return true;
}

void weft_worker_sched_progress(struct weft_worker_sched *sched, struct weft_ps_client *client,
                                uint64_t now_ns)
{
    struct weft_sched_daemon *daemon = weft_sched_link_daemon(sched->link);
    struct weft_ps_update_event event;
    struct weft_sched_answer answer;
    bool again = true;
    if (sched->aggregators > 0) {
        weft_sched_daemon_aggregators(daemon, sched->aggregators, weft_ps_client_vias_open(client));
    }
    while (again) { /* an answer may end an update, and then the next is requested */
        again = false;
        while (weft_ps_update_poll(client, &event)) {
            take_event(sched, &event);
        }
        ask_next(sched, client, now_ns);
        while (weft_sched_daemon_answer(daemon, now_ns, &answer)) {
            take_answer(sched, client, &answer, now_ns);
            again = true;
        }
        again |= take_reads(sched, client, now_ns);
    }
    weft_sched_link_progress(sched->link, now_ns);
}

/* ---- the connection -------------------------------------------------------------------------- */

uint64_t weft_worker_sched_maintain(struct weft_worker_sched *sched, struct weft_worker *worker)
{
    uint64_t now_ns = weft_clock_now_ns();
    if (weft_sched_link_wants_peer(sched->link, now_ns)) {
        struct weft_error error; /* ignored: nothing waits for the scheduler */
        weft_peer peer;
        if (weft_endpoint_connect(&worker->endpoint, sched->address.host, sched->address.port,
                                  &peer, &error) != WEFT_OK) {
            peer = WEFT_PEER_ANY;
        }
        weft_sched_link_connecting(sched->link, peer, now_ns);
    }
    weft_worker_sched_progress(sched, worker->client, now_ns);
    uint64_t due_ns = weft_sched_link_deadline(sched->link);
    return due_ns == WEFT_NEVER ? WEFT_NEVER : due_ns > now_ns ? due_ns - now_ns : 0;
}
