/* Keys of a connection: derivation in the handshake, use, rotation, and erasure.
 *
 * Each direction has a secret. Its first 16 bytes are the AES-128-GCM key, and an HMAC of it is the
 * next secret. The sender starts a new phase after rekey_packets packets, once a packet of the
 * current phase was acknowledged. The bit KEY_PHASE indicates the phase. The receiver has the next
 * key prepared, so that no packet waits for a key set-up. The bit and the packet number determine
 * which of three keys opens a packet: there is one AEAD call per packet, and if an attacker flips
 * the bit, that call fails.
 *
 * No state changes before a packet is verified, neither the replay window nor the phase.
 *
 * Source: docs/PROTOCOL.md sections 8.2 to 8.4; RFC 9001 section 6 (key phases).
 */
#include "core/secure.h"

#include "base/assert.h"
#include "core/internal.h"

#include <string.h>

enum { KEY_BYTES = 16, PROLOGUE_FIRST = 32, PROLOGUE_LIMITS = 36, PROLOGUE_LIMITS_BYTES = 4 };

/* ---- handshake ------------------------------------------------------------------------------- */

static uint32_t slot_send(const struct weft_ep *ep, const struct peer *p)
{
    return peer_idx(ep, p) * KEY_SLOTS;
}

static uint32_t slot_recv(const struct weft_ep *ep, const struct peer *p, uint32_t generation)
{
    return peer_idx(ep, p) * KEY_SLOTS + 1 + generation % (KEY_SLOTS - 1);
}

/* The prologue is the part of HELLO that retransmissions repeat: all but clock and cookie. */
static void noise_begin(const struct weft_ep *ep, const uint8_t *hello, struct weft_noise *noise)
{
    struct weft_crypto_span prologue[2] = {{hello, PROLOGUE_FIRST},
                                           {hello + PROLOGUE_LIMITS, PROLOGUE_LIMITS_BYTES}};
    weft_noise_init(noise, &ep->config.crypto, ep->config.peers_max * KEY_SLOTS, ep->config.psk,
                    prologue, 2);
}

weft_status weft_core_secure_hello(struct weft_ep *ep, struct peer *p)
{
    struct weft_wire_hello *hello = &p->sec.hello;
    *hello = (struct weft_wire_hello){
        .mode = p->sec.mode,
        .key_id = p->sec.mode == WEFT_MODE_NONE ? 0 : ep->handshake_guard.key_id,
        .connection_id = p->conn.id,
        .incarnation = ep->config.incarnation,
        .name = ep->config.name,
        .open_from = p->tx.open_from,
        .unscheduled = (uint16_t)p->credit.granted,
        .packet_bytes_max = 65000,
    };
    if (p->sec.mode != WEFT_MODE_NONE) {
        uint8_t bytes[WEFT_HELLO_BYTES];
        struct weft_writer w = weft_writer_make(bytes, sizeof(bytes));
        weft_wire_hello_encode(&w, hello);
        noise_begin(ep, bytes, &p->sec.noise);
        weft_status status =
            weft_noise_hello_write(&p->sec.noise, NULL, 0, hello->ephemeral, hello->tag);
        if (status != WEFT_OK) {
            return status;
        }
    }
    p->sec.prepared = true;
    return WEFT_OK;
}

static weft_status key_set(struct weft_ep *ep, uint32_t slot, const uint8_t *secret)
{
    return ep->config.crypto.ops->aead_set(ep->config.crypto.self, slot, secret, KEY_BYTES);
}

/* HKDF-Expand (RFC 5869) of one block. */
static void secret_next(const struct weft_ep *ep, const uint8_t *secret, uint8_t *next_p)
{
    static const char info[] = "weft key phase\x01";
    const struct weft_crypto *c = &ep->config.crypto;
    struct weft_crypto_span span = {info, sizeof(info) - 1};
    uint8_t next[WEFT_HASH_BYTES];
    c->ops->hmac(c->self, secret, WEFT_HASH_BYTES, &span, 1, next);
    memcpy(next_p, next, sizeof(next));
    c->ops->wipe(c->self, next, sizeof(next));
}

