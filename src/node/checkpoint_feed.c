/* The shards' side of a checkpoint: each runs on its shard's thread, between batches of events. */
#include "node/checkpoint_internal.h"

#include <inttypes.h>

void weft_checkpoint_attach(struct weft_checkpoint_feed *feed, struct weft_driver *driver)
{
    pthread_mutex_lock(&feed->owner->lock);
    feed->driver = driver;
    pthread_cond_broadcast(&feed->owner->changed);
    pthread_mutex_unlock(&feed->owner->lock);
}

/* Update the description of the shard's tables that the writer reads. */
static void publish(struct weft_checkpoint_feed *feed, const struct weft_shard *shard)
{
    uint32_t clock = 0;
    bool any = false, bsp = false;
    for (uint32_t t = 0; t < weft_shard_tables_max(shard); t++) {
        const struct weft_table *table = weft_shard_table(shard, (uint16_t)t);
        if (table != NULL) {
            uint32_t of = weft_shard_clock(shard, (uint16_t)t);
            clock = of > clock ? of : clock;
            any = true;
            bsp |= table->spec.mode == WEFT_TABLE_BSP;
        }
    }
    if (feed->has_tables == any && feed->clock == clock && feed->has_bsp == bsp) {
        return;
    }
    pthread_mutex_lock(&feed->owner->lock);
    bool first = !feed->has_tables;
    feed->clock = clock;
    feed->has_bsp = bsp;
    feed->has_tables = any;
    if (first) {
        pthread_cond_broadcast(&feed->owner->changed);
    }
    pthread_mutex_unlock(&feed->owner->lock);
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* The owners of this shard's journals: this process, and the last earlier one that served. */
static struct weft_journal_names names_of(const struct weft_checkpoint_feed *feed, uint32_t shard)
{
    const struct weft_checkpoint *checkpoint = feed->owner;
    const struct weft_checkpoint_options *options = &checkpoint->config.options;
    uint64_t claim = weft_ckpt_log_mine(checkpoint->log)->serial;
    const struct weft_ckpt_holder *former = weft_ckpt_history_former(
        weft_ckpt_log_history(checkpoint->log), claim, shard, checkpoint->config.shards);
    bool fresh = !options->restore && !options->restarted;
    uint64_t served = former != NULL ? former->serial : 0;
    uint64_t damaged = weft_ckpt_log_damaged(checkpoint->log);
    return (struct weft_journal_names){
        .shard = shard,
        .claim = claim,
        .former = !fresh && former != NULL && former->journal ? served : 0,
        .fresh = fresh,
        .damaged = !fresh && damaged > served ? damaged : 0};
}

/* Log journals that are not read: this process keeps none, or has another number of shards. */
static void say_unread(const struct weft_checkpoint_feed *feed,
                       const struct weft_journal_names *names)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    const struct weft_ckpt_history *history = weft_ckpt_log_history(checkpoint->log);
    bool keeps = checkpoint->config.options.journal.directory != NULL;
    for (size_t i = history->holder_count; i > 0 && !names->fresh; i--) {
        const struct weft_ckpt_holder *earlier = &history->holders[i - 1];
        if (earlier->serial >= names->claim || !earlier->restored) {
            continue;
        }
        bool same = earlier->claim.shards == checkpoint->config.shards;
        if (earlier->journal && earlier->replaced_by == names->claim && (!same || !keeps)) {
            weft_node_warn(&checkpoint->config.log,
                           "the journals of process %" PRIu64
                           " on %s are not read: %s; its operations after "
                           "the checkpoint are not replayed",
                           earlier->claim.pid, earlier->claim.host,
                           same ? "this server was started without --journal"
                                : "they are of another number of shards");
        }
    }
}

static void say_journal(struct weft_checkpoint *checkpoint, const struct weft_shard *shard,
                        uint32_t number, const struct weft_journal_news *news)
{
    const struct weft_shard_journal_report *report = weft_shard_journal_report(shard);
    if (news->text[0] != '\0') {
        weft_node_warn(&checkpoint->config.log, "shard %" PRIu32 ": %s", number, news->text);
    }
    if (report->used) {
        weft_node_info(&checkpoint->config.log,
                       "shard %" PRIu32 ": journal: %" PRIu64 " chunks of pushes replayed", number,
                       report->chunks);
    }
    if (report->refused > 0) {
        weft_node_warn(&checkpoint->config.log,
                       "shard %" PRIu32 ": %" PRIu64
                       " records of the journal could not be replayed: no memory for new rows",
                       number, report->refused);
    }
}

