#define _GNU_SOURCE
#include "ckpt/directory.h"

#include "base/assert.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- finding --------------------------------------------------------------------------------- */

void weft_ckpt_set_fini(struct weft_ckpt_set *set)
{
    free(set->files);
    *set = (struct weft_ckpt_set){0};
}

static weft_status set_add(struct weft_ckpt_set *set, uint32_t at, uint32_t shard,
                           const struct weft_ckpt_file *file, struct weft_error *error)
{
    void *files = realloc(set->files, (set->file_count + 1) * sizeof(*set->files));
    if (files == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a list of files");
    }
    set->files = files;
    memmove(&set->files[at + 1], &set->files[at], (set->file_count - at) * sizeof(*set->files));
    set->files[at].shard = shard;
    set->files[at].file = *file;
    set->file_count++;
    return WEFT_OK;
}

/* Add the files of one server: from the newest delta back to the whole file. */
static weft_status add_chain(const struct weft_ckpt_history *history,
                             const struct weft_ckpt_part *last, struct weft_ckpt_set *set,
                             struct weft_error *error)
{
    uint32_t begin = set->file_count, links = 0;
    const struct weft_ckpt_part *part = last;
    for (uint64_t number = last->manifest.number; number != 0; number = part->manifest.base) {
        part = weft_ckpt_history_beside(history, &last->manifest, number);
        if (part == NULL || ++links > WEFT_CKPT_CHAIN_MAX) {
            return weft_fail(error, WEFT_DATA,
                             "checkpoint %" PRIu64 ", which it is based on, is missing", number);
        }
        for (uint32_t i = 0; i < part->manifest.count; i++) {
            /* Insert before this shard's entries, which are newer. Each shard of the server before
             * it has `links` entries by now. */
            weft_status status = set_add(set, begin + i * links, part->manifest.first + i,
                                         &part->manifest.files[i], error);
            if (status != WEFT_OK) {
                return status;
            }
        }
    }
    set->shards = last->manifest.shards;
    return WEFT_OK;
}

static weft_status verify(const char *directory, const struct weft_ckpt_set *set,
                          struct weft_error *error)
{
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < set->file_count; i++) {
        struct weft_ckpt_reader *reader;
        status = weft_ckpt_reader_open(directory, &set->files[i].file, &reader, error);
        if (status == WEFT_OK) {
            status = weft_ckpt_reader_verify(reader, error);
            weft_ckpt_reader_close(reader);
        }
    }
    return status;
}

/* Errors:  WEFT_DATA  the checkpoint must be skipped. Others: unreadable. */
static weft_status try_number(const char *directory, const struct weft_ckpt_history *history,
                              uint64_t number, struct weft_ckpt_set *set_p,
                              struct weft_error *error)
{
    static _Thread_local uint32_t places[WEFT_CKPT_SHARDS_MAX];
    struct weft_ckpt_set set = {.number = number};
    uint32_t count = weft_ckpt_history_complete(history, number, places);
    weft_status status = WEFT_OK;
    if (count == 0) {
        status = weft_fail(error, WEFT_DATA, "the parts of some shards were never written");
    }
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        status = add_chain(history, &history->parts[places[i]], &set, error);
    }
    if (status == WEFT_OK) { /* that of shard 0, so that all servers use the same one */
        set.has_clock = history->parts[places[0]].manifest.has_clock;
        set.clock = history->parts[places[0]].manifest.clock;
    }
    status = status == WEFT_OK ? verify(directory, &set, error) : status;
    if (status != WEFT_OK) {
        weft_ckpt_set_fini(&set);
        return status == WEFT_NOTFOUND ? WEFT_DATA : status;
    }
    *set_p = set;
    return WEFT_OK;
}

weft_status weft_ckpt_find(const char *directory, const struct weft_ckpt_history *history,
                           weft_ckpt_complaint *complain, void *arg, struct weft_ckpt_set *set_p,
                           struct weft_error *error)
{
    *set_p = (struct weft_ckpt_set){0};
    uint64_t number = UINT64_MAX;
    while ((number = weft_ckpt_history_newest_part(history, number)) != 0) {
        struct weft_error why = {.text = ""};
        weft_status status = try_number(directory, history, number, set_p, &why);
        if (status == WEFT_OK) {
            return WEFT_OK;
        }
        if (status != WEFT_DATA) {
            return weft_fail(error, status,
                             "checkpoint %" PRIu64 " cannot be read: %.300s. Nothing was "
                             "changed: fix that, and restart",
                             number, why.text);
        }
        complain(arg, number, why.text);
    }
    return WEFT_OK;
}

