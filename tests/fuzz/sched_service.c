/* The scheduler of a small job whose workers and shards send any sequence of valid reports, connect
 * and disconnect at any time, and are replaced. Every plan can be decoded, the service ends each
 * call, and its next deadline is later than the time at which it was called.
 *
 * The first byte chooses the consistency mode, the delay bound, the number of read credits and
 * whether the workers report aggregators. Then records of 16 bytes: {what, who, clock, ended,
 * flags, reached, transfer, events, bytes u32, base u16, ms u16}. One bit of a report is changed
 * if `what` is 128 or more, at the place `base`. */
#include "base/assert.h"
#include "sched/service.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    WORKERS = 4,
    SHARDS = 2,
    PROCESSES = WORKERS + SHARDS,
    CONNS = 2 * PROCESSES, /* each process may have an old and a new connection */
    RECORDS_MAX = 64,
    RECORD_BYTES = 16,
    AGGREGATORS = 3,
};

enum { WHAT_CONNECT, WHAT_DISCONNECT, WHAT_REPORT, WHAT_PASS = 6, WHATS };

struct job {
    struct weft_sched_service *service;
    uint64_t now_ns;
    enum weft_sched_mode mode;
    uint64_t tau_max;
    uint32_t aggregators;
    bool is_open[CONNS];
    uint32_t number[CONNS];
    uint64_t event[SHARDS]; /* number of the shard's next event */
    uint64_t opened[SHARDS];
};

