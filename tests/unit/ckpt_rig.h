/* Shared by test_ckpt_files and test_ckpt_log: a checkpoint directory and servers that write into
 * it, in one process. */
#ifndef WEFT_TESTS_CKPT_RIG_H
#define WEFT_TESTS_CKPT_RIG_H

#include "ckpt/directory.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 20, DIM = 3 };

static char dir[64];

/* The checkpoint part of a server process. */
struct server {
    uint32_t shards;
    uint32_t first;
    uint32_t count;
    struct weft_ckpt_log *log;
    struct weft_ckpt_set set; /* the restored checkpoint */
    uint64_t durable;         /* the last number that it may report as durable */
};

static int dir_make(void **state)
{
    (void)state;
    /* In a memory file system if available: tests sync thousands of files. */
    snprintf(dir, sizeof(dir), "/dev/shm/weft-ckpt-XXXXXX");
    if (mkdtemp(dir) != NULL) {
        return 0;
    }
    snprintf(dir, sizeof(dir), "/tmp/weft-ckpt-XXXXXX");
    return mkdtemp(dir) == NULL;
}

static void remove_tree(const char *path)
{
    char inside[512];
    DIR *list = opendir(path);
    for (const struct dirent *item; list != NULL && (item = readdir(list)) != NULL;) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) {
            continue;
        }
        snprintf(inside, sizeof(inside), "%s/%s", path, item->d_name);
        if (unlink(inside) != 0) {
            remove_tree(inside);
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    rmdir(path);
}

static int dir_remove(void **state)
{
    (void)state;
    remove_tree(dir);
    return 0;
}

enum { REMOVED_BYTES = 19 }; /* of {"kind":"removed"}: a record of the log that was removed */

/* Number of files in a folder of the directory whose names contain this part; empty files and
 * removed records do not count. */
