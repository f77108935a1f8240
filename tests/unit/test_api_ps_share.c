/* Pushes and pulls of several small tables to one shard share packets (docs/TABLES.md, "Several
 * tables at once"): datagrams per step, over real sockets. */
#include "api_ps_rig.h"

enum { TABLES_MAX = 8, N = 16, STEPS = 50 };

static uint64_t datagrams(struct weft_ps *ps, struct weft_ps_counters *counters)
{
    *counters = (struct weft_ps_counters){.size = sizeof(*counters)};
    weft_ps_counters_get(ps, counters);
    return counters->datagrams_sent + counters->datagrams_received;
}

/* Datagrams of a step that pushes and pulls 16 rows of each table. */
static double per_step(uint32_t tables)
{
    static uint64_t ids[TABLES_MAX][N];
    static float rows[TABLES_MAX][N * DIM], got[TABLES_MAX][N * DIM];
    struct weft_push_list push[TABLES_MAX];
    struct weft_pull_list pull[TABLES_MAX];
    struct site site;
    site_start(&site, 1, (struct ps_server_options){.workers = 1});
    struct weft_ps_config config = config_for(site.list);
    config.tables_max = config.lists_max = tables;
    struct weft_ps *ps = connect_with(&config);
    for (uint32_t t = 0; t < tables; t++) {
        struct weft_table_options options = adding("asp");
        options.number = t;
        struct weft_ps_table *table = open_table(ps, &options);
        fill(ids[t], rows[t], N, 1 + (float)t);
        push[t] = (struct weft_push_list){.table = table, .ids = ids[t], .rows = rows[t], .n = N};
        pull[t] =
            (struct weft_pull_list){.table = table, .ids = ids[t], .rows_p = got[t], .n = N};
    }
    struct weft_ps_counters before, after;
    uint64_t count = datagrams(ps, &before);
    for (uint32_t step = 0; step < STEPS; step++) {
        must(ps, weft_push_lists_wait(ps, push, tables, 0, NULL));
        must(ps, weft_pull_lists_wait(ps, pull, tables, 0, NULL));
    }
    count = datagrams(ps, &after) - count;
    for (uint32_t t = 0; t < tables; t++) {
        for (uint32_t i = 0; i < N * DIM; i++) {
            assert_true(got[t][i] == (float)STEPS * rows[t][i]);
        }
    }
    print_message("%u tables: %.1f datagrams a step, %.0f bytes; %llu lost\n", tables,
                  (double)count / STEPS,
                  (double)(after.bytes_sent + after.bytes_received - before.bytes_sent -
                           before.bytes_received) /
                      STEPS,
                  (unsigned long long)(after.lost_packets - before.lost_packets));
    weft_ps_close(ps);
    site_stop(&site);
    return (double)count / STEPS;
}

/* Separately they need more than twice as many: 4 messages per table, and acknowledgements. */
static void several_small_tables_share_packets(void **state)
{
    (void)state;
    (void)per_step(1);
    assert_true(per_step(4) < 18);
    assert_true(per_step(TABLES_MAX) < 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(several_small_tables_share_packets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
