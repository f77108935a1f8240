/* The files of a shard's journal (ps/shard_journal.h): its own, and that of the process before it.
 *
 * Its own is mapped, so that what the shard writes down is the kernel's at once, whatever becomes of
 * the process. Its name has the number of the process's claim, so no two processes ever have one file:
 * a predecessor that is frozen, and writes on when it thaws, writes into a file that is not read any
 * more. It grows in steps of which every byte is taken from the disk before it is touched. Where that is
 * not enough (a file system that copies on write needs room again, a disk that fails) the store is a
 * SIGBUS, which ends the journal and not the server (node/map_guard.h).
 *
 * The predecessor's is only read, with calls that return their errors, and removed or put aside
 * (quarantine/) when the caller says that the own one has taken its place. Never emptied.
 *
 * Thread:  the shard's.
 *
 * Source: docs/CHECKPOINTS.md, "The journal".
 */
#ifndef WEFT_NODE_JOURNAL_FILE_H
#define WEFT_NODE_JOURNAL_FILE_H

#include "node/checkpoint_data.h"

#include "ps/shard_journal.h"

struct weft_journal_options {
    const char *directory; /* NULL = none is kept */
    uint32_t mib;          /* of each shard */
    bool sync;             /* every answer waits until what it depends on is on the disk */
    uint64_t job;          /* weft_journal_job; set by the verb */
};

#define WEFT_JOURNAL_DEFAULTS {.mib = 256}

/* Whose the files are. */
struct weft_journal_names {
    uint32_t shard;
    uint64_t claim;  /* of this process; no other one ever has it */
    uint64_t former; /* of the process before, whose journal is read; 0 = there was none, but one of
                      * the last release may lie there, under the shard's name alone */
    bool fresh;      /* nothing is to be read */
    bool doubtful;   /* a record is damaged that may have said that another process served after
                      * `former`: while its journal is there, nobody can say whose is to be read */
};

/* That of the process before. */
struct weft_journal_former {
    char *path; /* NULL = there is none */
    void *memory;
    uint64_t bytes;
    bool aside; /* it holds what the own one has not: it is kept, in quarantine/ */
};

struct weft_journal_file {
    const struct weft_journal_options *options;
    struct weft_journal_names names;
    int fd; /* -1 = none */
    void *memory;
    uint64_t bytes; /* taken from the disk */
    uint64_t bytes_max;
    struct weft_map_guard *guard;
    bool failed;     /* nothing more is written into it */
    uint64_t synced; /* weft_shard_journal_changes, and _frees, when it was last on the disk */
    uint64_t freed;
    struct weft_journal_former former;
};

/* What became of the journal of the process before, in words; "" = all of it was done again, or
 * there was none. */
struct weft_journal_news {
    char text[WEFT_ERROR_BYTES];
};

/* A number for the job of this name; "" has one, too. */
uint64_t weft_journal_job(const char *name);

/* Make the shard's file, and read the one of the process before.
 * Owns:    borrows options until weft_journal_file_close.
 * Errors:  WEFT_IO, WEFT_NOMEM, with error->text: the file cannot be made, the disk is full; the other
 *          one cannot be read. Of the own file nothing is left, and the other one is as it was. */
weft_status weft_journal_file_open(struct weft_journal_file *file,
                                   const struct weft_journal_options *options,
                                   const struct weft_journal_names *names,
                                   struct weft_journal_news *news, struct weft_error *error);

/* Have the shard, restored from this checkpoint (0 = none), do again what the process before wrote
 * down, and keep its own journal from now on. What was copied is on the disk when this returns.
 * Owns:    the shard borrows the file until it is freed.
 * Errors:  WEFT_IO, WEFT_NOMEM, WEFT_UNSUPPORTED, with error->text: the start must end. */
weft_status weft_journal_replay(struct weft_journal_file *file, struct weft_shard *shard,
                                uint64_t checkpoint, weft_checkpoint_supply *supply,
                                struct weft_journal_news *news, struct weft_error *error);

/* It is on record that this process has taken the place of the one before: remove that one's journal,
 * or put it aside when it holds what this one has not. What processes between the two have left was
 * removed when the file was opened.
 * Errors:  WEFT_IO, with error->text: it stays where it is. */
weft_status weft_journal_release_former(struct weft_journal_file *file, struct weft_error *error);

/* Between two batches: more room, when the shard wants it (a full disk: it does not grow); and whether
 * the file has failed: file->failed. */
void weft_journal_turn(struct weft_journal_file *file, struct weft_shard *shard);

/* With --journal-fsync, before anything is sent: what the shard has written down is on the disk. If it
 * cannot be had there, the file has failed. */
void weft_journal_commit(struct weft_journal_file *file, struct weft_shard *shard);

/* The same, after a checkpoint has freed some of it, and before that is written to again: else a host
 * that loses its power could find new records where the disk still has the old begin. */
void weft_journal_commit_freed(struct weft_journal_file *file, struct weft_shard *shard);

/* After the shard. One that was never opened is fine when its fd is -1. */
void weft_journal_file_close(struct weft_journal_file *file);

#endif
