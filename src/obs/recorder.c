#define _GNU_SOURCE
#include "obs/recorder.h"

#include "base/assert.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { RINGS_MAX = 1024, STALE_MAX = 1000 };

struct weft_recorder {
    struct weft_recorder_config config;
    char spool[WEFT_RECORDS_PATH_BYTES];
    pthread_t thread;
    pthread_mutex_t lock; /* protects the following fields */
    pthread_cond_t stopped;
    bool stop;
    bool finished;
    int fd;
    uint64_t bytes; /* size of the complete blocks in the file */
    bool failed;    /* the failure was reported */
    bool gone;      /* the file was deleted, and could not be recreated */
    uint64_t began_ns;
    uint64_t cpu_began_ns;
    uint64_t thread_cpu_ns; /* CPU time of the thread, once it has ended */
    uint64_t texts;
    uint64_t lost; /* records lost because the disk was full */
    uint32_t ring_count;
    struct weft_rpc_record_ring *rings[RINGS_MAX];
    struct weft_spool_head head; /* as in the last block */
};

void weft_recorder_config_default(struct weft_recorder_config *config_p)
{
    *config_p = (struct weft_recorder_config){
        .role = "worker", .version = "", .command = "", .ring_slots = 65536, .period_us = 200000};
}

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * WEFT_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Write a complete block or none: an incomplete block is overwritten by the next one. */
static bool write_all(struct weft_recorder *r, const struct weft_rpc_record_unit *units,
                      size_t bytes)
{
    struct iovec parts[2] = {{.iov_base = &r->head, .iov_len = sizeof(r->head)},
                             {.iov_base = (void *)(uintptr_t)units, .iov_len = bytes}};
    size_t all = sizeof(r->head) + bytes;
    for (size_t done = 0; done < all;) {
        struct iovec *from = done < sizeof(r->head) ? &parts[0] : &parts[1];
        ssize_t wrote = pwritev(r->fd, from, (int)(&parts[2] - from), (off_t)(r->bytes + done));
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            errno = wrote == 0 ? EIO : errno;
            return false;
        }
        done += (size_t)wrote;
        size_t head_done = done < sizeof(r->head) ? done : sizeof(r->head);
        parts[0] = (struct iovec){.iov_base = (uint8_t *)&r->head + head_done,
                                  .iov_len = sizeof(r->head) - head_done};
        parts[1] = (struct iovec){.iov_base = (void *)((uintptr_t)units + (done - head_done)),
                                  .iov_len = bytes - (done - head_done)};
    }
    return true;
}

static uint64_t dropped_so_far(const struct weft_recorder *r)
{
    uint64_t dropped = r->lost;
    for (uint32_t i = 0; i < r->ring_count; i++) {
        dropped += weft_rpc_record_ring_dropped(r->rings[i]);
    }
    return dropped;
}

static void block_write(struct weft_recorder *r, const struct weft_rpc_record_unit *units,
                        uint32_t unit_count, uint32_t count)
{
    r->head.count = count;
    r->head.units = unit_count;
    r->head.dropped = dropped_so_far(r);
    r->head.cpu_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - r->cpu_began_ns;
    r->head.wall_ns = clock_read_ns(CLOCK_MONOTONIC) - r->began_ns;
    r->head.hash = weft_spool_hash(&r->head, units);
    size_t bytes = (size_t)unit_count * sizeof(*units);
    if (!r->gone && write_all(r, units, bytes)) {
        r->bytes += sizeof(r->head) + bytes;
        r->head.first += count;
        return;
    }
    r->lost += count;
    if (!r->failed && !r->gone) {
        r->failed = true;
        fprintf(stderr, "weft: records are lost, and counted, while %s cannot be written: %s\n",
                r->spool, strerror(errno));
    }
}

/* Write records that are not in units yet. */
static void records_write(struct weft_recorder *r, const struct weft_rpc_record *records,
                          uint32_t count)
{
    const struct weft_rpc_record_unit *units = (const void *)records;
    block_write(r, units, count * WEFT_RPC_RECORD_UNITS, count);
}

/* ---- a spool that was deleted ---------------------------------------------------------------- */

static bool copy_spool(int from, int to, uint64_t bytes)
{
    off_t at = 0;
    while ((uint64_t)at < bytes) {
        ssize_t sent = sendfile(to, from, &at, bytes - (uint64_t)at);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            errno = sent == 0 ? EIO : errno;
            return false;
        }
    }
    return true;
}

/* The deleted file can be read as long as it is open. */
static bool recreate(struct weft_recorder *r)
{
    int fd = open(r->spool, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return false;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !copy_spool(r->fd, fd, r->bytes)) {
        int why = errno;
        (void)unlink(r->spool);
        (void)close(fd);
        errno = why;
        return false;
    }
    (void)close(r->fd);
    r->fd = fd;
    return true;
}

/* Called before every read of the rings: otherwise a deleted name would be noticed only at the
 * end. */
