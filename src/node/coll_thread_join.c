/* Connections to the other ranks: each rank connects to those below it, and retries until join
 * ends. */
#include "node/coll_thread_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- the thread: connections ----------------------------------------------------------------- */

static uint32_t dialled(const struct weft_coll_thread *t, weft_peer peer)
{
    for (uint32_t r = 0; r < t->config.coll.rank; r++) {
        if (t->dial[r].peer == peer) {
            return r;
        }
    }
    return COLL_NONE;
}

/* A connection failed permanently. */
static void not_connected(struct weft_coll_thread *t, uint32_t rank, const char *why)
{
    const struct coll_dial *d = &t->dial[rank];
    pthread_mutex_lock(&t->lock);
    if (!t->failed) {
        snprintf(t->failure, sizeof(t->failure), "no connection to rank %u at %s:%u: %s", rank,
                 d->address.host, d->address.port, why);
        t->failed = true;
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

/* The rank may not be listening yet: retry. */
static void dial_again(struct weft_coll_thread *t, uint32_t rank, uint64_t now_ns)
{
    struct coll_dial *d = &t->dial[rank];
    pthread_mutex_lock(&t->lock);
    bool again = now_ns < t->join_end_ns;
    pthread_mutex_unlock(&t->lock);
    if (again && weft_driver_connect(t->driver, d->address.host, d->address.port, &d->peer, NULL) !=
                     WEFT_OK) {
        d->peer = COLL_NONE;
    }
}

static void on_dialled_down(struct weft_coll_thread *t, uint32_t rank, enum weft_msg_down down,
                            uint64_t now_ns)
{
    t->dial[rank].peer = COLL_NONE;
    switch (down) {
    case WEFT_DOWN_CLOSED:
    case WEFT_DOWN_REPLACED:
        not_connected(t, rank, "it closed the connection; its own output says why");
        break;
    case WEFT_DOWN_PROTOCOL:
        not_connected(t, rank, "it broke the protocol; run the same weft version everywhere");
        break;
    case WEFT_DOWN_CRYPTO:
        not_connected(t, rank, "the cryptography of this process failed");
        break;
    case WEFT_DOWN_SILENT:
    case WEFT_DOWN_LOCAL:
    case WEFT_DOWN_IDLE:
    case WEFT_DOWN_RESTARTED:
        dial_again(t, rank, now_ns);
        break;
    }
}

static void on_dialled_up(struct weft_coll_thread *t, uint32_t rank, uint64_t name)
{
    t->dial[rank].peer = COLL_NONE;
    if (name != weft_coll_name(t->config.coll.epoch, rank)) {
        not_connected(
            t, rank,
            "the process there is another rank, or of another start of the job; check that "
            "the addresses are in the order of the ranks, and that all ranks have the same "
            "epoch");
    }
}

void weft_coll_thread_on_event(struct weft_coll_thread *t, const struct weft_msg_event *event,
                               uint64_t now_ns)
{
    if (event->type != WEFT_EVENT_PEER_UP && event->type != WEFT_EVENT_PEER_DOWN) {
        return;
    }
    t->links_changed = true;
    uint32_t rank = dialled(t, event->peer);
    if (rank == COLL_NONE) {
        return;
    }
    if (event->type == WEFT_EVENT_PEER_DOWN) {
        on_dialled_down(t, rank, event->down, now_ns);
    } else {
        on_dialled_up(t, rank, event->name);
    }
}

/* ---- joining ---------------------------------------------------------------------------------
 *
 * A rank that has joined may have ended its operations, and closed, before another one has joined:
 * that one does not wait for it again. */

struct join_request {
    const struct weft_launch_address *addresses;
    struct weft_error *error;
    weft_status status;
};

static void connect_all(struct weft_coll_thread *t, void *arg)
{
    struct join_request *r = arg;
    r->status = WEFT_OK;
    for (uint32_t i = 0; i < t->config.coll.rank && r->status == WEFT_OK; i++) {
        struct coll_dial *d = &t->dial[i];
        if (d->peer != COLL_NONE || weft_coll_rank_met(t->coll, i)) {
            continue;
        }
        d->address = r->addresses[i];
        struct weft_error why;
        r->status =
            weft_driver_connect(t->driver, d->address.host, d->address.port, &d->peer, &why);
        if (r->status != WEFT_OK) {
            d->peer = COLL_NONE;
            (void)weft_fail(r->error, r->status, "rank %u at %s:%u: %s", i, d->address.host,
                            d->address.port, why.text);
        }
    }
}

void weft_coll_rank_list_add(struct coll_rank_list *list, uint32_t rank)
{
    const char *form = list->count == 0 ? "%u" : ", %u";
    char *at = list->text + list->used;
    list->count++;
    if (list->used + 16 < sizeof(list->text)) {
        list->used += (size_t)snprintf(at, sizeof(list->text) - list->used, form, rank);
    } else if (at[-1] != '.') {
        list->used += (size_t)snprintf(at, sizeof(list->text) - list->used, ", ...");
    }
}

struct missing_request {
    struct coll_rank_list ranks;
    uint64_t refused; /* connections */
    char hint[WEFT_SECURITY_HINT_BYTES];
};

static void find_missing(struct weft_coll_thread *t, void *arg)
{
    struct missing_request *m = arg;
    for (uint32_t i = 0; i < t->config.coll.ranks; i++) {
        if (!weft_coll_rank_met(t->coll, i)) {
            weft_coll_rank_list_add(&m->ranks, i);
        }
    }
    m->refused = weft_coll_counters(t->coll)->peers_refused;
    enum weft_ep_hint hint = weft_driver_hint(t->driver);
    if (hint != WEFT_HINT_NONE) {
        weft_security_hint(t->config.security, hint, m->hint, sizeof(m->hint));
    } else {
        weft_driver_unreached(t->driver, m->hint);
    }
}

static weft_status not_in_time(struct weft_coll_thread *t, uint64_t timeout_ns,
                               struct weft_error *error)
{
    struct missing_request m = {.refused = 0};
    weft_coll_thread_request(t, find_missing, &m);
    if (m.refused > 0 && m.hint[0] == '\0') {
        snprintf(m.hint, sizeof(m.hint),
                 "%" PRIu64 " connections were refused: their processes have another epoch, or "
                 "the rank of a process that is already connected",
                 m.refused);
    }
    return weft_fail(error, WEFT_TIMEOUT,
                     "after %.1f s %u of %u ranks are not connected to rank %u: %s%s%s; check that "
                     "they were started and can reach each other's addresses",
                     (double)timeout_ns / 1e9, m.ranks.count, t->config.coll.ranks,
                     t->config.coll.rank, m.ranks.text, m.hint[0] != '\0' ? ". " : "", m.hint);
}

weft_status weft_coll_thread_join(struct weft_coll_thread *t,
                                  const struct weft_launch_address *addresses, uint64_t timeout_ns,
                                  struct weft_error *error)
{
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), timeout_ns);
    pthread_mutex_lock(&t->lock);
    bool other = t->is_joining;
    if (!other) {
        t->is_joining = true;
        t->join_end_ns = end_ns;
    }
    pthread_mutex_unlock(&t->lock);
    if (other) {
        return weft_fail(error, WEFT_STATE, "another thread is joining already");
    }
    struct join_request r = {.addresses = addresses, .error = error};
    weft_coll_thread_request(t, connect_all, &r);
    pthread_mutex_lock(&t->lock);
    bool in_time = true;
    while (r.status == WEFT_OK && t->ranks_met < t->config.coll.ranks && !t->failed && in_time) {
        in_time = weft_coll_thread_wait_changed(t, end_ns);
    }
    t->is_joining = false;
    t->join_end_ns = 0;
    bool all = t->ranks_met == t->config.coll.ranks, failed = t->failed;
    pthread_mutex_unlock(&t->lock);
    if (r.status != WEFT_OK) {
        return r.status;
    }
    if (failed) {
        return weft_fail(error, WEFT_PEER, "%s", t->failure);
    }
    return all ? WEFT_OK : not_in_time(t, timeout_ns, error);
}
