/* Admission counts stored in and restored from a checkpoint (src/node/checkpoint_data.c,
 * checkpoint_load.c): their key is restored with them; files of releases without keys are read;
 * filters with different keys are not merged. */
#include "node/checkpoint_data.h"
#include "ps/shard_internal.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

enum { DIM = 2, IDS = 700, COPIES = 1 << 20, SHARDS_MAX = 2 };

static char folder[] = "/tmp/weft-checkpoint-XXXXXX";
static struct weft_error error;

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SHARDS_MAX; s++) {
        char name[WEFT_CKPT_FILE_BYTES], path[sizeof(folder) + sizeof(name)];
        weft_ckpt_data_name(1, s, 0, name);
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        (void)unlink(path);
    }
    return rmdir(folder);
}

/* Shards whose processes have keys of these bytes; 0: no keys, as in earlier releases. */
static void start(struct cluster *c, uint32_t shards, int process, int filter)
{
    struct cluster_config config = cluster_config(shards, 1);
    memset(&config.shard.keys, process, sizeof(config.shard.keys));
    memset(config.shard.keys.filter, filter, sizeof(config.shard.keys.filter));
    config.shard.checkpoints = true;
    config.shard.chunks_max = 512;
    config.shard.rows_max = 2000;
    cluster_start(c, &config, 1, 1);
}

static struct weft_table_spec spec_of(uint8_t kind)
{
    return (struct weft_table_spec){.dim = DIM,
                                    .mode = WEFT_TABLE_ASP,
                                    .workers = 1,
                                    .learning_rate = 1,
                                    .admission = kind,
                                    .admission_count = 3,
                                    .admission_cells = kind == WEFT_ADMISSION_BLOOM ? 20000 : 200};
}

static const struct weft_admission *admission_of(const struct cluster *c, uint32_t s)
{
    return &c->shard[s]->tables[0].admission;
}

static uint64_t id_of(uint32_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15);
}

/* Push every id once, the first hundred twice. */
static void push(struct cluster *c)
{
    static uint64_t ids[IDS];
    static float rows[IDS * DIM];
    for (uint32_t i = 0; i < IDS; i++) {
        ids[i] = id_of(i);
    }
    for (uint32_t n = IDS; n >= 100; n = n == IDS ? 100 : 0) {
        weft_ps_op op;
        assert_int_equal(weft_ps_push(c->client[0], 0, ids, rows, n, 0, c->net->now_ns, &op),
                         WEFT_OK);
        cluster_wait(c, 0, op);
    }
}

/* Write a data file of one shard. */
static struct weft_ckpt_file write_file(struct cluster *c, uint32_t s)
{
    void *memory = aligned_alloc(8, COPIES);
    const struct weft_cut_order order = {
        .number = 1, .now = true, .whole = true, .memory = memory, .bytes = COPIES};
    const struct weft_checkpoint_place place = {
        .directory = folder, .number = 1, .shard = s, .shards = c->shards};
    struct weft_checkpoint_file file;
    struct weft_ckpt_file written;
    static uint8_t records[1 << 16];
    uint16_t table;
    uint32_t count;
    assert_int_equal(weft_shard_cut_begin(c->shard[s], &order), WEFT_OK);
    assert_int_equal(weft_checkpoint_file_open(&file, &place, weft_shard_cut_view(c->shard[s]),
                                               sizeof(records), &error),
                     WEFT_OK);
    while ((count = weft_shard_cut_take(c->shard[s], records, sizeof(records), &table)) > 0) {
        assert_int_equal(weft_checkpoint_file_rows(&file, table, records, count, &error), WEFT_OK);
    }
    weft_shard_cut_end(c->shard[s], true);
    assert_int_equal(weft_checkpoint_file_close(&file, &written, &error), WEFT_OK);
    free(memory);
    return written;
}

static void supply(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        assert_int_equal(weft_shard_add_slab(shard, table, malloc(bytes), bytes), WEFT_OK);
    }
}

/* Load the files of all shards of `from` into shard s of `to`. */
static weft_status restore(struct cluster *from, struct cluster *to, uint32_t s)
{
    struct weft_ckpt_set set = {.number = 1, .shards = from->shards, .file_count = from->shards};
    set.files = calloc(from->shards, sizeof(*set.files));
    for (uint32_t f = 0; f < from->shards; f++) {
        set.files[f].shard = f;
        set.files[f].file = write_file(from, f);
    }
    uint64_t cut;
    weft_status status =
        weft_checkpoint_load(folder, &set, to->shard[s], s, to->shards, 1, supply, &cut, &error);
    free(set.files);
    return status;
}

