/* The writer's thread, and what it asks of the shards. The shards' side is at the end. */
#define _GNU_SOURCE
#include "cli/checkpoint.h"

#include "base/assert.h"
#include "io/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

/* Whether other servers' parts are there is looked up so often; a failed one is tried again after
 * so long. */
#define LOOK_NS  (500 * WEFT_NS_PER_MS)
#define AGAIN_NS (5 * WEFT_NS_PER_S)

/* One that was asked for is cut at a clock to come. When none comes in this time, twice as long for the
 * next, it is cut where the tables stand: that may be the end of another clock on another shard, but is
 * right when nobody works. */
#define PATIENCE_NS     (300 * WEFT_NS_PER_MS)
#define PATIENCE_MAX_NS (60 * WEFT_NS_PER_S)

/* At the end, a cut that does not come in this time waits for a worker who will not come. */
#define LAST_CUT_NS (300 * WEFT_NS_PER_MS)

enum { EVERY_CLOCKS_DEFAULT = 1000, EVERY_S_DEFAULT = 60 };

struct weft_checkpoint {
    struct weft_checkpoint_config config;
    uint32_t every_clocks; /* one of the two is 0 */
    uint64_t every_ns;
    struct weft_ckpt_set set; /* restored from; number 0 = none */
    uint32_t set_clock;       /* the clock that it was cut at, told by the shards. Under the lock */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of what follows, and of the feeds */
    pthread_cond_t changed;
    bool stop;
    bool requested;
    bool last; /* the last one is wanted */
    bool last_done;
    struct weft_checkpoint_feed *feeds; /* (count,) */

    /* The writer's own. */
    bool under_way;
    bool ahead;         /* it waits for a clock that is to come */
    bool by_request;
    bool at_once;        /* the next one by request: where the tables stand */
    uint64_t patience_ns;
    uint64_t impatient_ns; /* when the one under way by request is begun anew */
    uint32_t wanted_clock; /* by a worker that keeps its pushes, 0 = none; not where has_all */
    bool set_pending;   /* committed here; parts of others may be missing */
    uint64_t number;    /* of the one under way */
    uint64_t base;
    uint64_t kept;      /* the last one committed here in this run; 0 = none */
    uint32_t kept_clock;
    bool kept_any;
    uint32_t since_whole;
    uint32_t last_clock;  /* that was ordered */
    uint64_t next_ns;
    uint64_t again_ns; /* one failed: nothing before that, whoever asks */
    uint64_t begun_ns;
    void **memory; /* (count,): lent to the shards for copies */
};

static uint64_t now(void)
{
    return weft_clock_now_ns();
}

[[gnu::format(printf, 3, 4)]] static void say(struct weft_checkpoint *checkpoint, bool good,
                                              const char *format, ...)
{
    char text[WEFT_CKPT_ERROR_BYTES + 128];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    checkpoint->config.say(checkpoint->config.say_arg, good, text);
}

