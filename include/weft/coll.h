/* weft's collective operations: all_reduce and its relatives between the ranks of a job, where a chosen
 * fraction of what is reduced may be missing.
 *
 * A communicator is this process's end: a socket, a thread that makes progress while the program
 * computes, and a connection with every other rank. It does not start processes and does not find them:
 * each rank opens a communicator, tells the others its address in whatever way the job has (a file, a
 * store, MPI), and joins.
 *
 *     weft_comm_config_init, set `rank`, `ranks`     weft_comm_open -> comm
 *     weft_comm_address                              exchange addresses
 *     weft_comm_join (all addresses)
 *     weft_comm_op_init, set kind, in, out, count    weft_comm_begin -> id
 *     ...compute...                                  weft_comm_wait (id)
 *     weft_comm_close
 *
 * Every rank of a group calls the same operations in the same order; operations of different groups, and
 * SEND and RECV, have no order. Several may be under way at once. weft_comm_wait returns when this rank's part is done: its
 * result is complete, and its buffers are its own again.
 *
 * Loss. all_reduce, reduce and reduce_scatter take a bound: that fraction of the packets of each rank's
 * contribution to each other rank may stay missing. Results are not lossy: all ranks get the same bits.
 * A mean is divided by the contributions that came, element by element. With `residual`, what was
 * missing is kept and added to the next call (error feedback). With bound 0, the default, nothing is ever
 * missing.
 *
 * Failure. When a rank dies, closes, stops answering for peer_timeout_ns, calls another operation than
 * the others, or does not call it in time, the communicator fails, at all ranks: operations under way and
 * later ones end with WEFT_PEER, and weft_comm_error says which rank it was and why. There is no way back
 * but to close and to open anew.
 *
 * Structs with a `size` field may grow; see docs/API.md. Fill them by their _init function, then set
 * what differs. Times are nanoseconds, WEFT_NEVER = no limit; fractions are parts per million.
 *
 * Thread:  open, join and close: one. All else: any, also several at once; the order of operations is
 *          that of the calls.
 * Source:  docs/COLLECTIVES.md; [apnet19] section 3.2 (docs/papers.md).
 */
#ifndef WEFT_COLL_H
#define WEFT_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/export.h>
#include <weft/status.h>
#include <weft/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_comm;

/* ---- opening and joining --------------------------------------------------------------------- */

/* All ranks must have the same values, but for host, port and rank. */
struct weft_comm_config {
    size_t size;                  /* set by weft_comm_config_init */
    const char *host;             /* address to bind, which the others reach it by: numeric IPv4 or IPv6,
                                   * or "localhost" (the default: 127.0.0.1) */
    const char *key_file;         /* as in struct weft_transport_config, as are the next two */
    const uint8_t *key;
    uint32_t security;            /* enum weft_transport_security; default AUTH */
    uint16_t port;                /* 0 (default) = any free one */
    uint16_t packet_bytes;        /* UDP payload to build, 1,200 .. 65,000; 0 (default) = 1,472, or
                                   * 32,768 where host is a loopback address */
    uint32_t rank;                /* 0 .. ranks - 1 */
    uint32_t ranks;               /* 1 .. 1,024 */
    uint64_t epoch;               /* of this start of the job, below 2^40, another one for each, so that a
                                   * process of an earlier start is not mistaken for a rank; default 0 */
    uint32_t groups_max;          /* the group of all ranks included; default 64, up to 1,024 */
    uint32_t ops_max;             /* begun and not waited for, all groups together; default 64, up to 256 */
    uint64_t pool_bytes;          /* memory for what other ranks send ahead of this one's calls; at least
                                   * 64 KiB for each of them; default 64 MiB */
    uint64_t peer_timeout_ns;     /* a rank that does not answer for so long is dead; default 5 s, or
                                   * WEFT_PEER_TIMEOUT_S of the environment */
    uint64_t op_timeout_ns;       /* of an operation that names none: a rank that has not called it by
                                   * then ends the communicator; default 300 s */
    const char *congestion;       /* as in struct weft_transport_config, as are all that follow but one */
    const char *transport;        /* "weft" (NULL, the default), or "tcp": the same messages over the
                                   * kernel's TCP, all of them whole */
    uint32_t socket_buffer_bytes;
    uint32_t busy_poll_us;        /* look at the socket so long before a sleep, while that finds
                                   * something; 0 = never; default 50 */
    uint32_t inject_loss_ppm;
    uint32_t inject_seed;
};

/* Write the defaults. Shape: size is sizeof(*config_p), as the caller was compiled. */
WEFT_API void weft_comm_config_init(struct weft_comm_config *config_p, size_t size);

/* Open the socket and start the thread.
 *
 * Owns:    borrows config until return; gives *comm_p, to be ended by weft_comm_close.
 * Errors:  as weft_transport_open. weft_comm_error(NULL) says which and what to do, in words. */
