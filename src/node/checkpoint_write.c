/* The writer's thread: it begins the checkpoints that are due, writes the shards' records, and
 * decides whether a checkpoint is kept. */
#define _GNU_SOURCE
#include "node/checkpoint_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How often to check whether other servers' parts exist. */
#define LOOK_NS (500 * WEFT_NS_PER_MS)

/* So many parts without the others' are reported, and again after every UNMATCHED_AGAIN. */
enum { UNMATCHED_MAX = 3, UNMATCHED_AGAIN = 16 };

static const char *why_text(enum weft_cut_why why)
{
    return why == WEFT_CUT_NO_MEMORY
               ? "more rows changed meanwhile than --checkpoint-memory has room for"
               : "a shard had passed the clock at which all were to be cut";
}

/* The checkpoint is decided: notify the shards, and reclaim the memory when they have seen it. */
static void judge(struct weft_checkpoint *checkpoint, bool kept)
{
    pthread_mutex_lock(&checkpoint->lock);
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        feed->kept = kept;
        feed->phase = WEFT_CHECKPOINT_JUDGED;
        feed->view = NULL;
        for (uint32_t b = 0; b < WEFT_CHECKPOINT_BUFFERS; b++) {
            feed->buffers[b].count = 0;
        }
        weft_checkpoint_wake(feed);
    }
    for (uint32_t i = 0; i < checkpoint->config.count;) {
        const struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        if (feed->phase == WEFT_CHECKPOINT_IDLE || feed->driver == NULL) {
            i++;
        } else {
            pthread_cond_wait(&checkpoint->changed, &checkpoint->lock);
        }
    }
    checkpoint->under_way = false;
    pthread_mutex_unlock(&checkpoint->lock);
    weft_checkpoint_take_back(checkpoint);
}

/* refusal: reported to programs that wait for it; OK = not reported, because it is retried. */
static void give_up(struct weft_checkpoint *checkpoint, enum weft_rpc_status refusal,
                    const char *why)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        weft_checkpoint_file_abandon(&checkpoint->feeds[i].file);
        checkpoint->feeds[i].file_open = false;
    }
    weft_node_warn(&checkpoint->config.log, "checkpoint %" PRIu64 " abandoned: %s",
                   checkpoint->number, why);
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->next_ns = weft_clock_now_ns() + WEFT_CHECKPOINT_AGAIN_NS;
    if (refusal != WEFT_RPC_OK) {
        checkpoint->retry_ns = checkpoint->next_ns;
        weft_checkpoint_refuse(checkpoint, refusal);
    }
    pthread_mutex_unlock(&checkpoint->lock);
    judge(checkpoint, false);
}

/* Write the ready records of one shard; true when there were any. */
static bool serve_feed(struct weft_checkpoint *checkpoint, uint32_t i, struct weft_error *error,
                       weft_status *status_p)
{
    struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
    pthread_mutex_lock(&checkpoint->lock);
    const struct weft_cut_view *view = feed->view;
    struct weft_checkpoint_buffer *buffer = &feed->buffers[feed->take];
    uint32_t count = buffer->count;
    pthread_mutex_unlock(&checkpoint->lock);
    if (view != NULL && !feed->file_open) {
        struct weft_checkpoint_place place = {.directory = checkpoint->config.options.directory,
                                              .number = checkpoint->number,
                                              .base = checkpoint->base,
                                              .claim = weft_ckpt_log_mine(checkpoint->log)->serial,
                                              .cut = checkpoint->cut,
                                              .shard = checkpoint->config.first + i,
                                              .shards = checkpoint->config.shards};
        checkpoint->begun_ns =
            checkpoint->begun_ns == 0 ? weft_clock_now_ns() : checkpoint->begun_ns;
        *status_p = weft_checkpoint_file_open(&feed->file, &place, view,
                                              WEFT_CHECKPOINT_BUFFER_BYTES, error);
        feed->file_open = *status_p == WEFT_OK;
        return true;
    }
    if (count == 0) {
        return false;
    }
    *status_p = weft_checkpoint_file_rows(&feed->file, buffer->table, buffer->memory, count, error);
    pthread_mutex_lock(&checkpoint->lock);
    feed->take = (feed->take + 1) % WEFT_CHECKPOINT_BUFFERS;
    feed->rows += count;
    buffer->count = 0;
    weft_checkpoint_wake(feed);
    pthread_mutex_unlock(&checkpoint->lock);
    return true;
}