static bool has_all(const struct weft_checkpoint *checkpoint)
{
    return checkpoint->config.count == checkpoint->config.shards;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status parse_every(struct weft_checkpoint *checkpoint, struct weft_ckpt_error *error)
{
    const char *text = checkpoint->config.options.every;
    if (text == NULL) {
        checkpoint->every_clocks = has_all(checkpoint) ? 0 : EVERY_CLOCKS_DEFAULT;
        checkpoint->every_ns = has_all(checkpoint) ? EVERY_S_DEFAULT * WEFT_NS_PER_S : 0;
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
    if (seconds && !has_all(checkpoint)) {
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
    say(arg, false, "checkpoint %" PRIu64 " cannot be used: %s", number, text);
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

/* ---- the writer: orders ---------------------------------------------------------------------- */

/* With the lock held. */
static void wake(struct weft_checkpoint_feed *feed)
{
    if (feed->driver != NULL) {
        weft_driver_wake(feed->driver);
    }
}

static size_t memory_bytes(const struct weft_checkpoint *checkpoint)
{
    return (size_t)checkpoint->config.options.memory_mib << 20;
}

/* Memory that is not touched is not there: lending much costs nothing. */
static bool lend(struct weft_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        void *memory = mmap(NULL, memory_bytes(checkpoint), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        checkpoint->memory[i] = memory == MAP_FAILED ? NULL : memory;
        if (checkpoint->memory[i] == NULL) {
            return false;
        }
    }
    return true;
}

static void take_back(struct weft_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        if (checkpoint->memory[i] != NULL) {
            (void)munmap(checkpoint->memory[i], memory_bytes(checkpoint));
            checkpoint->memory[i] = NULL;
        }
    }
}

struct standing {
    uint32_t clock; /* of the fastest shard */
    bool has_tables;
    bool has_bsp;
};

static struct standing standing_of(const struct weft_checkpoint *checkpoint)
{
    struct standing standing = {.has_tables = true};
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        const struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        standing.clock = feed->clock > standing.clock ? feed->clock : standing.clock;
        standing.has_tables &= feed->has_tables;
        standing.has_bsp |= feed->has_bsp;
    }
    return standing;
}

/* Numbers go with the clocks, so that servers need not speak to one another; where one process has
 * all shards and makes several at one clock, they go on by one. */
static uint64_t number_for(const struct weft_checkpoint *checkpoint, uint32_t clock)
{
    uint64_t number = checkpoint->set.number + clock;
    number -= checkpoint->set_clock < clock ? checkpoint->set_clock : clock;
    uint64_t last = checkpoint->kept > checkpoint->set.number ? checkpoint->kept
                                                              : checkpoint->set.number;
    return has_all(checkpoint) && number <= last ? last + 1 : number;
}

/* With the lock held. False when there is no memory to lend. */
static bool send_order(struct weft_checkpoint *checkpoint, bool at_once, uint32_t clock)
{
    if (!lend(checkpoint)) {
        take_back(checkpoint);
        return false;
    }
    uint32_t whole_every = checkpoint->config.options.whole_every;
    bool whole = checkpoint->kept == 0 || checkpoint->since_whole + 1 >= whole_every;
    checkpoint->number = number_for(checkpoint, clock);
    checkpoint->base = whole ? 0 : checkpoint->kept;
    checkpoint->under_way = true;
    checkpoint->begun_ns = 0;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        WEFT_ASSERT(feed->phase == WEFT_CHECKPOINT_IDLE);
        feed->order = (struct weft_cut_order){.number = checkpoint->number,
                                              .now = at_once,
                                              .clock = clock,
                                              .whole = whole,
                                              .memory = checkpoint->memory[i],
                                              .bytes = memory_bytes(checkpoint)};
        feed->phase = WEFT_CHECKPOINT_ORDERED;
        feed->rows = 0;
        feed->fill = feed->take = 0;
        wake(feed);
    }
    return true;
}

/* At the end: would another one hold anything new, and go with the other servers' parts? */
static bool last_wanted(const struct weft_checkpoint *checkpoint, struct standing s)
{
    uint32_t clock = checkpoint->kept_any ? checkpoint->kept_clock : checkpoint->set_clock;
    bool any = checkpoint->kept_any || checkpoint->set.number > 0;
    if (any && s.has_bsp && clock == s.clock) {
        return false;
    }
    return has_all(checkpoint) || number_for(checkpoint, s.clock) > checkpoint->set.number;
}

/* Where one takes longer than there are clocks between two, a server takes every second only, or every
 * fourth: on such grids servers of different speed meet more often than on the fine one. */
static uint32_t grid_of(const struct weft_checkpoint *checkpoint, uint32_t clock)
{
    uint64_t grid = checkpoint->every_clocks;
    uint64_t took = clock > checkpoint->last_clock ? clock - checkpoint->last_clock : 0;
    while (checkpoint->last_clock > 0 && grid < took && grid < UINT32_MAX / 4) {
        grid *= 2;
    }
    return (uint32_t)grid;
}

/* Programs that wait for one are told that there will be none. With the lock held. */
static void refuse(struct weft_checkpoint *checkpoint, enum weft_rpc_status why)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        checkpoint->feeds[i].refusal = (uint16_t)why;
        wake(&checkpoint->feeds[i]);
    }
}

