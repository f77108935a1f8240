/* Keys of a connection: handshake keys, sealing and opening packets, key rotation, the replay window
 * (secure.c). Internal to src/core.
 *
 * Source: docs/PROTOCOL.md section 8.
 */
#ifndef WEFT_CORE_SECURE_H
#define WEFT_CORE_SECURE_H

#include "core/endpoint.h"
#include "core/noise.h"
#include "wire/packet.h"

#include <stdbool.h>
#include <string.h>

struct peer;

enum {
    KEY_SLOTS = 4,      /* of each peer: send; receive previous, current and next */
    REPLAY_BLOCKS = 64, /* packet numbers remembered: 64 x 64 */
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
/* What HELLO brings from now on, and the clocks of the next HELLO and ACCEPT. */
static inline void secure_hello_cookie(struct secure *s, const uint8_t *cookie)
{
    memcpy(s->hello.cookie, cookie, sizeof(s->hello.cookie));
}
static inline void secure_hello_clock(struct secure *s, uint32_t clock)
{
    s->hello.clock = clock;
}
static inline void secure_accept_clock(struct secure *s, uint32_t clock)
{
    s->accept.clock = clock;
}

enum replay { REPLAY_NEW, REPLAY_SEEN, REPLAY_OLD };

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
void weft_core_secure_prefetch(const struct weft_ep *ep, const struct peer *p);
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

#endif