static weft_status keys_begin(struct weft_ep *ep, struct peer *p, const struct weft_noise *noise,
                              bool initiator)
{
    const struct weft_crypto *c = &ep->config.crypto;
    struct secure *s = &p->sec;
    uint8_t ours[WEFT_HASH_BYTES];
    uint8_t theirs[WEFT_HASH_BYTES];
    if (initiator) {
        weft_noise_split(noise, ours, theirs);
    } else {
        weft_noise_split(noise, theirs, ours);
    }
    memcpy(s->send_secret, ours, sizeof(ours));
    secret_next(ep, theirs, s->next_secret);
    s->keyed = true;
    s->send_first_pn = 1;
    s->first_pn[0] = 1;
    weft_status status = key_set(ep, slot_send(ep, p), ours);
    if (status == WEFT_OK) {
        status = key_set(ep, slot_recv(ep, p, 0), theirs);
    }
    if (status == WEFT_OK) {
        status = key_set(ep, slot_recv(ep, p, 1), s->next_secret);
    }
    c->ops->wipe(c->self, ours, sizeof(ours));
    c->ops->wipe(c->self, theirs, sizeof(theirs));
    return status;
}

weft_status weft_core_secure_hello_recv(struct weft_ep *ep, struct peer *p,
                                        const struct weft_wire_hello *hello, const uint8_t *bytes)
{
    struct weft_wire_accept *accept = &p->sec.accept;
    p->sec.mode = hello->mode;
    *accept = (struct weft_wire_accept){
        .mode = hello->mode,
        .key_id = hello->key_id,
        .connection_id = p->conn.remote_id,
        .own_connection_id = p->conn.id,
        .incarnation = ep->config.incarnation,
        .name = ep->config.name,
        .open_from = p->tx.open_from,
        .unscheduled = (uint16_t)p->credit.granted,
        .packet_bytes_max = 65000,
    };
    p->sec.prepared = true;
    if (hello->mode == WEFT_MODE_NONE) {
        return WEFT_OK;
    }
    memcpy(p->sec.hello_tag, hello->tag, sizeof(hello->tag));
    struct weft_noise noise;
    noise_begin(ep, bytes, &noise);
    weft_status status = weft_noise_hello_read(&noise, hello->ephemeral, NULL, 0, hello->tag);
    if (status == WEFT_OK) {
        status = weft_noise_accept_write(&noise, NULL, 0, accept->ephemeral, accept->tag);
    }
    if (status == WEFT_OK) {
        status = keys_begin(ep, p, &noise, false);
    }
    weft_noise_wipe(&noise);
    return status;
}

weft_status weft_core_secure_accept_recv(struct weft_ep *ep, struct peer *p,
                                         const struct weft_wire_accept *accept)
{
    struct weft_noise noise =
        p->sec.noise; /* a copy: a forged ACCEPT must not change the state for the valid one */
    weft_status status = weft_noise_accept_read(&noise, accept->ephemeral, NULL, 0, accept->tag);
    if (status == WEFT_OK) {
        status = keys_begin(ep, p, &noise, true);
        weft_noise_wipe(&p->sec.noise);
    }
    weft_noise_wipe(&noise);
    return status;
}

void weft_core_secure_clear(struct weft_ep *ep, struct peer *p)
{
    const struct weft_crypto *c = &ep->config.crypto;
    if (p->sec.mode == WEFT_MODE_NONE) {
        return;
    }
    for (uint32_t i = 0; p->sec.keyed && i < KEY_SLOTS; i++) {
        c->ops->aead_clear(c->self, slot_send(ep, p) + i);
    }
    c->ops->wipe(c->self, &p->sec, sizeof(p->sec));
}

void weft_core_secure_fail(struct weft_ep *ep, struct peer *p)
{
    ep->counters.crypto_failures++;
    ep->handshake_guard.hint = WEFT_HINT_CRYPTO;
    p->sec.broken = true;
    weft_core_peer_ready(ep, p); /* so that its deadline is set */
}

bool weft_core_secret_u64(struct weft_ep *ep, uint64_t *value_p)
{
    const struct weft_crypto *c = &ep->config.crypto;
    uint64_t value;
    if (ep->config.mode == WEFT_MODE_NONE) {
        *value_p = weft_prng_u64(&ep->prng);
        return true;
    }
    if (c->ops->random(c->self, &value, sizeof(value)) != WEFT_OK) {
        ep->counters.crypto_failures++;
        ep->handshake_guard.hint = WEFT_HINT_CRYPTO;
        return false;
    }
    *value_p = value;
    return true;
}

/* ---- packets --------------------------------------------------------------------------------- */

