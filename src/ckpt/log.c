#define _GNU_SOURCE
#include "ckpt/log.h"

#include "base/assert.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RECORD_BYTES_MAX = 4 << 20,
    TRIES = 5, /* of operations that can fail because another process removed a file, or a reply
                * was stale */
};

/* In place of a record that was removed. An empty file is not that: a copy onto a full disk or a
 * file system check may have truncated the record. */
static const char removed[] = "{\"kind\":\"removed\"}\n";

struct weft_ckpt_log {
    const char *directory;
    weft_ckpt_complaint *complain;
    void *arg;
    struct weft_ckpt_history history;
    uint64_t next;    /* serial of the record to read or add */
    uint64_t opened;  /* the first serial that was unused when the log was opened */
    uint64_t damaged; /* the last damaged record; 0 = none */
    bool tried;       /* link(2) was called for the record being added */
    uint64_t mine;    /* serial of this process's claim; 0 = none */
    bool told_empty;  /* the first empty record was reported */
    uint64_t token;   /* names its temporary files */
    uint32_t temporaries;
};

void weft_ckpt_log_name(uint64_t serial, char *out)
{
    snprintf(out, WEFT_CKPT_FILE_BYTES, "log/%012" PRIu64, serial);
}

static weft_status path_of(const struct weft_ckpt_log *log, const char *name, char *path,
                           struct weft_error *error)
{
    int length = snprintf(path, WEFT_CKPT_PATH_BYTES, "%s/%s", log->directory, name);
    if (length < 0 || length >= WEFT_CKPT_PATH_BYTES) {
        return weft_fail(error, WEFT_IO, "the directory's name is too long");
    }
    return WEFT_OK;
}

