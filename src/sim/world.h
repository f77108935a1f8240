/* A simulated cluster: production endpoints (core/endpoint.h) on a simulated network (sim/net.h).
 *
 * Each host has one endpoint and one application, given as a struct of functions. The world turns
 * the crank of each endpoint exactly as core/endpoint.h says every driver must: take the datagrams,
 * poll, the deadline, poll, send until there is nothing to send, sleep. A host may be slow: its
 * crank then comes a fixed time after the first datagram and takes all that have arrived as one
 * batch, as a thread woken by the kernel does. Or asleep: it does nothing until a time it named.
 *
 * The world checks what needs no knowledge of the application: the network conserves packets, a
 * datagram made by an attacker changes no counter but one of the drops and causes no event, an
 * honest datagram is never called malformed, a deadline moves on. Any of these ends the run:
 * WEFT_WORLD_BROKEN.
 *
 * Everything that happens goes into one hash; the same seed gives the same hash.
 */
#ifndef WEFT_SIM_WORLD_H
#define WEFT_SIM_WORLD_H

#include "core/endpoint.h"
#include "sim/net.h"

/* The application of a host. Called in the middle of the crank; may call the endpoint's message
 * interface and the world, not weft_ep_recv and weft_ep_on_deadline. */
struct weft_world_app {
    void *self;
    void (*event)(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns);
    void (*wake)(void *self, uint32_t host, uint64_t now_ns);
    /* After the events of a crank, before it sends. NULL is fine. */
    void (*batch)(void *self, uint32_t host, uint64_t now_ns);
};

/* Datagrams that an attacker at the switch adds, each with this chance per honest datagram: random
 * bytes that open no connection, copies cut short, copies with a wrong version, connection id or
 * sender, which a correct endpoint can tell from the truth without cryptography; and with it, copies
 * of anything with any bits flipped, invented packets under a real header, packets that were
 * accepted before, and HELLOs from invented addresses. */
struct weft_world_hostile {
    uint32_t garbage_ppm;
    uint32_t cut_ppm;
    uint32_t version_ppm;
    uint32_t id_ppm;
    uint32_t address_ppm;
    /* modes auth and seal */
    uint32_t flip_ppm;
    uint32_t forge_ppm;
    uint32_t replay_ppm;
    uint32_t flood_ppm;
};

/* Somebody who looks on: a trace, a capture. It changes nothing of what happens, but the endpoints
 * of a world with trace_records keep a ring of records. Zeroed = nobody. */
struct weft_world_tap {
    void *arg;
    uint32_t trace_records; /* of every endpoint; see core/trace.h */
    /* A datagram has left its host, before the network does anything to it. NULL is fine. */
    void (*packet)(void *arg, uint64_t now_ns, uint32_t from, uint32_t to, enum weft_ecn ecn,
                   const void *bytes, uint32_t count);
    /* After each crank of a host and, `last`, before its endpoint goes; after a restart the host
     * has another one. NULL is fine. */
    void (*host)(void *arg, uint32_t host, struct weft_ep *ep, bool last);
};

struct weft_world_config {
    struct weft_world_tap tap;
    uint32_t hosts;
    uint64_t seed;      /* of the network and the attacker */
    uint64_t steps_max; /* events of the network; then WEFT_WORLD_STEPS */
    /* No datagrams in the hash, and no checks of what a swarm has checked: for large runs that are
     * measured. Needs an honest network. */
    bool lean;
    struct weft_world_hostile hostile;
};

struct weft_world_host_config {
    struct weft_ep_config ep;
    uint64_t crank_delay_ns; /* from the first datagram to the crank */
    uint32_t socket_packets; /* datagrams that wait for the crank; more are dropped */
    struct weft_world_app app;
};

enum weft_world_end {
    WEFT_WORLD_TIME,   /* the time asked for has come */
    WEFT_WORLD_IDLE,   /* nothing is planned any more */
    WEFT_WORLD_STEPS,  /* steps_max */
    WEFT_WORLD_BROKEN, /* a check failed; weft_world_wrong says which */
};

/* What the world itself counted, to compare with an endpoint's counters. */
struct weft_world_host_counters {
    uint64_t packets_sent;
    uint64_t bytes_sent;
    uint64_t packets_received; /* given to weft_ep_recv */
    uint64_t bytes_received;
    uint64_t hostile_received; /* of these */
    uint64_t socket_dropped;
    uint64_t events;
};

struct weft_world;

/* Lack of memory ends the process. */
struct weft_world *weft_world_new(const struct weft_world_config *config);
void weft_world_free(struct weft_world *world); /* NULL is fine */

/* Give a host its endpoint, and a toy's cryptography if its mode wants any; once per host, before
 * the first run.
 * Errors:  WEFT_INVALID  the endpoint refuses its configuration. */
weft_status weft_world_host_init(struct weft_world *world, uint32_t host,
                                 const struct weft_world_host_config *config);

struct weft_net *weft_world_net(struct weft_world *world);
struct weft_ep *weft_world_ep(struct weft_world *world, uint32_t host);
uint64_t weft_world_now_ns(const struct weft_world *world);

/* From now on this host is reached, and sends, from another address than weft_world_addr says; what
 * is sent to the old one is lost. Once a host. */
void weft_world_move(struct weft_world *world, uint32_t host);

/* The address of a host as endpoints see it, and back (UINT32_MAX when it is none). */
struct weft_addr weft_world_addr(uint32_t host);
uint32_t weft_world_addr_host(const struct weft_addr *addr);

/* Plan a call of the application's wake. */
void weft_world_wake(struct weft_world *world, uint32_t host, uint64_t at_ns);

/* Do not turn this host's crank from the end of the current one until then. */
void weft_world_sleep(struct weft_world *world, uint32_t host, uint64_t until_ns);

/* The host is gone for good: silent, deaf, no CLOSE. Its endpoint's memory stays until the end. Not
 * for use inside a crank. */
void weft_world_kill(struct weft_world *world, uint32_t host);

/* The process of this host dies without a word and another one comes up at its address, with a new
 * endpoint and the same application. Not for use inside a crank. Errors: as host_init. */
weft_status weft_world_restart(struct weft_world *world, uint32_t host,
                               const struct weft_world_host_config *config);
bool weft_world_alive(const struct weft_world *world, uint32_t host);

/* True while something that a process sent which is gone by now has yet to reach its host. */
bool weft_world_orphans(const struct weft_world *world);

/* Let it happen until `until_ns` (included). */
enum weft_world_end weft_world_run(struct weft_world *world, uint64_t until_ns);

/* End weft_world_run as BROKEN: an application's own check failed. The first message stays. */
[[gnu::format(printf, 2, 3)]] void weft_world_fail(struct weft_world *world, const char *format,
                                                   ...);

/* What is wrong; "" while nothing is. */
const char *weft_world_wrong(const struct weft_world *world);

uint64_t weft_world_hash(const struct weft_world *world);
uint64_t weft_world_steps(const struct weft_world *world);
const struct weft_world_host_counters *weft_world_counters(const struct weft_world *world,
                                                           uint32_t host);

#endif