/* BSP tables of all shards must be of one clock, or the checkpoint would be torn. */
static bool same_clocks(const struct weft_checkpoint *checkpoint, uint32_t *clock_p)
{
    uint32_t clock = 0;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        const struct weft_cut_view *view = checkpoint->feeds[i].view;
        const struct weft_cut_view *first = checkpoint->feeds[0].view;
        for (uint32_t t = 0; t < view->tables_max; t++) {
            const struct weft_cut_table *table = &view->tables[t];
            clock = table->present && table->clock > clock ? table->clock : clock;
            if (table->present != first->tables[t].present ||
                (table->present && table->spec.mode == WEFT_TABLE_BSP &&
                 table->clock != first->tables[t].clock)) {
                return false;
            }
        }
    }
    *clock_p = clock;
    return true;
}

/* Write the files of the process, then the manifest. A checkpoint that is certainly void leaves no
 * files. */
static weft_status commit_files(struct weft_checkpoint *checkpoint,
                                struct weft_ckpt_manifest *manifest, struct weft_error *error)
{
    struct weft_error ignored;
    uint32_t count = manifest->count, closed = 0;
    weft_status status = WEFT_OK;
    bool may_count = false;
    while (status == WEFT_OK && closed < count) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[closed];
        status = weft_checkpoint_file_close(&feed->file, &manifest->files[closed], error);
        feed->file_open = false;
        closed += status == WEFT_OK;
    }
    if (status == WEFT_OK) {
        status = weft_ckpt_log_commit(checkpoint->log, manifest, &may_count, error);
    }
    if (status != WEFT_OK && may_count) {
        checkpoint->unclear = checkpoint->number;
    } else if (status != WEFT_OK) {
        manifest->count = closed;
        (void)!weft_ckpt_discard(checkpoint->config.options.directory, manifest, &ignored);
    }
    return status;
}

static weft_status commit(struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    uint32_t count = checkpoint->config.count;
    struct weft_ckpt_manifest manifest = {.number = checkpoint->number,
                                          .base = checkpoint->base,
                                          .shards = checkpoint->config.shards,
                                          .first = checkpoint->config.first,
                                          .count = count,
                                          .has_clock = true,
                                          .clock = checkpoint->clock,
                                          .files = calloc(count, sizeof(*manifest.files))};
    if (manifest.files == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a manifest");
    }
    for (uint32_t i = 0; i < count; i++) {
        manifest.replaces |= weft_checkpoint_replaces(checkpoint->feeds[i].view);
    }
    weft_status status = commit_files(checkpoint, &manifest, error);
    weft_ckpt_manifest_fini(&manifest);
    return status;
}

static uint64_t bytes_on_disk(const struct weft_checkpoint *checkpoint)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        char name[WEFT_CKPT_FILE_BYTES], path[WEFT_CKPT_PATH_BYTES];
        struct stat info;
        weft_ckpt_data_name(checkpoint->number, checkpoint->config.first + i,
                            weft_ckpt_log_mine(checkpoint->log)->serial, name);
        snprintf(path, sizeof(path), "%s/%s", checkpoint->config.options.directory, name);
        bytes += stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    }
    return bytes;
}

/* A requested checkpoint failed: try the other of the two methods, with a longer timeout. */
static void retry_differently(struct weft_checkpoint *checkpoint)
{
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->requested |= checkpoint->by_request;
    pthread_mutex_unlock(&checkpoint->lock);
    checkpoint->at_once = !checkpoint->at_once;
    checkpoint->patience_ns =
        weft_min_u64(checkpoint->patience_ns * 2, WEFT_CHECKPOINT_PATIENCE_MAX_NS);
}

/* This process commits its parts, but none of these checkpoints becomes valid. */
static void say_unmatched(struct weft_checkpoint *checkpoint)
{
    uint32_t count = ++checkpoint->unmatched;
    if (!weft_checkpoint_has_all(checkpoint) &&
        (count == UNMATCHED_MAX || count % UNMATCHED_AGAIN == 0)) {
        weft_node_warn(&checkpoint->config.log,
                       "the last %u checkpoints of this server are not valid, because parts of "
                       "other servers are missing; the newest valid one is %" PRIu64 " (0 = none)",
                       count, checkpoint->newest);
    }
}

