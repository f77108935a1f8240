/* weft's collective operations: all_reduce and others between the ranks of a job, where a bounded
 * fraction of the contributions may be missing.
 *
 * A communicator is one rank's endpoint: a socket, a thread that makes progress while the program
 * computes, and a connection with every other rank. It neither starts nor finds processes. Each
 * rank opens a communicator, passes its address to the others by any means (a file, a key-value
 * store, MPI), and joins.
 *
 *     weft_comm_config_init, set `rank`, `ranks`     weft_comm_open -> comm
 *     weft_comm_address                              exchange addresses
 *     weft_comm_join (all addresses)
 *     weft_comm_op_init, set kind, in, out, count    weft_comm_begin -> id
 *     ...compute...                                  weft_comm_wait (id)
 *     weft_comm_close
 *
 * Every rank of a group calls the same operations in the same order. Ranks may interleave the
 * operations of different groups, and SEND and RECV, differently. Several operations may be in
 * progress. weft_comm_wait returns when this rank's part of an operation is complete: the result is
 * valid, and the caller may reuse the buffers.
 *
 * Loss. all_reduce, reduce and reduce_scatter have a bound: this fraction of the packets of each
 * rank's contribution to each other rank may be missing. Results are sent without loss: all ranks
 * get identical bits. A mean is divided by the number of received contributions, element by
 * element. With `residual`, missing elements are kept and added to the next call (error feedback),
 * and a mean is divided by the number of ranks. With bound 0, the default, nothing is ever missing.
 *
 * Failure. The communicator fails, at all ranks, if a rank dies, closes, sends no reply for
 * peer_timeout_ns, calls an operation that differs from that of the others, or does not call an
 * operation in time. Operations in progress and later ones then end with WEFT_PEER, and
 * weft_comm_error names the rank and the reason. To recover, close the communicator at all ranks
 * and open a new one.
 *
 * Plans. By default the ranks divide a vector equally. If their links differ, if several of them
 * share the link of a host, or if some always call late, a plan saves time: `plan` and `link_bps`
 * of the configuration, or weft_comm_plan_set. The all_reduces that an aggregation box takes have
 * no plan, even after it has failed. See docs/COLLECTIVES.md, "Plans".
 *
 * Aggregation box. With `box` in the configuration, all_reduce of group 0 goes through it if it is
 * a sum or mean with bound 0 of at least box_bytes_min bytes of the type that the box sums. The box
 * is never needed: before each result is used, the ranks agree that all of them have it, with the
 * same bits. If one has not, all ranks sum this vector and the following ones without the box,
 * until it has passed another trial: after box_retry_ns, and then ever more rarely while it fails.
 * weft_comm_box_failure says why. With a box there are at most 64 ranks. See docs/COLLECTIVES.md,
 * "Through an aggregation box".
 *
 * Structs with a `size` field may grow; see docs/API.md. Initialise them with their _init function,
 * then set the fields that differ. Times are nanoseconds, WEFT_NEVER = no limit; fractions are
 * parts per million.
 *
 * Thread:  open, join and close: one thread. All others: any thread, also concurrently; the order
 *          of the calls is the order of the operations.
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

/* Equal at all ranks, except host, port, rank, link_bps and the address of the box. */
struct weft_comm_config {
    size_t size;          /* set by weft_comm_config_init */
    const char *host;     /* address to bind, reachable by the other ranks: numeric IPv4
                           * or IPv6, or "localhost" (the default: 127.0.0.1) */
    const char *key_file; /* this and the next two: as in struct weft_transport_config */
    const uint8_t *key;
    uint32_t security;            /* enum weft_transport_security; default AUTH */
    uint16_t port;                /* 0 (default) = any free port */
    uint16_t packet_bytes;        /* UDP payload to send, 1,200 .. 65,000; 0 (default) = 1,472,
                                   * or 65,000 if host is a loopback address */
    uint32_t rank;                /* 0 .. ranks - 1 */
    uint32_t ranks;               /* 1 .. 1,024 */
    uint64_t epoch;               /* number of this run of the job, < 2^40. It must differ for
                                   * each run: a process of an earlier run is then not mistaken
                                   * for a rank. Default 0 */
    uint32_t groups_max;          /* maximum number of groups, including the group of all ranks;
                                   * default 64, up to 1,024 */
    uint32_t ops_max;             /* maximum number of operations, over all groups, that have begun
                                   * and were not waited for; default 64, up to 256 */
    uint64_t pool_bytes;          /* memory for messages that other ranks send before this rank
                                   * calls the operation; at least 64 KiB x ranks; default
                                   * 64 MiB */
    uint64_t peer_timeout_ns;     /* declare a rank dead after this time without a reply; default
                                   * 5 s, or the environment variable WEFT_PEER_TIMEOUT_S */
    uint64_t op_timeout_ns;       /* default timeout of an operation; default 300 s. If a rank has
                                   * not called the operation by then, the communicator fails */
    const char *congestion;       /* this and the following fields except `transport`: as in
                                   * struct weft_transport_config */
    const char *transport;        /* "weft" (NULL, the default), or "tcp": the same messages over
                                   * the kernel's TCP, without loss */
    uint32_t socket_buffer_bytes;
    uint32_t busy_poll_us; /* busy-poll the socket for up to this time before sleeping.
                            * While few polls find a packet, only one sleep in 16 begins with a
                            * poll. 0 = never; default 50 */
    uint32_t inject_loss_ppm;
    uint32_t inject_seed;
    const char *box;        /* address of an aggregation box (`weft aggregate --dense`, --xdp), as
                             * HOST:PORT; NULL (default) = none. See "Aggregation box" above. The
                             * address may differ between ranks; the fields below may not */
    uint64_t box_bytes_min; /* shorter vectors do not go through it; default 256 KiB */
    uint64_t box_timeout_ns; /* it has failed if it sends no sum for so long while all ranks are in
                              * the operation; default 1 s */
    uint64_t box_retry_ns; /* a box that has failed is tried again after this time, or more; default
                            * 16 s, WEFT_NEVER = not at all */
    uint32_t box_insecure; /* must be 1 with `box`: its packets are not authenticated, whatever
                            * `security` is. Any host that can send packets to the box, or to this
                            * rank in its name, can change sums */
    uint32_t box_job;      /* the box's --job; default 1 */
    uint32_t box_slots;    /* maximum of packets in flight to the box: up to the box's --slots, and
                            * 4,096; default 32 */
    uint32_t box_float32;  /* 1: the box has --float32, and sums float32 vectors */
    int32_t box_exponent;  /* the box's --exponent, without box_float32. 0 (default): it sums int32
                            * vectors. -126 .. 64, not 0: float32 vectors as multiples of
                            * 2^box_exponent; each value is rounded to the nearest */
    uint32_t box_block_float; /* 1: float32 vectors as int32, with an exponent for each packet, on
                               * which the ranks agree in the packet before. Without box_float32 and
                               * box_exponent; the box sums int32, with any --exponent */
    uint64_t link_bps; /* with `plan`: rate of this host's link in each direction, in bits/s, 10^6
                        * .. 10^13; 0 (default) = unknown: that of the fastest, or 1 Gbit/s if no
                        * rank knows one. May differ between ranks */
    uint32_t plan;     /* enum weft_comm_plan_form: the plan for all_reduce of group 0 that
                        * weft_comm_join makes; default NONE */
    uint32_t reserved; /* 0 */
};

