/* Shards of a cluster that write checkpoints into a directory of the test, and shards of another
 * cluster that restore them. */
#ifndef WEFT_TESTS_NODE_CHECKPOINT_RIG_H
#define WEFT_TESTS_NODE_CHECKPOINT_RIG_H

#include "ckpt/model.h"
#include "node/checkpoint_data.h"
#include "ps/shard_internal.h"
#include "ps_cluster.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RIG_COPIES = 4 << 20 };

static char rig_folder[64];
static struct weft_error rig_error;

static inline void rig_must(weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", rig_error.text);
    }
}

static inline int rig_folder_make(void **state)
{
    (void)state;
    snprintf(rig_folder, sizeof(rig_folder), "/dev/shm/weft-checkpoint-XXXXXX");
    if (mkdtemp(rig_folder) != NULL) {
        return 0;
    }
    snprintf(rig_folder, sizeof(rig_folder), "/tmp/weft-checkpoint-XXXXXX");
    return mkdtemp(rig_folder) == NULL;
}

static inline int rig_remove_one(const char *path, const struct stat *info, int type,
                                 struct FTW *ftw)
{
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

static inline int rig_folder_remove(void **state)
{
    (void)state;
    return nftw(rig_folder, rig_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void rig_complain(void *arg, uint64_t number, const char *text)
{
    (void)arg;
    fail_msg("checkpoint %u: %s", (unsigned)number, text);
}

/* A process claims `count` shards from `first` on, as if it had restored `number`. */
static inline struct weft_ckpt_log *rig_claim(uint32_t shards, uint32_t first, uint32_t count,
                                              uint64_t number)
{
    static uint64_t processes;
    const struct weft_ckpt_claim claim = {.shards = shards,
                                          .first = first,
                                          .count = count,
                                          .process = ++processes,
                                          .pid = processes,
                                          .host = "here",
                                          .time = "now"};
    struct weft_ckpt_log *log;
    rig_must(weft_ckpt_log_open(rig_folder, rig_complain, NULL, &log, &rig_error));
    rig_must(weft_ckpt_log_claim(log, &claim, false, &rig_error));
    rig_must(weft_ckpt_log_restored(log, number, false, &rig_error));
    return log;
}

/* Write the data file of one shard as the writer's thread does. True: it replaces a table. */
static inline bool rig_write(struct cluster *c, const struct weft_checkpoint_place *place,
                             struct weft_ckpt_file *file_p)
{
    static uint8_t records[1 << 16];
    struct weft_shard *shard = c->shard[place->shard];
    void *memory = aligned_alloc(8, RIG_COPIES);
    const struct weft_cut_order order = {.number = place->number,
                                         .now = true,
                                         .whole = place->base == 0,
                                         .memory = memory,
                                         .bytes = RIG_COPIES};
    struct weft_checkpoint_file file;
    uint16_t table;
    uint32_t count;
    assert_int_equal(weft_shard_cut_begin(shard, &order), WEFT_OK);
    assert_int_equal(weft_shard_cut_state(shard), WEFT_CUT_READY);
    const struct weft_cut_view *view = weft_shard_cut_view(shard);
    const bool replaces = weft_checkpoint_replaces(view);
    rig_must(weft_checkpoint_file_open(&file, place, view, sizeof(records), &rig_error));
    while ((count = weft_shard_cut_take(shard, records, sizeof(records), &table)) > 0) {
        rig_must(weft_checkpoint_file_rows(&file, table, records, count, &rig_error));
    }
    weft_shard_cut_end(shard, true);
    rig_must(weft_checkpoint_file_close(&file, file_p, &rig_error));
    free(memory);
    return replaces;
}

/* Commit the part of the claim's shards. clock: UINT32_MAX: as an earlier release, without it.
 * True: it replaces a table. */
static inline bool rig_commit(struct cluster *c, struct weft_ckpt_log *log, uint64_t number,
                              uint64_t base, uint32_t clock)
{
    const struct weft_ckpt_claim *claim = &weft_ckpt_log_mine(log)->claim;
    struct weft_ckpt_file files[8];
    struct weft_ckpt_manifest manifest = {.number = number,
                                          .base = base,
                                          .shards = claim->shards,
                                          .first = claim->first,
                                          .count = claim->count,
                                          .has_clock = clock != UINT32_MAX,
                                          .clock = clock == UINT32_MAX ? 0 : clock,
                                          .files = files};
    bool may_count;
    assert_true(claim->count <= 8);
    for (uint32_t i = 0; i < claim->count; i++) {
        const struct weft_checkpoint_place place = {.directory = rig_folder,
                                                    .number = number,
                                                    .base = base,
                                                    .claim = weft_ckpt_log_mine(log)->serial,
                                                    .shard = claim->first + i,
                                                    .shards = claim->shards};
        manifest.replaces |= rig_write(c, &place, &files[i]);
    }
    rig_must(weft_ckpt_log_commit(log, &manifest, &may_count, &rig_error));
    return manifest.replaces;
}

static inline void rig_supply(struct weft_shard *shard)
{
    uint16_t table;
    size_t bytes;
    while (weft_shard_wants_slab(shard, &table, &bytes)) {
        assert_int_equal(weft_shard_add_slab(shard, table, malloc(bytes), bytes), WEFT_OK);
    }
}

/* Find the newest checkpoint. Owns: *set_p, to be ended with weft_ckpt_set_fini. */
static inline void rig_find(struct weft_ckpt_set *set_p)
{
    struct weft_ckpt_log *log;
    rig_must(weft_ckpt_log_open(rig_folder, rig_complain, NULL, &log, &rig_error));
    rig_must(weft_ckpt_find(rig_folder, weft_ckpt_log_history(log), rig_complain, NULL, set_p,
                            &rig_error));
    weft_ckpt_log_close(log);
}

#endif