/* The last shard has passed its last record. */
static void finish(struct weft_checkpoint *checkpoint)
{
    struct weft_error error = {.text = ""};
    uint32_t clock = 0;
    uint64_t rows = 0;
    if (!same_clocks(checkpoint, &clock)) {
        retry_differently(checkpoint);
        give_up(checkpoint, WEFT_RPC_OK, "the shards were cut at different clocks");
        return;
    }
    if (commit(checkpoint, &error) != WEFT_OK) {
        give_up(checkpoint, WEFT_RPC_NOT_KEPT, error.text);
        return;
    }
    checkpoint->at_once = false;
    checkpoint->patience_ns = WEFT_CHECKPOINT_PATIENCE_NS;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        rows += checkpoint->feeds[i].rows;
    }
    checkpoint->since_whole = checkpoint->base == 0 ? 0 : checkpoint->since_whole + 1;
    checkpoint->kept = checkpoint->number;
    checkpoint->kept_any = true;
    checkpoint->kept_clock = clock;
    checkpoint->set_pending = true;
    uint64_t end_ns = weft_clock_now_ns();
    weft_node_info(
        &checkpoint->config.log,
        "checkpoint %" PRIu64 ": clock %u, %" PRIu64 " rows%s, %" PRIu64 " bytes in %.3f s",
        checkpoint->number, clock, rows, checkpoint->base == 0 ? "" : " that changed",
        bytes_on_disk(checkpoint), (double)(end_ns - checkpoint->begun_ns) / (double)WEFT_NS_PER_S);
    say_unmatched(checkpoint);
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->next_ns =
        checkpoint->every_ns > 0 ? weft_time_add(end_ns, checkpoint->every_ns) : end_ns;
    pthread_mutex_unlock(&checkpoint->lock);
    judge(checkpoint, true);
}

/* One round over the shards of the checkpoint in progress; true when something was done. */
static bool serve(struct weft_checkpoint *checkpoint)
{
    struct weft_error error = {.text = ""};
    bool busy = false;
    uint32_t streamed = 0;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        weft_status status = WEFT_OK;
        busy |= serve_feed(checkpoint, i, &error, &status);
        if (status != WEFT_OK) {
            give_up(checkpoint, WEFT_RPC_NOT_KEPT, error.text);
            return true;
        }
    }
    const char *why = NULL;
    enum weft_rpc_status refusal = WEFT_RPC_OK;
    pthread_mutex_lock(&checkpoint->lock);
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        const struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        bool empty = feed->buffers[0].count == 0 && feed->buffers[1].count == 0;
        streamed += feed->phase == WEFT_CHECKPOINT_STREAMED && empty && feed->file_open;
        if (feed->phase == WEFT_CHECKPOINT_FAILED) {
            why = why_text(feed->why);
            refusal = feed->why != WEFT_CUT_LATE            ? WEFT_RPC_NO_COPIES
                      : weft_checkpoint_has_all(checkpoint) ? WEFT_RPC_OK
                                                            : WEFT_RPC_CUT_LATE;
            checkpoint->requested |= checkpoint->by_request && feed->why == WEFT_CUT_LATE;
        } else if (feed->driver == NULL) {
            why = "the server ends";
        } else if (checkpoint->last && checkpoint->last_done &&
                   weft_clock_now_ns() > checkpoint->next_ns &&
                   (feed->phase == WEFT_CHECKPOINT_WAITING ||
                    feed->phase == WEFT_CHECKPOINT_ORDERED)) {
            why = "the server ends in the middle of a clock";
        }
    }
    pthread_mutex_unlock(&checkpoint->lock);
    if (why != NULL) {
        give_up(checkpoint, refusal, why);
        return true;
    }
    if (streamed == checkpoint->config.count) {
        finish(checkpoint);
        return true;
    }
    return busy;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Another process has claimed this one's shards. The main thread ends the server. */
static bool note_replaced(struct weft_checkpoint *checkpoint)
{
    struct weft_error why = {.text = ""};
    const uint64_t one = 1;
    if (!weft_ckpt_log_replaced(checkpoint->log, &why)) {
        return false;
    }
    pthread_mutex_lock(&checkpoint->lock);
    bool first = !checkpoint->replaced;
    checkpoint->replaced = checkpoint->stop = true;
    checkpoint->replaced_why = why;
    pthread_mutex_unlock(&checkpoint->lock);
    if (first) {
        (void)!write(checkpoint->replaced_fd, &one, sizeof(one));
    }
    return true;
}

/* Check whether the last checkpoint is valid, that is, all servers have committed their parts.
 * Then notify the shards, and remove old checkpoints. If the log cannot be read now, it is read at
 * the next check. */
static void look_for_others(struct weft_checkpoint *checkpoint)
{
    const char *directory = checkpoint->config.options.directory;
    struct weft_error error = {.text = ""};
    bool is_read = weft_ckpt_log_refresh(checkpoint->log, &error) == WEFT_OK;
    bool replaced = note_replaced(checkpoint);
    if (!is_read && !checkpoint->log_said) {
        weft_node_warn(&checkpoint->config.log,
                       "%s; no checkpoint is known to be valid until that is repaired", error.text);
    }
    checkpoint->log_said = !is_read;
    if (!is_read || replaced || !checkpoint->set_pending) {
        return;
    }
    uint64_t newest = weft_ckpt_history_newest(weft_ckpt_log_history(checkpoint->log), UINT64_MAX);
    checkpoint->unmatched = newest == checkpoint->newest ? checkpoint->unmatched : 0;
    checkpoint->newest = newest;
    if (newest < checkpoint->kept) {
        return;
    }
    checkpoint->set_pending = false;
    pthread_mutex_lock(&checkpoint->lock);
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        checkpoint->feeds[i].durable_number = checkpoint->kept;
        weft_checkpoint_wake(&checkpoint->feeds[i]);
    }
    pthread_mutex_unlock(&checkpoint->lock);
    if (checkpoint->config.first == 0 &&
        weft_ckpt_prune(directory, checkpoint->log, checkpoint->config.options.keep, &error) !=
            WEFT_OK &&
        !note_replaced(checkpoint)) {
        weft_node_warn(&checkpoint->config.log, "%s", error.text);
    }
}