/* Write the defaults. Shape: size is sizeof(*config_p) in the caller. */
WEFT_API void weft_comm_config_init(struct weft_comm_config *config_p, size_t size);

/* Open the socket and start the thread.
 *
 * Owns:    borrows config until return; the caller owns *comm_p and releases it with
 *          weft_comm_close.
 * Errors:  as weft_transport_open. weft_comm_error(NULL) returns the cause and the remedy. */
WEFT_API weft_status weft_comm_open(const struct weft_comm_config *config,
                                    struct weft_comm **comm_p);

/* This rank's address, such as "127.0.0.1:41234", to pass to the other ranks.
 * Owns:    valid until weft_comm_close. */
WEFT_API const char *weft_comm_address(const struct weft_comm *comm);

/* Connect with all other ranks, and wait until all connections exist. All ranks call it.
 *
 * Shape:   addresses (ranks,), by rank, as weft_comm_address returned it at each rank; the
 *          caller's own address is ignored.
 * Errors:  WEFT_INVALID  an entry is not an address.
 *          WEFT_TIMEOUT  not all ranks have connected in time: the error text names the missing
 *                        ones. The caller may call it again.
 *          WEFT_PEER     a rank refused, or the communicator has failed. WEFT_STATE: after a
 *                        fork. */
WEFT_API weft_status weft_comm_join(struct weft_comm *comm, const char *const *addresses,
                                    uint64_t timeout_ns);

