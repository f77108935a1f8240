/* The file of a shard's journal (ps/journal.h): mapped, so that what the shard writes down is the
 * kernel's at once, whatever becomes of the process. It is one process's at a time, by a lock, and
 * grows in steps of which every byte is taken from the disk before it is touched: a full disk is an
 * error here and not a signal in the shard.
 *
 * Thread:  the shard's.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_CLI_JOURNAL_H
#define WEFT_CLI_JOURNAL_H

#include "cli/checkpoint_data.h"

#include "ps/journal.h"

struct weft_journal_options {
    const char *directory; /* NULL = none is kept */
    uint32_t mib;          /* of each shard */
    uint64_t job;          /* weft_journal_job; set by the verb */
};

#define WEFT_JOURNAL_DEFAULTS {.mib = 256}

/* Rows of an option table. */
#define WEFT_JOURNAL_OPTIONS(options)                                                              \
    {"journal", "DIR", "with --checkpoint, keep what came after the newest one in files in this\n" \
     "directory, so that a server that is killed comes back as it was. On this\n"                  \
     "host, a file system in memory at best (/dev/shm)", WEFT_OPTION_STRING,                       \
     .value = &(options)->directory, .fallback = "none"},                                          \
    {"journal-mib", "MIB", "most that a shard's file may take; when half of it is full a\n"        \
     "checkpoint is begun, at three quarters nothing is kept until the next", WEFT_OPTION_U32,          \
     .value = &(options)->mib, .min = 1, .max = 1u << 20}

struct weft_journal_file {
    int fd; /* -1 = none */
    void *memory;
    uint64_t bytes; /* taken from the disk */
    uint64_t bytes_max;
};

/* A number for the job of this name; "" has one, too. */
uint64_t weft_journal_job(const char *name);

/* Open or make the shard's file.
 * fresh:   what is in it is not wanted.
 * Errors:  WEFT_IO, with error->text: it cannot be made, the disk is full, another process has it. */
weft_status weft_journal_file_open(struct weft_journal_file *file,
                                   const struct weft_journal_options *options, uint32_t shard,
                                   bool fresh, struct weft_ckpt_error *error);

/* Have the shard, restored from this checkpoint (0 = none), do again what the file has, and keep its
 * journal there from now on. What cannot be used is emptied, and why_p says so ("" = it was used, or
 * there was nothing).
 * Owns:    the shard borrows the file until it is freed. */
weft_status weft_journal_replay(struct weft_journal_file *file,
                                const struct weft_journal_options *options,
                                struct weft_shard *shard, uint64_t checkpoint,
                                weft_checkpoint_supply *supply, const char **why_p);

/* Between two batches: more room, when the shard wants it. A full disk: it does not grow. */
void weft_journal_grow(struct weft_journal_file *file, struct weft_shard *shard);

/* After the shard. One that was never opened is fine when its fd is -1. */
void weft_journal_file_close(struct weft_journal_file *file);

#endif