/* Abandon a checkpoint whose snapshots are not taken yet, if it only waits for a future clock and
 * another is requested, if the process ends, or if it was requested and its clock is not reached
 * in time: then the request is repeated. */
static void make_way(struct weft_checkpoint *checkpoint)
{
    bool waits = true;
    pthread_mutex_lock(&checkpoint->lock);
    bool wish = checkpoint->requested || checkpoint->wanted_clock > 0;
    bool ends = checkpoint->last && !checkpoint->last_done;
    bool wanted = checkpoint->under_way && (ends || (checkpoint->ahead && wish));
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        waits &= checkpoint->feeds[i].phase == WEFT_CHECKPOINT_WAITING ||
                 checkpoint->feeds[i].phase == WEFT_CHECKPOINT_ORDERED;
    }
    bool impatient = checkpoint->under_way && checkpoint->by_request && !checkpoint->last &&
                     checkpoint->config.count > 1 &&
                     weft_clock_now_ns() >= checkpoint->impatient_ns;
    pthread_mutex_unlock(&checkpoint->lock);
    if (impatient && waits) {
        retry_differently(checkpoint);
    }
    if ((wanted || impatient) && waits) {
        judge(checkpoint, false);
    }
}

/* With the lock held: wait until something changes, or a check is due. */
static void rest(struct weft_checkpoint *checkpoint)
{
    uint64_t until_ns = weft_clock_now_ns() + (checkpoint->last ? LOOK_NS / 10 : LOOK_NS);
    struct timespec at = {.tv_sec = (time_t)(until_ns / WEFT_NS_PER_S),
                          .tv_nsec = (long)(until_ns % WEFT_NS_PER_S)};
    (void)pthread_cond_timedwait(&checkpoint->changed, &checkpoint->lock, &at);
}

/* With the lock held, which is released while logging: at most one line about a shard's journal. */
static void say_of_journal(struct weft_checkpoint *checkpoint, uint32_t i, const char *text)
{
    if (text != NULL) {
        pthread_mutex_unlock(&checkpoint->lock);
        weft_node_warn(&checkpoint->config.log, "shard %" PRIu32 ": %s",
                       checkpoint->config.first + i, text);
        pthread_mutex_lock(&checkpoint->lock);
    }
}

/* Log that a shard's journal has no room, has room again, or has failed. */
static void say_journals(struct weft_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        bool full = feed->journal_full && !feed->journal_full_said;
        bool failed = feed->journal_failed && !feed->journal_failed_said;
        feed->journal_full_said = feed->journal_full;
        feed->journal_failed_said = feed->journal_failed;
        say_of_journal(checkpoint, i,
                       full ? "the journal is full; operations are not recorded until the next "
                              "checkpoint. Give it more room with --journal-mib"
                            : NULL);
        say_of_journal(checkpoint, i,
                       failed ? "the journal failed (its disk is full, or cannot be written); "
                                "operations are not recorded until the server is restarted. "
                                "Checkpoints, and the pushes that workers keep, are not affected"
                              : NULL);
    }
}

void *weft_checkpoint_write_all(void *arg)
{
    struct weft_checkpoint *checkpoint = arg;
    pthread_mutex_lock(&checkpoint->lock);
    while (!checkpoint->stop) {
        say_journals(checkpoint);
        weft_checkpoint_consider(checkpoint);
        bool under_way = checkpoint->under_way;
        if (checkpoint->last && checkpoint->last_done && !under_way) {
            break;
        }
        pthread_mutex_unlock(&checkpoint->lock);
        make_way(checkpoint);
        bool busy = checkpoint->under_way ? serve(checkpoint) : under_way;
        look_for_others(checkpoint);
        pthread_mutex_lock(&checkpoint->lock);
        if (!busy) {
            rest(checkpoint);
        }
    }
    checkpoint->last_done = true;
    bool under_way = checkpoint->under_way;
    pthread_mutex_unlock(&checkpoint->lock);
    if (under_way) {
        give_up(checkpoint, WEFT_RPC_OK, "the server was replaced");
    }
    return NULL;
}
