/* Journals of shards in files: pushes, clocks and tables of a small job, then each other kind of
 * record, and the state that the next process restores. Chunks are recorded as received, including
 * the times in their heads: so the order and the clock of the fake network are inputs, too. */
#define _GNU_SOURCE
#include "golden.h"

#include "node_journal_rig.h"
#include "ps/shard_journal_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <sys/random.h>

/* A journal's lineage is normally random; here it is constant. */
ssize_t __wrap_getrandom(void *bytes, size_t count, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t count, unsigned flags)
{
    (void)flags;
    memset(bytes, 0xa5, count);
    return (ssize_t)count;
}

void golden_journal(void **state)
{
    (void)state;
    struct golden *g = golden_begin("journal");
    rig_start(7, false);
    journal_churn_push(&churn, 4);
    for (uint32_t w = 0; w < CHURN_WORKERS; w++) {
        cluster_clock(&churn.c, w, 0);
    }
    cluster_run(&churn.c);
    golden_file(g, rig_path(1), "pushes and clocks");
    journal_churn_save(&churn, 0); /* MARK; earlier records are freed */
    journal_churn_push(&churn, 1);
    golden_file(g, rig_path(1), "after a checkpoint");
    struct weft_shard *shard = churn.c.shard[0];
    weft_shard_journal_renewed(shard, 1, 0x0102030405060708);
    weft_shard_journal_left(shard, 1);
    shard->journal->full = true; /* then a cut continues after a GAP */
    weft_shard_journal_cut_begin(shard);
    weft_shard_journal_left(shard, 0);
    golden_file(g, rig_path(1), "RENEWED, LEFT, GAP");
    struct weft_journal_file first = rig.files[0];
    rig.release = false;
    struct weft_shard *twin = rig_twin(2, 1);
    assert_int_equal(rig.replayed, WEFT_OK);
    golden_file(g, rig_path(2), "of the next process");
    rig_twin_end(twin, &rig.files[0]);
    rig.files[0] = first;
    rig_stop();
    golden_end(g);
}