/* Replay the previous process's journal after the checkpoint, and start one of this process. */
static weft_status keep_journal(struct weft_checkpoint_feed *feed, struct weft_shard *shard,
                                uint32_t number, uint64_t cut, weft_checkpoint_supply *supply,
                                struct weft_error *error)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    const struct weft_checkpoint_options *options = &checkpoint->config.options;
    const struct weft_journal_names names = names_of(feed, number);
    if (feed == checkpoint->feeds) {
        say_unread(feed, &names); /* once */
    }
    if (options->journal.directory == NULL) {
        return WEFT_OK;
    }
    struct weft_journal_news news;
    weft_status status =
        weft_journal_file_open(&feed->journal, &options->journal, &names, &news, error);
    if (status == WEFT_OK) {
        status = weft_journal_replay(&feed->journal, shard, checkpoint->set.number, cut, supply,
                                     &news, error);
    }
    if (status == WEFT_OK) {
        say_journal(checkpoint, shard, number, &news);
        publish(feed, shard);
        weft_journal_turn(&feed->journal, shard); /* make room before the first operation needs
                                                   * it */
    }
    return status;
}

weft_status weft_checkpoint_restore(struct weft_checkpoint_feed *feed, struct weft_shard *shard,
                                    uint32_t workers_max, weft_checkpoint_supply *supply,
                                    struct weft_error *error)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    uint32_t number = checkpoint->config.first + (uint32_t)(feed - checkpoint->feeds);
    uint64_t cut = 0;
    weft_status status = weft_ckpt_log_mine(checkpoint->log) == NULL
                             ? weft_checkpoint_claim(checkpoint, error)
                             : WEFT_OK;
    if (status == WEFT_OK && checkpoint->set.number != 0) {
        status = weft_checkpoint_load(checkpoint->config.options.directory, &checkpoint->set, shard,
                                      number, checkpoint->config.shards, workers_max, supply, &cut,
                                      error);
    }
    if (status == WEFT_OK && checkpoint->set.number != 0) {
        publish(feed, shard);
        /* Read before the journal is replayed: this is the clock of the checkpoint. */
        pthread_mutex_lock(&checkpoint->lock);
        checkpoint->set_clock =
            feed->clock > checkpoint->set_clock ? feed->clock : checkpoint->set_clock;
        pthread_mutex_unlock(&checkpoint->lock);
    }
    return status == WEFT_OK ? keep_journal(feed, shard, number, cut, supply, error) : status;
}

/* Fill the next buffer; false while the writer owns it. */
static bool fill_buffer(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    struct weft_checkpoint_buffer *buffer = &feed->buffers[feed->fill];
    if (buffer->count > 0) {
        return false;
    }
    /* This thread owns the buffer while its count is 0. */
    pthread_mutex_unlock(&feed->owner->lock);
    uint32_t count =
        weft_shard_cut_take(shard, buffer->memory, WEFT_CHECKPOINT_BUFFER_BYTES, &buffer->table);
    enum weft_cut_state state = weft_shard_cut_state(shard);
    pthread_mutex_lock(&feed->owner->lock);
    if (feed->phase != WEFT_CHECKPOINT_STREAMING) {
        return true; /* the writer has given up meanwhile */
    }
    if (state == WEFT_CUT_FAILED) {
        feed->phase = WEFT_CHECKPOINT_FAILED;
        feed->why = weft_shard_cut_why(shard);
    } else if (count == 0) {
        feed->phase = WEFT_CHECKPOINT_STREAMED;
    } else {
        buffer->count = count;
        feed->fill = (feed->fill + 1) % WEFT_CHECKPOINT_BUFFERS;
    }
    pthread_cond_broadcast(&feed->owner->changed);
    return true;
}

static void watch_cut(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    enum weft_cut_state state = weft_shard_cut_state(shard);
    if (state == WEFT_CUT_READY) {
        feed->view = weft_shard_cut_view(shard);
        feed->phase = WEFT_CHECKPOINT_STREAMING;
        pthread_cond_broadcast(&feed->owner->changed);
    } else if (state == WEFT_CUT_FAILED) {
        feed->why = weft_shard_cut_why(shard);
        feed->phase = WEFT_CHECKPOINT_FAILED;
        pthread_cond_broadcast(&feed->owner->changed);
    }
}

/* Pass the news of a valid checkpoint to the shard, with the lock held. If the shard does not know
 * yet that its snapshot was kept, this is repeated later; news of a checkpoint older than the
 * last kept one is dropped. */
