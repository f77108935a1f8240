/* A simulated cluster: production endpoints (core/endpoint.h) on a simulated network (sim/net.h).
 *
 * Each host has one endpoint and one application, given as a struct of functions. The world runs
 * the loop of each endpoint exactly as core/endpoint.h requires of every driver: receive the
 * datagrams, poll, the deadline, poll, send until there is nothing to send, sleep. A host may be
 * slow: its loop then runs a fixed time after the first datagram and processes all datagrams that
 * have arrived as one batch, like a thread woken by the kernel. A host may also be asleep: it does
 * nothing until a given time.
 *
 * The world checks the properties that do not depend on the application: the network conserves
 * packets; a datagram from an attacker changes only one drop counter and causes no event; an honest
 * datagram is never counted as malformed; a deadline advances. Any violation ends the run with
 * WEFT_WORLD_BROKEN.
 *
 * All events are added to one hash; the same seed gives the same hash.
 */
#ifndef WEFT_SIM_WORLD_H
#define WEFT_SIM_WORLD_H

#include "core/endpoint.h"
#include "sim/net.h"

/* The application of a host. Called inside the round of progress (the loop above). It may call the
 * endpoint's message interface and the world, but not weft_ep_recv and weft_ep_on_deadline. */
struct weft_world_app {
    void *self;
    void (*event)(void *self, uint32_t host, const struct weft_msg_event *event, uint64_t now_ns);
    void (*wake)(void *self, uint32_t host, uint64_t now_ns);
    /* Called after the events of a round of progress, before it sends. May be NULL. */
    void (*batch)(void *self, uint32_t host, uint64_t now_ns);
};

/* Datagrams that an attacker at the switch adds, each with this probability per honest datagram.
 * Without cryptography a correct endpoint can reject: random bytes that open no connection,
 * truncated copies, and copies with a wrong version, connection id or sender. With cryptography
 * also: copies with any bits flipped, forged packets with a real header, replayed packets, and
 * HELLOs from forged addresses. */
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

/* An observer: a trace or a capture. It does not change the run, except that the endpoints of a
 * world with trace_records keep a ring of records. Zeroed = none. */
struct weft_world_tap {
    void *arg;
    uint32_t trace_records; /* per endpoint; see core/trace.h */
    /* A datagram has left its host, before the network processes it. May be NULL. */
    void (*packet)(void *arg, uint64_t now_ns, uint32_t from, uint32_t to, enum weft_ecn ecn,
                   const void *bytes, uint32_t count);
    /* Called after each round of progress of a host and, with `last`, before its endpoint is freed;
     * after a restart the host has a new one. May be NULL. */
    void (*host)(void *arg, uint32_t host, struct weft_ep *ep, bool last);
};

struct weft_world_config {
    struct weft_world_tap tap;
    uint32_t hosts;
    uint64_t seed;      /* of the network and the attacker */
    uint64_t steps_max; /* events of the network, then the run ends with WEFT_WORLD_STEPS */
    /* Leave datagrams out of the hash, and skip checks that a swarm has already done: for large
     * measured runs. Requires an honest network. */
    bool lean;
    struct weft_world_hostile hostile;
};

struct weft_world_host_config {
    struct weft_ep_config ep;
    uint64_t progress_delay_ns; /* delay from the first datagram to the round of progress */
    uint32_t socket_packets;    /* datagrams queued for the round of progress; more are dropped */
    struct weft_world_app app;
};

/* The application of a host without an endpoint, whose packets are not of the protocol. */
struct weft_world_other {
    void *self;
    /* A packet has arrived; it is freed after the call. */
    void (*packet)(void *self, const struct weft_net_packet *packet, uint64_t now_ns);
    void (*wake)(void *self, uint64_t now_ns); /* set with weft_net_wake */
};

enum weft_world_end {
    WEFT_WORLD_TIME,   /* the requested time was reached */
    WEFT_WORLD_IDLE,   /* no event is scheduled */
    WEFT_WORLD_STEPS,  /* steps_max */
    WEFT_WORLD_BROKEN, /* a check failed; see weft_world_wrong */
};

/* Counters of the world, to compare with those of an endpoint. */
struct weft_world_host_counters {
    uint64_t packets_sent;
    uint64_t bytes_sent;
    uint64_t packets_received; /* passed to weft_ep_recv */
    uint64_t bytes_received;
    uint64_t hostile_received; /* of these */
    uint64_t socket_dropped;
    uint64_t events;
};

struct weft_world;

/* Running out of memory ends the process. */
struct weft_world *weft_world_new(const struct weft_world_config *config);
void weft_world_free(struct weft_world *world); /* NULL is allowed */

/* Create the endpoint of a host, with toy cryptography if its mode needs it. Call once per host,
 * before the first run.
 * Errors:  WEFT_INVALID  the endpoint rejects its configuration. */
weft_status weft_world_host_init(struct weft_world *world, uint32_t host,
                                 const struct weft_world_host_config *config);

/* Create a host without an endpoint: other programs of the host `beside`, over the same links. It
 * sends with weft_net_send. The endpoint of `beside` sees only its own bytes in the queue of its
 * uplink, and can count those that the link has sent for all, as on a real host. Call once per
 * host, before the first run. */
void weft_world_other_init(struct weft_world *world, uint32_t host, uint32_t beside,
                           const struct weft_world_other *other);

struct weft_net *weft_world_net(struct weft_world *world);
struct weft_ep *weft_world_ep(struct weft_world *world, uint32_t host);
uint64_t weft_world_now_ns(const struct weft_world *world);

/* Change the address of this host, for sending and receiving; packets to the old address are lost.
 * At most once per host. */
void weft_world_move(struct weft_world *world, uint32_t host);

/* The address of a host as seen by endpoints, and the reverse (UINT32_MAX if there is no such
 * host). */
struct weft_addr weft_world_addr(uint32_t host);
uint32_t weft_world_addr_host(const struct weft_addr *addr);

/* Schedule a call of the application's wake. */
void weft_world_wake(struct weft_world *world, uint32_t host, uint64_t at_ns);

/* Suspend this host's round of progress from the end of the current one until then. */
void weft_world_sleep(struct weft_world *world, uint32_t host, uint64_t until_ns);

/* The host fails permanently: it neither sends nor receives, and sends no CLOSE. Its endpoint's
 * memory is kept until the end. Not for use inside a round of progress. */
void weft_world_kill(struct weft_world *world, uint32_t host);

/* The process of this host dies without CLOSE, and a new one starts at its address, with a new
 * endpoint and the same application. Not for use inside a round of progress. Errors: as host_init.
 */
weft_status weft_world_restart(struct weft_world *world, uint32_t host,
                               const struct weft_world_host_config *config);
bool weft_world_alive(const struct weft_world *world, uint32_t host);

/* Whether datagrams of a process that no longer exists are still in flight. */
bool weft_world_orphans(const struct weft_world *world);

/* Run until `until_ns` (included). */
enum weft_world_end weft_world_run(struct weft_world *world, uint64_t until_ns);

/* End weft_world_run as BROKEN: a check of the application failed. The first message is kept. */
[[gnu::format(printf, 2, 3)]] void weft_world_fail(struct weft_world *world, const char *format,
                                                   ...);

/* Description of the failed check; "" if none failed. */
const char *weft_world_wrong(const struct weft_world *world);

uint64_t weft_world_hash(const struct weft_world *world);
uint64_t weft_world_steps(const struct weft_world *world);
const struct weft_world_host_counters *weft_world_counters(const struct weft_world *world,
                                                           uint32_t host);

#endif