WEFT_API weft_status weft_comm_open(const struct weft_comm_config *config, struct weft_comm **comm_p);

/* "127.0.0.1:41234": for the other ranks. Owns: valid until weft_comm_close. */
WEFT_API const char *weft_comm_address(const struct weft_comm *comm);

/* Connect with all other ranks, and wait until that is done. All ranks call it.
 *
 * Shape:   addresses (ranks,), by rank, as weft_comm_address gave them at each; the own one is not
 *          looked at.
 * Errors:  WEFT_INVALID  one is no address.
 *          WEFT_TIMEOUT  not in time: the error text names the ranks that are missing. May be called
 *                        again.
 *          WEFT_PEER     a rank refused, or has failed since. WEFT_STATE: after a fork. */
WEFT_API weft_status weft_comm_join(struct weft_comm *comm, const char *const *addresses,
                                    uint64_t timeout_ns);

/* CLOSE to all ranks, join the thread, free. What is not done ends here, and the memory lent to it is
 * the caller's again. In the child of a fork it frees nothing and tells nobody. NULL is fine. */
WEFT_API void weft_comm_close(struct weft_comm *comm);

/* Why this thread's last call failed, and what to do about it: one sentence, "" when none has. NULL: the
 * same, of weft_comm_open.   Owns: valid until this thread's next call that fails. */
WEFT_API const char *weft_comm_error(const struct weft_comm *comm);

/* A group of ranks, in this order: within it a rank is named by its place. Group 0 is all ranks. All
 * ranks of the job make the same groups in the same order, those that are not members, too.
 *
 * Errors:  WEFT_INVALID  a rank is out of range or named twice. WEFT_NOMEM  groups_max. WEFT_STATE. */
WEFT_API weft_status weft_comm_group(struct weft_comm *comm, const uint32_t *ranks, uint32_t n,
                                     uint32_t *group_p);

/* ---- operations ------------------------------------------------------------------------------ */

enum weft_comm_kind {
    WEFT_COMM_ALL_REDUCE,     /* count: of the vector; out may be in */
    WEFT_COMM_REDUCE,         /* the same; only the root has an out, which may be in */
    WEFT_COMM_REDUCE_SCATTER, /* count: of a block; in has a block for each rank, out is the own one, and
                               * may be its place in in */
    WEFT_COMM_ALL_GATHER,     /* count: of a block; in is the own one, out has n, and in may be its place
                               * in it */
    WEFT_COMM_BROADCAST,      /* count: of the vector; in at the root, out at all others; the root's out
                               * may be in */
    WEFT_COMM_GATHER,         /* as ALL_GATHER; only the root has an out */
    WEFT_COMM_SCATTER,        /* count: of a block; in has n, at the root; its out may be its place there */
    WEFT_COMM_ALL_TO_ALL,     /* count: of a block; in and out have n of them, and do not overlap */
    WEFT_COMM_BARRIER,        /* no buffers */
    WEFT_COMM_SEND,           /* count: of the vector; in, to `peer`. Of two ranks' sends and recvs those
                               * with the same tag match, in the order of their calls */
    WEFT_COMM_RECV,           /* the other end: out */
};

enum weft_comm_type {
    WEFT_COMM_F32,
    WEFT_COMM_F64,
    WEFT_COMM_F16,  /* added in float32 and rounded once; as BF16 */
    WEFT_COMM_BF16,
    WEFT_COMM_I8,
    WEFT_COMM_U8,
    WEFT_COMM_I32,
    WEFT_COMM_I64,
};

enum weft_comm_reduction {
    WEFT_COMM_SUM,     /* integers wrap */
    WEFT_COMM_MEAN,    /* floats; divided by the contributions that came, or with residual by the ranks */
    WEFT_COMM_MIN,     /* NaN if any contribution is */
    WEFT_COMM_MAX,
    WEFT_COMM_PRODUCT,
    WEFT_COMM_AND,     /* bitwise, integers; so are the next two */
    WEFT_COMM_OR,
    WEFT_COMM_XOR,
};

struct weft_comm_op {
    size_t size;         /* set by weft_comm_op_init */
    uint32_t kind;       /* enum weft_comm_kind */
    uint32_t type;       /* enum weft_comm_type; default F32 */
    uint32_t reduction;  /* enum weft_comm_reduction; default SUM */
    uint32_t group;      /* default 0: all ranks */
    uint32_t root;       /* its place in the group; default 0 */
    uint32_t peer;       /* SEND, RECV: the other end's place in the group */
    uint32_t tag;        /* SEND, RECV; default 0 */
    uint32_t bound_ppm;  /* what is reduced: fraction of the packets that may stay missing, < 1,000,000;
                          * default 0. Of n packets floor(n x bound) may; the rest counts for the next
                          * operation of the same stream */
    uint64_t count;      /* elements: see the kind; 0 = nothing to do, at all ranks */
    const void *in;      /* aligned to its elements, as out */
    void *out;
    float *residual;     /* float32 sums and means: error feedback. As long as in and zeros at first; what
                          * was missing of earlier calls, which is added to in, and replaced by what is
                          * missing of this one. NULL (default) = none */
    uint8_t *missed;     /* with residual: ceil(count / 32) bytes (reduce_scatter: for each block), zeros
                          * at first: how often running each 32 elements were missing; after the second
                          * time they must arrive. NULL (default) = not counted */
    uint32_t stream;     /* with a bound: a number for each tensor or bucket; default 0 */
    uint32_t reserved;   /* 0 */
    uint64_t timeout_ns; /* from begin; 0 (default) = op_timeout_ns of the configuration */
    void *user;          /* returned in done */
};

