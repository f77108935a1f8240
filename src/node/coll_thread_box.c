/* The aggregation box of the collectives: coll/box.h decides, node/box_link.h sums. The link's
 * thread wakes the leader when a sum has ended; progress itself is only read. */
#include "node/coll_thread_internal.h"

#include "io/random.h"

#include <stdio.h>

/* ---- the link of coll/box.h ------------------------------------------------------------------ */

static void link_epoch(void *self, uint32_t epoch)
{
    struct weft_coll_thread *t = self;
    weft_box_link_epoch(t->box_link, epoch);
}

static void link_begin(void *self, const void *in, void *out, uint64_t count, uint64_t *direct)
{
    struct weft_coll_thread *t = self;
    weft_box_link_begin(t->box_link, in, out, count, direct, WEFT_NEVER);
}

static void link_stop(void *self)
{
    struct weft_coll_thread *t = self;
    weft_box_link_stop(t->box_link);
}

static uint64_t link_progress(void *self)
{
    struct weft_coll_thread *t = self;
    struct weft_box_link_counters counters;
    weft_box_link_counters(t->box_link, &counters);
    return counters.sums;
}

/* By the link's thread. */
static void on_ended(void *arg)
{
    struct weft_coll_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    weft_coll_thread_wake(t);
    pthread_mutex_unlock(&t->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct weft_coll_box_config box_config(const struct weft_coll_thread_config *config)
{
    const struct weft_coll_thread_box *b = &config->box;
    struct weft_coll_box_config c;
    weft_coll_box_config_default(&c);
    bool floats = b->floats || b->block_floats;
    c.type = floats || b->exponent != 0 ? WEFT_COLL_F32 : WEFT_COLL_I32;
    c.exponent = floats ? 0 : b->exponent;
    c.slots = b->slots;
    c.bytes_min = b->bytes_min;
    c.silence_ns = b->silence_ns;
    c.retry_ns = b->retry_ns;
    return c;
}

void weft_coll_thread_box_prepare(const struct weft_coll_thread_config *config,
                                  struct weft_coll_config *coll_p)
{
    const struct weft_coll_thread_box *b = &config->box;
    if (b->host == NULL) {
        return;
    }
    struct weft_coll_box_config box = box_config(config);
    coll_p->ops_max += WEFT_COLL_BOX_OPS;
    coll_p->groups_max = (uint32_t)weft_min_u64(
        (uint64_t)coll_p->groups_max + WEFT_COLL_BOX_GROUPS, WEFT_COLL_GROUPS_MAX);
    coll_p->settings = weft_coll_box_settings(&box, b->job | (uint64_t)b->floats << 16 |
                                                        (uint64_t)b->block_floats << 17);
}

static weft_status open_link(struct weft_coll_thread *t, const struct weft_coll_box_config *box,
                             struct weft_error *error)
{
    const struct weft_coll_thread_box *b = &t->config.box;
    struct weft_box_link_config config = {
        .dense = {.host = b->own_host,
                  .box_host = b->host,
                  .box_port = b->port,
                  .insecure_network = true},
        .ended = on_ended,
        .arg = t,
    };
    struct weft_agg_member_config *member = &config.dense.member;
    weft_agg_member_config_default(member);
    member->job = b->job;
    member->member = (uint16_t)t->config.coll.rank;
    member->members = t->config.coll.ranks;
    member->slots = box->slots;
    member->values = box->values;
    member->element = b->floats                    ? WEFT_AGG_FLOATS
                      : b->block_floats            ? WEFT_AGG_BLOCK_FLOATS
                      : box->type == WEFT_COLL_F32 ? WEFT_AGG_FIXED
                                                   : WEFT_AGG_INTEGERS;
    member->exponent = box->exponent;
    return weft_box_link_open(&config, &t->box_link, error);
}

weft_status weft_coll_thread_box_open(struct weft_coll_thread *t,
                                      const struct weft_coll_config *coll,
                                      struct weft_error *error)
{
    struct weft_coll_box_config config = box_config(&t->config);
    config.link = (struct weft_coll_box_link){t, link_epoch, link_begin, link_stop, link_progress};
    config.epoch = weft_box_link_epoch_now();
    config.epoch_ns = weft_clock_now_ns();
    weft_os_random(&config.nonce, sizeof(config.nonce));
    snprintf(t->box_host, sizeof(t->box_host), "%s", t->config.box.host);
    weft_status status = open_link(t, &config, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_coll_box_new(&config, t->coll, coll, t->config.coll.ops_max, &t->box);
    return status == WEFT_OK ? status
                             : weft_fail(error, status, "cannot use an aggregation box: %s",
                                         weft_status_text(status));
}

/* ---- the leader ------------------------------------------------------------------------------ */

static bool takes(const struct weft_coll_thread *t, const struct weft_coll_call *call)
{
    return t->box != NULL && weft_coll_box_takes(t->box, call);
}

size_t weft_coll_thread_work_bytes(const struct weft_coll_thread *t,
                                   const struct weft_coll_call *call)
{
    return takes(t, call) ? weft_coll_box_work_bytes(t->box, call)
                          : weft_coll_work_bytes(t->coll, call);
}

weft_status weft_coll_thread_call(struct weft_coll_thread *t, const struct weft_coll_call *call,
                                  uint64_t now_ns)
{
    return takes(t, call) ? weft_coll_box_begin(t->box, call, now_ns)
                          : weft_coll_begin(t->coll, call, now_ns);
}

bool weft_coll_thread_poll(struct weft_coll_thread *t, struct weft_coll_done *done_p)
{
    return t->box != NULL ? weft_coll_box_poll(t->box, done_p) : weft_coll_poll(t->coll, done_p);
}

void weft_coll_thread_progress(struct weft_coll_thread *t, uint64_t now_ns)
{
    struct weft_box_link_end end;
    if (t->box == NULL) {
        weft_coll_progress(t->coll, now_ns);
        return;
    }
    if (weft_box_link_poll(t->box_link, &end)) {
        weft_coll_box_summed(t->box, end.status == WEFT_OK, now_ns);
    }
    weft_coll_box_progress(t->box, now_ns);
}

uint64_t weft_coll_thread_deadline(const struct weft_coll_thread *t)
{
    uint64_t ns = weft_coll_deadline(t->coll);
    return t->box != NULL ? weft_min_u64(ns, weft_coll_box_deadline(t->box)) : ns;
}

/* ---- facts ----------------------------------------------------------------------------------- */

void weft_coll_thread_box_counters(struct weft_coll_thread *t,
                                   struct weft_coll_thread_counters *counters_p)
{
    struct weft_box_link_counters link;
    counters_p->box_state = WEFT_COLL_BOX_OFF;
    if (t->box == NULL) {
        return;
    }
    weft_box_link_counters(t->box_link, &link);
    counters_p->box_state = weft_coll_box_state(t->box);
    counters_p->box = *weft_coll_box_counters(t->box);
    counters_p->box_packets_resent = link.resent;
    counters_p->coll.begun += counters_p->box.begun - counters_p->box.own_begun;
    counters_p->coll.done += counters_p->box.done - counters_p->box.own_done;
}

struct failed_request {
    char *text_p;
    size_t bytes;
    bool failed;
};

static void read_failed(struct weft_coll_thread *t, void *arg)
{
    struct failed_request *r = arg;
    char why[200];
    r->failed = t->box != NULL && weft_coll_box_state(t->box) == WEFT_COLL_BOX_OFF;
    if (r->failed) {
        const struct weft_coll_thread_box *b = &t->config.box;
        weft_coll_box_reason_text(t->box, why, sizeof(why));
        snprintf(r->text_p, r->bytes,
                 "the aggregation box at %s, port %u, of job %u is not used: %s; the ranks sum "
                 "without it%s",
                 t->box_host, b->port, b->job, why,
                 b->retry_ns == WEFT_NEVER ? "" : ", and try it again later");
    }
}

bool weft_coll_thread_box_failed(struct weft_coll_thread *t, char *text_p, size_t bytes)
{
    struct failed_request r = {.text_p = text_p, .bytes = bytes};
    weft_coll_thread_request(t, read_failed, &r);
    return r.failed;
}
