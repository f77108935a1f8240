/* The lifecycle of a process's checkpoints: options, directory, claim, restore, and the writer's
 * thread. */
#define _GNU_SOURCE
#include "node/checkpoint_internal.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVERY_CLOCKS_DEFAULT = 1000, EVERY_S_DEFAULT = 60 };

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status parse_every(struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    const char *text = checkpoint->config.options.every;
    if (text == NULL) {
        checkpoint->every_clocks = weft_checkpoint_has_all(checkpoint) ? 0 : EVERY_CLOCKS_DEFAULT;
        checkpoint->every_ns =
            weft_checkpoint_has_all(checkpoint) ? EVERY_S_DEFAULT * WEFT_NS_PER_S : 0;
        return WEFT_OK;
    }
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    bool seconds = strcmp(end, "s") == 0;
    if (text[0] < '0' || text[0] > '9' || errno != 0 || value == 0 || value > 100000000 ||
        (!seconds && *end != '\0')) {
        return weft_fail(error, WEFT_INVALID,
                         "--checkpoint-every %.40s is not allowed; it must be a number of "
                         "clocks, or of seconds with an s behind it",
                         text);
    }
    if (seconds && !weft_checkpoint_has_all(checkpoint)) {
        return weft_fail(
            error, WEFT_INVALID,
            "--checkpoint-every %.40s: this process does not have all shards of the "
            "job, so checkpoints must be at the end of a clock; give a number of clocks",
            text);
    }
    checkpoint->every_clocks = seconds ? 0 : (uint32_t)value;
    checkpoint->every_ns = seconds ? value * WEFT_NS_PER_S : 0;
    return WEFT_OK;
}

static void complain(void *arg, uint64_t number, const char *text)
{
    const struct weft_checkpoint *checkpoint = arg;
    if (number == 0) {
        weft_node_warn(&checkpoint->config.log, "ignored: %s", text);
    } else {
        weft_node_warn(&checkpoint->config.log, "checkpoint %" PRIu64 " cannot be used: %s", number,
                       text);
    }
}

static void tell_moved(void *arg, uint64_t number, const char *text)
{
    const struct weft_checkpoint *checkpoint = arg;
    weft_node_warn(&checkpoint->config.log, "checkpoint %" PRIu64 ": %s", number, text);
}