/* ---- moving and removing --------------------------------------------------------------------- */

static weft_status join(const char *directory, const char *name, char *path,
                        struct weft_error *error)
{
    int length = snprintf(path, WEFT_CKPT_PATH_BYTES, "%s/%s", directory, name);
    if (length < 0 || length >= WEFT_CKPT_PATH_BYTES) {
        return weft_fail(error, WEFT_IO, "the directory's name is too long");
    }
    return WEFT_OK;
}

static weft_status remove_file(const char *directory, const char *name, struct weft_error *error)
{
    char path[WEFT_CKPT_PATH_BYTES];
    weft_status status = join(directory, name, path, error);
    if (status == WEFT_OK && unlink(path) != 0 && errno != ENOENT) {
        return weft_fail(error, WEFT_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    return status;
}

/* Move a file to quarantine/ as to_name; with `copy` it also stays where it is (a hard link).
 * *moved_p is set to true if the file was not in quarantine/ before. */
static weft_status move_file(const char *directory, const char *name, const char *to_name,
                             bool copy, bool *moved_p, struct weft_error *error)
{
    char from[WEFT_CKPT_PATH_BYTES], to[WEFT_CKPT_PATH_BYTES], inside[2 * WEFT_CKPT_FILE_BYTES];
    snprintf(inside, sizeof(inside), "quarantine/%s", to_name);
    weft_status status = join(directory, name, from, error);
    status = status == WEFT_OK ? join(directory, inside, to, error) : status;
    if (status != WEFT_OK) {
        return status;
    }
    int result = copy ? link(from, to) : rename(from, to);
    if (result != 0 && errno != ENOENT && errno != EEXIST) {
        return weft_fail(error, WEFT_IO, "cannot move %s to quarantine: %s", from, strerror(errno));
    }
    *moved_p |= result == 0;
    return WEFT_OK;
}

static void quarantine_name(const struct weft_ckpt_manifest *m, char *out)
{
    snprintf(out, WEFT_CKPT_FILE_BYTES, "%012" PRIu64 "-%04u-%04u-%012" PRIu64 ".manifest",
             m->number, m->first, m->first + m->count - 1, m->claim);
}

static void record_name(const struct weft_ckpt_part *part, char *out)
{
    const struct weft_ckpt_manifest *m = &part->manifest;
    if (part->serial != 0) {
        weft_ckpt_log_name(part->serial, out);
    } else {
        weft_ckpt_manifest_name(m->number, m->first, m->count, out);
    }
}

/* Move the data files, and link the manifest under a second name. */
static weft_status set_aside_part(const char *directory, const struct weft_ckpt_part *part,
                                  bool *moved_p, struct weft_error *error)
{
    const struct weft_ckpt_manifest *m = &part->manifest;
    char name[WEFT_CKPT_FILE_BYTES], to[WEFT_CKPT_FILE_BYTES];
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < m->count; i++) {
        status = move_file(directory, m->files[i].name, m->files[i].name, false, moved_p, error);
    }
    record_name(part, name);
    quarantine_name(m, to);
    return status == WEFT_OK ? move_file(directory, name, to, true, moved_p, error) : status;
}

static bool concerns(const struct weft_ckpt_claim *claim, const struct weft_ckpt_manifest *m)
{
    return m->shards != claim->shards ||
           (m->first < claim->first + claim->count && claim->first < m->first + m->count);
}

static weft_status make_quarantine(const char *directory, struct weft_error *error)
{
    char path[WEFT_CKPT_PATH_BYTES];
    weft_status status = join(directory, "quarantine", path, error);
    if (status == WEFT_OK && mkdir(path, 0777) != 0 && errno != EEXIST) {
        return weft_fail(error, WEFT_IO, "cannot make directory %s: %s", path, strerror(errno));
    }
    return status;
}

static weft_status set_aside_void(const char *directory, struct weft_ckpt_log *log,
                                  weft_ckpt_complaint *tell, void *arg, struct weft_error *error)
{
    const struct weft_ckpt_history *history = weft_ckpt_log_history(log);
    const struct weft_ckpt_claim *claim = &weft_ckpt_log_mine(log)->claim;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < history->part_count; i++) {
        const struct weft_ckpt_part *part = &history->parts[i];
        const struct weft_ckpt_manifest *m = &part->manifest;
        if (!part->is_void || !concerns(claim, m)) {
            continue;
        }
        bool moved = false;
        status = make_quarantine(directory, error);
        status = status == WEFT_OK ? set_aside_part(directory, part, &moved, error) : status;
        if (status == WEFT_OK && moved) {
            char text[128];
            snprintf(text, sizeof(text), "the part of shards %u to %u is in quarantine now",
                     m->first, m->first + m->count - 1);
            tell(arg, m->number, text);
        }
    }
    return status;
}