static uint32_t files_in(const char *folder, const char *part)
{
    uint32_t count = 0;
    char path[512];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%s", dir, folder);
    DIR *list = opendir(path);
    for (const struct dirent *item; list != NULL && (item = readdir(list)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s/%s", dir, folder, item->d_name);
        count += strstr(item->d_name, part) != NULL && stat(path, &info) == 0 &&
                 S_ISREG(info.st_mode) && info.st_size > 0 && info.st_size != REMOVED_BYTES;
    }
    if (list != NULL) {
        closedir(list);
    }
    return count;
}

static weft_status write_data(uint64_t number, uint32_t shard, uint64_t claim,
                              struct weft_ckpt_file *file_p, struct weft_error *error)
{
    struct weft_ckpt_head head = {.tensors = NULL};
    struct weft_ckpt_writer *writer;
    uint64_t ids[ROWS];
    float weights[ROWS][DIM];
    char name[WEFT_CKPT_FILE_BYTES];
    weft_ckpt_head_add(&head, "ids", WEFT_CKPT_U64, ROWS, 0);
    weft_ckpt_head_add(&head, "weights", WEFT_CKPT_F32, ROWS, DIM);
    weft_ckpt_head_add(&head, "none", WEFT_CKPT_U32, 0, 5);
    weft_ckpt_head_note(&head, "number", "%" PRIu64, number);
    if (head.is_short) {
        weft_ckpt_head_fini(&head);
        return weft_fail(error, WEFT_NOMEM, "no memory for a head");
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = i * 1000 + shard;
        weights[i][0] = weights[i][1] = weights[i][2] = (float)(number * 10 + i);
    }
    weft_ckpt_data_name(number, shard, claim, name);
    weft_status status = weft_ckpt_writer_open(dir, name, &head, &writer, error);
    for (uint32_t i = 0; status == WEFT_OK && i < 2; i++) { /* two halves, alternately */
        status = weft_ckpt_writer_put(writer, 1, weights[i * 10], sizeof(weights) / 2, error);
        if (status == WEFT_OK) {
            status = weft_ckpt_writer_put(writer, 0, ids + i * 10, sizeof(ids) / 2, error);
        }
        if (status != WEFT_OK) {
            weft_ckpt_writer_abandon(writer);
            return status;
        }
    }
    return status == WEFT_OK ? weft_ckpt_writer_close(writer, file_p, error) : status;
}

static void must(weft_status status, const struct weft_error *error)
{
    if (status != WEFT_OK) {
        fail_msg("%s", error->text);
    }
}

static uint32_t complaints;
static char complaint[WEFT_ERROR_BYTES]; /* the last one */

static void complain(void *arg, uint64_t number, const char *text)
{
    (void)arg;
    (void)number;
    assert_true(strlen(text) > 0);
    snprintf(complaint, sizeof(complaint), "%s", text);
    complaints++;
}

/* Open, claim, restore, serve: as src/node/checkpoint.c does. After an error server->log may be
 * set. */
static weft_status server_try(struct server *server, uint32_t shards, uint32_t first,
                              uint32_t count, struct weft_error *error)
{
    static uint64_t processes;
    const struct weft_ckpt_claim claim = {.shards = shards,
                                          .first = first,
                                          .count = count,
                                          .process = ++processes,
                                          .pid = processes,
                                          .host = "here",
                                          .time = "now"};
    *server = (struct server){.shards = shards, .first = first, .count = count};
    weft_status status = weft_ckpt_log_open(dir, complain, NULL, &server->log, error);
    status = status == WEFT_OK ? weft_ckpt_log_claim(server->log, &claim, false, error) : status;
    if (status == WEFT_OK) {
        status = weft_ckpt_find(dir, weft_ckpt_log_history(server->log), complain, NULL,
                                &server->set, error);
    }
    if (status == WEFT_OK) {
        status = weft_ckpt_log_restored(server->log, server->set.number, false, error);
    }
    if (status == WEFT_OK) {
        struct weft_error ignored;
        (void)!weft_ckpt_set_aside(dir, server->log, complain, NULL, &ignored);
        server->durable = server->set.number;
    }
    return status;
}

static void server_end(struct server *server)
{
    weft_ckpt_log_close(server->log);
    weft_ckpt_set_fini(&server->set);
    *server = (struct server){.log = NULL};
}

static void server_start(struct server *server, uint32_t shards, uint32_t first, uint32_t count)
{
    struct weft_error error = {.text = ""};
    must(server_try(server, shards, first, count, &error), &error);
}

/* Write this server's part of a checkpoint. */
static weft_status server_write(struct server *server, uint64_t number, uint64_t base,
                                struct weft_error *error)
{
    struct weft_ckpt_file files[4];
    struct weft_ckpt_manifest m = {.number = number,
                                   .base = base,
                                   .shards = server->shards,
                                   .first = server->first,
                                   .count = server->count,
                                   .files = files};
    uint64_t claim = weft_ckpt_log_mine(server->log)->serial;
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < m.count; i++) {
        status = write_data(number, server->first + i, claim, &files[i], error);
    }
    if (status == WEFT_OK) {
        struct weft_error ignored;
        bool may_count;
        status = weft_ckpt_log_commit(server->log, &m, &may_count, error);
        if (status != WEFT_OK && !may_count) {
            (void)!weft_ckpt_discard(dir, &m, &ignored);
        }
    }
    return status;
}

/* Check for the other servers' parts. A complete checkpoint is durable, and older ones are
 * removed. */
static weft_status server_look(struct server *server, uint64_t kept, uint32_t keep,
                               struct weft_error *error)
{
    weft_status status = weft_ckpt_log_refresh(server->log, error);
    if (status == WEFT_OK && weft_ckpt_log_replaced(server->log, error)) {
        return WEFT_STATE;
    }
    if (status != WEFT_OK ||
        weft_ckpt_history_newest(weft_ckpt_log_history(server->log), UINT64_MAX) < kept) {
        return status;
    }
    server->durable = kept;
    return keep > 0 ? weft_ckpt_prune(dir, server->log, keep, error) : WEFT_OK;
}

/* The checkpoint that a reader finds; `complaints` counts the skipped ones. */
static weft_status find_try(struct weft_ckpt_set *set, struct weft_error *error)
{
    struct weft_ckpt_log *log;
    complaints = 0;
    *set = (struct weft_ckpt_set){0};
    weft_status status = weft_ckpt_log_open(dir, complain, NULL, &log, error);
    if (status == WEFT_OK) {
        status = weft_ckpt_find(dir, weft_ckpt_log_history(log), complain, NULL, set, error);
        weft_ckpt_log_close(log);
    }
    return status;
}

static uint64_t find(struct weft_ckpt_set *set)
{
    struct weft_error error = {.text = ""};
    must(find_try(set, &error), &error);
    return set->number;
}

static uint64_t found(void)
{
    struct weft_ckpt_set set;
    uint64_t number = find(&set);
    weft_ckpt_set_fini(&set);
    return number;
}

#endif