void weft_core_secure_rekey(struct weft_ep *ep, struct peer *p)
{
    struct secure *s = &p->sec;
    if (s->mode == WEFT_MODE_NONE || p->recovery.pn_next - s->send_first_pn < ep->rekey_packets ||
        p->recovery.pn_acked_largest < s->send_first_pn) {
        return;
    }
    secret_next(ep, s->send_secret, s->send_secret);
    if (key_set(ep, slot_send(ep, p), s->send_secret) != WEFT_OK) {
        weft_core_secure_fail(ep, p);
        return;
    }
    s->send_phase ^= 1;
    s->send_first_pn = p->recovery.pn_next;
    ep->counters.rekeys++;
}

/* The payload is in clear: the tag is an additional buffer, and nothing is copied. */
static weft_status seal_auth(struct weft_ep *ep, struct peer *p, uint64_t pn, uint32_t first_iov,
                             struct weft_tx *tx)
{
    const struct weft_crypto *c = &ep->config.crypto;
    struct weft_crypto_span aad[3];
    uint32_t count = tx->iov_count - first_iov;
    WEFT_ASSERT(count <= WEFT_ARRAY_COUNT(aad));
    for (uint32_t i = 0; i < count; i++) {
        aad[i] =
            (struct weft_crypto_span){tx->iov[first_iov + i].base, tx->iov[first_iov + i].bytes};
    }
    uint8_t *tag = tx->tags[tx->packets];
    weft_status status =
        c->ops->aead_seal(c->self, slot_send(ep, p), pn, aad, count, NULL, 0, NULL, tag);
    tx->iov[tx->iov_count++] = (struct weft_ep_iov){.base = tag, .bytes = WEFT_TAG_BYTES};
    tx->bytes += WEFT_TAG_BYTES;
    return status;
}

/* The output of the cipher is the packet. The packets of a burst are contiguous, in one buffer. */
static weft_status seal_seal(struct weft_ep *ep, struct peer *p, uint64_t pn, uint32_t first_iov,
                             struct weft_tx *tx)
{
    const struct weft_crypto *c = &ep->config.crypto;
    struct weft_crypto_span text[3];
    const uint8_t *head = tx->iov[first_iov].base;
    size_t clear = weft_wire_header_bytes(head[1]);
    size_t bytes = 0;
    uint32_t count = tx->iov_count - first_iov;
    WEFT_ASSERT(count <= WEFT_ARRAY_COUNT(text));
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *base = tx->iov[first_iov + i].base;
        size_t skip = i == 0 ? clear : 0;
        text[i] = (struct weft_crypto_span){base + skip, tx->iov[first_iov + i].bytes - skip};
        bytes += tx->iov[first_iov + i].bytes;
    }
    size_t start = tx->bytes - bytes;
    uint8_t *packet = tx->sealed + start;
    WEFT_ASSERT(tx->bytes + WEFT_TAG_BYTES <= sizeof(tx->sealed));
    memcpy(packet, head, clear);
    struct weft_crypto_span aad = {packet, clear};
    weft_status status = c->ops->aead_seal(c->self, slot_send(ep, p), pn, &aad, 1, text, count,
                                           packet + clear, packet + bytes);
    tx->bytes += WEFT_TAG_BYTES;
    tx->iov[0] = (struct weft_ep_iov){.base = tx->sealed, .bytes = tx->bytes};
    tx->iov_count = 1;
    return status;
}

bool weft_core_secure_seal(struct weft_ep *ep, struct peer *p, uint64_t pn, uint32_t first_iov,
                           struct weft_tx *tx)
{
    if (p->sec.mode == WEFT_MODE_NONE) {
        return true;
    }
    weft_status status = p->sec.mode == WEFT_MODE_AUTH ? seal_auth(ep, p, pn, first_iov, tx)
                                                       : seal_seal(ep, p, pn, first_iov, tx);
    if (status != WEFT_OK) {
        weft_core_secure_fail(ep, p);
        return false;
    }
    return true;
}

static void previous_forget(struct weft_ep *ep, struct peer *p)
{
    const struct weft_crypto *c = &ep->config.crypto;
    if (p->sec.previous) {
        c->ops->aead_clear(c->self, slot_recv(ep, p, p->sec.generation - 1));
        p->sec.previous = false;
        p->sec.previous_until_ns = WEFT_NEVER;
    }
}

