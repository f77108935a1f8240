/* A directory of checkpoints: find the one that counts, remove those that do not any more. */
#define _GNU_SOURCE
#include "base/assert.h"
#include "ckpt/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One file that is ours by its name. */
struct entry {
    uint64_t number;
    uint32_t first; /* shards */
    uint32_t last;
    bool is_manifest;
    char name[WEFT_CKPT_FILE_BYTES];
};

struct entries {
    struct entry *all; /* newest number first, then by shard */
    size_t count;
};

/* ---- listing --------------------------------------------------------------------------------- */

static bool parse_name(const char *name, struct entry *entry_p)
{
    char expected[WEFT_CKPT_FILE_BYTES];
    struct entry e = {0};
    size_t length = strlen(name);
    if (length >= sizeof(e.name)) {
        return false;
    }
    if (sscanf(name, "%12" SCNu64 "-%4u-%4u.manifest", &e.number, &e.first, &e.last) == 3 &&
        e.last >= e.first) {
        e.is_manifest = true;
        weft_ckpt_manifest_name(e.number, e.first, e.last - e.first + 1, expected);
    } else if (sscanf(name, "%12" SCNu64 "-%4u.safetensors", &e.number, &e.first) == 2) {
        e.last = e.first;
        weft_ckpt_data_name(e.number, e.first, expected);
    } else {
        return false;
    }
    memcpy(e.name, name, length + 1);
    *entry_p = e;
    return strcmp(name, expected) == 0 && e.number > 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->number != y->number) {
        return x->number < y->number ? 1 : -1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

static weft_status list(const char *directory, struct entries *entries_p,
                        struct weft_ckpt_error *error)
{
    DIR *dir = opendir(directory);
    struct entries entries = {NULL, 0};
    size_t capacity = 0;
    if (dir == NULL) {
        return weft_ckpt_fail(error, WEFT_IO, "cannot read directory %s: %s", directory,
                              strerror(errno));
    }
    for (const struct dirent *item; (item = readdir(dir)) != NULL;) {
        struct entry entry;
        if (!parse_name(item->d_name, &entry)) {
            continue;
        }
        if (entries.count == capacity) {
            capacity = capacity == 0 ? 64 : 2 * capacity;
            struct entry *all = realloc(entries.all, capacity * sizeof(*all));
            if (all == NULL) {
                free(entries.all);
                closedir(dir);
                return weft_ckpt_fail(error, WEFT_NOMEM, "no memory to list %s", directory);
            }
            entries.all = all;
        }
        entries.all[entries.count++] = entry;
    }
    closedir(dir);
    if (entries.count > 0) {
        qsort(entries.all, entries.count, sizeof(*entries.all), newest_first);
    }
    *entries_p = entries;
    return WEFT_OK;
}

static weft_status load(const char *directory, const char *name,
                        struct weft_ckpt_manifest *manifest_p, struct weft_ckpt_error *error)
{
    enum { BYTES_MAX = 4 << 20 };
    char path[WEFT_CKPT_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    char *bytes = malloc(BYTES_MAX);
    weft_status status;
    if (file == NULL || bytes == NULL) {
        status = weft_ckpt_fail(error, WEFT_IO, "cannot read %s: %s", name, strerror(errno));
    } else {
        size_t count = fread(bytes, 1, BYTES_MAX, file);
        struct weft_ckpt_error why = {.text = ""};
        status = weft_ckpt_manifest_parse(bytes, count, manifest_p, &why);
        if (status != WEFT_OK) {
            (void)!weft_ckpt_fail(error, status, "%s: %.400s", name, why.text);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    free(bytes);
    return status;
}

/* Manifests of `number` that together have each shard once: their places in entries, how many in
 * *count_p. 0 when a shard is missing. The number of shards is known from a manifest alone. */
static uint32_t complete(const char *directory, const struct entries *entries, uint64_t number,
                         uint32_t *places, struct weft_ckpt_error *error)
{
    uint32_t count = 0, next = 0, shards = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->all[i];
        if (entry->number != number || !entry->is_manifest) {
            continue;
        }
        struct weft_ckpt_manifest manifest;
        weft_status status = load(directory, entry->name, &manifest, error);
        if (status != WEFT_OK) {
            return 0;
        }
        bool fits = manifest.number == number && manifest.first == entry->first &&
                    manifest.count == entry->last - entry->first + 1 && entry->first == next &&
                    (shards == 0 || shards == manifest.shards) && count < WEFT_CKPT_SHARDS_MAX;
        shards = manifest.shards;
        weft_ckpt_manifest_fini(&manifest);
        if (entry->first > next) {
            break; /* said below */
        }
        if (!fits) {
            (void)!weft_ckpt_fail(error, WEFT_DATA, "%s does not go with the others", entry->name);
            return 0;
        }
        places[count++] = (uint32_t)i;
        next = entry->last + 1;
    }
    if (next != shards || shards == 0) {
        (void)!weft_ckpt_fail(error, WEFT_DATA, "shard %u of %u is missing", next, shards);
        return 0;
    }
    return count;
}

/* ---- finding --------------------------------------------------------------------------------- */

void weft_ckpt_set_fini(struct weft_ckpt_set *set)
{
    free(set->files);
    *set = (struct weft_ckpt_set){0};
}

static weft_status set_add(struct weft_ckpt_set *set, uint32_t at, uint32_t shard,
                           const struct weft_ckpt_file *file)
{
    void *files = realloc(set->files, (set->file_count + 1) * sizeof(*set->files));
    if (files == NULL) {
        return WEFT_NOMEM;
    }
    set->files = files;
    memmove(&set->files[at + 1], &set->files[at], (set->file_count - at) * sizeof(*set->files));
    set->files[at].shard = shard;
    set->files[at].file = *file;
    set->file_count++;
    return WEFT_OK;
}

/* The files of one server: from the last delta back to the whole one. */
static weft_status add_chain(const char *directory, const struct entry *last,
                             struct weft_ckpt_set *set, struct weft_ckpt_error *error)
{
    uint32_t begin = set->file_count, shard_count = last->last - last->first + 1, links = 0;
    uint64_t number = last->number;
    while (number != 0) {
        struct weft_ckpt_manifest m;
        char name[WEFT_CKPT_FILE_BYTES];
        weft_ckpt_manifest_name(number, last->first, shard_count, name);
        weft_status status = load(directory, name, &m, error);
        if (status != WEFT_OK) {
            return status;
        }
        bool fits = m.number == number && m.first == last->first && m.count == shard_count &&
                    links++ < WEFT_CKPT_CHAIN_MAX;
        set->shards = m.shards;
        for (uint32_t i = 0; fits && status == WEFT_OK && i < m.count; i++) {
            /* Before what is there of this shard, which is newer. */
            status = set_add(set, begin + i * links, m.first + i, &m.files[i]);
        }
        number = m.base;
        weft_ckpt_manifest_fini(&m);
        if (status != WEFT_OK || !fits) {
            return weft_ckpt_fail(error, status != WEFT_OK ? status : WEFT_DATA,
                                  "%s does not fit what is based on it", name);
        }
    }
    return WEFT_OK;
}

static weft_status verify(const char *directory, const struct weft_ckpt_set *set,
                          struct weft_ckpt_error *error)
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

static weft_status try_number(const char *directory, const struct entries *entries,
                              uint64_t number, struct weft_ckpt_set *set_p,
                              struct weft_ckpt_error *error)
{
    static _Thread_local uint32_t places[WEFT_CKPT_SHARDS_MAX];
    struct weft_ckpt_set set = {.number = number};
    uint32_t count = complete(directory, entries, number, places, error);
    weft_status status = count > 0 ? WEFT_OK : WEFT_DATA;
    for (uint32_t i = 0; status == WEFT_OK && i < count; i++) {
        status = add_chain(directory, &entries->all[places[i]], &set, error);
    }
    status = status == WEFT_OK ? verify(directory, &set, error) : status;
    if (status != WEFT_OK) {
        weft_ckpt_set_fini(&set);
        return status;
    }
    *set_p = set;
    return WEFT_OK;
}

weft_status weft_ckpt_find(const char *directory, weft_ckpt_complaint *complain, void *arg,
                           struct weft_ckpt_set *set_p, struct weft_ckpt_error *error)
{
    struct entries entries;
    weft_status status = list(directory, &entries, error);
    if (status != WEFT_OK) {
        return status;
    }
    *set_p = (struct weft_ckpt_set){0};
    uint64_t last = 0;
    for (size_t i = 0; i < entries.count && set_p->number == 0; i++) {
        uint64_t number = entries.all[i].number;
        if (!entries.all[i].is_manifest || number == last) {
            continue; /* data without a manifest was never promised to be there */
        }
        last = number;
        if (try_number(directory, &entries, number, set_p, error) != WEFT_OK) {
            complain(arg, number, error->text);
        }
    }
    free(entries.all);
    return WEFT_OK;
}

weft_status weft_ckpt_newest(const char *directory, uint64_t *number_p,
                             struct weft_ckpt_error *error)
{
    static _Thread_local uint32_t places[WEFT_CKPT_SHARDS_MAX];
    struct entries entries;
    weft_status status = list(directory, &entries, error);
    if (status != WEFT_OK) {
        return status;
    }
    *number_p = 0;
    for (size_t i = 0; i < entries.count && *number_p == 0; i++) {
        if (entries.all[i].is_manifest && complete(directory, &entries, entries.all[i].number,
                                                   places, error) > 0) {
            *number_p = entries.all[i].number;
        }
    }
    free(entries.all);
    return WEFT_OK;
}

weft_status weft_ckpt_any(const char *directory, bool *any_p, struct weft_ckpt_error *error)
{
    struct entries entries;
    weft_status status = list(directory, &entries, error);
    if (status != WEFT_OK) {
        return status;
    }
    *any_p = false;
    for (size_t i = 0; i < entries.count; i++) {
        *any_p |= entries.all[i].is_manifest;
    }
    free(entries.all);
    return WEFT_OK;
}

/* ---- removing -------------------------------------------------------------------------------- */

static weft_status remove_entry(const char *directory, const struct entry *entry,
                                struct weft_ckpt_error *error)
{
    char path[WEFT_CKPT_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", directory, entry->name);
    if (unlink(path) != 0 && errno != ENOENT) {
        return weft_ckpt_fail(error, WEFT_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

weft_status weft_ckpt_drop_after(const char *directory, uint64_t number, uint32_t first,
                                 uint32_t last, struct weft_ckpt_error *error)
{
    struct entries entries;
    weft_status status = list(directory, &entries, error);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; status == WEFT_OK && i < entries.count; i++) {
        const struct entry *entry = &entries.all[i];
        if (entry->is_manifest && entry->number > number && entry->first >= first &&
            entry->last <= last) {
            status = remove_entry(directory, entry, error);
        }
    }
    free(entries.all);
    return status == WEFT_OK ? weft_ckpt_sync_directory(directory, error) : status;
}

/* Mark what the shards first .. last of the checkpoint `number` need: their files, and what those are
 * based on, which is another number for each server. */
static void mark(const char *directory, const struct entries *entries, uint64_t number,
                 uint32_t first, uint32_t last, bool *needed)
{
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->all[i];
        if (entry->number != number || entry->first < first || entry->last > last || needed[i]) {
            continue;
        }
        needed[i] = true;
        struct weft_ckpt_manifest m;
        struct weft_ckpt_error ignored;
        if (entry->is_manifest && load(directory, entry->name, &m, &ignored) == WEFT_OK) {
            uint64_t base = m.base;
            weft_ckpt_manifest_fini(&m);
            if (base != 0) {
                mark(directory, entries, base, entry->first, entry->last, needed);
            }
        }
    }
}

/* What must stay. False when fewer than `keep` count: then nothing may go. */
static bool mark_kept(const char *directory, const struct entries *entries, uint32_t keep,
                      bool *needed)
{
    static _Thread_local uint32_t places[WEFT_CKPT_SHARDS_MAX];
    uint64_t last = 0;
    for (size_t i = 0; i < entries->count; i++) {
        uint64_t number = entries->all[i].number;
        if (number == last) {
            continue;
        }
        last = number;
        struct weft_ckpt_error ignored;
        mark(directory, entries, number, 0, UINT32_MAX, needed); /* newer than the last one that counts, or it */
        keep -= complete(directory, entries, number, places, &ignored) > 0;
        if (keep == 0) {
            return true;
        }
    }
    return false;
}

weft_status weft_ckpt_prune(const char *directory, uint32_t keep, struct weft_ckpt_error *error)
{
    WEFT_ASSERT(keep >= 1);
    struct entries entries;
    weft_status status = list(directory, &entries, error);
    if (status != WEFT_OK) {
        return status;
    }
    bool *needed = calloc(entries.count + 1, sizeof(*needed));
    if (needed != NULL && mark_kept(directory, &entries, keep, needed)) {
        /* Manifests first: what has none was never promised. */
        for (int manifests = 1; manifests >= 0; manifests--) {
            for (size_t i = 0; status == WEFT_OK && i < entries.count; i++) {
                if (!needed[i] && entries.all[i].is_manifest == (manifests == 1)) {
                    status = remove_entry(directory, &entries.all[i], error);
                }
            }
        }
    }
    free(needed);
    free(entries.all);
    return status;
}