/* Send CLOSE to all ranks, join the thread, and free the communicator. Unfinished operations end,
 * and the memory lent to them belongs to the caller again. In the child of a fork it frees nothing
 * and sends nothing. NULL is allowed. */
WEFT_API void weft_comm_close(struct weft_comm *comm);

/* The error text of this thread's last failed call on any communicator, cause and remedy, or "".
 * comm may be NULL, as after a failed weft_comm_open.
 * Owns:    valid until this thread's next failing call. */
WEFT_API const char *weft_comm_error(const struct weft_comm *comm);

/* Create a group of n ranks in the given order. Operations of a group identify a rank by its
 * index. Group 0 is all ranks. All ranks of the job create the same groups in the same order,
 * including ranks that are not members.
 *
 * Errors:  WEFT_INVALID  a rank is out of range or occurs twice.
 *          WEFT_NOMEM    groups_max groups exist.
 *          WEFT_STATE    after a fork. */
WEFT_API weft_status weft_comm_group(struct weft_comm *comm, const uint32_t *ranks, uint32_t n,
                                     uint32_t *group_p);

/* ---- plans ----------------------------------------------------------------------------------- */

enum weft_comm_plan_form {
    WEFT_COMM_PLAN_NONE,   /* equal slices */
    WEFT_COMM_PLAN_AUTO,   /* slices or trees, whichever is predicted to be faster */
    WEFT_COMM_PLAN_SLICES, /* each rank owns as much as its link and its lateness allow */
    WEFT_COMM_PLAN_TREES,  /* parts that are summed along trees; for operations with bound 0,
                            * without residual, of other types than F16 and BF16, and of 64 KiB or
                            * more. The others use the slices. At most 256 ranks */
};

struct weft_comm_plan {
    size_t size;         /* set by weft_comm_plan_init */
    uint32_t form;       /* enum weft_comm_plan_form; default AUTO. Equal at all ranks, like
                          * bytes */
    uint32_t group;      /* default 0: all ranks */
    uint64_t up_bps;     /* rate of this host's link, in bits/s, 10^6 .. 10^13; 0 (default) =
                          * unknown: that of the fastest, or 1 Gbit/s if no rank knows one:
                          * late_ns is compared with the time of the vector at this rate */
    uint64_t down_bps;   /* 0 (default) = up_bps */
    uint64_t late_ns;    /* by how much this rank usually begins an all_reduce later than the
                          * earliest; default 0, up to an hour */
    uint64_t host;       /* any number that is equal for the ranks of a host, which share its link;
                          * 0 (default) = a hash of the host in weft_comm_address */
    uint64_t bytes;      /* usual length of the vectors; default 4 MiB, up to 64 GiB */
    uint64_t timeout_ns; /* 0 (default) = op_timeout_ns of the configuration */
};

/* Write the defaults. Shape: size is sizeof(*plan_p) in the caller. */
WEFT_API void weft_comm_plan_init(struct weft_comm_plan *plan_p, size_t size);

/* What weft_comm_plan_set has chosen: equal at all ranks, except own_ppm. */
struct weft_comm_planned {
    size_t size;        /* the caller sets it to sizeof(planned) before the call */
    uint32_t form;      /* NONE, SLICES or TREES */
    uint32_t hosts;     /* that share no links; the ranks, if all of them are on one host */
    uint32_t owners;    /* ranks that own a slice */
    uint32_t own_ppm;   /* fraction of the vector that this rank owns with slices */
    uint32_t parts;     /* TREES: trees; else 0 */
    uint32_t depth;     /* TREES: messages from the farthest rank to a root */
    uint64_t equal_ns;  /* predicted time of an all_reduce of `bytes` with equal slices */
    uint64_t slices_ns; /* with the plan's slices */
    uint64_t trees_ns;  /* with the best trees; WEFT_NEVER: none were considered */
};

