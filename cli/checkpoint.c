/* What a process has of its checkpoints: from the options and the directory to the thread that writes
 * them, and back. */
#define _GNU_SOURCE
#include "cli/checkpoint_internal.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EVERY_CLOCKS_DEFAULT = 1000, EVERY_S_DEFAULT = 60 };

void weft_checkpoint_say_line(struct weft_checkpoint *checkpoint, bool good, const char *format,
                              ...)
{
    char text[WEFT_CKPT_ERROR_BYTES + 128];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    checkpoint->config.say(checkpoint->config.say_arg, good, text);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status parse_every(struct weft_checkpoint *checkpoint, struct weft_ckpt_error *error)
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
        return weft_ckpt_fail(error, WEFT_INVALID,
                              "--checkpoint-every %.40s is not allowed; it must be a number of "
                              "clocks, or of seconds with an s behind it",
                              text);
    }
    if (seconds && !weft_checkpoint_has_all(checkpoint)) {
        return weft_ckpt_fail(error, WEFT_INVALID,
                              "--checkpoint-every %.40s: servers that share a job's shards must "
                              "cut at the same clock; give a number of clocks",
                              text);
    }
    checkpoint->every_clocks = seconds ? 0 : (uint32_t)value;
    checkpoint->every_ns = seconds ? value * WEFT_NS_PER_S : 0;
    return WEFT_OK;
}

static void complain(void *arg, uint64_t number, const char *text)
{
    weft_checkpoint_say_line(arg, false, "checkpoint %" PRIu64 " cannot be used: %s", number, text);
}

static weft_status look_over(struct weft_checkpoint *checkpoint, struct weft_ckpt_error *error)
{
    const char *directory = checkpoint->config.options.directory;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        return weft_ckpt_fail(error, WEFT_IO, "cannot make directory %s: %s", directory,
                              strerror(errno));
    }
    const struct weft_checkpoint_config *config = &checkpoint->config;
    bool restarted = config->options.restarted;
    if (!config->options.restore && !restarted) {
        bool any;
        weft_status status = weft_ckpt_any(directory, &any, error);
        if (status == WEFT_OK && any) {
            return weft_ckpt_fail(error, WEFT_STATE,
                                  "%s holds checkpoints: restore from them, or name another "
                                  "directory",
                                  directory);
        }
        return status;
    }
    weft_status status = weft_ckpt_find(directory, complain, checkpoint, &checkpoint->set, error);
    if (status == WEFT_OK && checkpoint->set.number == 0 && !restarted) {
        return weft_ckpt_fail(error, WEFT_NOTFOUND, "%s holds no checkpoint to restore from",
                              directory);
    }
    if (status == WEFT_OK) {
        /* The other servers live, and go on from what they have written. */
        uint32_t first = restarted ? config->first : 0;
        uint32_t last = restarted ? config->first + config->count - 1 : UINT32_MAX;
        status = weft_ckpt_drop_after(directory, checkpoint->set.number, first, last, error);
    }
    return status;
}

static weft_status feeds_init(struct weft_checkpoint *checkpoint, struct weft_ckpt_error *error)
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
    return have ? WEFT_OK : weft_ckpt_fail(error, WEFT_NOMEM, "no memory for checkpoints");
}

weft_status weft_checkpoint_new(const struct weft_checkpoint_config *config,
                                struct weft_checkpoint **checkpoint_p,
                                struct weft_ckpt_error *error)
{
    struct weft_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    if (checkpoint == NULL) {
        return weft_ckpt_fail(error, WEFT_NOMEM, "no memory for checkpoints");
    }
    checkpoint->config = *config;
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
    pthread_cond_destroy(&checkpoint->changed);
    pthread_mutex_destroy(&checkpoint->lock);
    free(checkpoint);
}

/* ---- the main thread ------------------------------------------------------------------------- */

weft_status weft_checkpoint_begin(struct weft_checkpoint *checkpoint)
{
    checkpoint->next_ns = weft_clock_now_ns() + checkpoint->every_ns;
    checkpoint->patience_ns = WEFT_CHECKPOINT_PATIENCE_NS;
    checkpoint->started =
        pthread_create(&checkpoint->thread, NULL, weft_checkpoint_write_all, checkpoint) == 0;
    return checkpoint->started ? WEFT_OK : WEFT_IO;
}

bool weft_checkpoint_request(struct weft_checkpoint *checkpoint)
{
    if (!weft_checkpoint_has_all(checkpoint)) {
        return false;
    }
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->requested = true;
    checkpoint->next_ns = 0;
    pthread_cond_signal(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
    return true;
}

void weft_checkpoint_end(struct weft_checkpoint *checkpoint)
{
    if (checkpoint == NULL || !checkpoint->started) {
        return;
    }
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->last = true;
    checkpoint->next_ns = 0;
    checkpoint->last_done |= !weft_checkpoint_standing(checkpoint).has_tables;
    pthread_cond_signal(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
    pthread_join(checkpoint->thread, NULL);
    checkpoint->started = false;
}
