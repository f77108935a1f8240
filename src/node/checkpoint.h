/* The checkpoints of one server process: when they are made, which thread does what, and the thread
 * that writes them.
 *
 * Every shard thread has a feed. When a checkpoint is ordered, the shard thread takes a snapshot
 * (ps/snapshot.h), and passes records in two buffers to the writer's thread, which alone writes
 * checkpoint files; neither waits for the other with a lock held. The writer commits when all
 * shards of the process have finished.
 *
 * A checkpoint is ordered every N clocks (all servers of a job cut at the same clocks, so their
 * parts fit together), when the process ends, and on request of a worker. A process that has all
 * shards of the job also orders one every N seconds, and on SIGUSR1.
 *
 * Thread:  new, begin, request, end, free: the main thread. restore, attach, turn: the shard's.
 *
 * Source: docs/CHECKPOINTS.md.
 */
#ifndef WEFT_NODE_CHECKPOINT_H
#define WEFT_NODE_CHECKPOINT_H

#include "node/checkpoint_data.h"
#include "node/journal_file.h"
#include "node/log.h"

#include "io/driver.h"

#include <pthread.h>
#include <stdatomic.h>

struct weft_checkpoint_options {
    const char *directory; /* NULL = no checkpoints */
    const char *every;     /* "1000" clocks, "60s"; NULL = the default */
    uint32_t full_every;   /* one in this many is full, the others are deltas */
    uint32_t keep;
    uint32_t memory_mib; /* memory for copies of rows, for each shard */
    bool restore;
    bool restarted; /* replaces a process that died: restore if there is a checkpoint */
    struct weft_journal_options journal;
};

#define WEFT_CHECKPOINT_DEFAULTS                                                                   \
    {.full_every = 1, .keep = 2, .memory_mib = 1024, .journal = WEFT_JOURNAL_DEFAULTS}

enum weft_checkpoint_phase {
    WEFT_CHECKPOINT_IDLE,
    WEFT_CHECKPOINT_ORDERED,   /* the shard has not seen the order yet */
    WEFT_CHECKPOINT_WAITING,   /* for the instant of the snapshot */
    WEFT_CHECKPOINT_STREAMING, /* buffers are passed to the writer */
    WEFT_CHECKPOINT_STREAMED,  /* all were passed; the writer decides */
    WEFT_CHECKPOINT_FAILED,    /* by the shard */
    WEFT_CHECKPOINT_JUDGED,    /* the writer has decided; the shard has not seen it yet */
};

enum { WEFT_CHECKPOINT_BUFFERS = 2, WEFT_CHECKPOINT_BUFFER_BYTES = 1 << 20 };

struct weft_checkpoint_buffer {
    uint8_t *memory;
    uint16_t table;
    uint32_t count; /* records; 0 = free */
};

/* Shared by one shard's thread and the writer. Protected by the lock of the process, except fields
 * marked as used by one of the two only. */
struct weft_checkpoint_feed {
    struct weft_checkpoint *owner;
    _Atomic enum weft_checkpoint_phase phase; /* the shard also reads it without the lock */
    enum weft_cut_why why;                    /* FAILED */
    bool kept;                                /* JUDGED */
    struct weft_cut_order order;
    const struct weft_cut_view *view; /* STREAMING */
    struct weft_checkpoint_buffer buffers[WEFT_CHECKPOINT_BUFFERS];
    uint32_t fill;              /* the shard's: buffer to fill next */
    uint32_t take;              /* the writer's: buffer to write next */
    struct weft_driver *driver; /* to wake; NULL when the thread does not run */
    uint32_t clock;             /* the maximum over its tables; these three are written by the shard
                                 * only */
    bool has_tables;
    bool has_bsp;
    uint64_t rows; /* of the checkpoint in progress */
    size_t peak;
    _Atomic uint16_t refusal;         /* reason for programs whose requested checkpoint was not
                                       * made; enum weft_rpc_status, 0 = nothing to report */
    uint64_t kept_number;             /* the shard's: number of the last kept cut */
    _Atomic uint64_t durable_number;  /* number of a valid checkpoint that the shard does not know
                                       * yet; 0 = none */
    struct weft_journal_file journal; /* the shard's */
    bool journal_full;                /* set by the shard; the writer logs each once */
    bool journal_failed;
    bool journal_full_said;
    bool journal_failed_said;
    struct weft_checkpoint_file file; /* the writer's */
    bool file_open;
    struct weft_ckpt_file done;
};

