/* Shared by tests of a journal: shards with journals, and pushes of one operation at a time. The
 * test supplies the memory. */
#ifndef WEFT_TESTS_PS_JOURNAL_CHURN_H
#define WEFT_TESTS_PS_JOURNAL_CHURN_H

#include "ps/shard_journal.h"
#include "ps_churn.h"

/* Attach a journal to shard s, which has no connections. */
typedef void journal_churn_attach(void *arg, uint32_t s);

static inline void journal_churn_start(struct churn *churn, uint64_t seed,
                                       journal_churn_attach *attach, void *arg)
{
    churn_init(churn, WEFT_TABLE_ASP, seed);
    churn_start(churn, seed);
    for (uint32_t s = 0; s < CHURN_SHARDS; s++) {
        fake_kill(churn->c.net, s);
        churn_shard_free(churn, s, churn_shard_again(churn, s));
        attach(arg, s);
        fake_revive(churn->c.net, s);
    }
    cluster_run(&churn->c);
    churn_reconnect(churn, WEFT_PPM);
    cluster_run(&churn->c);
    cluster_open(&churn->c, &churn->spec);
}

/* Make this many pushes, and wait for each reply. */
static inline void journal_churn_push(struct churn *churn, uint32_t count)
{
    uint32_t picked[CHURN_IDS];
    weft_ps_op op;
    for (uint32_t i = 0; i < count; i++) {
        WEFT_ASSERT(churn_push(churn, i % CHURN_WORKERS, CHURN_IDS, picked, &op) == WEFT_OK);
        WEFT_ASSERT(cluster_wait(&churn->c, i % CHURN_WORKERS, op).status == WEFT_OK);
    }
}

/* Checkpoint shard s to memory, and report to the shard that it is durable. */
static inline void journal_churn_save(struct churn *churn, uint32_t s)
{
    weft_saved_begin(&churn->saved[s], churn->c.shard[s]);
    while (!weft_saved_poll(&churn->saved[s], churn->c.shard[s])) {
        (void)cluster_step(&churn->c);
    }
    weft_shard_durable(churn->c.shard[s]);
}

/* Create another shard s without connections, restored from its checkpoint; attach adds its
 * journal. */
static inline struct weft_shard *journal_churn_twin(struct churn *churn, uint32_t s,
                                                    journal_churn_attach *attach, void *arg)
{
    struct weft_shard *before = churn_shard_again(churn, s);
    attach(arg, s);
    struct weft_shard *twin = churn->c.shard[s];
    churn->c.shard[s] = before;
    return twin;
}

/* Number of rows in which the two shards differ. */
static inline uint32_t journal_churn_differ(const struct weft_shard *a, const struct weft_shard *b)
{
    const struct weft_table *ta = weft_shard_table(a, 0), *tb = weft_shard_table(b, 0);
    uint32_t count = 0;
    for (uint32_t i = 0; i < CHURN_IDS; i++) {
        float ra[CHURN_DIM] = {0}, rb[CHURN_DIM] = {0};
        bool in_a = ta != NULL && weft_table_read(ta, churn_id(i), ra) != 0;
        bool in_b = tb != NULL && weft_table_read(tb, churn_id(i), rb) != 0;
        count += in_a != in_b || memcmp(ra, rb, sizeof(ra)) != 0;
    }
    return count;
}

#endif
