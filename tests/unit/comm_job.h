/* A job of ranks in one process: a communicator and a thread of the test for each. */
#ifndef WEFT_TESTS_COMM_JOB_H
#define WEFT_TESTS_COMM_JOB_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <weft/coll.h>

enum { JOB_RANKS_MAX = 16 };

#define JOB_TIMEOUT_NS UINT64_C(20000000000)

struct job {
    uint32_t n;
    struct weft_comm *comm[JOB_RANKS_MAX];
};

/* The work of a rank, in its own thread; returns an error text, or NULL. */
typedef const char *job_work(struct weft_comm *comm, uint32_t rank, void *arg);

struct job_rank {
    pthread_t thread;
    struct weft_comm *comm;
    uint32_t rank;
    job_work *work;
    void *arg;
    const char *wrong;
};

static inline struct weft_comm_config job_config(uint32_t ranks)
{
    static const uint8_t key[32] = {7, 1, 4};
    struct weft_comm_config config;
    weft_comm_config_init(&config, sizeof(config));
    config.key = key;
    config.ranks = ranks;
    return config;
}

static inline void *job_thread(void *arg)
{
    struct job_rank *r = arg;
    r->wrong = r->work(r->comm, r->rank, r->arg);
    return NULL;
}

/* arg: the same for all ranks. */
static inline void job_run(struct job *job, job_work *work, void *arg)
{
    struct job_rank ranks[JOB_RANKS_MAX];
    for (uint32_t i = 0; i < job->n; i++) {
        ranks[i] = (struct job_rank){.comm = job->comm[i], .rank = i, .work = work, .arg = arg};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, job_thread, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < job->n; i++) {
        pthread_join(ranks[i].thread, NULL);
    }
    for (uint32_t i = 0; i < job->n; i++) {
        if (ranks[i].wrong != NULL) {
            print_message("rank %u: %s\n", i, ranks[i].wrong);
        }
        assert_null(ranks[i].wrong);
    }
}

static inline const char *job_join(struct weft_comm *comm, uint32_t rank, void *arg)
{
    (void)rank;
    return weft_comm_join(comm, arg, JOB_TIMEOUT_NS) == WEFT_OK ? NULL : weft_comm_error(comm);
}

static inline void job_addresses(const struct job *job, const char **addresses_p)
{
    for (uint32_t i = 0; i < job->n; i++) {
        addresses_p[i] = weft_comm_address(job->comm[i]);
    }
}

static inline struct job job_open_only(const struct weft_comm_config *config)
{
    struct job job = {.n = config->ranks};
    struct weft_comm_config own = *config;
    for (uint32_t i = 0; i < job.n; i++) {
        own.rank = i;
        own.inject_seed = config->inject_seed + i;
        weft_status status = weft_comm_open(&own, &job.comm[i]);
        if (status != WEFT_OK) {
            print_message("%s\n", weft_comm_error(NULL));
        }
        assert_int_equal(status, WEFT_OK);
    }
    return job;
}

static inline struct job job_open(const struct weft_comm_config *config)
{
    struct job job = job_open_only(config);
    const char *addresses[JOB_RANKS_MAX];
    job_addresses(&job, addresses);
    job_run(&job, job_join, addresses);
    return job;
}

static inline void job_close(struct job *job)
{
    for (uint32_t i = 0; i < job->n; i++) {
        weft_comm_close(job->comm[i]);
    }
}

static inline struct weft_comm_op job_op(enum weft_comm_kind kind, const void *in, void *out,
                                         uint64_t count)
{
    struct weft_comm_op op;
    weft_comm_op_init(&op, sizeof(op));
    op.kind = kind;
    op.in = in;
    op.out = out;
    op.count = count;
    op.timeout_ns = JOB_TIMEOUT_NS;
    return op;
}

static inline uint64_t job_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
