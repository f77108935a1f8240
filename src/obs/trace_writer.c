#include "obs/trace_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_RECORDS = 2048 };

/* Every counter of an endpoint, by name. */
#define COUNTERS(V)                                                                                \
    V(datagrams_received) V(datagrams_sent) V(bytes_sent) V(bytes_received) V(data_sent)           \
    V(data_received) V(retransmitted_packets) V(lost_packets) V(spurious_losses) V(probes)         \
    V(ce_received) V(credits_reclaimed) V(messages_sent) V(messages_received) V(messages_short)    \
    V(messages_unknown) V(messages_shared) V(chunks_missing) V(refused) V(unknown_received) V(unknown_sent)           \
    V(cookies_sent) V(rekeys) V(crypto_failures) WEFT_TRACE_DROPS(V)

struct weft_trace_writer {
    pthread_mutex_t lock;
    int fd;
    uint64_t bytes;
    uint64_t bytes_max;
    uint16_t endpoints;
    bool failed;   /* nothing more is written */
    bool reported; /* and a caller has the error */
    int why;       /* errno of the failure */
    uint8_t buffer[WEFT_TRACE_ENTRY_BYTES * (1 + BATCH_RECORDS)];
};

static void put(uint8_t *at, unsigned bytes, uint64_t value)
{
    uint64_t little = htole64(value);
    memcpy(at, &little, bytes);
}

static void head_put(uint8_t *at, enum weft_trace_block_kind kind, uint16_t endpoint,
                     uint32_t count)
{
    memset(at, 0, WEFT_TRACE_ENTRY_BYTES);
    memcpy(at, "WEFT", 4);
    at[4] = 1;
    at[5] = (uint8_t)kind;
    put(at + 6, 2, endpoint);
    put(at + 8, 4, count);
}

/* Truncate the file to the last complete block; nothing more is written. */
static void give_up(struct weft_trace_writer *w, int why)
{
    w->failed = true;
    w->why = why;
    /* A pipe or a device cannot be truncated; the reader handles an incomplete block. */
    int cut = ftruncate(w->fd, (off_t)w->bytes);
    (void)cut;
}

/* Write one complete block from the buffer. */
static void block_write(struct weft_trace_writer *w, uint32_t entries)
{
    size_t count = WEFT_TRACE_ENTRY_BYTES * (1 + (size_t)entries);
    if (w->failed) {
        return;
    }
    if (w->bytes + count > w->bytes_max) {
        give_up(w, EFBIG);
        return;
    }
    for (size_t at = 0; at < count;) {
        ssize_t wrote = write(w->fd, w->buffer + at, count - at);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            give_up(w, wrote < 0 ? errno : ENOSPC);
            return;
        }
        at += (size_t)wrote;
    }
    w->bytes += count;
}

weft_status weft_trace_writer_open(const char *path, uint64_t bytes_max,
                                   struct weft_trace_writer **writer_p)
{
    struct weft_trace_writer *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return WEFT_NOMEM;
    }
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w->fd < 0) {
        free(w);
        return WEFT_IO;
    }
    w->bytes_max = weft_max_u64(bytes_max, UINT64_C(1) << 20);
    pthread_mutex_init(&w->lock, NULL);
    *writer_p = w;
    return WEFT_OK;
}

/* The error of the file, to the first caller after it only. */
static weft_status report(struct weft_trace_writer *w)
{
    if (!w->failed || w->reported) {
        return WEFT_OK;
    }
    w->reported = true;
    errno = w->why;
    return WEFT_IO;
}

weft_status weft_trace_writer_close(struct weft_trace_writer *writer)
{
    if (writer == NULL) {
        return WEFT_OK;
    }
    if (close(writer->fd) != 0 && !writer->failed) {
        writer->failed = true;
        writer->why = errno;
    }
    pthread_mutex_destroy(&writer->lock);
    weft_status status = report(writer);
    int why = errno;
    free(writer);
    errno = why;
    return status;
}