/* Tell the ranks of a group each other's links, make a plan for its later all_reduces, and use it.
 * The results have the same bits at all ranks, as without a plan, but the order of the sums differs
 * along trees.
 *
 * All ranks of the group call it, between the same two operations of the group. Each may call it
 * again, for example when it has measured other rates.
 *
 * Owns:    planned_p may be NULL. An all_reduce of S bytes uses memory for the contributions that
 *          this rank adds up: n - 1 times its slice, at most 5 S; along trees a copy of each part
 *          for each child of this rank in the part's tree.
 * Errors:  WEFT_INVALID  a field is out of range: at this rank, and the others wait for it; or the
 *                        ranks want different forms or bytes: at all ranks. The previous plan
 *                        stays.
 *          WEFT_STATE    operations are in progress: wait for them first; or after a fork.
 *          WEFT_NOMEM    no memory for the plan, at this rank, which has told nothing yet.
 *          If only this rank was refused, with INVALID, STATE or NOMEM, it must call it again
 *          before any other operation of the group, because the others wait in it.
 *          WEFT_PEER     the communicator has failed: for example a rank has not called it within
 *                        timeout_ns.
 * Thread:  no other thread may begin an operation meanwhile.
 * Source:  docs/COLLECTIVES.md, "Plans"; [mlfabric] section 6. */
WEFT_API weft_status weft_comm_plan_set(struct weft_comm *comm, const struct weft_comm_plan *plan,
                                        struct weft_comm_planned *planned_p);

/* ---- operations ------------------------------------------------------------------------------ */

enum weft_comm_kind {
    WEFT_COMM_ALL_REDUCE,     /* count: elements of the vector; `in` and `out` may be equal */
    WEFT_COMM_REDUCE,         /* as ALL_REDUCE; only the root has an `out`, which may equal `in` */
    WEFT_COMM_REDUCE_SCATTER, /* count: elements of a block; `in` has a block for each rank,
                               * `out` is this rank's block, and may be the same memory as that
                               * block of `in` */
    WEFT_COMM_ALL_GATHER,     /* count: elements of a block; `in` is this rank's block, `out`
                               * has n blocks; `in` may be the same memory as its block of
                               * `out` */
    WEFT_COMM_BROADCAST,      /* count: elements of the vector; `in` at the root, `out` at all
                               * ranks; the root's `out` may equal `in` */
    WEFT_COMM_GATHER,         /* as ALL_GATHER; only the root has an `out` */
    WEFT_COMM_SCATTER,        /* count: elements of a block; the root's `in` has n blocks, each
                               * rank's `out` one; the root's `out` may be the same memory as its
                               * block of `in` */
    WEFT_COMM_ALL_TO_ALL,     /* count: elements of a block; `in` and `out` have n blocks, and
                               * do not overlap */
    WEFT_COMM_BARRIER,        /* no buffers */
    WEFT_COMM_SEND,           /* send `in`, a vector of count elements, to `peer`. Sends and recvs
                               * of two ranks with the same tag match in the order of their
                               * calls */
    WEFT_COMM_RECV,           /* receive a vector of count elements from `peer` into `out` */
};

enum weft_comm_type {
    WEFT_COMM_F32,
    WEFT_COMM_F64,
    WEFT_COMM_F16, /* summed in float32 and rounded once, like BF16 */
    WEFT_COMM_BF16,
    WEFT_COMM_I8,
    WEFT_COMM_U8,
    WEFT_COMM_I32,
    WEFT_COMM_I64,
};

enum weft_comm_reduction {
    WEFT_COMM_SUM,  /* integers wrap */
    WEFT_COMM_MEAN, /* floats; divided by the number of received contributions; if `residual` is
                     * set, by the number of ranks */
    WEFT_COMM_MIN,  /* NaN if any contribution is NaN; MAX likewise */
    WEFT_COMM_MAX,
    WEFT_COMM_PRODUCT,
    WEFT_COMM_AND, /* AND, OR and XOR: bitwise, of integers */
    WEFT_COMM_OR,
    WEFT_COMM_XOR,
};