static weft_status fail_call(struct weft_error *error, const char *what, const char *path)
{
    return weft_fail(error, WEFT_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- reading --------------------------------------------------------------------------------- */

static void say_damaged(const struct weft_ckpt_log *log, uint64_t number, const char *name,
                        const char *why)
{
    char text[WEFT_ERROR_BYTES];
    snprintf(text, sizeof(text), "%s: %.400s", name, why);
    log->complain(log->arg, number, text);
}

/* A damaged record is skipped and reported; an unreadable one ends the reading. */
static weft_status take_bytes(struct weft_ckpt_log *log, uint64_t serial, const char *name,
                              char *bytes, size_t count, struct weft_error *error)
{
    struct weft_ckpt_record record;
    struct weft_error why = {.text = ""};
    weft_status status = weft_ckpt_record_parse(bytes, count, &record, &why);
    if (status == WEFT_OK) {
        status = weft_ckpt_history_add(&log->history, serial, &record);
        if (status == WEFT_DATA) {
            (void)!weft_fail(&why, status, "the claim that it names does not exist");
        } else if (status != WEFT_OK) {
            (void)!weft_fail(&why, status, "no memory");
        }
    }
    if (status == WEFT_DATA) {
        log->damaged = serial > 0 ? serial : log->damaged;
        say_damaged(log, 0, name, why.text);
        return WEFT_OK;
    }
    return status == WEFT_OK ? WEFT_OK : weft_fail(error, status, "%s: %.400s", name, why.text);
}

/* Earlier releases put an empty file in place of a removed record, and there may be many of these:
 * report one. */
static void take_empty(struct weft_ckpt_log *log, uint64_t serial, const char *name)
{
    log->damaged = serial;
    if (!log->told_empty) {
        say_damaged(log, 0, name,
                    "it is empty: it was truncated, or it was removed by an earlier release");
        log->told_empty = true;
    }
}

static weft_status take_file(struct weft_ckpt_log *log, uint64_t serial, const char *name,
                             struct weft_error *error)
{
    char path[WEFT_CKPT_PATH_BYTES];
    char *bytes;
    size_t count;
    weft_status status = path_of(log, name, path, error);
    /* A file longer than any record is not a record: its first bytes are enough to detect that. */
    status = status == WEFT_OK ? weft_ckpt_read_whole(path, RECORD_BYTES_MAX, &bytes, &count, error)
                               : status;
    if (status != WEFT_OK) {
        return status;
    }
    bool is_removed = count == sizeof(removed) - 1 && memcmp(bytes, removed, count) == 0;
    if (count == 0 && serial > 0) {
        take_empty(log, serial, name);
    } else if (!is_removed) {
        status = take_bytes(log, serial, name, bytes, count, error);
    }
    free(bytes);
    return status;
}

weft_status weft_ckpt_log_refresh(struct weft_ckpt_log *log, struct weft_error *error)
{
    for (;;) {
        char name[WEFT_CKPT_FILE_BYTES];
        weft_ckpt_log_name(log->next, name);
        weft_status status = take_file(log, log->next, name, error);
        if (status == WEFT_NOTFOUND) {
            return WEFT_OK;
        }
        if (status != WEFT_OK) {
            return status;
        }
        log->next++;
    }
}

/* Read a record that link(2) reported as existing. If the lookup does not find it, the lookup is
 * stale. */
static weft_status read_taken(struct weft_ckpt_log *log, struct weft_error *error)
{
    uint64_t serial = log->next;
    for (uint32_t i = 0; i < TRIES; i++) {
        weft_status status = weft_ckpt_log_refresh(log, error);
        if (status != WEFT_OK || log->next > serial) {
            return status;
        }
    }
    return weft_fail(error, WEFT_IO,
                     "%s/log: record %" PRIu64 " exists but cannot be found; is the "
                     "directory the same on all hosts?",
                     log->directory, serial);
}

/* ---- version 1 ------------------------------------------------------------------------------- */

/* Manifests are read in any order: none of them replaces another. */
static weft_status take_version_1(struct weft_ckpt_log *log, struct weft_error *error)
{
    DIR *dir = opendir(log->directory);
    weft_status status = WEFT_OK;
    if (dir == NULL) {
        return fail_call(error, "read directory", log->directory);
    }
    while (status == WEFT_OK) {
        errno = 0;
        const struct dirent *item = readdir(dir);
        if (item == NULL) {
            status = errno == 0 ? WEFT_OK : fail_call(error, "read directory", log->directory);
            break;
        }
        uint64_t number;
        uint32_t first, last;
        char expected[WEFT_CKPT_FILE_BYTES];
        if (sscanf(item->d_name, "%12" SCNu64 "-%4u-%4u.manifest", &number, &first, &last) != 3 ||
            last < first) {
            continue;
        }
        weft_ckpt_manifest_name(number, first, last - first + 1, expected);
        if (strcmp(item->d_name, expected) == 0) {
            status = take_file(log, 0, item->d_name, error);
            status = status == WEFT_NOTFOUND ? WEFT_OK : status; /* it was removed meanwhile */
        }
    }
    (void)closedir(dir);
    return status;
}

weft_status weft_ckpt_log_open(const char *directory, weft_ckpt_complaint *complain, void *arg,
                               struct weft_ckpt_log **log_p, struct weft_error *error)
{
    struct weft_ckpt_log *log = calloc(1, sizeof(*log));
    if (log == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for the log of %s", directory);
    }
    *log =
        (struct weft_ckpt_log){.directory = directory, .complain = complain, .arg = arg, .next = 1};
    weft_status status = take_version_1(log, error);
    status = status == WEFT_OK ? weft_ckpt_log_refresh(log, error) : status;
    if (status != WEFT_OK) {
        weft_ckpt_log_close(log);
        return status;
    }
    log->opened = log->next;
    *log_p = log;
    return WEFT_OK;
}

uint64_t weft_ckpt_log_damaged(const struct weft_ckpt_log *log)
{
    return log->damaged;
}

void weft_ckpt_log_close(struct weft_ckpt_log *log)
{
    if (log != NULL) {
        weft_ckpt_history_fini(&log->history);
        free(log);
    }
}

const struct weft_ckpt_history *weft_ckpt_log_history(const struct weft_ckpt_log *log)
{
    return &log->history;
}

const struct weft_ckpt_holder *weft_ckpt_log_mine(const struct weft_ckpt_log *log)
{
    return log->mine == 0 ? NULL : weft_ckpt_history_holder(&log->history, log->mine);
}

bool weft_ckpt_log_replaced(const struct weft_ckpt_log *log, struct weft_error *error)
{
    const struct weft_ckpt_holder *mine = weft_ckpt_log_mine(log);
    if (mine == NULL || mine->replaced_by == 0) {
        return false;
    }
    const struct weft_ckpt_claim *by =
        &weft_ckpt_history_holder(&log->history, mine->replaced_by)->claim;
    (void)!weft_fail(error, WEFT_STATE,
                     "this server was replaced: process %" PRIu64 " on %s has claimed shards "
                     "%u to %u of %s at %s",
                     by->pid, by->host, by->first, by->first + by->count - 1, log->directory,
                     by->time);
    return true;
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Write these bytes to a file with a unique name and sync it; its path is returned in `path`. */
static weft_status write_temporary(struct weft_ckpt_log *log, const char *bytes, size_t count,
                                   char *path, struct weft_error *error)
{
    char name[WEFT_CKPT_FILE_BYTES];
    snprintf(name, sizeof(name), "log/%016" PRIx64 "-%u.tmp", log->token, log->temporaries++);
    weft_status status = path_of(log, name, path, error);
    return status == WEFT_OK ? weft_ckpt_write_new(path, bytes, count, error) : status;
}

/* True if the link was made, whatever the call returned. The link count belongs to the file
 * itself, not to a directory entry. Opening the file makes a network file system fetch current
 * attributes. */
static bool is_linked(const char *temporary)
{
    struct stat info;
    int fd = open(temporary, O_RDONLY | O_CLOEXEC);
    bool linked = fd >= 0 && fstat(fd, &info) == 0 && info.st_nlink >= 2;
    if (fd >= 0) {
        (void)close(fd);
    }
    return linked;
}

static bool has_no_links(int why)
{
    return why == EPERM || why == EOPNOTSUPP || why == ENOSYS || why == EMLINK || why == EXDEV;
}

/* Make one attempt. Errors: WEFT_EXISTS  the number is in use. WEFT_NOTFOUND  another process
 * removed the temporary file. */
static weft_status take_serial(struct weft_ckpt_log *log, const char *temporary,
                               struct weft_error *error)
{
    char name[WEFT_CKPT_FILE_BYTES], path[WEFT_CKPT_PATH_BYTES];
    weft_ckpt_log_name(log->next, name);
    weft_status status = path_of(log, name, path, error);
    if (status != WEFT_OK) {
        return status;
    }
    log->tried = true;
    if (link(temporary, path) == 0) {
        return WEFT_OK;
    }
    int why = errno;
    if (is_linked(temporary)) {
        return WEFT_OK;
    }
    errno = why;
    (void)fail_call(error, "link", path);
    if (has_no_links(why)) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "%s is on a file system without hard links, by which servers agree "
                         "on who may write: choose another directory for --checkpoint",
                         log->directory);
    }
    return why == EEXIST ? WEFT_EXISTS : why == ENOENT ? WEFT_NOTFOUND : WEFT_IO;
}

/* Called before each attempt, after all earlier records were read: OK, or the record must not be
 * added. */
typedef weft_status may_add(const struct weft_ckpt_log *log, const void *arg,
                            struct weft_error *error);

static weft_status add_file(struct weft_ckpt_log *log, const char *temporary, may_add *may,
                            const void *arg, uint64_t *serial_p, struct weft_error *error)
{
    weft_status status = weft_ckpt_log_refresh(log, error);
    while (status == WEFT_OK) {
        status = may(log, arg, error);
        if (status != WEFT_OK) {
            break;
        }
        status = take_serial(log, temporary, error);
        if (status == WEFT_OK) {
            *serial_p = log->next;
            return read_taken(log, error);
        }
        status = status == WEFT_EXISTS ? read_taken(log, error) : status;
    }
    return status;
}

static weft_status sync_log(const struct weft_ckpt_log *log, struct weft_error *error)
{
    char path[WEFT_CKPT_PATH_BYTES];
    weft_status status = path_of(log, "log", path, error);
    return status == WEFT_OK ? weft_ckpt_sync_directory(path, error) : status;
}

/* After OK the record is in the log, on the disk and in the history. */
static weft_status add(struct weft_ckpt_log *log, const struct weft_ckpt_record *record,
                       may_add *may, const void *arg, uint64_t *serial_p, struct weft_error *error)
{
    char *bytes, temporary[WEFT_CKPT_PATH_BYTES];
    size_t count;
    weft_status status = weft_ckpt_record_print(record, &bytes, &count, error);
    if (status != WEFT_OK) {
        return status;
    }
    log->tried = false;
    status = WEFT_NOTFOUND;
    for (uint32_t i = 0; status == WEFT_NOTFOUND && i < TRIES; i++) {
        status = write_temporary(log, bytes, count, temporary, error);
        if (status == WEFT_OK) {
            status = add_file(log, temporary, may, arg, serial_p, error);
            (void)unlink(temporary);
        }
    }
    free(bytes);
    status = status == WEFT_NOTFOUND ? WEFT_IO : status;
    return status == WEFT_OK ? sync_log(log, error) : status;
}

struct claim_wish {
    const struct weft_ckpt_claim *claim;
    bool is_new;
};

/* The command of this process was based on the state of the log when it was opened. */
static weft_status if_not_overtaken(const struct weft_ckpt_log *log, const void *arg,
                                    struct weft_error *error)
{
    const struct claim_wish *wish = arg;
    const struct weft_ckpt_holder *by =
        weft_ckpt_history_overtaken(&log->history, wish->claim, log->opened);
    if (by != NULL) {
        return weft_fail(error, WEFT_STATE,
                         "process %" PRIu64 " on %s has claimed shards %u to %u of %s while "
                         "this server was starting: it has them, this server ends",
                         by->claim.pid, by->claim.host, by->claim.first,
                         by->claim.first + by->claim.count - 1, log->directory);
    }
    if (wish->is_new && log->history.part_count > 0) {
        return weft_fail(error, WEFT_STATE,
                         "%s holds checkpoints: restore from them, or name another directory",
                         log->directory);
    }
    return WEFT_OK;
}

static weft_status make_folder(const struct weft_ckpt_log *log, struct weft_error *error)
{
    char path[WEFT_CKPT_PATH_BYTES];
    weft_status status = path_of(log, "log", path, error);
    if (status == WEFT_OK && mkdir(path, 0777) != 0 && errno != EEXIST) {
        return fail_call(error, "make directory", path);
    }
    return status == WEFT_OK ? weft_ckpt_sync_directory(log->directory, error) : status;
}

weft_status weft_ckpt_log_claim(struct weft_ckpt_log *log, const struct weft_ckpt_claim *claim,
                                bool is_new, struct weft_error *error)
{
    WEFT_ASSERT(log->mine == 0);
    const struct weft_ckpt_record record = {.kind = WEFT_CKPT_RECORD_CLAIM, .claim = *claim};
    const struct claim_wish wish = {.claim = claim, .is_new = is_new};
    uint64_t serial = 0;
    log->token = claim->process;
    weft_status status = make_folder(log, error);
    status =
        status == WEFT_OK ? add(log, &record, if_not_overtaken, &wish, &serial, error) : status;
    log->mine = status == WEFT_OK ? serial : 0;
    return status;
}

static weft_status if_mine(const struct weft_ckpt_log *log, const void *arg,
                           struct weft_error *error)
{
    (void)arg;
    return weft_ckpt_log_replaced(log, error) ? WEFT_STATE : WEFT_OK;
}

static weft_status if_no_mixture(const struct weft_ckpt_log *log, const void *arg,
                                 struct weft_error *error)
{
    const struct weft_ckpt_restored *restored = arg;
    const struct weft_ckpt_holder *other =
        weft_ckpt_history_mixture(&log->history, weft_ckpt_log_mine(log), restored->number);
    weft_status status = if_mine(log, arg, error);
    if (status != WEFT_OK || other == NULL) {
        return status;
    }
    return weft_fail(error, WEFT_AGAIN,
                     "the server with shards %u to %u (process %" PRIu64 " on %s) began from "
                     "checkpoint %" PRIu64 ", and this one would from %" PRIu64
                     ": start this server again; if that does not help, start all servers "
                     "of the job again",
                     other->claim.first, other->claim.first + other->claim.count - 1,
                     other->claim.pid, other->claim.host, other->number, restored->number);
}

weft_status weft_ckpt_log_restored(struct weft_ckpt_log *log, uint64_t number, bool journal,
                                   struct weft_error *error)
{
    WEFT_ASSERT(log->mine != 0);
    const struct weft_ckpt_record record = {
        .kind = WEFT_CKPT_RECORD_RESTORED,
        .restored = {.claim = log->mine, .number = number, .journal = journal}};
    uint64_t serial;
    return add(log, &record, if_no_mixture, &record.restored, &serial, error);
}

weft_status weft_ckpt_log_commit(struct weft_ckpt_log *log, struct weft_ckpt_manifest *manifest,
                                 bool *may_count_p, struct weft_error *error)
{
    WEFT_ASSERT(log->mine != 0);
    manifest->claim = log->mine;
    const struct weft_ckpt_record record = {.kind = WEFT_CKPT_RECORD_MANIFEST,
                                            .manifest = *manifest};
    uint64_t serial;
    log->tried = false;
    weft_status status = weft_ckpt_sync_directory(log->directory, error);
    status = status == WEFT_OK ? add(log, &record, if_mine, NULL, &serial, error) : status;
    *may_count_p = status != WEFT_STATE && log->tried;
    return status;
}

weft_status weft_ckpt_log_clear(struct weft_ckpt_log *log, uint64_t serial,
                                struct weft_error *error)
{
    char name[WEFT_CKPT_FILE_BYTES], path[WEFT_CKPT_PATH_BYTES];
    char temporary[WEFT_CKPT_PATH_BYTES];
    weft_ckpt_log_name(serial, name);
    weft_status status = path_of(log, name, path, error);
    status = status == WEFT_OK
                 ? write_temporary(log, removed, sizeof(removed) - 1, temporary, error)
                 : status;
    if (status == WEFT_OK && rename(temporary, path) != 0) {
        status = fail_call(error, "remove", path);
        (void)unlink(temporary);
    }
    /* Durable before the caller removes the files that the record names. */
    return status == WEFT_OK ? sync_log(log, error) : status;
}

void weft_ckpt_log_forget(struct weft_ckpt_log *log, size_t place)
{
    weft_ckpt_history_forget(&log->history, place);
}