WEFT_API void weft_comm_op_init(struct weft_comm_op *op_p, size_t size);

/* Begin an operation.
 *
 * Owns:    borrows in, out, residual and missed until it has been waited for.
 * Errors:  WEFT_INVALID  a field is out of range; the error text says which. Nothing is begun, and the
 *                        other ranks wait for this one.
 *          WEFT_AGAIN    ops_max operations are begun and not waited for.
 *          WEFT_PEER     the communicator has failed. WEFT_STATE: after a fork. */
WEFT_API weft_status weft_comm_begin(struct weft_comm *comm, const struct weft_comm_op *op,
                                     uint64_t *id_p);

struct weft_comm_done {
    size_t size;               /* the caller sets it to sizeof(done) before the call */
    uint64_t id;
    void *user;
    uint32_t status;           /* WEFT_OK, or WEFT_PEER: the communicator has failed */
    uint32_t contributors_min; /* least contributions to any element of what this rank reduced; the ranks
                                * of the group where nothing is missing */
    uint64_t own_missing;      /* elements of this rank's contribution that did not arrive */
    uint64_t nonfinite;        /* values of the residual that were NaN or infinite, and became 0 */
    uint64_t phase1_ns;        /* from begin until all contributions had come; 0: the kind has none */
    uint64_t total_ns;         /* from begin until done */
};

/* Wait until an operation is done. Each is returned once. Meanwhile this thread sends, receives and adds
 * up by itself, for all operations, unless another one that waits does. No cancellation point.
 *
 * Owns:    done_p may be NULL.
 * Errors:  WEFT_TIMEOUT   not within timeout_ns; wait again.
 *          WEFT_PEER      the operation has failed with the communicator; done is written all the same.
 *          WEFT_NOTFOUND  there is none with this id: it was waited for before. WEFT_STATE. */
WEFT_API weft_status weft_comm_wait(struct weft_comm *comm, uint64_t id, uint64_t timeout_ns,
                                    struct weft_comm_done *done_p);

/* The same for whichever is done first, of those that no other thread waits for by weft_comm_wait.
 * NOTFOUND: none is begun. */
WEFT_API weft_status weft_comm_wait_any(struct weft_comm *comm, uint64_t timeout_ns,
                                        struct weft_comm_done *done_p);

/* Begin and wait, in one call; for programs that have nothing to compute meanwhile. */
WEFT_API weft_status weft_comm_run(struct weft_comm *comm, const struct weft_comm_op *op,
                                   struct weft_comm_done *done_p);

/* A descriptor for poll and epoll: readable while weft_comm_wait_any would return an operation at once. It
 * is not to be read, and lives until weft_comm_close.   Errors:  WEFT_IO. */
WEFT_API weft_status weft_comm_fd(struct weft_comm *comm, int *fd_p);

/* Fail, at all ranks: "rank 3 called abort: TEXT". Of text the first 39 bytes are told. */
WEFT_API void weft_comm_abort(struct weft_comm *comm, const char *text);

/* Whether the communicator has failed, and why: NULL, or a sentence.
 * Owns:    valid until this thread's next call that fails. */
WEFT_API const char *weft_comm_failure(struct weft_comm *comm);

/* Cumulative since open. */
struct weft_comm_counters {
    size_t size;                   /* the caller sets it to sizeof(counters) before the call */
    uint64_t operations;           /* begun */
    uint64_t operations_done;      /* of these, without failure */
    uint64_t messages_sent;        /* between ranks */
    uint64_t message_bytes_sent;   /* of these */
    uint64_t elements_missing;     /* of contributions to what this rank reduced */
    uint64_t elements_unsent;      /* of its own contributions: did not arrive */
    uint64_t nonfinite;            /* values of residuals that became 0 */
    uint64_t early_messages;       /* came before this rank had called their operation */
    uint64_t connections_refused;  /* of another epoch, or of no rank */
    uint64_t datagrams_sent;
    uint64_t datagrams_received;
    uint64_t bytes_sent;           /* UDP payload */
    uint64_t bytes_received;
    uint64_t retransmitted_packets;
};

WEFT_API void weft_comm_counters_get(struct weft_comm *comm, struct weft_comm_counters *counters_p);

#ifdef __cplusplus
}
#endif

#endif
