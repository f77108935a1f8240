/* The handshake guard of an endpoint: admission of handshakes, and replies to packets of no
 * connection (handshake_guard.c). Internal to src/core.
 *
 * Source: docs/PROTOCOL.md sections 8.1, 8.5 and 8.6.
 */
#ifndef WEFT_CORE_HANDSHAKE_GUARD_H
#define WEFT_CORE_HANDSHAKE_GUARD_H

#include "core/endpoint.h"
#include "wire/packet.h"

#include <stdbool.h>

struct weft_ep;

enum {
    REPLIES_MAX = 64, /* replies without a connection that wait for the next send: more than
                       * one batch of received datagrams can cause */
    REPLY_BYTES_MAX = WEFT_COOKIE_BYTES,
    REPEATS = 64,
};

/* A rate limit: the time at which the token bucket will be full again. */
struct bucket {
    uint64_t full_ns;
};

struct reply {
    struct weft_addr addr;
    uint32_t bytes;
    uint8_t data[REPLY_BYTES_MAX];
};

/* When a HELLO with this cookie was last searched for. */
struct searched {
    uint8_t cookie[WEFT_COOKIE_VALUE_BYTES];
    uint64_t at_ns; /* 0 = none */
};

struct handshake_guard {
    uint16_t key_id;                  /* distinguishes job keys */
    uint8_t mac_key[WEFT_HASH_BYTES]; /* for HELLO, ACCEPT, COOKIE */
    uint8_t unknown_key[WEFT_HASH_BYTES];
    uint8_t cookie_secret[2][WEFT_HASH_BYTES]; /* current, previous */
    uint64_t cookie_ns;                        /* when the current one was generated; 0 = never */
    struct bucket hellos;
    struct bucket searches;
    struct searched searched[REPEATS]; /* beyond `searches`: the last cookies */
    struct bucket unknowns;
    struct bucket unknowns_taken;
    struct bucket refusals;
    struct reply replies[REPLIES_MAX];
    uint32_t reply_head;
    uint32_t reply_count;
    enum weft_ep_hint hint;
};

void weft_core_handshake_guard_init(struct weft_ep *ep);
void weft_core_handshake_guard_mac(const struct weft_ep *ep, const uint8_t *bytes, size_t count,
                                   uint8_t mac_p[WEFT_MAC_BYTES]);
bool weft_core_handshake_guard_mac_valid(const struct weft_ep *ep, const uint8_t *bytes,
                                         size_t count, const uint8_t mac[WEFT_MAC_BYTES]);
/* Check mode, job key and MAC of a HELLO. False: it is dropped and counted, and REFUSED may be
 * queued as a reply. */
bool weft_core_handshake_guard_hello(struct weft_ep *ep, const struct weft_addr *from,
                                     const struct weft_wire_hello *hello, const uint8_t *bytes,
                                     uint64_t now_ns);
/* Whether to search the table for the peer of a HELLO. False: a COOKIE is sent. */
bool weft_core_handshake_guard_search(struct weft_ep *ep, const struct weft_addr *from,
                                      const struct weft_wire_hello *hello, uint64_t now_ns);
/* Whether the HELLO may open a peer. False: a COOKIE is sent, and HELLO must be repeated with
 * it. */
bool weft_core_handshake_guard_admit(struct weft_ep *ep, const struct weft_addr *from,
                                     const struct weft_wire_hello *hello, uint64_t now_ns,
                                     bool *proven_p);
void weft_core_handshake_guard_refuse(struct weft_ep *ep, const struct weft_addr *to,
                                      uint32_t connection_id, enum weft_wire_refusal reason,
                                      uint64_t now_ns);
/* A packet was received for a connection that does not exist. */
void weft_core_handshake_guard_unknown(struct weft_ep *ep, const struct weft_addr *from,
                                       const struct weft_wire_packet *header, size_t count,
                                       uint64_t now_ns);
void weft_core_cookie_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                           size_t count, uint64_t now_ns);
void weft_core_unknown_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count, uint64_t now_ns);
void weft_core_refused_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count);
/* A datagram of another wire version was received. */
void weft_core_version_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count, uint64_t now_ns);
/* Build the next queued reply; 0 = none. */
uint32_t weft_core_reply_build(struct weft_ep *ep, struct weft_tx *tx);

#endif