/* The first packet of the next phase has been verified. */
static void phase_advance(struct weft_ep *ep, struct peer *p, uint64_t pn, uint64_t now_ns)
{
    struct secure *s = &p->sec;
    s->generation++;
    s->first_pn[2] = s->first_pn[1];
    s->first_pn[1] = s->first_pn[0];
    s->first_pn[0] = pn;
    s->previous = true;
    s->previous_until_ns = now_ns + 3 * weft_core_pto_base(p);
    secret_next(ep, s->next_secret, s->next_secret);
    if (key_set(ep, slot_recv(ep, p, s->generation + 1), s->next_secret) != WEFT_OK) {
        weft_core_secure_fail(ep, p);
    }
}

/* Determine the generation whose key opens this packet; false if that key was erased. Packet
 * numbers increase with generations, so a number below the smallest one of a phase belongs to an
 * earlier phase. */
static bool generation_of(const struct secure *s, const struct weft_wire_packet *header,
                          uint32_t *generation_p)
{
    uint8_t phase = (header->flags & WEFT_FLAG_KEY_PHASE) != 0;
    if (phase == s->generation % 2) {
        *generation_p = s->generation;
        return header->number >= s->first_pn[1];
    }
    if (header->number >= s->first_pn[0]) {
        *generation_p = s->generation + 1;
        return true;
    }
    *generation_p = s->generation - 1;
    return s->previous && header->number >= s->first_pn[2];
}

bool weft_core_secure_open(struct weft_ep *ep, struct peer *p,
                           const struct weft_wire_packet *header, uint8_t *bytes, size_t count,
                           uint64_t now_ns)
{
    struct secure *s = &p->sec;
    const struct weft_crypto *c = &ep->config.crypto;
    if (s->mode == WEFT_MODE_NONE) {
        return true;
    }
    weft_core_secure_timer(ep, p, now_ns);
    uint32_t generation;
    if (!generation_of(s, header, &generation)) {
        ep->counters.old_packets++;
        return false;
    }
    size_t body = count - WEFT_TAG_BYTES;
    size_t clear = s->mode == WEFT_MODE_AUTH ? body : weft_wire_header_bytes(header->flags);
    struct weft_crypto_span aad = {bytes, clear};
    weft_status status =
        c->ops->aead_open(c->self, slot_recv(ep, p, generation), header->number, &aad, 1,
                          body > clear ? bytes + clear : NULL, body - clear, bytes + body);
    if (status == WEFT_PROTO) {
        ep->counters.bad_tag++;
        return false;
    }
    if (status != WEFT_OK) {
        weft_core_secure_fail(ep, p);
        return false;
    }
    if (generation == s->generation + 1) {
        phase_advance(ep, p, header->number, now_ns);
    } else {
        uint64_t *first = &s->first_pn[s->generation - generation];
        *first = weft_min_u64(*first, header->number);
    }
    return true;
}

void weft_core_secure_prefetch(const struct weft_ep *ep, const struct peer *p)
{
    const struct weft_crypto *c = &ep->config.crypto;
    if (p->sec.mode != WEFT_MODE_NONE && c->ops->aead_prefetch != NULL) {
        c->ops->aead_prefetch(c->self, slot_recv(ep, p, p->sec.generation));
        c->ops->aead_prefetch(c->self, slot_send(ep, p));
    }
}

void weft_core_secure_timer(struct weft_ep *ep, struct peer *p, uint64_t now_ns)
{
    if (p->sec.previous && p->sec.previous_until_ns <= now_ns) {
        previous_forget(ep, p);
    }
}

/* ---- replay window --------------------------------------------------------------------------- */

enum replay weft_core_replay_look(const struct secure *s, uint64_t pn)
{
    if (pn > s->seen_largest) {
        return REPLAY_NEW;
    }
    if (s->seen_largest / 64 - pn / 64 >= REPLAY_BLOCKS) {
        return REPLAY_OLD;
    }
    uint64_t word = s->seen[pn / 64 % REPLAY_BLOCKS];
    return (word >> (pn % 64)) & 1 ? REPLAY_SEEN : REPLAY_NEW;
}

void weft_core_replay_commit(struct secure *s, uint64_t pn)
{
    uint64_t block = pn / 64;
    if (pn > s->seen_largest) {
        uint64_t from = s->seen_largest / 64 + 1;
        if (block >= from + REPLAY_BLOCKS) {
            from = block - REPLAY_BLOCKS + 1;
        }
        for (uint64_t b = from; b <= block; b++) {
            s->seen[b % REPLAY_BLOCKS] = 0;
        }
        s->seen_largest = pn;
    }
    s->seen[block % REPLAY_BLOCKS] |= UINT64_C(1) << (pn % 64);
}
