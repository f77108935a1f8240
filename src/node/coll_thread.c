/* The lifecycle of the collectives' thread, and its parts. */
#include "node/coll_thread_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Peers beyond the ranks: for example of an earlier start of the job, until they are refused. */
enum { CHUNKS_MAX = 65536, PEERS_SPARE = 8 };

/* With the peer timeout of 5 s and the wait of coll/failure.c, a dead rank ends the operations of
 * the others within 6 s. */
static const uint64_t keepalive_ns = 500 * WEFT_NS_PER_MS;

void weft_coll_thread_config_default(struct weft_coll_thread_config *config_p)
{
    *config_p = (struct weft_coll_thread_config){.security = NULL};
    weft_coll_config_default(&config_p->coll);
    weft_driver_config_default(&config_p->driver);
    config_p->driver.udp.ep.chunks_max = CHUNKS_MAX;
    config_p->driver.udp.ep.keepalive_ns = keepalive_ns;
    config_p->driver.udp.busy_poll_us = WEFT_COLL_THREAD_BUSY_POLL_US;
    struct weft_coll_box_config box;
    weft_coll_box_config_default(&box);
    config_p->box = (struct weft_coll_thread_box){
        .slots = box.slots, .bytes_min = box.bytes_min, .silence_ns = box.silence_ns,
        .retry_ns = box.retry_ns};
}

/* ---- life ------------------------------------------------------------------------------------ */

uint16_t weft_coll_thread_port(const struct weft_coll_thread *t)
{
    return t->port;
}

static void release(struct weft_coll_thread *t)
{
    weft_box_link_close(t->box_link); /* its thread wakes the driver */
    weft_driver_close(t->driver);     /* it may still send from all memory below */
    weft_coll_box_free(t->box);
    weft_provider_free(t->provider);
    weft_coll_free(t->coll);
    weft_coll_thread_plans_free(t);
    for (uint32_t i = 0; t->block != NULL && i < t->config.coll.ops_max; i++) {
        free(t->block[i].memory);
    }
    if (t->fd >= 0) {
        close(t->fd);
    }
    weft_leader_fini(&t->leader);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t->block);
    free(t->dial);
    free(t->slot);
    free(t);
}

static weft_status take_memory(struct weft_coll_thread *t)
{
    const struct weft_coll_config *c = &t->config.coll;
    t->slot = calloc(c->ops_max, sizeof(*t->slot));
    t->block = calloc(c->ops_max, sizeof(*t->block));
    t->dial = calloc(c->ranks, sizeof(*t->dial));
    t->plans = c->groups_max + WEFT_COLL_BOX_GROUPS;
    t->plan = calloc(t->plans, sizeof(*t->plan));
    if (t->slot == NULL || t->block == NULL || t->dial == NULL || t->plan == NULL) {
        return WEFT_NOMEM;
    }
    t->free_head = COLL_NONE;
    for (uint32_t i = c->ops_max; i-- > 0;) {
        t->slot[i].life = 1;
        t->slot[i].block = COLL_NONE;
        t->slot[i].next = t->free_head;
        t->free_head = i;
    }
    for (uint32_t r = 0; r < c->ranks; r++) {
        t->dial[r].peer = COLL_NONE;
    }
    t->queued.head = t->done.head = COLL_NONE;
    return WEFT_OK;
}

static weft_status init_sleeping(struct weft_coll_thread *t, struct weft_error *error)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    rc = rc != 0 ? rc : pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = rc != 0 ? rc : pthread_cond_init(&t->changed, &attr);
    rc = rc != 0 ? rc : pthread_mutex_init(&t->lock, NULL);
    WEFT_ASSERT(rc == 0); /* on Linux these fail only for wrong arguments */
    pthread_condattr_destroy(&attr);
    weft_status status = weft_leader_init(&t->leader, &t->lock, &t->changed);
    return status == WEFT_OK
               ? status
               : weft_fail(error, status, "cannot make a timer: %s", strerror(errno));
}

static weft_status open_driver(struct weft_coll_thread *t, struct weft_error *error)
{
    struct weft_driver_config armed = t->config.driver;
    struct weft_ep_config *ep = &armed.udp.ep;
    struct weft_coll_config *c = &t->config.coll;
    ep->name = weft_coll_name(c->epoch, c->rank);
    ep->accept = 1;
    ep->peers_max = c->ranks + PEERS_SPARE;
    ep->expects_max = WEFT_COLL_EXPECTS;
    ep->senders_expected = (uint16_t)weft_max_u64(c->ranks - 1, 1);
    c->peers_max = ep->peers_max;
    c->chunks_max = ep->chunks_max;
    weft_status status = weft_security_arm(t->config.security, &armed.udp, &t->provider, error);
    status = status == WEFT_OK ? weft_driver_open(&armed, &t->driver, error) : status;
    weft_security_disarm(&armed.udp);
    return status;
}

static weft_status open_all(struct weft_coll_thread *t, struct weft_error *error)
{
    weft_status status = open_driver(t, error);
    if (status != WEFT_OK) {
        return status;
    }
    t->msgr = weft_driver_msgr(t->driver);
    t->port = weft_driver_port(t->driver);
    struct weft_coll_config coll = t->config.coll;
    weft_coll_thread_box_prepare(&t->config, &coll);
    status = weft_coll_new(&coll, t->msgr, &t->coll);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "cannot make the collectives of rank %u of %u: %s",
                         t->config.coll.rank, t->config.coll.ranks, weft_status_text(status));
    }
    t->ranks_met = weft_coll_ranks_met(t->coll);
    return t->config.box.host == NULL ? WEFT_OK : weft_coll_thread_box_open(t, &coll, error);
}

/* The program's signals are for its own threads. */
static int create_thread(struct weft_coll_thread *t)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->thread, NULL, weft_coll_thread_run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

weft_status weft_coll_thread_start(const struct weft_coll_thread_config *config,
                                   struct weft_coll_thread **thread_p, struct weft_error *error)
{
    struct weft_coll_thread *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for collectives");
    }
    t->config = *config;
    t->fd = -1;
    t->stop_ns = WEFT_NEVER;
    t->requests_end = &t->requests;
    weft_status status = init_sleeping(t, error);
    if (status != WEFT_OK) {
        release(t);
        return status;
    }
    status = take_memory(t);
    if (status != WEFT_OK) {
        (void)weft_fail(error, status, "no memory for %u operations of %u ranks",
                        config->coll.ops_max, config->coll.ranks);
    } else {
        status = open_all(t, error);
    }
    if (status != WEFT_OK) {
        release(t);
        return status;
    }
    int rc = create_thread(t);
    if (rc != 0) {
        release(t);
        return weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(rc));
    }
    *thread_p = t;
    return WEFT_OK;
}

void weft_coll_thread_stop(struct weft_coll_thread *thread)
{
    if (thread == NULL) {
        return;
    }
    /* No thread waits, so at most the endpoint's thread leads. If it leads, it is woken from its
     * step; if not, it takes the lead at once. In both cases it checks `stopping` before its next
     * step. */
    pthread_mutex_lock(&thread->lock);
    atomic_store(&thread->stopping, true);
    weft_leader_hurry(&thread->leader);
    pthread_mutex_unlock(&thread->lock);
    weft_driver_wake(thread->driver);
    int rc = pthread_join(thread->thread, NULL);
    WEFT_ASSERT(rc == 0);
    release(thread);
}