static void check_deleted(struct weft_recorder *r)
{
    struct stat about;
    if (r->gone || fstat(r->fd, &about) != 0 || about.st_nlink > 0) {
        return;
    }
    if (recreate(r)) {
        fprintf(stderr, "weft: %s was deleted while in use; it was recreated completely\n",
                r->spool);
        return;
    }
    fprintf(stderr,
            "weft: %s was deleted while in use, and cannot be recreated: %s; its records "
            "are lost and counted\n",
            r->spool, strerror(errno));
    r->gone = true;
    r->lost += r->head.first - r->texts;
    r->head.first = r->texts;
}

static void drain(struct weft_recorder *r)
{
    check_deleted(r);
    for (uint32_t i = 0; i < r->ring_count; i++) {
        /* Twice: a ring's content is in at most two pieces. Records that arrive meanwhile can
         * wait. */
        for (int piece = 0; piece < 2; piece++) {
            uint32_t count;
            const struct weft_rpc_record_unit *units =
                weft_rpc_record_ring_peek(r->rings[i], &count);
            if (count > 0) {
                block_write(r, units, count, weft_rpc_record_count(units, count));
                weft_rpc_record_ring_take(r->rings[i], count);
            }
        }
    }
}

static void *run(void *arg)
{
    struct weft_recorder *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t at_ns = (uint64_t)until.tv_nsec + r->config.period_us * WEFT_NS_PER_US;
        until.tv_sec += (time_t)(at_ns / WEFT_NS_PER_S);
        until.tv_nsec = (long)(at_ns % WEFT_NS_PER_S);
        while (!r->stop && pthread_cond_timedwait(&r->stopped, &r->lock, &until) == 0) {
        }
        drain(r);
    }
    r->thread_cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* A spool left by a killed process is the only record of its work. */