/* Is it time for one? With the lock held. */
static void consider(struct weft_checkpoint *checkpoint)
{
    struct standing s = standing_of(checkpoint);
    bool hurry = checkpoint->last || checkpoint->requested || checkpoint->wanted_clock > 0;
    if (checkpoint->under_way || !s.has_tables || (!hurry && now() < checkpoint->next_ns) ||
        (!checkpoint->last && now() < checkpoint->again_ns)) {
        return;
    }
    bool ordered = true;
    checkpoint->ahead = checkpoint->by_request = false;
    if (checkpoint->last) {
        bool wanted = !checkpoint->last_done && last_wanted(checkpoint, s);
        checkpoint->last_done = true;
        checkpoint->next_ns = now() + LAST_CUT_NS;
        ordered = !wanted || send_order(checkpoint, true, s.clock);
    } else if (checkpoint->wanted_clock > 0) {
        ordered = send_order(checkpoint, false, checkpoint->wanted_clock);
        checkpoint->wanted_clock = 0;
    } else if (checkpoint->every_clocks > 0 && !checkpoint->requested) {
        uint32_t every = grid_of(checkpoint, s.clock);
        checkpoint->ahead = true;
        checkpoint->last_clock = (s.clock / every + 1) * every;
        ordered = send_order(checkpoint, false, checkpoint->last_clock);
    } else if (checkpoint->every_ns > 0 || checkpoint->requested) {
        /* Shards of one job are at most one clock apart (PROTOCOL.md section 7, "Clocks"). */
        bool alone = checkpoint->config.count == 1; /* no other shard can stand elsewhere */
        bool now_or_never = checkpoint->requested && (checkpoint->at_once || alone);
        checkpoint->by_request = checkpoint->requested;
        checkpoint->ahead = !checkpoint->requested && s.has_bsp;
        checkpoint->requested = false;
        checkpoint->impatient_ns = weft_time_add(now(), checkpoint->patience_ns);
        ordered = send_order(checkpoint, now_or_never || !s.has_bsp,
                             now_or_never ? s.clock : s.clock + 2);
    }
    if (!ordered) {
        refuse(checkpoint, WEFT_RPC_NO_COPIES);
        checkpoint->next_ns = now() + AGAIN_NS;
        say(checkpoint, false, "no checkpoint: no memory to lend; --checkpoint-memory is too large");
    }
}

/* ---- the writer: the one under way ----------------------------------------------------------- */

static const char *why_text(enum weft_cut_why why)
{
    return why == WEFT_CUT_NO_MEMORY
               ? "more rows changed meanwhile than --checkpoint-memory has room for"
               : "a shard had passed the clock at which all were to be cut";
}

/* All is decided: tell the shards, take the memory back when they have heard it. */
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
        wake(feed);
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
    take_back(checkpoint);
}

/* refusal: what programs that wait for it are told; OK = nothing, it is tried again. */
static void give_up(struct weft_checkpoint *checkpoint, enum weft_rpc_status refusal,
                    const char *why)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        weft_checkpoint_file_abandon(&checkpoint->feeds[i].file);
        checkpoint->feeds[i].file_open = false;
    }
    say(checkpoint, false, "checkpoint %" PRIu64 " given up: %s", checkpoint->number, why);
    checkpoint->next_ns = now() + AGAIN_NS;
    if (refusal != WEFT_RPC_OK) {
        checkpoint->again_ns = checkpoint->next_ns;
        pthread_mutex_lock(&checkpoint->lock);
        refuse(checkpoint, refusal);
        pthread_mutex_unlock(&checkpoint->lock);
    }
    judge(checkpoint, false);
}

/* Write what one shard has ready; true when something was. */
static bool serve_feed(struct weft_checkpoint *checkpoint, uint32_t i,
                       struct weft_ckpt_error *error, weft_status *status_p)
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
                                              .shard = checkpoint->config.first + i,
                                              .shards = checkpoint->config.shards};
        checkpoint->begun_ns = checkpoint->begun_ns == 0 ? now() : checkpoint->begun_ns;
        *status_p = weft_checkpoint_file_open(&feed->file, &place, view,
                                              WEFT_CHECKPOINT_BUFFER_BYTES, error);
        feed->file_open = *status_p == WEFT_OK;
        return true;
    }
    if (count == 0) {
        return false;
    }
    *status_p =
        weft_checkpoint_file_rows(&feed->file, buffer->table, buffer->memory, count, error);
    pthread_mutex_lock(&checkpoint->lock);
    feed->take = (feed->take + 1) % WEFT_CHECKPOINT_BUFFERS;
    feed->rows += count;
    buffer->count = 0;
    wake(feed);
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

static weft_status commit(struct weft_checkpoint *checkpoint, struct weft_ckpt_error *error)
{
    uint32_t count = checkpoint->config.count;
    struct weft_ckpt_manifest manifest = {.number = checkpoint->number,
                                          .base = checkpoint->base,
                                          .shards = checkpoint->config.shards,
                                          .first = checkpoint->config.first,
                                          .count = count,
                                          .files = calloc(count, sizeof(*manifest.files))};
    if (manifest.files == NULL) {
        return weft_ckpt_fail(error, WEFT_NOMEM, "no memory for a manifest");
    }
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        status = weft_checkpoint_file_close(&feed->file, &manifest.files[i], error);
        feed->file_open = false;
    }
    if (status == WEFT_OK) {
        status = weft_ckpt_manifest_commit(checkpoint->config.options.directory, &manifest, error);
    }
    weft_ckpt_manifest_fini(&manifest);
    return status;
}

