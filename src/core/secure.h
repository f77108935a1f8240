/* Keys of a connection, the replay window, and the doorman of an endpoint. Internal to src/core.
 *
 *   secure.c   handshake keys, sealing and opening packets, key rotation, replay window
 *   guard.c    who may shake hands: MACs of the handshake, cookies, UNKNOWN, REFUSED, hints
 *
 * Source: docs/PROTOCOL.md section 8.
 */
#ifndef WEFT_CORE_SECURE_H
#define WEFT_CORE_SECURE_H

#include "core/endpoint.h"
#include "core/noise.h"
#include "wire/packet.h"

#include <stdbool.h>

struct peer;

enum {
    KEY_SLOTS = 4,          /* of each peer: send; receive previous, current and next */
    REPLAY_BLOCKS = 64,     /* packet numbers remembered: 64 x 64 */
    REPLIES_MAX = 64,       /* answers without a connection that wait for the next send: more than
                             * one batch of datagrams can ask for */
    REPLY_BYTES_MAX = WEFT_COOKIE_BYTES,
};

/* What one peer has of it. All zero is mode none. */
struct secure {
    uint8_t mode;             /* enum weft_wire_mode */
    bool keyed;               /* its slots hold keys */
    bool broken;              /* the provider failed: goes down at the next deadline */
    bool proven;              /* its HELLO brought a cookie */
    bool prepared;            /* hello or accept below is made, all but clock, cookie and MAC */
    bool previous;            /* the key of the phase before still opens late packets */
    uint8_t send_phase;       /* 0 or 1 */
    uint32_t generation;      /* of the receive key; its phase is generation mod 2 */
    uint64_t send_first_pn;   /* first packet of the phase */
    uint64_t first_pn[3];     /* least packet number opened in this phase, in the one before, and in
                               * the one before that */
    uint64_t previous_until_ns;
    uint8_t send_secret[WEFT_HASH_BYTES];
    uint8_t next_secret[WEFT_HASH_BYTES]; /* of the receive key that is set but not used yet */
    uint64_t seen_largest;    /* verified packet numbers */
    uint64_t seen[REPLAY_BLOCKS];
    uint8_t hello_tag[WEFT_TAG_BYTES]; /* accepted: of the HELLO that made this peer */
    struct weft_noise noise;  /* connecting: between HELLO and ACCEPT */
    struct weft_wire_hello hello;   /* connecting */
    struct weft_wire_accept accept; /* accepted */
};

static inline void secure_begin(struct secure *s, uint8_t mode)
{
    s->mode = mode;
}
static inline void secure_cookie(struct secure *s, bool proven)
{
    s->proven = proven;
}

/* A rate: the time at which the bucket would be full again. */
struct bucket {
    uint64_t full_ns;
};

struct reply {
    struct weft_addr addr;
    uint32_t bytes;
    uint8_t data[REPLY_BYTES_MAX];
};

/* What the endpoint has of it. */
struct guard {
    uint16_t key_id;                       /* tells job keys apart */
    uint8_t mac_key[WEFT_HASH_BYTES];      /* of HELLO, ACCEPT, COOKIE */
    uint8_t unknown_key[WEFT_HASH_BYTES];
    uint8_t cookie_secret[2][WEFT_HASH_BYTES]; /* current, previous */
    uint64_t cookie_ns;                    /* when the current one was drawn; 0 = never */
    struct bucket hellos;
    struct bucket unknowns;
    struct bucket unknowns_taken;
    struct bucket refusals;
    struct reply replies[REPLIES_MAX];
    uint32_t reply_head;
    uint32_t reply_count;
    enum weft_ep_hint hint;
};

enum replay { REPLAY_NEW, REPLAY_SEEN, REPLAY_OLD };

/* secure.c */
static inline uint32_t secure_tag_bytes(const struct secure *s)
{
    return s->mode == WEFT_MODE_NONE ? 0 : WEFT_TAG_BYTES;
}
/* Make p->sec.hello. WEFT_OK, or the provider's error. */
weft_status weft_core_secure_hello(struct weft_ep *ep, struct peer *p);
/* Take the HELLO of a new peer (bytes: as it came) and make p->sec.accept and the keys.
 * WEFT_PROTO: its tag is wrong. */