static bool take_durable(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    uint64_t number = feed->durable_number;
    if (number == 0 || number > feed->kept_number) {
        return false;
    }
    if (number == feed->kept_number) {
        weft_shard_durable(shard);
    }
    feed->durable_number = 0;
    return true;
}

/* A worker has little room left for kept pushes, or a program requests a checkpoint. */
static void take_wish(struct weft_checkpoint_feed *feed, const struct weft_shard *shard)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    uint32_t clock;
    if (!weft_shard_cut_wanted(shard, &clock)) {
        return;
    }
    pthread_mutex_lock(&checkpoint->lock);
    bool free = !checkpoint->under_way || checkpoint->ahead;
    if (free && weft_checkpoint_has_all(checkpoint)) {
        checkpoint->requested = true;
        checkpoint->next_ns = 0;
    } else if (free) {
        checkpoint->wanted_clock = clock;
    }
    pthread_cond_broadcast(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
}

/* Grow the journal, and report when it has no room or has failed. */
static void look_at_journal(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    weft_journal_turn(&feed->journal, shard);
    if (weft_shard_journal_is_full(shard) == feed->journal_full &&
        feed->journal.failed == feed->journal_failed) {
        return;
    }
    pthread_mutex_lock(&feed->owner->lock);
    feed->journal_full = weft_shard_journal_is_full(shard);
    feed->journal_failed = feed->journal.failed;
    pthread_cond_broadcast(&feed->owner->changed);
    pthread_mutex_unlock(&feed->owner->lock);
}

/* Report the outcome to programs that wait for a checkpoint. */
static bool take_refusal(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    if (atomic_load_explicit(&feed->refusal, memory_order_relaxed) == 0) {
        return false;
    }
    weft_shard_cut_refused(shard, atomic_exchange(&feed->refusal, 0));
    return true;
}

static bool turn(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    publish(feed, shard);
    take_wish(feed, shard);
    look_at_journal(feed, shard);
    bool again = take_refusal(feed, shard); /* its new messages are sent in the next iteration */
    if (atomic_load_explicit(&feed->phase, memory_order_relaxed) == WEFT_CHECKPOINT_IDLE &&
        feed->durable_number == 0) {
        return again; /* an order wakes this thread, so it is seen in the next iteration at the
                       * latest */
    }
    pthread_mutex_lock(&feed->owner->lock);
    again |= take_durable(feed, shard);
    const enum weft_checkpoint_phase phase = feed->phase;
    switch (phase) { /* clang 14 rejects a switch over an atomic */
    case WEFT_CHECKPOINT_ORDERED:
        if (weft_shard_cut_begin(shard, &feed->order) == WEFT_OK) {
            feed->phase = WEFT_CHECKPOINT_WAITING;
            watch_cut(feed, shard);
            again |= feed->phase == WEFT_CHECKPOINT_STREAMING;
        }
        break;
    case WEFT_CHECKPOINT_WAITING:
        watch_cut(feed, shard);
        again |= feed->phase == WEFT_CHECKPOINT_STREAMING;
        break;
    case WEFT_CHECKPOINT_STREAMING:
        again |= fill_buffer(feed, shard);
        break;
    case WEFT_CHECKPOINT_JUDGED:
        if (weft_shard_cut_state(shard) != WEFT_CUT_NONE) {
            weft_shard_cut_end(shard, feed->kept);
            feed->kept_number = feed->kept ? feed->owner->number : feed->kept_number;
            (void)take_durable(feed, shard);
        }
        again = true; /* another one may be requested */
        feed->phase = WEFT_CHECKPOINT_IDLE;
        pthread_cond_broadcast(&feed->owner->changed);
        break;
    case WEFT_CHECKPOINT_IDLE:
    case WEFT_CHECKPOINT_STREAMED:
    case WEFT_CHECKPOINT_FAILED:
        break;
    }
    pthread_mutex_unlock(&feed->owner->lock);
    return again;
}

bool weft_checkpoint_turn(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    bool again = turn(feed, shard);
    weft_journal_commit_freed(&feed->journal, shard);
    return again;
}

bool weft_checkpoint_commits(const struct weft_checkpoint_feed *feed)
{
    const struct weft_journal_options *journal = &feed->owner->config.options.journal;
    return journal->directory != NULL && journal->sync;
}

void weft_checkpoint_commit(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    weft_journal_commit(&feed->journal, shard);
}