static uint64_t bytes_on_disk(const struct weft_checkpoint *checkpoint)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        char name[WEFT_CKPT_FILE_BYTES], path[WEFT_CKPT_PATH_BYTES];
        struct stat info;
        weft_ckpt_data_name(checkpoint->number, checkpoint->config.first + i, name);
        snprintf(path, sizeof(path), "%s/%s", checkpoint->config.options.directory, name);
        bytes += stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    }
    return bytes;
}

/* One by request came to nothing: the next way of the two, with more patience. */
static void again_otherwise(struct weft_checkpoint *checkpoint)
{
    pthread_mutex_lock(&checkpoint->lock);
    checkpoint->requested |= checkpoint->by_request;
    pthread_mutex_unlock(&checkpoint->lock);
    checkpoint->at_once = !checkpoint->at_once;
    checkpoint->patience_ns = weft_min_u64(checkpoint->patience_ns * 2, PATIENCE_MAX_NS);
}

/* The last shard has given its last record. */
static void finish(struct weft_checkpoint *checkpoint)
{
    struct weft_ckpt_error error = {.text = ""};
    uint32_t clock = 0;
    uint64_t rows = 0;
    if (!same_clocks(checkpoint, &clock)) {
        again_otherwise(checkpoint);
        give_up(checkpoint, WEFT_RPC_OK, "the shards were cut at different clocks");
        return;
    }
    if (commit(checkpoint, &error) != WEFT_OK) {
        give_up(checkpoint, WEFT_RPC_NOT_KEPT, error.text);
        return;
    }
    checkpoint->at_once = false;
    checkpoint->patience_ns = PATIENCE_NS;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        rows += checkpoint->feeds[i].rows;
    }
    checkpoint->since_whole = checkpoint->base == 0 ? 0 : checkpoint->since_whole + 1;
    checkpoint->kept = checkpoint->number;
    checkpoint->kept_any = true;
    checkpoint->kept_clock = clock;
    checkpoint->set_pending = true;
    uint64_t end_ns = now();
    say(checkpoint, true,
        "checkpoint %" PRIu64 ": clock %u, %" PRIu64 " rows%s, %" PRIu64 " bytes in %.3f s",
        checkpoint->number, clock, rows, checkpoint->base == 0 ? "" : " that changed",
        bytes_on_disk(checkpoint), (double)(end_ns - checkpoint->begun_ns) / (double)WEFT_NS_PER_S);
    checkpoint->next_ns =
        checkpoint->every_ns > 0 ? weft_time_add(end_ns, checkpoint->every_ns) : end_ns;
    judge(checkpoint, true);
}

/* One round over the shards of the one under way; true when something was done. */
static bool serve(struct weft_checkpoint *checkpoint)
{
    struct weft_ckpt_error error = {.text = ""};
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
            refusal = feed->why != WEFT_CUT_LATE ? WEFT_RPC_NO_COPIES
                      : has_all(checkpoint)      ? WEFT_RPC_OK
                                                 : WEFT_RPC_CUT_LATE;
            checkpoint->requested |= checkpoint->by_request && feed->why == WEFT_CUT_LATE;
        } else if (feed->driver == NULL) {
            why = "the server ends";
        } else if (checkpoint->last && checkpoint->last_done && now() > checkpoint->next_ns &&
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

/* Does the last one count, have the other servers committed, too? Then older ones may go. */
static void look_for_others(struct weft_checkpoint *checkpoint)
{
    const char *directory = checkpoint->config.options.directory;
    struct weft_ckpt_error error = {.text = ""};
    uint64_t newest;
    if (!checkpoint->set_pending ||
        weft_ckpt_newest(directory, &newest, &error) != WEFT_OK || newest < checkpoint->kept) {
        return;
    }
    checkpoint->set_pending = false;
    pthread_mutex_lock(&checkpoint->lock);
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        checkpoint->feeds[i].durable_number = checkpoint->kept;
        wake(&checkpoint->feeds[i]);
    }
    pthread_mutex_unlock(&checkpoint->lock);
    if (checkpoint->config.first == 0 &&
        weft_ckpt_prune(directory, checkpoint->config.options.keep, &error) != WEFT_OK) {
        say(checkpoint, false, "%s", error.text);
    }
}

