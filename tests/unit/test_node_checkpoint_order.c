/* Which number a checkpoint gets (src/node/checkpoint_order.c): the same on all servers of a job,
 * also after they restored parts that were cut at different clocks. */
#define _GNU_SOURCE
#include "node/checkpoint_internal.h"
#include "node_checkpoint_rig.h"

enum { DIM = 2, SHARDS = 2 };

static void start(struct cluster *c)
{
    struct cluster_config config = cluster_config(SHARDS, 1);
    config.shard.checkpoints = true;
    config.shard.chunks_max = 512;
    cluster_start(c, &config, 1, 1);
}

/* Checkpoint 2, ordered at clock 2: shard 1 passes it when it is at clock 5 already. */
static void write_parts(struct cluster *c, bool has_clock)
{
    const struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_ASP, .workers = 1, .learning_rate = 1};
    start(c);
    cluster_open(c, &spec);
    for (uint32_t clock = 1; clock <= 5; clock++) {
        cluster_clock(c, 0, 0);
        cluster_run(c);
        if (clock == 2 || clock == 5) {
            struct weft_ckpt_log *log = rig_claim(SHARDS, clock == 5, 1, 0);
            rig_commit(c, log, 2, 0, has_clock ? 2 : UINT32_MAX);
            weft_ckpt_log_close(log);
        }
    }
}

/* A process with one shard that restores checkpoint 2. */
static struct weft_checkpoint *server(struct cluster *to, uint32_t s, const char *every)
{
    const struct weft_checkpoint_config config = {
        .options = {.directory = rig_folder,
                    .every = every,
                    .full_every = 1,
                    .keep = 2,
                    .memory_mib = 1,
                    .restore = true},
        .first = s,
        .count = 1,
        .shards = SHARDS,
    };
    struct weft_checkpoint *checkpoint;
    rig_must(weft_checkpoint_new(&config, &checkpoint, &rig_error));
    rig_must(weft_checkpoint_restore(weft_checkpoint_feed(checkpoint, 0), to->shard[s], 1,
                                     rig_supply, &rig_error));
    assert_int_equal(weft_checkpoint_restored(checkpoint), 2);
    return checkpoint;
}

/* The number of the next order if the shard is at this clock; 0 = none. */
static uint64_t ordered_at(struct weft_checkpoint *checkpoint, uint32_t clock)
{
    struct weft_checkpoint_feed *feed = weft_checkpoint_feed(checkpoint, 0);
    feed->clock = clock;
    feed->has_tables = true;
    checkpoint->next_ns = checkpoint->retry_ns = 0;
    weft_checkpoint_consider(checkpoint);
    if (!checkpoint->under_way) {
        return 0;
    }
    /* As if it were abandoned. */
    checkpoint->under_way = false;
    feed->phase = WEFT_CHECKPOINT_IDLE;
    weft_checkpoint_take_back(checkpoint);
    return checkpoint->number;
}

static void numbers_agree(void **state)
{
    for (int has_clock = 1; has_clock >= 0; has_clock--) {
        struct cluster c, to;
        assert_int_equal(rig_folder_make(state), 0);
        write_parts(&c, has_clock != 0);
        start(&to);
        struct weft_checkpoint *of[SHARDS];
        for (uint32_t s = 0; s < SHARDS; s++) {
            of[s] = server(&to, s, "10");
        }
        /* Numbers are the clocks of their orders, as they were before the restart: so a server that
         * did not restart agrees, too. */
        for (uint32_t clock = 5; clock < 40; clock += 10) {
            for (uint32_t s = 0; s < SHARDS; s++) {
                assert_int_equal(ordered_at(of[s], clock), clock + 5);
            }
        }
        for (uint32_t s = 0; s < SHARDS; s++) {
            weft_checkpoint_free(of[s]);
        }
        cluster_stop(&c);
        cluster_stop(&to);
        assert_int_equal(rig_folder_remove(state), 0);
    }
}

/* A shard that is behind the clock of the restored order; orders for clocks that have passed. */
static void no_number_twice(void **state)
{
    struct cluster c, to;
    assert_int_equal(rig_folder_make(state), 0);
    write_parts(&c, true);
    start(&to);
    struct weft_checkpoint *checkpoint = server(&to, 0, "1");
    assert_int_equal(ordered_at(checkpoint, 1), 3);
    assert_int_equal(ordered_at(checkpoint, 7), 8);
    const uint64_t cut = checkpoint->cut;
    assert_int_equal(ordered_at(checkpoint, 7), 8);
    assert_true(cut != checkpoint->cut); /* the same number, but another cut */
    for (uint32_t wanted = 1; wanted <= 4; wanted++) {
        checkpoint->wanted_clock = wanted;
        assert_int_equal(ordered_at(checkpoint, 1), wanted < 3 ? 3 : wanted);
    }
    /* Its own part of checkpoint 8 is valid, or may be. */
    checkpoint->unclear = 6;
    checkpoint->kept = 8;
    checkpoint->wanted_clock = 8;
    assert_int_equal(ordered_at(checkpoint, 7), 9);
    assert_int_equal(ordered_at(checkpoint, 7), 9);
    checkpoint->last = true;
    assert_int_equal(ordered_at(checkpoint, 8), 0);
    weft_checkpoint_free(checkpoint);
    cluster_stop(&c);
    cluster_stop(&to);
    assert_int_equal(rig_folder_remove(state), 0);
}

/* The last part of one of several servers: BSP tables are cut at the clock that gave the number, or
 * not at all. Of ASP tables any state will do. */
static void last_part_is_of_its_clock(void **state)
{
    struct cluster c, to;
    assert_int_equal(rig_folder_make(state), 0);
    write_parts(&c, true);
    start(&to);
    for (int bsp = 0; bsp <= 1; bsp++) {
        struct weft_checkpoint *checkpoint = server(&to, bsp, "10");
        struct weft_checkpoint_feed *feed = weft_checkpoint_feed(checkpoint, 0);
        feed->has_bsp = bsp != 0;
        checkpoint->last = true;
        assert_int_equal(ordered_at(checkpoint, 8), 8);
        assert_int_equal(feed->order.clock, 8);
        assert_int_equal(feed->order.now, bsp == 0);
        weft_checkpoint_free(checkpoint);
    }
    cluster_stop(&c);
    cluster_stop(&to);
    assert_int_equal(rig_folder_remove(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_agree),
        cmocka_unit_test(no_number_twice),
        cmocka_unit_test(last_part_is_of_its_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