static void assert_same(const struct weft_admission *a, const struct weft_admission *b)
{
    struct weft_admission_counts counts[2];
    void *copies[2];
    const struct weft_admission *const both[2] = {a, b};
    assert_int_equal(weft_admission_copy_bytes(a), weft_admission_copy_bytes(b));
    for (int i = 0; i < 2; i++) {
        copies[i] = malloc(weft_admission_copy_bytes(a));
        weft_admission_copy(both[i], copies[i], &counts[i]);
    }
    assert_int_equal(counts[0].hand, counts[1].hand);
    assert_memory_equal(a->key, b->key, sizeof(a->key));
    assert_memory_equal(copies[0], copies[1], weft_admission_copy_bytes(a));
    free(copies[0]);
    free(copies[1]);
}

/* Restored by another process: the same key, the same order of ids, the same clock hand. */
static void the_key_comes_back(void **state)
{
    (void)state;
    for (uint8_t kind = WEFT_ADMISSION_COUNTER; kind <= WEFT_ADMISSION_BLOOM; kind++) {
        struct cluster from, to;
        struct weft_table_spec spec = spec_of(kind);
        start(&from, 1, 1, 2);
        cluster_open(&from, &spec);
        push(&from);
        start(&to, 1, 3, 4);
        assert_int_equal(restore(&from, &to, 0), WEFT_OK);
        assert_int_equal(admission_of(&to, 0)->key[0], kind == WEFT_ADMISSION_COUNTER ? 1 : 2);
        assert_int_equal(admission_of(&from, 0)->forgotten > 0, kind == WEFT_ADMISSION_COUNTER);
        assert_same(admission_of(&from, 0), admission_of(&to, 0));
        cluster_stop(&from);
        cluster_stop(&to);
    }
}

/* Without a key the file is as earlier releases wrote it. A filter is unchanged; counters are
 * placed by the key of the new process. */
static void files_without_a_key(void **state)
{
    (void)state;
    for (uint8_t kind = WEFT_ADMISSION_COUNTER; kind <= WEFT_ADMISSION_BLOOM; kind++) {
        struct cluster from, to;
        struct weft_table_spec spec = spec_of(kind);
        start(&from, 1, 0, 0);
        cluster_open(&from, &spec);
        push(&from);
        start(&to, 1, 3, 4);
        assert_int_equal(restore(&from, &to, 0), WEFT_OK);
        assert_int_equal(admission_of(&to, 0)->keyed, kind == WEFT_ADMISSION_COUNTER);
        assert_int_equal(admission_of(&to, 0)->used, admission_of(&from, 0)->used);
        for (uint32_t i = 0; i < 100 && kind == WEFT_ADMISSION_BLOOM; i++) {
            assert_same(admission_of(&from, 0), admission_of(&to, 0));
            assert_true(weft_admission_count(&to.shard[0]->tables[0].admission, id_of(i)));
            assert_true(weft_admission_count(&from.shard[0]->tables[0].admission, id_of(i)));
        }
        cluster_stop(&from);
        cluster_stop(&to);
    }
}

/* Merge the filters of two shards: within one job they have the same key. */
static void filters_of_two_keys(void **state)
{
    (void)state;
    struct cluster from, one, two;
    struct weft_table_spec spec = spec_of(WEFT_ADMISSION_BLOOM);
    start(&from, 2, 1, 2);
    cluster_open(&from, &spec);
    push(&from);
    start(&one, 1, 3, 4);
    assert_int_equal(restore(&from, &one, 0), WEFT_OK);
    assert_int_equal(admission_of(&one, 0)->key[0], 2);
    cluster_stop(&one);
    /* The filter of another job, or of an earlier release. */
    from.shard[1]->tables[0].admission.key[0]++;
    start(&one, 1, 3, 4);
    assert_int_equal(restore(&from, &one, 0), WEFT_DATA);
    assert_non_null(strstr(error.text, "restore on as many shards as the checkpoint has"));
    start(&two, 2, 3, 4);
    for (uint32_t s = 0; s < 2; s++) {
        assert_int_equal(restore(&from, &two, s), WEFT_OK);
        assert_int_equal(admission_of(&two, s)->key[0], 2 + s);
    }
    cluster_stop(&from);
    cluster_stop(&one);
    cluster_stop(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_key_comes_back),
        cmocka_unit_test(files_without_a_key),
        cmocka_unit_test(filters_of_two_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
