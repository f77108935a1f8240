/* A delta of a table from which more rows were removed than a delta lists: it replaces the table of
 * its base, for every reader (src/node/checkpoint_load.c, src/ckpt/model_gather.c). */
#define _GNU_SOURCE
#include "node_checkpoint_rig.h"
#include "ps/snapshot_internal.h"

#include <inttypes.h>

enum { DIM = 2, SHARDS = 2, ROWS_MAX = 600, PUSH = 500 };

static void start(struct cluster *c, uint32_t shards)
{
    struct cluster_config config = cluster_config(shards, 1);
    config.shard.checkpoints = true;
    config.shard.chunks_max = 512;
    config.shard.rows_max = 4 * ROWS_MAX;
    cluster_start(c, &config, 1, 1);
}

static uint64_t id_of(uint64_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15);
}

/* Push rows that no push had before; row i has i in its weights. */
static void push_new(struct cluster *c, uint64_t *next_p)
{
    static uint64_t ids[PUSH];
    static float rows[PUSH * DIM];
    weft_ps_op op;
    for (uint32_t i = 0; i < PUSH; i++, (*next_p)++) {
        ids[i] = id_of(*next_p);
        for (uint32_t d = 0; d < DIM; d++) {
            rows[i * DIM + d] = -(float)*next_p;
        }
    }
    assert_int_equal(weft_ps_push(c->client[0], 0, ids, rows, PUSH, 0, c->net->now_ns, &op),
                     WEFT_OK);
    cluster_wait(c, 0, op);
}

/* All rows of the job must be in this shard if they belong to it, and no others. */
static void assert_restored(const struct cluster *from, const struct weft_shard *to)
{
    const struct weft_table *table = weft_shard_table(to, 0);
    uint32_t count = 0;
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_table_view view;
        for (uint32_t cursor = 0;
             weft_table_next(weft_shard_table(from->shard[s], 0), &cursor, &view);) {
            float row[DIM];
            if (weft_table_owns(table, view.id)) {
                assert_true(weft_table_read(table, view.id, row));
                assert_memory_equal(row, view.weights, sizeof(row));
                count++;
            }
        }
    }
    assert_int_equal(weft_table_rows(table), count);
    assert_true(count > 0);
}

static void assert_loads(const struct cluster *from)
{
    struct weft_ckpt_set set;
    rig_find(&set);
    for (uint32_t shards = SHARDS; shards <= SHARDS + 1; shards++) {
        struct cluster to;
        start(&to, shards);
        for (uint32_t s = 0; s < shards; s++) {
            uint64_t cut;
            rig_must(weft_checkpoint_load(rig_folder, &set, to.shard[s], s, shards, 1, rig_supply,
                                          &cut, &rig_error));
            assert_restored(from, to.shard[s]);
        }
        cluster_stop(&to);
    }
    weft_ckpt_set_fini(&set);
}

static void assert_gathers(const struct cluster *from)
{
    struct weft_ckpt_model model;
    uint64_t number;
    uint32_t count = 0;
    rig_must(weft_ckpt_model_gather(rig_folder, rig_complain, NULL, &model, &number, &rig_error));
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct weft_table_view view;
        for (uint32_t cursor = 0;
             weft_table_next(weft_shard_table(from->shard[s], 0), &cursor, &view); count++) {
            float row[DIM];
            assert_int_equal(weft_ckpt_model_rows(&model, &view.id, 1, row), 1);
            assert_memory_equal(row, view.weights, sizeof(row));
        }
    }
    assert_int_equal(model.count, count);
    weft_ckpt_model_fini(&model);
}

static bool has_text(uint64_t serial, const char *text)
{
    char path[128], read[4096] = "";
    snprintf(path, sizeof(path), "%s/log/%012" PRIu64, rig_folder, serial);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    (void)!fread(read, 1, sizeof(read) - 1, in);
    fclose(in);
    return strstr(read, text) != NULL;
}

static void removed_rows_stay_away(void **state)
{
    (void)state;
    struct cluster c;
    const struct weft_table_spec spec = {.dim = DIM,
                                         .mode = WEFT_TABLE_ASP,
                                         .workers = 1,
                                         .learning_rate = 1,
                                         .eviction = WEFT_EVICTION_LRU,
                                         .rows_max = ROWS_MAX};
    uint64_t next = 1, pushed = 0;
    start(&c, SHARDS);
    cluster_open(&c, &spec);
    struct weft_ckpt_log *log = rig_claim(SHARDS, 0, SHARDS, 0);
    push_new(&c, &next);
    push_new(&c, &next);
    assert_false(rig_commit(&c, log, 1, 0, 1));
    /* A delta that lists what was removed: readers of version 2 can read it. */
    push_new(&c, &next);
    assert_false(rig_commit(&c, log, 2, 1, 2));
    assert_true(has_text(4, "\"version\": 2,"));
    assert_loads(&c);
    assert_gathers(&c);
    while (!c.shard[0]->snapshot->dirty_sets[0].all_dirty ||
           !c.shard[1]->snapshot->dirty_sets[0].all_dirty) {
        push_new(&c, &next);
        assert_true(++pushed < 1000);
    }
    assert_true(rig_commit(&c, log, 3, 2, 3));
    assert_true(has_text(5, "\"version\": 3,"));
    assert_loads(&c);
    assert_gathers(&c);
    /* Deltas of this one list what was removed since. */
    push_new(&c, &next);
    assert_false(rig_commit(&c, log, 4, 3, 4));
    assert_loads(&c);
    assert_gathers(&c);
    weft_ckpt_log_close(log);
    cluster_stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        removed_rows_stay_away, rig_folder_make, rig_folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