static uint16_t u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t u32(const uint8_t *at)
{
    return u16(at) | (uint32_t)u16(at + 2) << 16;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void settle(struct job *job)
{
    static uint8_t bytes[WEFT_SCHED_PLAN_BYTES_MAX];
    static struct weft_sched_plan plan, back;
    uint32_t conn;
    if (weft_sched_service_is_ready(job->service)) {
        WEFT_ASSERT(weft_sched_job_new(job->service) == WEFT_OK);
    }
    weft_sched_service_progress(job->service, job->now_ns);
    WEFT_ASSERT(weft_sched_service_deadline(job->service) > job->now_ns);
    while (weft_sched_service_poll(job->service, job->now_ns, &conn, &plan)) {
        const size_t count = weft_sched_plan_pack(&plan, bytes);
        WEFT_ASSERT(conn < CONNS && job->is_open[conn]);
        WEFT_ASSERT(weft_sched_plan_unpack(bytes, count, &back) == WEFT_OK);
    }
}

/* The driver calls progress at each deadline: the time moves there in steps. */
static void pass(struct job *job, uint64_t ns)
{
    const uint64_t end_ns = job->now_ns + ns;
    for (int i = 0; i < 100 && weft_sched_service_deadline(job->service) < end_ns; i++) {
        job->now_ns = weft_sched_service_deadline(job->service);
        settle(job);
    }
    job->now_ns = end_ns;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void worker_report(const struct job *job, uint32_t rank, const uint8_t *at,
                          struct weft_sched_report *q)
{
    q->role = WEFT_SCHED_WORKER;
    q->index = rank;
    q->mode = job->mode;
    q->tau_max = job->tau_max;
    q->clock = at[2];
    q->ended = at[3] % (at[2] + 1u);
    q->flags = at[4] & (WEFT_SCHED_SENDING | WEFT_SCHED_LEAVE | WEFT_SCHED_READING);
    q->read = at[7];
    q->aggregators = job->aggregators;
    q->reached = at[5] & ((1u << job->aggregators) - 1);
    q->norm = q->clock != 0 ? at[6] : 0;
    q->count = q->clock != 0 ? SHARDS : 0;
    for (uint32_t s = 0; s < q->count; s++) {
        q->shares[s] = (struct weft_sched_share){.bytes = u32(at + 8) >> 8 * s,
                                                 .base = u16(at + 12) >> 4 * s,
                                                 .span_ns = (at[4] >> (6 + s) & 1) * at[14]};
    }
}

static void server_report(struct job *job, uint32_t shard, const uint8_t *at,
                          struct weft_sched_report *q)
{
    q->role = WEFT_SCHED_SERVER;
    q->index = shard;
    q->flags = at[4] & (WEFT_SCHED_LEAVE | WEFT_SCHED_TRANSFER_WAITS);
    q->opened = job->opened[shard] += at[3] % 8;
    q->closed = q->opened - at[3] / 8 % (q->opened + 1);
    q->host = at[5] % 3;
    q->transfer = at[6];
    q->transfer_bytes = at[6] != 0 ? 1 + u32(at + 8) : 0;
    q->count = at[7] % 4;
    const uint64_t again = weft_min_u64(at[7] / 64, job->event[shard]);
    q->first = q->count > 0 ? 1 + job->event[shard] - again : 0;
    for (uint32_t i = 0; i < q->count; i++) {
        struct weft_sched_event *event = &q->events[i];
        event->worker = (at[2] + i) % WORKERS;
        event->flags = at[7] & 16 ? WEFT_SCHED_LATE : 0;
        event->clock = 1 + at[2] / WORKERS;
        event->norm = at[7] & 32 ? -1 : 0.5;
        event->rate_bps = u16(at + 12);
        event->all_bps = event->rate_bps + u32(at + 8);
        event->alone_bps = at[7] & 8 ? event->all_bps : 0;
        event->members = at[14] % 5;
        event->sum_bytes = event->members > 0 ? 1 + u32(at + 8) : 0;
    }
    job->event[shard] = q->count > 0 ? q->first + q->count - 1 : job->event[shard];
}

static void report(struct job *job, uint32_t conn, const uint8_t *at)
{
    static uint8_t bytes[WEFT_SCHED_REPORT_BYTES_MAX];
    static struct weft_sched_report q;
    const uint32_t process = conn % PROCESSES;
    q = (struct weft_sched_report){
        .number = job->number[conn] + 1, .workers = WORKERS, .shards = SHARDS};
    if (process < WORKERS) {
        worker_report(job, process, at, &q);
    } else {
        server_report(job, process - WORKERS, at, &q);
    }
    job->number[conn]++;
    const size_t count = weft_sched_report_pack(&q, bytes);
    if (at[0] >= 128) {
        bytes[u16(at + 12) % count] ^= (uint8_t)(1 << at[15] % 8);
    }
    (void)weft_sched_service_report(job->service, conn, bytes, count, job->now_ns);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void connect_to(struct job *job, uint32_t conn, uint64_t incarnation)
{
    const uint32_t process = conn % PROCESSES;
    const bool is_worker = process < WORKERS;
    if (!job->is_open[conn]) {
        job->is_open[conn] = true;
        job->number[conn] = 0;
        weft_sched_service_connected(job->service, conn,
                                     is_worker ? WEFT_SCHED_WORKER : WEFT_SCHED_SERVER,
                                     is_worker ? process : process - WORKERS, incarnation);
    }
}

static void record(struct job *job, const uint8_t *at)
{
    const uint32_t what = at[0] % 128 % WHATS;
    const uint32_t conn = at[1] % CONNS;
    if (what == WHAT_CONNECT) {
        connect_to(job, conn, at[2] % 3 + 1);
    } else if (what == WHAT_DISCONNECT) {
        job->is_open[conn] = false;
        weft_sched_service_disconnected(job->service, conn, job->now_ns);
    } else if (what == WHAT_PASS) {
        pass(job, u16(at + 14) * WEFT_NS_PER_MS / 8);
    } else {
        report(job, conn, at);
    }
    settle(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weft_sched_service_config config;
    if (size == 0) {
        return 0;
    }
    struct job job = {.now_ns = WEFT_NS_PER_S,
                      .mode = (enum weft_sched_mode)(data[0] % 3),
                      .tau_max = data[0] & 64 ? data[0] / 8 % 8 : WEFT_NEVER,
                      .aggregators = data[0] & 128 ? AGGREGATORS : 0};
    weft_sched_service_config_default(&config);
    config.conns_max = CONNS;
    config.life = 1;
    config.read_credits = data[0] / 4 % 4;
    WEFT_ASSERT(weft_sched_service_new(&config, &job.service) == WEFT_OK);
    for (uint32_t conn = 0; conn < PROCESSES; conn++) {
        connect_to(&job, conn, 1);
    }
    data++;
    size--;
    for (int i = 0; i < RECORDS_MAX && size >= RECORD_BYTES; i++) {
        record(&job, data);
        data += RECORD_BYTES;
        size -= RECORD_BYTES;
    }
    weft_sched_service_free(job.service);
    return 0;
}