static weft_status keep_stale(struct weft_recorder *r, struct weft_error *error)
{
    char kept[WEFT_RECORDS_PATH_BYTES + 8];
    for (unsigned n = 1; n <= STALE_MAX; n++) {
        snprintf(kept, sizeof(kept), "%s.%u", r->spool, n);
        if (renameat2(AT_FDCWD, r->spool, AT_FDCWD, kept, RENAME_NOREPLACE) == 0) {
            fprintf(stderr,
                    "weft: records of a process that was killed are kept as %s; `weft trace "
                    "merge` reads them\n",
                    kept);
            return WEFT_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return weft_fail(error, WEFT_IO, "cannot rename %.400s: %s", r->spool, strerror(errno));
}

/* Open and lock the spool; an existing file with records is renamed first. */
static weft_status spool_open(struct weft_recorder *r, struct weft_error *error)
{
    for (;;) {
        struct stat about;
        r->fd = open(r->spool, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (r->fd < 0) {
            return weft_fail(error, WEFT_IO, "cannot write %.400s: %s", r->spool, strerror(errno));
        }
        if (flock(r->fd, LOCK_EX | LOCK_NB) != 0) {
            return weft_fail(error, WEFT_EXISTS,
                             "%.400s is in use by another process; give each process its own rank "
                             "or its own file",
                             r->spool);
        }
        if (fstat(r->fd, &about) != 0 || about.st_size == 0) {
            return WEFT_OK;
        }
        weft_status status = keep_stale(r, error);
        (void)close(r->fd);
        r->fd = -1;
        if (status != WEFT_OK) {
            return status;
        }
    }
}

/* Texts are stored as records, so that a reader needs no second format. */
static void text_write(struct weft_recorder *r, enum weft_spool_text key, const char *text)
{
    struct weft_rpc_record records[8];
    uint32_t count = 0;
    memset(records, 0, sizeof(records));
    for (; text != NULL && *text != '\0' && count < WEFT_ARRAY_COUNT(records); count++) {
        size_t bytes = strnlen(text, WEFT_SPOOL_TEXT_BYTES);
        records[count].type = WEFT_RPC_RECORD_TEXT;
        records[count].bytes[0] = (uint8_t)key;
        memcpy(records[count].bytes + 1, text, bytes);
        text += bytes;
    }
    uint64_t before = r->head.first;
    records_write(r, records, count);
    r->texts += r->head.first - before;
}

static void head_init(struct weft_recorder *r)
{
    r->began_ns = clock_read_ns(CLOCK_MONOTONIC);
    r->cpu_began_ns = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    r->head = (struct weft_spool_head){.magic = WEFT_SPOOL_MAGIC,
                                       .started_ns = clock_read_ns(CLOCK_REALTIME),
                                       .window_ns = r->config.window_ns,
                                       .rank = r->config.rank,
                                       .pid = (uint32_t)getpid(),
                                       .order = WEFT_SPOOL_ORDER};
    snprintf(r->head.role, sizeof(r->head.role), "%s", r->config.role);
}

static void write_texts(struct weft_recorder *r)
{
    char host[256] = "";
    (void)gethostname(host, sizeof(host) - 1);
    text_write(r, WEFT_SPOOL_VERSION, r->config.version);
    text_write(r, WEFT_SPOOL_COMMAND, r->config.command);
    text_write(r, WEFT_SPOOL_HOST, host);
}

static weft_status thread_start(struct weft_recorder *r, struct weft_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&r->thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why == 0 ? WEFT_OK
                    : weft_fail(error, WEFT_IO, "cannot start a thread: %s", strerror(why));
}

weft_status weft_recorder_open(const struct weft_recorder_config *config,
                               struct weft_recorder **recorder_p, struct weft_error *error)
{
    WEFT_ASSERT(config->ring_slots <= WEFT_SPOOL_UNITS_MAX / WEFT_RPC_RECORD_CLIENT_UNITS);
    struct weft_recorder *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for records");
    }
    r->config = *config;
    r->fd = -1;
    int bytes = snprintf(r->spool, sizeof(r->spool), "%s.spool-%s-%u", config->path, config->role,
                         config->rank);
    weft_status status =
        bytes < (int)sizeof(r->spool)
            ? spool_open(r, error)
            : weft_fail(error, WEFT_INVALID, "the name of the records is too long");
    if (status == WEFT_OK) {
        head_init(r);
        write_texts(r);
        status = thread_start(r, error);
    }
    if (status != WEFT_OK) {
        if (r->fd >= 0) {
            (void)close(r->fd);
        }
        free(r);
        return status;
    }
    *recorder_p = r;
    return WEFT_OK;
}

struct weft_rpc_record_ring *weft_recorder_ring(struct weft_recorder *recorder)
{
    struct weft_rpc_record_ring *ring = NULL;
    pthread_mutex_lock(&recorder->lock);
    if (recorder->ring_count < RINGS_MAX &&
        weft_rpc_record_ring_new(recorder->config.ring_slots, &ring) == WEFT_OK) {
        recorder->rings[recorder->ring_count++] = ring;
    }
    pthread_mutex_unlock(&recorder->lock);
    return ring;
}

void weft_recorder_add(struct weft_recorder *recorder, const struct weft_rpc_record *records,
                       uint32_t count)
{
    pthread_mutex_lock(&recorder->lock);
    WEFT_ASSERT(!recorder->finished);
    while (count > 0) {
        uint32_t some = (uint32_t)weft_min_u64(count, WEFT_SPOOL_UNITS_MAX / WEFT_RPC_RECORD_UNITS);
        records_write(recorder, records, some);
        records += some;
        count -= some;
    }
    pthread_mutex_unlock(&recorder->lock);
}

/* The thread sets thread_cpu_ns under the lock when it ends; while it is 0, the thread runs. */
static uint64_t thread_cpu_ns(const struct weft_recorder *r)
{
    clockid_t clock;
    bool lives = r->thread_cpu_ns == 0 && pthread_getcpuclockid(r->thread, &clock) == 0;
    return lives ? clock_read_ns(clock) : r->thread_cpu_ns;
}

void weft_recorder_counts(struct weft_recorder *recorder, struct weft_recorder_counts *counts_p)
{
    pthread_mutex_lock(&recorder->lock);
    counts_p->cpu_ns = thread_cpu_ns(recorder);
    counts_p->records = recorder->head.first - recorder->texts;
    counts_p->dropped = dropped_so_far(recorder);
    pthread_mutex_unlock(&recorder->lock);
}

void weft_recorder_finish(struct weft_recorder *recorder)
{
    pthread_mutex_lock(&recorder->lock);
    bool was_finished = recorder->finished;
    recorder->stop = recorder->finished = true;
    pthread_cond_broadcast(&recorder->stopped);
    pthread_mutex_unlock(&recorder->lock);
    if (was_finished) {
        return;
    }
    pthread_join(recorder->thread, NULL);
    drain(recorder);
    recorder->head.last = 1;
    const struct weft_rpc_record_unit none = {.bytes = {0}};
    block_write(recorder, &none, 0, 0);
    /* Remove the incomplete block written before the disk was full. */
    if (ftruncate(recorder->fd, (off_t)recorder->bytes) != 0) {
        fprintf(stderr, "weft: %s cannot be truncated: %s\n", recorder->spool, strerror(errno));
    }
}

const char *weft_recorder_spool(const struct weft_recorder *recorder)
{
    return recorder->spool;
}

void weft_recorder_free(struct weft_recorder *recorder)
{
    if (recorder == NULL) {
        return;
    }
    weft_recorder_finish(recorder);
    for (uint32_t i = 0; i < recorder->ring_count; i++) {
        weft_rpc_record_ring_free(recorder->rings[i]);
    }
    (void)close(recorder->fd);
    pthread_cond_destroy(&recorder->stopped);
    pthread_mutex_destroy(&recorder->lock);
    free(recorder);
}