/* ---- files left by killed writers ------------------------------------------------------------ */

static bool has_manifest(const struct weft_ckpt_history *history, const char *name)
{
    for (size_t i = 0; i < history->part_count; i++) {
        const struct weft_ckpt_manifest *m = &history->parts[i].manifest;
        for (uint32_t f = 0; f < m->count; f++) {
            if (strcmp(m->files[f].name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* If a name begins with the name of a data file, return what follows it, else NULL. *claim_p is the
 * claim in the name; names of version 1 contain none: 0. */
static const char *parse_data_name(const char *name, uint64_t *claim_p)
{
    uint64_t number;
    uint32_t shard;
    char expected[WEFT_CKPT_FILE_BYTES];
    *claim_p = 0;
    int parts = sscanf(name, "%12" SCNu64 "-%4u-%12" SCNu64, &number, &shard, claim_p);
    if (parts < 2) {
        return NULL;
    }
    weft_ckpt_data_name(number, shard, parts == 3 ? *claim_p : 0, expected);
    size_t length = strlen(expected);
    return strncmp(name, expected, length) == 0 ? name + length : NULL;
}

static bool is_nobodys(const struct weft_ckpt_history *history, const char *name)
{
    uint64_t claim;
    const char *rest = parse_data_name(name, &claim);
    const struct weft_ckpt_holder *holder = weft_ckpt_history_holder(history, claim);
    if (rest == NULL || (*rest != '\0' && strcmp(rest, WEFT_CKPT_TEMPORARY) != 0)) {
        return false;
    }
    /* Names of version 1 contain no claim, so it is unknown whether their writer was replaced. Of
     * these only unfinished files are removed: a manifest that another release reads may name a
     * finished one. */
    bool writer_is_gone = claim == 0 ? *rest != '\0' : holder != NULL && holder->replaced_by != 0;
    return writer_is_gone && !has_manifest(history, name);
}

/* A process that is about to link a temporary file writes it again if it was removed
 * (ckpt/log.c). */
static bool is_temporary(const struct weft_ckpt_history *history, const char *name)
{
    (void)history;
    size_t length = strlen(name), end = sizeof(WEFT_CKPT_TEMPORARY) - 1;
    return length > end && strcmp(name + length - end, WEFT_CKPT_TEMPORARY) == 0;
}

/* Remove the files of a folder for which `is` returns true. If `keep`, finished files are moved
 * instead. */
static weft_status sweep(const char *directory, const char *folder,
                         const struct weft_ckpt_history *history, bool keep,
                         bool (*is)(const struct weft_ckpt_history *history, const char *name),
                         struct weft_error *error)
{
    bool moved = false;
    char path[WEFT_CKPT_PATH_BYTES];
    weft_status status = join(directory, folder, path, error);
    DIR *dir = status == WEFT_OK ? opendir(path) : NULL;
    if (dir == NULL) {
        return status != WEFT_OK ? status
                                 : weft_fail(error, WEFT_IO, "cannot read directory %s: %s", path,
                                             strerror(errno));
    }
    for (const struct dirent *item; status == WEFT_OK && (item = readdir(dir)) != NULL;) {
        if (!is(history, item->d_name)) {
            continue;
        }
        if (keep && !is_temporary(history, item->d_name)) {
            status = make_quarantine(directory, error);
            status = status == WEFT_OK
                         ? move_file(directory, item->d_name, item->d_name, false, &moved, error)
                         : status;
        } else {
            status = remove_file(path, item->d_name, error);
        }
    }
    (void)closedir(dir);
    return status;
}

weft_status weft_ckpt_set_aside(const char *directory, struct weft_ckpt_log *log,
                                weft_ckpt_complaint *tell, void *arg, struct weft_error *error)
{
    const struct weft_ckpt_history *history = weft_ckpt_log_history(log);
    weft_status status = set_aside_void(directory, log, tell, arg, error);
    bool keep = weft_ckpt_log_damaged(log) != 0;
    status = status == WEFT_OK ? sweep(directory, ".", history, keep, is_nobodys, error) : status;
    return status == WEFT_OK ? sweep(directory, "log", history, false, is_temporary, error)
                             : status;
}

weft_status weft_ckpt_discard(const char *directory, const struct weft_ckpt_manifest *manifest,
                              struct weft_error *error)
{
    weft_status status = WEFT_OK;
    for (uint32_t i = 0; status == WEFT_OK && i < manifest->count; i++) {
        status = remove_file(directory, manifest->files[i].name, error);
    }
    return status;
}

/* ---- removing old checkpoints ---------------------------------------------------------------- */

/* Mark a part and the parts that it is based on. */
static void mark(const struct weft_ckpt_history *history, const struct weft_ckpt_part *part,
                 bool *needed)
{
    while (part != NULL && !needed[part - history->parts]) {
        const struct weft_ckpt_manifest *m = &part->manifest;
        needed[part - history->parts] = true;
        part = m->base != 0 ? weft_ckpt_history_beside(history, m, m->base) : NULL;
    }
}

/* Mark the parts that must be kept. False if fewer than `keep` checkpoints are complete: then
 * nothing may be removed. */
static bool mark_kept(const struct weft_ckpt_history *history, uint32_t keep, bool *needed)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < keep; i++) {
        oldest = weft_ckpt_history_newest(history, oldest);
        if (oldest == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < history->part_count; i++) {
        const struct weft_ckpt_part *part = &history->parts[i];
        if (part->manifest.number >= oldest) {
            mark(history, part, needed);
        }
    }
    return true;
}

/* Remove the manifest first: after a crash in between, data files without a manifest are those of
 * an unfinished checkpoint, but a manifest without its data files is a damaged one. */
static weft_status remove_part(const char *directory, struct weft_ckpt_log *log,
                               const struct weft_ckpt_part *part, struct weft_error *error)
{
    char name[WEFT_CKPT_FILE_BYTES];
    record_name(part, name);
    weft_status status = part->serial != 0 ? weft_ckpt_log_clear(log, part->serial, error)
                                           : remove_file(directory, name, error);
    return status == WEFT_OK ? weft_ckpt_discard(directory, &part->manifest, error) : status;
}

weft_status weft_ckpt_prune(const char *directory, struct weft_ckpt_log *log, uint32_t keep,
                            struct weft_error *error)
{
    WEFT_ASSERT(keep >= 1);
    const struct weft_ckpt_history *history = weft_ckpt_log_history(log);
    bool *needed = calloc(history->part_count + 1, sizeof(*needed));
    if (needed == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory to list %s", directory);
    }
    weft_status status = WEFT_OK;
    if (mark_kept(history, keep, needed)) {
        for (size_t i = history->part_count; status == WEFT_OK && i > 0; i--) {
            if (needed[i - 1]) {
                continue;
            }
            /* A process that was suspended here and replaced removes at most the current part. */
            status = weft_ckpt_log_refresh(log, error);
            if (status == WEFT_OK && weft_ckpt_log_replaced(log, error)) {
                status = WEFT_STATE;
            }
            status = status == WEFT_OK ? remove_part(directory, log, &history->parts[i - 1], error)
                                       : status;
            if (status == WEFT_OK) {
                weft_ckpt_log_forget(log, i - 1);
            }
        }
    }
    free(needed);
    return status;
}