/* One that waits for a clock to come makes way for one that was asked for; one that was asked for is
 * begun anew when its clock does not come. */
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
                     checkpoint->config.count > 1 && now() >= checkpoint->impatient_ns;
    pthread_mutex_unlock(&checkpoint->lock);
    if (impatient && waits) {
        again_otherwise(checkpoint);
    }
    if ((wanted || impatient) && waits) {
        judge(checkpoint, false);
    }
}

/* With the lock held: until something changes, or it is time to look. */
static void rest(struct weft_checkpoint *checkpoint)
{
    uint64_t until_ns = now() + (checkpoint->last ? LOOK_NS / 10 : LOOK_NS);
    struct timespec at = {.tv_sec = (time_t)(until_ns / WEFT_NS_PER_S),
                          .tv_nsec = (long)(until_ns % WEFT_NS_PER_S)};
    (void)pthread_cond_timedwait(&checkpoint->changed, &checkpoint->lock, &at);
}

/* With the lock held, but not while it is said. A shard's journal has no room, or has it again. */
static void say_full(struct weft_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        if (feed->journal_full == feed->journal_said) {
            continue;
        }
        feed->journal_said = feed->journal_full;
        if (feed->journal_said) {
            pthread_mutex_unlock(&checkpoint->lock);
            say(checkpoint, false,
                "shard %" PRIu32 ": the journal is full; what comes now is not in it until the "
                "next checkpoint. More room: --journal-mib",
                checkpoint->config.first + i);
            pthread_mutex_lock(&checkpoint->lock);
        }
    }
}

