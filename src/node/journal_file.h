/* The files of a shard's journal (ps/shard_journal.h): its own, and that of its predecessor
 * process.
 *
 * Its own file is mapped, so a record is in the kernel's hands once it is stored, even if the
 * process dies. The file name contains the number of the process's claim, so two processes never
 * share a file: a suspended predecessor that resumes writes into a file that is no longer read. The
 * file grows in steps, each allocated on the disk before it is used. Where that is not enough (a
 * copy-on-write file system needs space again, or the disk fails) a store raises SIGBUS, which ends
 * the journal and not the server (node/map_guard.h).
 *
 * The predecessor's file is only read, with calls that return errors. It is removed or moved aside
 * (quarantine/) when the caller reports that this process's file has replaced it. It is never
 * truncated.
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
    const char *directory; /* NULL = no journal */
    uint32_t mib;          /* of each shard */
    bool sync;             /* every reply waits until the records that it depends on are on the
                            * disk */
    uint64_t job;          /* weft_journal_job; set by the command */
};

#define WEFT_JOURNAL_DEFAULTS {.mib = 256}

/* The owner of the files. */
struct weft_journal_names {
    uint32_t shard;
    uint64_t claim;   /* claim of this process; unique */
    uint64_t former;  /* claim of the predecessor, whose journal is read. 0 = none; a file of
                       * release 0.1.0, named after the shard alone, may exist */
    bool fresh;       /* no journal is to be read */
    uint64_t damaged; /* last damaged record of the log after `former`; 0 = none. It may have said
                       * that a process of an earlier claim served after `former`: while the journal
                       * of such a process exists, the one to read is unknown */
};

/* The predecessor's journal. */
struct weft_journal_former {
    char *path; /* NULL = none */
    void *memory;
    uint64_t bytes;
    bool aside; /* it has records that this process's journal lacks: keep it in quarantine/ */
};

struct weft_journal_file {
    const struct weft_journal_options *options;
    struct weft_journal_names names;
    int fd; /* -1 = none */
    void *memory;
    uint64_t bytes; /* allocated on the disk */
    uint64_t bytes_max;
    struct weft_map_guard *guard;
    bool failed;     /* no more records are written to it */
    uint64_t synced; /* weft_shard_journal_changes, and _frees, at the last sync */
    uint64_t freed;
    struct weft_journal_former former;
};

/* The fate of the predecessor's journal, as a sentence; "" = it was replayed completely, or there
 * was none. */
struct weft_journal_news {
    char text[WEFT_ERROR_BYTES];
};

/* A number for the job of this name; "" is a name too. */
uint64_t weft_journal_job(const char *name);

/* Create the shard's file, and read the predecessor's.
 * Owns:    borrows options until weft_journal_file_close.
 * Errors:  WEFT_IO, WEFT_NOMEM, with error->text: the file cannot be created, the disk is full, or
 *          the predecessor's cannot be read. WEFT_DATA  the journal of a process whose claim is
 *          between the predecessor's and names->damaged exists. The shard's file is then removed;
 *          the predecessor's is unchanged. */
weft_status weft_journal_file_open(struct weft_journal_file *file,
                                   const struct weft_journal_options *options,
                                   const struct weft_journal_names *names,
                                   struct weft_journal_news *news, struct weft_error *error);

/* Have the shard, restored from this checkpoint (0 = none) with this cut (0 = unknown), replay the
 * predecessor's journal, and keep its own from now on. Copied records are on the disk when this
 * returns.
 * Owns:    the shard borrows the file until it is freed.
 * Errors:  WEFT_IO, WEFT_NOMEM, WEFT_UNSUPPORTED, with error->text: the server must not start. */
weft_status weft_journal_replay(struct weft_journal_file *file, struct weft_shard *shard,
                                uint64_t checkpoint, uint64_t cut, weft_checkpoint_supply *supply,
                                struct weft_journal_news *news, struct weft_error *error);

/* Call when the log records that this process has replaced its predecessor: remove the
 * predecessor's journal, or move it aside when it has records that this process's lacks. Files of
 * processes between the two were removed when the file was opened.
 * Errors:  WEFT_IO, with error->text: the file stays in place. */
weft_status weft_journal_release_former(struct weft_journal_file *file, struct weft_error *error);

/* Call between two batches: grow the file when the shard needs room (not on a full disk), and set
 * file->failed when the file has failed. */
void weft_journal_turn(struct weft_journal_file *file, struct weft_shard *shard);

/* With --journal-fsync, before anything is sent: sync the shard's records to the disk. If that is
 * not possible, the file has failed. */
void weft_journal_commit(struct weft_journal_file *file, struct weft_shard *shard);

/* The same, after a checkpoint has freed part of the journal, and before that part is reused:
 * otherwise, after a power failure, new records could be where the disk still has the old
 * beginning. */
void weft_journal_commit_freed(struct weft_journal_file *file, struct weft_shard *shard);

/* Call after the shard was freed. A file that was never opened is allowed when its fd is -1. */
void weft_journal_file_close(struct weft_journal_file *file);

#endif