weft_status weft_trace_feed_init(struct weft_trace_writer *writer, const char *label, uint64_t name,
                                 uint64_t incarnation, uint64_t wall_ns,
                                 struct weft_trace_feed *feed_p)
{
    *feed_p = (struct weft_trace_feed){.writer = writer};
    if (writer == NULL) {
        return WEFT_OK;
    }
    pthread_mutex_lock(&writer->lock);
    feed_p->endpoint = writer->endpoints++;
    uint8_t *at = writer->buffer;
    head_put(at, WEFT_TRACE_BLOCK_ENDPOINT, feed_p->endpoint, 2);
    memset(at + WEFT_TRACE_ENTRY_BYTES, 0, 2 * WEFT_TRACE_ENTRY_BYTES);
    put(at + 32, 8, name);
    put(at + 40, 8, incarnation);
    put(at + 48, 8, wall_ns);
    memcpy(at + 64, label, strnlen(label, WEFT_TRACE_ENTRY_BYTES));
    block_write(writer, 2);
    weft_status status = report(writer);
    pthread_mutex_unlock(&writer->lock);
    return status;
}

static void record_put(uint8_t *at, const struct weft_trace_record *r)
{
    put(at, 8, r->time_ns);
    put(at + 8, 8, r->number);
    put(at + 16, 4, r->a);
    put(at + 20, 4, r->b);
    put(at + 24, 4, r->c);
    put(at + 28, 2, r->peer);
    at[30] = r->type;
    at[31] = r->flags;
}

static void counters_write(struct weft_trace_feed *feed, const struct weft_ep_counters *c)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
#define ROW(field) {#field, c->field},
        COUNTERS(ROW)
#undef ROW
    };
    uint8_t *at = feed->writer->buffer;
    head_put(at, WEFT_TRACE_BLOCK_COUNTERS, feed->endpoint, WEFT_ARRAY_COUNT(rows));
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(rows); i++) {
        at += WEFT_TRACE_ENTRY_BYTES;
        memset(at, 0, WEFT_TRACE_ENTRY_BYTES);
        memcpy(at, rows[i].name, strnlen(rows[i].name, WEFT_TRACE_NAME_BYTES));
        put(at + WEFT_TRACE_NAME_BYTES, 8, rows[i].value);
    }
    block_write(feed->writer, WEFT_ARRAY_COUNT(rows));
}

/* Write one block; returns its number of records. */
static size_t records_write(struct weft_trace_feed *feed, struct weft_ep *ep)
{
    struct weft_trace_record records[64];
    uint8_t *buffer = feed->writer->buffer;
    uint64_t overwritten = 0;
    uint64_t first = 0;
    size_t count = 0;
    while (count + WEFT_ARRAY_COUNT(records) <= BATCH_RECORDS) {
        uint64_t missed;
        size_t got =
            weft_ep_trace_read(ep, &feed->from, records, WEFT_ARRAY_COUNT(records), &missed);
        if (got == 0) {
            break;
        }
        if (count == 0) { /* the ring is not written meanwhile, so only the first block can have
                           * a gap */
            overwritten = missed;
            first = feed->from - got;
        }
        for (size_t i = 0; i < got; i++) {
            record_put(buffer + WEFT_TRACE_ENTRY_BYTES * (1 + count + i), &records[i]);
        }
        count += got;
    }
    if (count > 0) {
        head_put(buffer, WEFT_TRACE_BLOCK_RECORDS, feed->endpoint, (uint32_t)count);
        put(buffer + 16, 8, first);
        put(buffer + 24, 8, overwritten);
        block_write(feed->writer, (uint32_t)count);
    }
    return count;
}

weft_status weft_trace_feed_drain(struct weft_trace_feed *feed, struct weft_ep *ep,
                                 uint32_t ring_records, bool last)
{
    struct weft_trace_writer *w = feed->writer;
    if (w == NULL || (!last && weft_ep_trace_written(ep) - feed->from < ring_records / 4)) {
        return WEFT_OK;
    }
    pthread_mutex_lock(&w->lock);
    while (!w->failed && records_write(feed, ep) > 0) {
    }
    if (last) {
        counters_write(feed, weft_ep_counters(ep));
    }
    weft_status status = report(w);
    pthread_mutex_unlock(&w->lock);
    return status;
}