struct weft_comm_op {
    size_t size;        /* set by weft_comm_op_init */
    uint32_t kind;      /* enum weft_comm_kind */
    uint32_t type;      /* enum weft_comm_type; default F32 */
    uint32_t reduction; /* enum weft_comm_reduction; default SUM */
    uint32_t group;     /* default 0: all ranks */
    uint32_t root;      /* index of the root in the group; default 0 */
    uint32_t peer;      /* SEND, RECV: index of the other rank in the group */
    uint32_t tag;       /* SEND, RECV; default 0 */
    uint32_t bound_ppm; /* reductions: fraction of the packets that may be missing, < 1,000,000;
                         * default 0. Of n packets floor(n x bound) may be missing; the remainder,
                         * less than a packet, carries over to the next operation of the same
                         * stream */
    uint64_t count;     /* number of elements, as defined for the kind; 0 at all ranks = no
                         * operation, except that a SEND and a RECV of 0 elements match */
    const void *in;     /* `in` and `out` are aligned to the size of an element */
    void *out;
    float *residual;     /* float32 sums and means: error feedback. Same length as `in`,
                          * initially zero. Holds the elements missing in earlier calls; it is
                          * added to `in`, and replaced by the elements missing in this call.
                          * NULL (default) = none */
    uint8_t *missed;     /* with residual: one counter per 32 elements, initially zero: the number
                          * of consecutive calls in which they were missing. After two such calls
                          * they must arrive. Length ceil(count / 32) bytes; reduce_scatter:
                          * ceil(count / 32) for each block. NULL (default) = not counted */
    uint32_t stream;     /* with a bound: number of the tensor or bucket; default 0 */
    uint32_t reserved;   /* 0 */
    uint64_t timeout_ns; /* from weft_comm_begin on; 0 (default) = op_timeout_ns of the
                          * configuration */
    void *user;          /* returned in done */
};

WEFT_API void weft_comm_op_init(struct weft_comm_op *op_p, size_t size);

/* Begin an operation.
 *
 * Owns:    borrows in, out, residual and missed until the operation has been waited for.
 * Errors:  WEFT_INVALID  a field is out of range; the error text names it. Nothing is begun, and
 *                        the other ranks wait for this one.
 *          WEFT_AGAIN    ops_max operations have begun and were not waited for.
 *          WEFT_PEER     the communicator has failed. WEFT_STATE: after a fork. */
WEFT_API weft_status weft_comm_begin(struct weft_comm *comm, const struct weft_comm_op *op,
                                     uint64_t *id_p);

enum weft_comm_boxed {
    WEFT_COMM_WITHOUT_BOX, /* not of the operations that an aggregation box sums */
    WEFT_COMM_BOXED,       /* it has summed this one, but for chunks that it cannot sum */
    WEFT_COMM_FALLBACK,    /* the box has failed, so the ranks have summed this one without it; see
                            * weft_comm_box_failure */
};

struct weft_comm_done {
    size_t size; /* the caller sets it to sizeof(done) before the call */
    uint64_t id;
    void *user;
    uint32_t status;           /* WEFT_OK, or WEFT_PEER: the communicator has failed */
    uint32_t contributors_min; /* least number of contributions to any element that this rank
                                * reduced; the number of ranks of the group if nothing is missing */
    uint64_t own_missing;      /* elements of this rank's contribution that did not arrive */
    uint64_t nonfinite;        /* values of the residual that were NaN or infinite, and became 0 */
    uint64_t contributions_ns; /* from begin until all contributions had arrived; 0 if the kind
                                * has none */
    uint64_t total_ns;         /* from begin until complete */
    uint32_t boxed;            /* enum weft_comm_boxed */
    uint32_t reserved;
};

/* Wait until an operation is complete. Each operation is returned once. While it waits, the calling
 * thread sends, receives and reduces for all operations, unless another waiting thread does so
 * already. Not a cancellation point of pthreads.
 *
 * Owns:    done_p may be NULL.
 * Errors:  WEFT_TIMEOUT   not complete within timeout_ns; wait again.
 *          WEFT_PEER      the operation has failed with the communicator; *done_p is still
 *                         written.
 *          WEFT_NOTFOUND  no operation has this id, or it was already waited for.
 *          WEFT_STATE     after a fork. */