/* The identity of this process, for other processes and for people. */
static weft_status claim_make(const struct weft_checkpoint_config *config,
                              struct weft_ckpt_claim *claim, struct weft_error *error)
{
    time_t now = time(NULL);
    struct tm utc;
    *claim = (struct weft_ckpt_claim){.shards = config->shards,
                                      .first = config->first,
                                      .count = config->count,
                                      .pid = (uint64_t)getpid()};
    if (getrandom(&claim->process, sizeof(claim->process), 0) != sizeof(claim->process)) {
        return weft_fail(error, WEFT_IO, "cannot draw a random number: %s", strerror(errno));
    }
    if (gethostname(claim->host, sizeof(claim->host)) != 0) {
        claim->host[0] = '\0';
    }
    claim->host[sizeof(claim->host) - 1] = '\0';
    strftime(claim->time, sizeof(claim->time), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return WEFT_OK;
}

/* A new job needs an empty directory; --restore needs a checkpoint. A server that replaces a dead
 * one restores a checkpoint if there is one. */
static weft_status judge(const struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    const struct weft_checkpoint_options *options = &checkpoint->config.options;
    const struct weft_ckpt_history *history = weft_ckpt_log_history(checkpoint->log);
    if (options->restarted) {
        return WEFT_OK;
    }
    if (!options->restore && history->part_count > 0) {
        return weft_fail(error, WEFT_STATE,
                         "%s holds checkpoints: restore from them, or name another directory",
                         options->directory);
    }
    if (options->restore && weft_ckpt_history_newest(history, UINT64_MAX) == 0) {
        return weft_fail(error, WEFT_NOTFOUND, "%s holds no checkpoint to restore from",
                         options->directory);
    }
    return WEFT_OK;
}

/* Log which processes this one replaces. */
static void say_replaced(struct weft_checkpoint *checkpoint)
{
    const struct weft_ckpt_history *history = weft_ckpt_log_history(checkpoint->log);
    uint64_t mine = weft_ckpt_log_mine(checkpoint->log)->serial;
    for (size_t i = 0; i < history->holder_count; i++) {
        const struct weft_ckpt_holder *earlier = &history->holders[i];
        if (earlier->replaced_by == mine) {
            weft_node_info(&checkpoint->config.log,
                           "shards %u to %u now belong to this server; process %" PRIu64
                           " on %s, which had them since %s, writes no more checkpoints",
                           earlier->claim.first, earlier->claim.first + earlier->claim.count - 1,
                           earlier->claim.pid, earlier->claim.host, earlier->claim.time);
        }
    }
}

/* Claim first: after that no other process can add records, so the choice stays valid. */
weft_status weft_checkpoint_claim(struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    const struct weft_checkpoint_options *options = &checkpoint->config.options;
    const struct weft_ckpt_history *history = weft_ckpt_log_history(checkpoint->log);
    bool is_new = !options->restore && !options->restarted;
    struct weft_ckpt_claim claim;
    weft_status status = claim_make(&checkpoint->config, &claim, error);
    status =
        status == WEFT_OK ? weft_ckpt_log_claim(checkpoint->log, &claim, is_new, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    say_replaced(checkpoint);
    if (is_new) {
        return WEFT_OK;
    }
    status =
        weft_ckpt_find(options->directory, history, complain, checkpoint, &checkpoint->set, error);
    if (status == WEFT_OK && checkpoint->set.number == 0 &&
        (!options->restarted || weft_ckpt_history_newest(history, UINT64_MAX) != 0)) {
        return weft_fail(error, WEFT_NOTFOUND,
                         "%s has no usable checkpoint; nothing was changed. Repair "
                         "it, or move it away to begin empty",
                         options->directory);
    }
    if (status == WEFT_OK && checkpoint->set.number != 0) {
        status = weft_checkpoint_ordered(options->directory, &checkpoint->set,
                                         &checkpoint->set_ordered, error);
        checkpoint->newest = checkpoint->set.number;
    }
    return status;
}

static weft_status look_over(struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    const char *directory = checkpoint->config.options.directory;
    weft_status status = weft_ckpt_make_directory(directory, error);
    status = status == WEFT_OK ? weft_ckpt_log_open(directory, complain, checkpoint,
                                                    &checkpoint->log, error)
                               : status;
    return status == WEFT_OK ? judge(checkpoint, error) : status;
}

static weft_status feeds_init(struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    uint32_t count = checkpoint->config.count;
    checkpoint->feeds = calloc(count, sizeof(*checkpoint->feeds));
    checkpoint->memory = calloc(count, sizeof(*checkpoint->memory));
    bool have = checkpoint->feeds != NULL && checkpoint->memory != NULL;
    for (uint32_t i = 0; checkpoint->feeds != NULL && i < count; i++) {
        checkpoint->feeds[i].journal.fd = -1;
    }
    for (uint32_t i = 0; have && i < count; i++) {
        checkpoint->feeds[i].owner = checkpoint;
        for (uint32_t b = 0; have && b < WEFT_CHECKPOINT_BUFFERS; b++) {
            uint8_t *memory = malloc(WEFT_CHECKPOINT_BUFFER_BYTES);
            checkpoint->feeds[i].buffers[b].memory = memory;
            have = memory != NULL;
        }
    }
    return have ? WEFT_OK : weft_fail(error, WEFT_NOMEM, "no memory for checkpoints");
}

weft_status weft_checkpoint_new(const struct weft_checkpoint_config *config,
                                struct weft_checkpoint **checkpoint_p, struct weft_error *error)
{
    struct weft_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    if (checkpoint == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for checkpoints");
    }
    checkpoint->config = *config;
    checkpoint->replaced_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&checkpoint->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&checkpoint->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    weft_status status = parse_every(checkpoint, error);
    status = status == WEFT_OK ? look_over(checkpoint, error) : status;
    status = status == WEFT_OK ? feeds_init(checkpoint, error) : status;
    if (status != WEFT_OK) {
        weft_checkpoint_free(checkpoint);
        return status;
    }
    *checkpoint_p = checkpoint;
    return WEFT_OK;
}

uint64_t weft_checkpoint_restored(const struct weft_checkpoint *checkpoint)
{
    return checkpoint->set.number;
}

struct weft_checkpoint_feed *weft_checkpoint_feed(struct weft_checkpoint *checkpoint, uint32_t i)
{
    WEFT_ASSERT(i < checkpoint->config.count);
    return &checkpoint->feeds[i];
}

void weft_checkpoint_free(struct weft_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    for (uint32_t i = 0; checkpoint->feeds != NULL && i < checkpoint->config.count; i++) {
        for (uint32_t b = 0; b < WEFT_CHECKPOINT_BUFFERS; b++) {
            free(checkpoint->feeds[i].buffers[b].memory);
        }
        weft_journal_file_close(&checkpoint->feeds[i].journal);
    }
    free(checkpoint->feeds);
    free(checkpoint->memory);
    weft_ckpt_set_fini(&checkpoint->set);
    weft_ckpt_log_close(checkpoint->log);
    if (checkpoint->replaced_fd >= 0) {
        (void)close(checkpoint->replaced_fd);
    }
    pthread_cond_destroy(&checkpoint->changed);
    pthread_mutex_destroy(&checkpoint->lock);
    free(checkpoint);
}

/* ---- the main thread ------------------------------------------------------------------------- */

/* The shards wait for this before they serve. */
static void open_gate(struct weft_checkpoint *checkpoint, bool may_serve)
{
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->gate = may_serve ? WEFT_CHECKPOINT_GATE_OPEN : WEFT_CHECKPOINT_GATE_SHUT;
    pthread_cond_broadcast(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
}

bool weft_checkpoint_may_serve(struct weft_checkpoint_feed *feed)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    pthread_mutex_lock(&checkpoint->lock);
    while (checkpoint->gate == WEFT_CHECKPOINT_GATE_CLOSED) {
        pthread_cond_wait(&checkpoint->changed, &checkpoint->lock);
    }
    bool may = checkpoint->gate == WEFT_CHECKPOINT_GATE_OPEN;
    pthread_mutex_unlock(&checkpoint->lock);
    return may;
}

weft_status weft_checkpoint_begin(struct weft_checkpoint *checkpoint, struct weft_error *error)
{
    const struct weft_checkpoint_options *options = &checkpoint->config.options;
    struct weft_error ignored = {.text = ""};
    if (checkpoint->replaced_fd < 0) {
        return weft_fail(error, WEFT_IO, "eventfd is refused");
    }
    weft_status status = weft_ckpt_log_restored(checkpoint->log, checkpoint->set.number,
                                                options->journal.directory != NULL, error);
    if (status != WEFT_OK) {
        return status;
    }
    for (uint32_t i = 0; status == WEFT_OK && i < checkpoint->config.count; i++) {
        status = weft_journal_release_former(&checkpoint->feeds[i].journal, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    /* A file that cannot be moved is void nevertheless. */
    if (weft_ckpt_set_aside(options->directory, checkpoint->log, tell_moved, checkpoint,
                            &ignored) != WEFT_OK) {
        weft_node_warn(&checkpoint->config.log, "%s", ignored.text);
    }
    checkpoint->next_ns = weft_clock_now_ns() + checkpoint->every_ns;
    checkpoint->patience_ns = WEFT_CHECKPOINT_PATIENCE_NS;
    checkpoint->started =
        pthread_create(&checkpoint->thread, NULL, weft_checkpoint_write_all, checkpoint) == 0;
    if (!checkpoint->started) {
        return weft_fail(error, WEFT_IO, "cannot start a thread");
    }
    open_gate(checkpoint, true);
    return WEFT_OK;
}

int weft_checkpoint_replaced_fd(const struct weft_checkpoint *checkpoint)
{
    return checkpoint->replaced_fd;
}

bool weft_checkpoint_is_replaced(struct weft_checkpoint *checkpoint, struct weft_error *why_p)
{
    pthread_mutex_lock(&checkpoint->lock);
    bool replaced = checkpoint->replaced;
    *why_p = checkpoint->replaced_why;
    pthread_mutex_unlock(&checkpoint->lock);
    return replaced;
}

bool weft_checkpoint_request(struct weft_checkpoint *checkpoint)
{
    if (!weft_checkpoint_has_all(checkpoint)) {
        return false;
    }
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->requested = true;
    checkpoint->next_ns = 0;
    pthread_cond_broadcast(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
    return true;
}

void weft_checkpoint_end(struct weft_checkpoint *checkpoint, bool make_last)
{
    if (checkpoint == NULL) {
        return;
    }
    if (!checkpoint->started) {
        open_gate(checkpoint, false);
        return;
    }
    pthread_mutex_lock(&checkpoint->lock);
    if (make_last) {
        checkpoint->last = true;
        checkpoint->next_ns = 0;
        checkpoint->last_done |= !weft_checkpoint_standing(checkpoint).has_tables;
    } else {
        checkpoint->stop = true;
    }
    pthread_cond_broadcast(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
    pthread_join(checkpoint->thread, NULL);
    checkpoint->started = false;
}
