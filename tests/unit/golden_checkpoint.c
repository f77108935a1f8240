/* A directory of checkpoints: a whole one and a delta of two shards, with a table of each
 * optimizer. */
#include "golden.h"

#include "node/checkpoint_data.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>

enum { SHARDS = 2, WORKERS = 2, TABLES = 6, COPIES = 1 << 20, IDS = 24 };

static struct weft_error error;
static char folder[64];

static void must(weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", error.text);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static struct weft_table_spec spec_of(uint16_t table)
{
    struct weft_table_spec spec = {.table = table,
                                   .dim = 2 + table,
                                   .optimizer = (uint8_t)table,
                                   .mode = WEFT_TABLE_ASP,
                                   .workers = WORKERS,
                                   .learning_rate = 0.5F,
                                   .init_scale = 0.125F,
                                   .init_seed = 9};
    switch (table) {
    case WEFT_OPTIMIZER_SGD: /* admission with a counter per id */
        spec.admission = WEFT_ADMISSION_COUNTER;
        spec.admission_count = 2;
        spec.admission_cells = 64;
        break;
    case WEFT_OPTIMIZER_ADAGRAD: /* admission with a Bloom filter */
        spec.accumulator = 1;
        spec.admission = WEFT_ADMISSION_BLOOM;
        spec.admission_count = 2;
        spec.admission_cells = 64;
        break;
    case WEFT_OPTIMIZER_MOMENTUM:
        spec.beta1 = 0.5F;
        spec.kind = WEFT_TABLE_DENSE;
        spec.mode = WEFT_TABLE_BSP;
        spec.length = 30;
        spec.init_scale = 0;
        spec.init_seed = 0;
        break;
    case WEFT_OPTIMIZER_ADAM:
        spec.beta1 = 0.5F;
        spec.beta2 = 0.75F;
        spec.epsilon = 0.25F;
        spec.mode = WEFT_TABLE_SSP;
        spec.staleness = 2;
        break;
    case WEFT_OPTIMIZER_FTRL:
        spec.epsilon = 1;
        spec.accumulator = 0.5F;
        spec.l1 = 0.125F;
        spec.l2 = 0.25F;
        spec.init_scale = 0;
        spec.init_seed = 0;
        spec.eviction = WEFT_EVICTION_LRU;
        spec.rows_max = 4;
        break;
    case WEFT_OPTIMIZER_ADADELAY:
    default:
        spec.accumulator = 1;
        spec.epsilon = 0.5F;
        break;
    }
    return spec;
}

/* Push n ids from `first` on; row k has k in its first column. Dense table: its rows. */
static weft_ps_op push(struct cluster *c, uint32_t worker, uint16_t table, uint32_t first,
                       uint32_t n)
{
    struct weft_table_spec spec = spec_of(table);
    uint64_t ids[IDS];
    float rows[IDS * (2 + TABLES)];
    weft_ps_op op;
    for (uint32_t i = 0; i < n; i++) {
        bool dense = spec.kind == WEFT_TABLE_DENSE;
        ids[i] = dense ? first + i : (first + i) * UINT64_C(0x9e3779b97f4a7c15);
        for (uint32_t d = 0; d < spec.dim; d++) {
            rows[i * spec.dim + d] = d == 0 ? (float)(first + i) : (float)d / 8;
        }
    }
    assert_int_equal(weft_ps_push(c->client[worker], table, ids, rows, n, 0, c->net->now_ns, &op),
                     WEFT_OK);
    return op;
}

static void push_all(struct cluster *c, uint32_t worker, uint32_t first, uint32_t n)
{
    for (uint16_t t = 0; t < TABLES; t++) {
        bool dense = spec_of(t).kind == WEFT_TABLE_DENSE;
        cluster_wait(c, worker, push(c, worker, t, dense ? 0 : first, dense ? 7 : n));
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Write the data file of one shard as the writer's thread does. Returns the number of partly
 * applied pushes in it. */
static uint32_t write_data(struct cluster *c, const struct weft_checkpoint_place *place,
                           struct weft_ckpt_file *file_p)
{
    static uint8_t records[1 << 16];
    struct weft_shard *shard = c->shard[place->shard];
    void *memory = aligned_alloc(8, COPIES);
    const struct weft_cut_order order = {.number = place->number,
                                         .now = true,
                                         .whole = place->base == 0,
                                         .memory = memory,
                                         .bytes = COPIES};
    struct weft_checkpoint_file file;
    uint16_t table;
    uint32_t count;
    assert_int_equal(weft_shard_cut_begin(shard, &order), WEFT_OK);
    assert_int_equal(weft_shard_cut_state(shard), WEFT_CUT_READY);
    uint32_t partials = weft_shard_cut_view(shard)->partial_count;
    must(weft_checkpoint_file_open(&file, place, weft_shard_cut_view(shard), sizeof(records),
                                   &error));
    while ((count = weft_shard_cut_take(shard, records, sizeof(records), &table)) > 0) {
        must(weft_checkpoint_file_rows(&file, table, records, count, &error));
    }
    weft_shard_cut_end(shard, true);
    must(weft_checkpoint_file_close(&file, file_p, &error));
    free(memory);
    return partials;
}

static void complain(void *arg, uint64_t number, const char *text)
{
    (void)arg;
    fail_msg("checkpoint %u: %s", (unsigned)number, text);
}

/* A process claims the shards. */
static struct weft_ckpt_log *claim(uint64_t process, uint64_t restored)
{
    const struct weft_ckpt_claim claim = {.shards = SHARDS,
                                          .count = SHARDS,
                                          .process = process,
                                          .pid = 4711,
                                          .host = "here",
                                          .time = "2026-01-02T03:04:05Z"};
    struct weft_ckpt_log *log;
    must(weft_ckpt_log_open(folder, complain, NULL, &log, &error));
    must(weft_ckpt_log_claim(log, &claim, restored == 0, &error));
    must(weft_ckpt_log_restored(log, restored, restored > 0, &error));
    return log;
}

/* Returns the number of partly applied pushes in it. */
static uint32_t commit(struct cluster *c, struct weft_ckpt_log *log, uint64_t number, uint64_t base)
{
    struct weft_ckpt_file files[SHARDS];
    struct weft_ckpt_manifest manifest = {.number = number,
                                          .base = base,
                                          .shards = SHARDS,
                                          .count = SHARDS,
                                          .has_clock = true,
                                          .clock = (uint32_t)number,
                                          .files = files};
    uint32_t partials = 0;
    bool may_count;
    for (uint32_t s = 0; s < SHARDS; s++) {
        const struct weft_checkpoint_place place = {.directory = folder,
                                                    .number = number,
                                                    .base = base,
                                                    .claim = weft_ckpt_log_mine(log)->serial,
                                                    .cut = 100 + number,
                                                    .shard = s,
                                                    .shards = SHARDS};
        partials += write_data(c, &place, &files[s]);
    }
    must(weft_ckpt_log_commit(log, &manifest, &may_count, &error));
    return partials;
}

/* The format of the last release, which this release can read. */
static void version_1(struct golden *g)
{
    struct weft_ckpt_file files[] = {
        {.name = "000000000003-0000.safetensors", .bytes = 1234, .head_hash = 0x0102030405060708},
        {.name = "000000000003-0001.safetensors", .bytes = 5678, .head_hash = 0x1112131415161718}};
    const struct weft_ckpt_record record = {
        .kind = WEFT_CKPT_RECORD_MANIFEST,
        .manifest = {.number = 3, .base = 2, .shards = 2, .count = 2, .files = files}};
    char *bytes;
    size_t count;
    must(weft_ckpt_record_print(&record, &bytes, &count, &error));
    golden_item(g, bytes, count, "manifest of version 1");
    free(bytes);
}

static void start(struct cluster *c)
{
    struct cluster_config config = cluster_config(SHARDS, WORKERS);
    config.incarnation = 1000;
    config.shard.checkpoints = true;
    config.shard.chunks_max = 64;
    config.shard.tables_max = config.client.tables_max = TABLES;
    cluster_start(c, &config, WORKERS, 1);
    c->net->packet_bytes = 200; /* pushes of several chunks */
    for (uint16_t t = 0; t < TABLES; t++) {
        struct weft_table_spec spec = spec_of(t);
        cluster_open(c, &spec);
    }
}

void golden_checkpoint(void **state)
{
    (void)state;
    struct cluster c;
    struct golden *g = golden_begin("checkpoint");
    golden_folder_make(folder);
    start(&c);
    struct weft_ckpt_log *log = claim(0x0102030405060708, 0);
    push_all(&c, 0, 1, 8);
    push_all(&c, 1, 3, 3); /* rows that are updated more often */
    for (uint32_t w = 0; w < WORKERS; w++) {
        cluster_clock(&c, w, WEFT_OPTIMIZER_MOMENTUM);
        cluster_clock(&c, w, WEFT_OPTIMIZER_ADAM);
    }
    cluster_run(&c);
    assert_int_equal(commit(&c, log, 1, 0), 0);
    /* these rows evict others */
    cluster_wait(&c, 0, push(&c, 0, WEFT_OPTIMIZER_FTRL, 20, 4));
    weft_ps_op op = push(&c, 1, WEFT_OPTIMIZER_ADADELAY, 1, IDS);
    for (int i = 0; i < 4; i++) {
        (void)cluster_step(&c);
    }
    assert_true(commit(&c, log, 2, 1) > 0);
    cluster_wait(&c, 1, op);
    weft_ckpt_log_close(log);
    weft_ckpt_log_close(claim(0x1112131415161718, 2));
    golden_folder(g, folder);
    version_1(g);
    cluster_stop(&c);
    golden_folder_remove(folder);
    golden_end(g);
}