WEFT_API weft_status weft_comm_wait(struct weft_comm *comm, uint64_t id, uint64_t timeout_ns,
                                    struct weft_comm_done *done_p);

/* Like weft_comm_wait, for whichever operation completes first, except those that another thread
 * waits for with weft_comm_wait. WEFT_NOTFOUND: no operation is in progress. */
WEFT_API weft_status weft_comm_wait_any(struct weft_comm *comm, uint64_t timeout_ns,
                                        struct weft_comm_done *done_p);

/* Begin and wait, in one call; for programs that do not compute meanwhile. */
WEFT_API weft_status weft_comm_run(struct weft_comm *comm, const struct weft_comm_op *op,
                                   struct weft_comm_done *done_p);

/* A descriptor for poll and epoll: readable while weft_comm_wait_any would return an operation
 * immediately. It must not be read, and is valid until weft_comm_close.
 *
 * Errors:  WEFT_IO  too many files are open. WEFT_STATE: after a fork. */
WEFT_API weft_status weft_comm_fd(struct weft_comm *comm, int *fd_p);

/* Make the communicator fail at all ranks, with the error "rank 3 called abort: TEXT". Only the
 * first 39 bytes of text are sent. */
WEFT_API void weft_comm_abort(struct weft_comm *comm, const char *text);

/* The error text of the communicator's failure, or NULL; after a fork NULL.
 * Owns:    valid until this thread's next failing call. */
WEFT_API const char *weft_comm_failure(struct weft_comm *comm);

/* Cumulative since weft_comm_open. */
struct weft_comm_counters {
    size_t size;                   /* the caller sets it to sizeof(counters) before the call */
    uint64_t operations;           /* begun */
    uint64_t operations_done;      /* of these, without failure */
    uint64_t messages_sent;        /* between ranks */
    uint64_t message_bytes_sent;   /* bytes of messages_sent */
    uint64_t elements_missing;     /* elements of other ranks' contributions that did not arrive at
                                    * this rank */
    uint64_t own_elements_missing; /* elements of this rank's contributions that did not arrive at
                                    * other ranks */
    uint64_t nonfinite;            /* values of residuals that were NaN or infinite, and became 0 */
    uint64_t early_messages;       /* messages that arrived before this rank had called their
                                    * operation */
    uint64_t connections_refused;  /* incoming connections of another epoch, or without a valid
                                    * rank */
    uint64_t datagrams_sent;
    uint64_t datagrams_received;
    uint64_t bytes_sent; /* UDP payload */
    uint64_t bytes_received;
    uint64_t retransmitted_packets;
    uint64_t box_operations;      /* summed by the aggregation box, but for direct elements */
    uint64_t box_fallbacks;       /* operations that the box would have summed, but it has
                                   * failed */
    uint64_t box_direct_elements; /* of box_operations, elements that the ranks summed themselves,
                                   * because the box could not */
    uint64_t box_packets_resent;  /* packets that this rank sent to the box again */
    uint64_t box_state;           /* enum weft_comm_box_state */
    uint64_t box_retries;         /* trials of the box after it had failed */
    uint64_t box_recoveries;      /* of them, those that it passed, so that it was used again */
    uint64_t plan_operations;     /* all_reduces with a plan */
    uint64_t plan_trees;          /* of these, along trees */
};

enum weft_comm_box_state {
    WEFT_COMM_BOX_NONE,
    WEFT_COMM_BOX_UNTRIED, /* no operation has needed it yet */
    WEFT_COMM_BOX_TRIAL,   /* the ranks find out whether it sums correctly */
    WEFT_COMM_BOX_USED,
    WEFT_COMM_BOX_FAILED, /* not used, unless it passes another trial */
};

/* Why the aggregation box has failed and is not used. NULL if it has not failed, or if there is
 * none; after a fork NULL.
 * Owns:    valid until this thread's next failing call. */
WEFT_API const char *weft_comm_box_failure(struct weft_comm *comm);

WEFT_API void weft_comm_counters_get(struct weft_comm *comm, struct weft_comm_counters *counters_p);

#ifdef __cplusplus
}
#endif

#endif