weft_status weft_core_secure_hello_take(struct weft_ep *ep, struct peer *p,
                                        const struct weft_wire_hello *hello, const uint8_t *bytes);
/* Take an ACCEPT and make the keys. WEFT_PROTO: its tag is wrong; nothing has changed. */
weft_status weft_core_secure_accept_take(struct weft_ep *ep, struct peer *p,
                                         const struct weft_wire_accept *accept);
/* 64 bits that nobody can guess, for what an answer must prove; in mode none, where anybody may do
 * anything, from the PRNG. False: the provider failed, which is counted, and nothing is written. */
bool weft_core_secret_u64(struct weft_ep *ep, uint64_t *value_p);
/* Forget all keys. */
void weft_core_secure_clear(struct weft_ep *ep, struct peer *p);
/* The provider returned an error: the peer goes down at the next deadline. */
void weft_core_secure_fail(struct weft_ep *ep, struct peer *p);
/* Replace the send key when it is worn. Before a burst. */
void weft_core_secure_rekey(struct weft_ep *ep, struct peer *p);
/* Protect the packet that the buffers of the burst from first_iov on are, number pn; false when the
 * provider failed: the burst must not go out. */
bool weft_core_secure_seal(struct weft_ep *ep, struct peer *p, uint64_t pn, uint32_t first_iov,
                           struct weft_tx *tx);
/* Verify a packet whose header is decoded, and decrypt it in place; false when it is dropped and
 * counted. */
bool weft_core_secure_open(struct weft_ep *ep, struct peer *p,
                           const struct weft_wire_packet *header, uint8_t *bytes, size_t count,
                           uint64_t now_ns);
/* Ask the memory for the keys of its next packets. */
void weft_core_secure_ahead(const struct weft_ep *ep, const struct peer *p);
void weft_core_secure_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* The packet number with this low half that is nearest to a known one; what is 2^31 away is in no
 * window. Above 2^63: it lies below 0. */
static inline uint64_t weft_core_number_near(uint64_t known, uint32_t low)
{
    int32_t ahead = (int32_t)(low - (uint32_t)known);
    return known + (uint64_t)(int64_t)ahead;
}
enum replay weft_core_replay_look(const struct secure *s, uint64_t pn);
void weft_core_replay_commit(struct secure *s, uint64_t pn);

/* guard.c */
void weft_core_guard_init(struct weft_ep *ep);
void weft_core_guard_mac(const struct weft_ep *ep, const uint8_t *bytes, size_t count,
                         uint8_t mac_p[WEFT_MAC_BYTES]);
bool weft_core_guard_mac_valid(const struct weft_ep *ep, const uint8_t *bytes, size_t count,
                               const uint8_t mac[WEFT_MAC_BYTES]);
/* Mode, job key and MAC of a HELLO; false when it is dropped, counted, and perhaps told. */
bool weft_core_guard_hello(struct weft_ep *ep, const struct weft_addr *from,
                           const struct weft_wire_hello *hello, const uint8_t *bytes,
                           uint64_t now_ns);
/* May it open a peer, or must it bring a cookie first? */
bool weft_core_guard_admit(struct weft_ep *ep, const struct weft_addr *from,
                           const struct weft_wire_hello *hello, uint64_t now_ns, bool *proven_p);
void weft_core_guard_refuse(struct weft_ep *ep, const struct weft_addr *to, uint32_t connection_id,
                            enum weft_wire_refusal reason, uint64_t now_ns);
/* A packet came for a connection that does not exist. */
void weft_core_guard_unknown(struct weft_ep *ep, const struct weft_addr *from,
                             const struct weft_wire_packet *header, size_t count, uint64_t now_ns);
void weft_core_cookie_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                           size_t count, uint64_t now_ns);
void weft_core_unknown_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count, uint64_t now_ns);
void weft_core_refused_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count);
/* A datagram of another version. */
void weft_core_version_recv(struct weft_ep *ep, const struct weft_addr *from, const uint8_t *bytes,
                            size_t count, uint64_t now_ns);
/* The next answer that waits; 0 when there is none. */
uint32_t weft_core_reply_build(struct weft_ep *ep, struct weft_tx *tx);

#endif
