/* The thread that keeps a process in its job: registers it with the coordinator, sends heartbeats,
 * and learns where the shards are (member/client.h), on an endpoint of its own.
 *
 * It is independent of the data endpoints: a backward pass of half a minute is not a death. It
 * survives the coordinator: when the connection is lost it resolves the name and connects again,
 * for as long as the process runs.
 *
 * Thread:  start, wait, publish, stop and state: any one thread.
 *
 * Source: docs/PROTOCOL.md section 11; docs/RUN.md.
 */
#ifndef WEFT_IO_MEMBER_THREAD_H
#define WEFT_IO_MEMBER_THREAD_H

#include "io/driver.h"
#include "io/resolve.h"
#include "member/client.h"

struct weft_member_thread;

struct weft_member_thread_config {
    const char *host; /* of the coordinator: a name or an address; borrowed until stop */
    uint16_t port;
    /* kind and options of the transport. Address, name, tables and times are set by start. */
    struct weft_driver_config driver;
    struct weft_member_client_config member;
    /* Called on the thread: set mode, key and cryptography in the endpoint's configuration; erase
     * the key again; free what arm allocated, when the endpoint is closed. NULL: mode none. */
    weft_status (*arm)(void *arg, struct weft_udp_config *config, struct weft_error *error);
    void (*disarm)(void *arg, struct weft_udp_config *config);
    void (*closed)(void *arg);
    void *arg;
};

/* Owns:    gives *thread_p, to be ended with weft_member_thread_stop. That the endpoint cannot be
 *          opened is reported by wait.
 * Errors:  WEFT_NOMEM; WEFT_IO  no thread, no descriptor. */
weft_status weft_member_thread_start(const struct weft_member_thread_config *config,
                                     struct weft_member_thread **thread_p,
                                     struct weft_error *error);

enum weft_member_wait {
    WEFT_MEMBER_WAIT_JOINED, /* a lease was granted: state->grant */
    WEFT_MEMBER_WAIT_LISTED, /* and all shards are known: state->list */
};

/* Wait until that state is reached.
 *
 * stop:    called every 50 ms; true ends the wait. NULL = never.
 * Errors:  WEFT_PEER     the coordinator refused, or the slot was given to another process, or the
 *                        process at the coordinator's address is not one.
 *          WEFT_TIMEOUT  patience_ns is over, or stop returned true.
 *          Others        the endpoint could not be opened, and as weft_member_client_new.
 *          error->text has the reason. */
weft_status weft_member_thread_wait(struct weft_member_thread *thread, enum weft_member_wait what,
                                    uint64_t patience_ns, bool (*stop)(void),
                                    struct weft_member_state *state_p, struct weft_error *error);

/* Server: publish the addresses of its shards, (span,) of them. */
void weft_member_thread_publish(struct weft_member_thread *thread,
                                const struct weft_member_address *addresses);

/* Aggregator: publish the addresses of its endpoints, one of each shard; count <=
 * WEFT_MEMBER_SPAN_MAX. */
void weft_member_thread_offer(struct weft_member_thread *thread,
                              const struct weft_member_address *addresses, uint32_t count);

/* A copy of the state. */
void weft_member_thread_state(struct weft_member_thread *thread, struct weft_member_state *state_p);

/* Readable when this process was replaced or all workers are done: see state. For poll. */
int weft_member_thread_fd(const struct weft_member_thread *thread);

/* Why a member was refused or replaced, as a sentence. */
void weft_member_thread_words(struct weft_member_thread *thread, char *text_p, size_t bytes);

/* Give the lease back (`done`: the work is finished), waiting half a second at most for the
 * coordinator to confirm it; end the thread. NULL is allowed. */
void weft_member_thread_stop(struct weft_member_thread *thread, bool done);

#endif
