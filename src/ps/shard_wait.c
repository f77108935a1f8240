/* Pulls that wait for a clock, and the order in which they are answered.
 *
 * The end of a clock releases the waiting pulls of many workers at once. Their replies leave over
 * one link, one after another, and the next clock ends when the last worker has computed and
 * pushed. So the worker that needs the longest time after its reply is served first: Jackson's rule
 * for delivery times (Jackson, 1955; Carlier, 1982), which minimizes the time of the last. In order
 * of arrival a worker with a slow link or a slow processor would be served last in every step,
 * because its pull and its CLOCK arrive last.
 *
 * That time is measured: from the first packet of a reply to the worker's next CLOCK; the mean of
 * the last value and of those before it, in equal parts. It includes the time of the reply itself,
 * during which packets of other traffic may be queued before it. Whoever has no value is served
 * first: a worker in its first step, and an aggregator, whose reply has a further hop to many
 * workers. Pulls with equal values are answered in order of arrival.
 */
#include "ps/shard_internal.h"

/* At the end of a clock the replies of all workers are due. A slice of replies has this fraction of
 * the rows of a slice of steps: 1 / ANSWERS_PER_STEP. */
enum { ANSWERS_PER_STEP = 4 };

bool weft_shard_pull_allowed(const struct weft_shard *shard, const struct shard_slot *slot)
{
    uint32_t after = slot->request.after_seq;
    return shard->step_to[slot->table] == 0 &&
           shard->clock_min[slot->table] >= slot->request.need_clock &&
           (after == 0 || weft_rpc_window_test(&shard->workers[slot->worker].closed, after));
}

void weft_shard_answer_due(struct weft_shard *shard, bool all)
{
    uint32_t index;
    uint64_t rows = 0;
    while ((all || rows < shard->config.step_rows / ANSWERS_PER_STEP + 1) &&
           (index = weft_shard_queue_pop(shard, &shard->due)) != WEFT_SHARD_NONE) {
        rows += shard->slots[index].rows;
        weft_shard_answer_pull(shard, &shard->slots[index]);
    }
}

/* ---- closed RPCs ----------------------------------------------------------------------------- */

static bool is_later(uint32_t id, uint32_t than)
{
    return than == 0 || (int32_t)(id - than) > 0;
}

void weft_shard_rpc_seen(struct weft_shard *shard, uint32_t rank, uint32_t rpc_id)
{
    struct shard_worker *worker = &shard->workers[rank];
    worker->rpc_newest = is_later(rpc_id, worker->rpc_newest) ? rpc_id : worker->rpc_newest;
}

/* A worker whose requests go to an aggregator is that far ahead once in each window. Its push is
 * then sent to the shard directly, and its id is seen there. Ids of aggregates do not count as
 * seen: with several of them an aggregator could move the record as far as it likes. */
bool weft_shard_rpc_plausible(const struct weft_shard *shard, uint32_t rank, uint32_t rpc_id)
{
    return (int32_t)(rpc_id - shard->workers[rank].rpc_newest) <= WEFT_RPC_WINDOW;
}

/* ---- the order ------------------------------------------------------------------------------- */

static uint64_t return_ns(const struct weft_shard *shard, uint32_t index)
{
    uint64_t ns = shard->workers[shard->slots[index].worker].return_ns;
    return ns == 0 ? UINT64_MAX : ns;
}

/* Merge two sorted lists; of equal ones those of `a` come first. */
static uint32_t merged(struct weft_shard *shard, uint32_t a, uint32_t b)
{
    uint32_t head = WEFT_SHARD_NONE;
    uint32_t *end = &head;
    while (a != WEFT_SHARD_NONE && b != WEFT_SHARD_NONE) {
        uint32_t *from = return_ns(shard, b) > return_ns(shard, a) ? &b : &a;
        *end = *from;
        end = &shard->slots[*from].next;
        *from = *end;
    }
    *end = a != WEFT_SHARD_NONE ? a : b;
    return head;
}

/* Sort by falling return_ns, stable. `parts` is a stack of sorted lists, one for each bit of n that
 * is set; the longest list, with the earliest pulls, is at the bottom. */
static void sort(struct weft_shard *shard, struct shard_queue *queue)
{
    uint32_t parts[32];
    uint32_t count = 0;
    uint32_t index;
    for (uint32_t n = 0; (index = weft_shard_queue_pop(shard, queue)) != WEFT_SHARD_NONE; n++) {
        shard->slots[index].next = WEFT_SHARD_NONE;
        for (uint32_t bits = n; (bits & 1) != 0; bits >>= 1) {
            index = merged(shard, parts[--count], index);
        }
        parts[count++] = index;
    }
    uint32_t all = WEFT_SHARD_NONE;
    while (count > 0) {
        all = merged(shard, parts[--count], all);
    }
    for (; all != WEFT_SHARD_NONE; all = index) {
        index = shard->slots[all].next;
        weft_shard_queue_push(shard, queue, all);
    }
}

void weft_shard_wake(struct weft_shard *shard, uint64_t now_ns)
{
    struct shard_queue still = {WEFT_SHARD_NONE, WEFT_SHARD_NONE};
    struct shard_queue now = {WEFT_SHARD_NONE, WEFT_SHARD_NONE};
    uint32_t index;
    while ((index = weft_shard_queue_pop(shard, &shard->waiting)) != WEFT_SHARD_NONE) {
        struct shard_slot *slot = &shard->slots[index];
        bool is_due = weft_shard_pull_allowed(shard, slot);
        slot->wait_ns = is_due ? shard_since(shard_clock_ns(shard), slot->wait_begin_ns) : 0;
        weft_shard_queue_push(shard, is_due ? &now : &still, index);
    }
    shard->waiting = still;
    sort(shard, &now);
    while ((index = weft_shard_queue_pop(shard, &now)) != WEFT_SHARD_NONE) {
        weft_shard_queue_push(shard, &shard->due, index);
    }
    weft_shard_send_ready(shard, now_ns);
}

/* ---- the measurement ------------------------------------------------------------------------- */

void weft_shard_reply_sent(struct weft_shard *shard, const struct shard_slot *slot,
                           const struct weft_msg_event *event)
{
    struct shard_worker *worker = &shard->workers[slot->worker];
    const uint64_t begun_ns = event->begun_ns;
    /* A reply of a connection that was replaced says nothing about the new one, and one that began
     * before the worker's last CLOCK belongs to the clock before it. */
    if (slot->op == WEFT_RPC_PULL && event->outcome != WEFT_MSG_UNKNOWN && worker->up &&
        worker->peer == slot->peer && begun_ns > worker->clock_ns &&
        (worker->begun_ns == 0 || begun_ns < worker->begun_ns)) {
        worker->begun_ns = begun_ns;
        worker->begun_table = slot->table;
    }
}

/* With several tables the CLOCK of the reply's table ends the measurement: the CLOCKs of the others
 * may be of the step before. */
void weft_shard_clock_arrived(struct weft_shard *shard, uint16_t table, uint32_t rank,
                              uint64_t now_ns)
{
    struct shard_worker *worker = &shard->workers[rank];
    if (worker->begun_table != table) {
        return;
    }
    if (worker->begun_ns != 0) {
        uint64_t took_ns = now_ns - worker->begun_ns;
        worker->return_ns = worker->return_ns == 0 ? took_ns : (worker->return_ns + took_ns) / 2;
    }
    worker->begun_ns = 0;
    worker->clock_ns = now_ns;
}