static void *write_all(void *arg)
{
    struct weft_checkpoint *checkpoint = arg;
    pthread_mutex_lock(&checkpoint->lock);
    while (!checkpoint->stop) {
        say_full(checkpoint);
        consider(checkpoint);
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
    pthread_mutex_unlock(&checkpoint->lock);
    return NULL;
}

/* ---- the main thread ------------------------------------------------------------------------- */

weft_status weft_checkpoint_begin(struct weft_checkpoint *checkpoint)
{
    checkpoint->next_ns = now() + checkpoint->every_ns;
    checkpoint->patience_ns = PATIENCE_NS;
    checkpoint->started =
        pthread_create(&checkpoint->thread, NULL, write_all, checkpoint) == 0;
    return checkpoint->started ? WEFT_OK : WEFT_IO;
}

bool weft_checkpoint_request(struct weft_checkpoint *checkpoint)
{
    if (!has_all(checkpoint)) {
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
    checkpoint->last_done |= !standing_of(checkpoint).has_tables;
    pthread_cond_signal(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
    pthread_join(checkpoint->thread, NULL);
    checkpoint->started = false;
}

/* ---- the shards ------------------------------------------------------------------------------ */

void weft_checkpoint_attach(struct weft_checkpoint_feed *feed, struct weft_driver *driver)
{
    pthread_mutex_lock(&feed->owner->lock);
    feed->driver = driver;
    pthread_cond_broadcast(&feed->owner->changed);
    pthread_mutex_unlock(&feed->owner->lock);
}

/* What the writer must know of the shard's tables. */
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

/* Do again what the journal has behind the checkpoint, and go on with it. */
static weft_status keep_journal(struct weft_checkpoint_feed *feed, struct weft_shard *shard,
                                uint32_t number, weft_checkpoint_supply *supply,
                                struct weft_ckpt_error *error)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    const struct weft_checkpoint_options *options = &checkpoint->config.options;
    const char *why;
    if (options->journal.directory == NULL) {
        return WEFT_OK;
    }
    weft_status status =
        weft_journal_file_open(&feed->journal, &options->journal, number,
                               !options->restore && !options->restarted, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_journal_replay(&feed->journal, &options->journal, shard, checkpoint->set.number,
                                 supply, &why);
    if (status != WEFT_OK) {
        return weft_ckpt_fail(error, status, "no memory for a journal");
    }
    const struct weft_shard_journal_report *report = weft_shard_journal_report(shard);
    if (why[0] != '\0') {
        say(checkpoint, false, "shard %" PRIu32 ": the journal cannot be used: %s", number, why);
    } else if (report->used) {
        say(checkpoint, true, "shard %" PRIu32 ": journal: %" PRIu64 " chunks of pushes done again",
            number, report->chunks);
    }
    if (report->refused > 0) {
        say(checkpoint, false,
            "shard %" PRIu32 ": %" PRIu64 " records of the journal could not be done again: no "
            "memory for new rows",
            number, report->refused);
    }
    publish(feed, shard);
    return WEFT_OK;
}

weft_status weft_checkpoint_restore(struct weft_checkpoint_feed *feed, struct weft_shard *shard,
                                    uint32_t workers_max, weft_checkpoint_supply *supply,
                                    struct weft_ckpt_error *error)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    uint32_t number = checkpoint->config.first + (uint32_t)(feed - checkpoint->feeds);
    weft_status status = WEFT_OK;
    if (checkpoint->set.number != 0) {
        status = weft_checkpoint_load(checkpoint->config.options.directory, &checkpoint->set, shard,
                                      number, checkpoint->config.shards, workers_max, supply,
                                      error);
    }
    if (status == WEFT_OK && checkpoint->set.number != 0) {
        publish(feed, shard);
        /* Before the journal: it is that of the checkpoint. */
        pthread_mutex_lock(&checkpoint->lock);
        checkpoint->set_clock =
            feed->clock > checkpoint->set_clock ? feed->clock : checkpoint->set_clock;
        pthread_mutex_unlock(&checkpoint->lock);
    }
    return status == WEFT_OK ? keep_journal(feed, shard, number, supply, error) : status;
}

/* Fill the next buffer; false when the writer has not written it yet. */
static bool fill_buffer(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    struct weft_checkpoint_buffer *buffer = &feed->buffers[feed->fill];
    if (buffer->count > 0) {
        return false;
    }
    /* The buffer is ours as long as its count is 0. */
    pthread_mutex_unlock(&feed->owner->lock);
    uint32_t count = weft_shard_cut_take(shard, buffer->memory, WEFT_CHECKPOINT_BUFFER_BYTES,
                                         &buffer->table);
    enum weft_cut_state state = weft_shard_cut_state(shard);
    pthread_mutex_lock(&feed->owner->lock);
    if (feed->phase != WEFT_CHECKPOINT_STREAMING) {
        return true; /* the writer gave up meanwhile */
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

/* With the lock held. The last cut that was kept counts; or another one does, of which the shard has
 * not heard yet that it is kept, or has forgotten it for a newer one. */
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

/* A worker has little room left for the pushes that it keeps. */
static void take_wish(struct weft_checkpoint_feed *feed, const struct weft_shard *shard)
{
    struct weft_checkpoint *checkpoint = feed->owner;
    uint32_t clock;
    if (!weft_shard_cut_wanted(shard, &clock)) {
        return;
    }
    pthread_mutex_lock(&checkpoint->lock);
    bool free = !checkpoint->under_way || checkpoint->ahead;
    if (free && has_all(checkpoint)) {
        checkpoint->requested = true;
        checkpoint->next_ns = 0;
    } else if (free) {
        checkpoint->wanted_clock = clock;
    }
    pthread_cond_signal(&checkpoint->changed);
    pthread_mutex_unlock(&checkpoint->lock);
}

/* More room, and whether there is none. */
static void look_at_journal(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    weft_journal_grow(&feed->journal, shard);
    if (weft_shard_journal_is_full(shard) == feed->journal_full) {
        return;
    }
    pthread_mutex_lock(&feed->owner->lock);
    feed->journal_full = !feed->journal_full;
    pthread_cond_broadcast(&feed->owner->changed);
    pthread_mutex_unlock(&feed->owner->lock);
}

/* Programs that wait for a checkpoint are told so. */
static bool take_refusal(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    if (atomic_load_explicit(&feed->refusal, memory_order_relaxed) == 0) {
        return false;
    }
    weft_shard_cut_refused(shard, atomic_exchange(&feed->refusal, 0));
    return true;
}

bool weft_checkpoint_turn(struct weft_checkpoint_feed *feed, struct weft_shard *shard)
{
    publish(feed, shard);
    take_wish(feed, shard);
    look_at_journal(feed, shard);
    bool again = take_refusal(feed, shard); /* what it has to say now goes out in the next turn */
    if (atomic_load_explicit(&feed->phase, memory_order_relaxed) == WEFT_CHECKPOINT_IDLE &&
        feed->durable_number == 0) {
        return again; /* an order wakes us, so it is seen in the next turn at the latest */
    }
    pthread_mutex_lock(&feed->owner->lock);
    again |= take_durable(feed, shard);
    switch (feed->phase) {
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
        again = true; /* another one may be wished */
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