struct weft_checkpoint;

struct weft_checkpoint_config {
    struct weft_checkpoint_options options;
    uint32_t first; /* shards of this process */
    uint32_t count;
    uint32_t shards; /* of the job */
    struct weft_node_log log;
};

/* Create the directory if it does not exist, and check its log against the options. The checkpoint
 * to restore is chosen later, by the first call of weft_checkpoint_restore.
 * Errors:  WEFT_INVALID  options; WEFT_STATE  there are checkpoints, and no option says what to
 *          do with them; WEFT_NOTFOUND  nothing to restore; WEFT_IO, WEFT_NOMEM. error->text has
 *          the reason. */
weft_status weft_checkpoint_new(const struct weft_checkpoint_config *config,
                                struct weft_checkpoint **checkpoint_p, struct weft_error *error);

/* Restore the feed's shard; if a journal is configured, replay the previous one and keep a journal
 * from now on. On the shard's thread, before it serves. The first call claims the shards of the
 * process, so it must return before another shard's thread starts. */
weft_status weft_checkpoint_restore(struct weft_checkpoint_feed *feed, struct weft_shard *shard,
                                    uint32_t workers_max, weft_checkpoint_supply *supply,
                                    struct weft_error *error);

/* The number of the checkpoint restored from; 0 = none. */
uint64_t weft_checkpoint_restored(const struct weft_checkpoint *checkpoint);

/* Call after the shards have started, which wait for this (weft_checkpoint_may_serve): record what
 * was restored, and start the writer.
 * Errors:  those of weft_ckpt_log_restored and weft_journal_release_former; WEFT_IO  no eventfd or
 *          no thread. error->text has the reason. */
weft_status weft_checkpoint_begin(struct weft_checkpoint *checkpoint, struct weft_error *error);

/* On the shard's thread, after restore: wait for begin. False: the server ends instead. */
bool weft_checkpoint_may_serve(struct weft_checkpoint_feed *feed);

/* Readable when another process has taken this one's shards: if this one kept serving, workers
 * would see two states, and its checkpoints are void. */
int weft_checkpoint_replaced_fd(const struct weft_checkpoint *checkpoint);
bool weft_checkpoint_is_replaced(struct weft_checkpoint *checkpoint, struct weft_error *why_p);

/* Make a checkpoint as soon as possible. False: this process does not have all shards. */
bool weft_checkpoint_request(struct weft_checkpoint *checkpoint);

/* The process is ending: finish the checkpoint in progress, or abandon it if its snapshot is not
 * taken yet; make a last one; and stop the thread. There is no last one when a BSP table stays in
 * the middle of a clock. Without make_last (this server was replaced) the checkpoint in progress is
 * abandoned. The shards still run, or wait for begin. NULL is allowed. */
void weft_checkpoint_end(struct weft_checkpoint *checkpoint, bool make_last);

/* Call after the shards have ended. NULL is allowed. */
void weft_checkpoint_free(struct weft_checkpoint *checkpoint);

/* The feed of shard first + i. */
struct weft_checkpoint_feed *weft_checkpoint_feed(struct weft_checkpoint *checkpoint, uint32_t i);

/* On the shard's thread. attach: from now on the writer may wake driver; NULL = no longer. */
void weft_checkpoint_attach(struct weft_checkpoint_feed *feed, struct weft_driver *driver);

/* After each batch of events. True: call again soon, without sleeping. */
bool weft_checkpoint_turn(struct weft_checkpoint_feed *feed, struct weft_shard *shard);

/* On the shard's thread. commits: true when the journal must be on the disk before anything is
 * sent; commit syncs it. */
bool weft_checkpoint_commits(const struct weft_checkpoint_feed *feed);
void weft_checkpoint_commit(struct weft_checkpoint_feed *feed, struct weft_shard *shard);

#endif
