/* Keys of a connection: handshake keys, sealing and opening packets, key rotation, the replay
 * window (secure.c). Internal to src/core.
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
    KEY_SLOTS = 4,      /* per peer: send; receive previous, current and next */
    REPLAY_BLOCKS = 64, /* replay window: 64 x 64 packet numbers */
};

/* Keys of one peer. All zero is mode none. */
struct secure {
    uint8_t mode;           /* enum weft_wire_mode */
    bool keyed;             /* the slots contain keys */
    bool broken;            /* the provider failed; PEER_DOWN at the next deadline */
    bool proven;            /* the peer's HELLO contained a valid cookie */
    bool prepared;          /* hello or accept below is complete except for clock, cookie and MAC */
    bool previous;          /* the key of the previous phase still opens late packets */
    uint8_t send_phase;     /* 0 or 1 */
    uint32_t generation;    /* number of the current receive key; its phase is generation mod 2 */
    uint64_t send_first_pn; /* first packet of the current send phase */
    uint64_t first_pn[3];   /* smallest packet number opened in this phase, in the previous one,
                             * and in the one before that */
    uint64_t previous_until_ns;
    uint8_t send_secret[WEFT_HASH_BYTES];
    uint8_t next_secret[WEFT_HASH_BYTES]; /* of the next receive key, already in its slot */
    uint64_t seen_largest;                /* largest verified packet number */
    uint64_t seen[REPLAY_BLOCKS];
    uint8_t hello_tag[WEFT_TAG_BYTES]; /* accepted peer: tag of the HELLO that created it */
    struct weft_noise noise;           /* connecting peer: state between HELLO and ACCEPT */
    struct weft_wire_hello hello;      /* connecting */
    struct weft_wire_accept accept;    /* accepted */
};

static inline void secure_begin(struct secure *s, uint8_t mode)
{
    s->mode = mode;
}
static inline void secure_cookie(struct secure *s, bool proven)
{
    s->proven = proven;
}
/* Set the cookie of the following HELLOs, and the clocks of the next HELLO and ACCEPT. */
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
/* Compose p->sec.hello. WEFT_OK, or the provider's error. */
weft_status weft_core_secure_hello(struct weft_ep *ep, struct peer *p);
/* Process the HELLO of a new peer (bytes: as received); compose p->sec.accept and derive the keys.
 * WEFT_PROTO: its tag is wrong. */
weft_status weft_core_secure_hello_recv(struct weft_ep *ep, struct peer *p,
                                        const struct weft_wire_hello *hello, const uint8_t *bytes);
/* Process an ACCEPT and derive the keys. WEFT_PROTO: its tag is wrong; nothing has changed. */
weft_status weft_core_secure_accept_recv(struct weft_ep *ep, struct peer *p,
                                         const struct weft_wire_accept *accept);
/* 64 unpredictable bits, for tokens that a reply must echo. In mode none, which has no security,
 * they are drawn from the PRNG. False: the provider failed; counted, and nothing is written. */
bool weft_core_secret_u64(struct weft_ep *ep, uint64_t *value_p);
/* Erase all keys. */
void weft_core_secure_clear(struct weft_ep *ep, struct peer *p);
/* The provider returned an error: raise PEER_DOWN at the next deadline. */
void weft_core_secure_fail(struct weft_ep *ep, struct peer *p);
/* Replace the send key after rekey_packets packets. Call it before a burst. */
void weft_core_secure_rekey(struct weft_ep *ep, struct peer *p);
/* Protect packet pn, which consists of the buffers of the burst from first_iov on. False: the
 * provider failed, and the burst must not be sent. */
bool weft_core_secure_seal(struct weft_ep *ep, struct peer *p, uint64_t pn, uint32_t first_iov,
                           struct weft_tx *tx);
/* Verify a packet whose header is decoded, and decrypt it in place. False: it was dropped and
 * counted. */
bool weft_core_secure_open(struct weft_ep *ep, struct peer *p,
                           const struct weft_wire_packet *header, uint8_t *bytes, size_t count,
                           uint64_t now_ns);
/* Prefetch the keys for the peer's next packets. */
void weft_core_secure_prefetch(const struct weft_ep *ep, const struct peer *p);
void weft_core_secure_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns);
/* The packet number with these low 32 bits that is nearest to a known one. The result is at most
 * 2^31 from the known number. A result above 2^63 means a number below 0. */
static inline uint64_t weft_core_number_near(uint64_t known, uint32_t low)
{
    int32_t ahead = (int32_t)(low - (uint32_t)known);
    return known + (uint64_t)(int64_t)ahead;
}
enum replay weft_core_replay_look(const struct secure *s, uint64_t pn);
void weft_core_replay_commit(struct secure *s, uint64_t pn);

#endif
