/* An endpoint with a thread of its own: communication goes on while the application computes.
 *
 * The engine thread owns a weft_driver (UDP or TCP) and progresses it. The application's thread
 * holds a struct weft_msgr whose calls are handed over: commands through a mailbox of one slot (the
 * call returns with the endpoint's own answer, so statuses and sequence numbers are the same as
 * without an engine), events through a bounded ring. A program chooses between this and progressing
 * the endpoint itself when it starts.
 *
 * Differences to the driver's message interface:
 *   - WEFT_SINK_EVENT is WEFT_UNSUPPORTED: a chunk is in the receive buffer only while the engine
 *     thread handles it. set_user and refuse, which only that sink needs, assert.
 *   - The ring holds events_max events. When it is full, the engine receives no more datagrams
 *     until the application polls (commands are still executed): peers see a slow receiver; no
 *     event is lost.
 *   - A mask is copied into the ring; as the interface says, it is valid until the next call.
 *   - now_ns of send is ignored; the engine reads the same clock itself.
 *
 * Thread:  start, the message interface, connect, call, wait and stop: one application thread.
 */
#ifndef WEFT_IO_ENGINE_H
#define WEFT_IO_ENGINE_H

#include "io/driver.h"

struct weft_engine;

struct weft_engine_config {
    struct weft_driver_config driver;
    uint32_t events_max; /* power of two, >= 2; memory: events_max x ep.chunks_max / 8 bytes */
};

void weft_engine_config_default(struct weft_engine_config *config_p);

/* Open the socket and start the thread.
 * Owns:    gives *engine_p, to be ended with weft_engine_stop.
 * Errors:  as weft_driver_open. */
weft_status weft_engine_start(const struct weft_engine_config *config,
                              struct weft_engine **engine_p, struct weft_error *error);

uint16_t weft_engine_port(const struct weft_engine *engine);

/* As weft_driver_connect. */
weft_status weft_engine_connect(struct weft_engine *engine, const char *host, uint16_t port,
                                weft_peer *peer_p, struct weft_error *error);

struct weft_msgr weft_engine_msgr(struct weft_engine *engine);

/* Run `call` on the engine's thread and wait for its return: for operations that the message
 * interface does not offer. It must not step, idle or close the socket, nor poll. */
typedef void weft_engine_fn(struct weft_driver *driver, void *arg);
void weft_engine_call(struct weft_engine *engine, weft_engine_fn *call, void *arg);

/* Sleep until an event can be polled; false when timeout_ns passed first. */
bool weft_engine_wait(struct weft_engine *engine, uint64_t timeout_ns);

/* CLOSE to all peers, join the thread, free. Memory lent to sends and expectations is the caller's
 * again. NULL is allowed. */
void weft_engine_stop(struct weft_engine *engine);

#endif
