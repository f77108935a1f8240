#include "sim/toy_crypto.h"

#include "base/assert.h"
#include "base/prng.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 64, HANDSHAKE_KEY_BYTES = 32 };

struct slot {
    bool set;
    bool handshake;
    uint64_t key[2];
    uint64_t nonce_next; /* sealing: the lowest nonce allowed */
};

/* The use of a handshake key. */
struct record {
    uint64_t key[2];
    uint64_t nonce;
    uint8_t tag[WEFT_AEAD_TAG_BYTES];
};

struct weft_toy_crypto {
    struct weft_prng prng;
    weft_status fail;
    uint32_t slot_count;
    struct slot *slots;
    struct record records[RECORDS_MAX];
    uint64_t record_count;
    uint64_t sealed;
    uint64_t opened;
    uint64_t dhs;
};

/* ---- mixing: a sponge of two words, independent of how the bytes are divided into spans ------ */

struct sponge {
    uint64_t a;
    uint64_t b;
    uint64_t word; /* bytes that do not fill a word yet */
    unsigned held;
    uint64_t bytes;
};

static void word_in(struct sponge *s, uint64_t word)
{
    s->a = weft_mix64(s->a ^ word);
    s->b = weft_mix64((s->b << 23 | s->b >> 41) + word) ^ s->a;
}

static void bytes_in(struct sponge *s, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    s->bytes += count;
    while (count > 0 && s->held > 0) {
        s->word |= (uint64_t)*at++ << (8 * s->held);
        count--;
        if (++s->held == 8) {
            word_in(s, s->word);
            s->word = 0;
            s->held = 0;
        }
    }
    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        word_in(s, word);
    }
    for (; count > 0; count--) {
        s->word |= (uint64_t)*at++ << (8 * s->held++);
    }
}

static void spans_in(struct sponge *s, const struct weft_crypto_span *spans, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes_in(s, spans[i].base, spans[i].bytes);
    }
}

static void sponge_end(struct sponge *s, uint64_t *out, size_t words)
{
    word_in(s, s->word);
    word_in(s, s->bytes);
    s->word = 0;
    s->held = 0;
    for (size_t i = 0; i < words; i++) {
        word_in(s, i);
        out[i] = s->a ^ weft_mix64(s->b);
    }
}

/* ---- the functions of core/crypto.h ---------------------------------------------------------- */

static weft_status toy_random(void *self, void *out, size_t bytes)
{
    struct weft_toy_crypto *toy = self;
    uint8_t *to = out;
    for (size_t i = 0; toy->fail == WEFT_OK && i < bytes; i++) {
        to[i] = (uint8_t)weft_prng_u64(&toy->prng);
    }
    return toy->fail;
}

/* Powers modulo the prime 2^61 - 1. */
static const uint64_t prime = (UINT64_C(1) << 61) - 1;

static uint64_t power(uint64_t base, uint64_t exponent)
{
    uint64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) {
            result = (uint64_t)((__extension__(unsigned __int128) result * base) % prime);
        }
        base = (uint64_t)((__extension__(unsigned __int128) base * base) % prime);
    }
    return result;
}

/* Encode a number as a key of 32 bytes, all of which depend on it. */
static void number_out(uint64_t number, uint8_t key_p[WEFT_DH_BYTES])
{
    uint64_t words[4] = {number, weft_mix64(number + 1), weft_mix64(number + 2),
                         weft_mix64(number + 3)};
    memcpy(key_p, words, sizeof(words));
}

static weft_status toy_dh_keypair(void *self, uint8_t secret_p[WEFT_DH_BYTES],
                                  uint8_t public_p[WEFT_DH_BYTES])
{
    struct weft_toy_crypto *toy = self;
    uint64_t secret = weft_prng_range(&toy->prng, 2, prime - 2);
    if (toy->fail == WEFT_OK) {
        number_out(secret, secret_p);
        number_out(power(3, secret), public_p);
    }
    return toy->fail;
}

static weft_status toy_dh(void *self, const uint8_t secret[WEFT_DH_BYTES],
                          const uint8_t public[WEFT_DH_BYTES], uint8_t shared_p[WEFT_DH_BYTES])
{
    struct weft_toy_crypto *toy = self;
    uint64_t number;
    uint64_t exponent;
    toy->dhs++;
    memcpy(&number, public, sizeof(number));
    memcpy(&exponent, secret, sizeof(exponent));
    if (toy->fail != WEFT_OK || number % prime == 0) {
        return toy->fail != WEFT_OK ? toy->fail : WEFT_PROTO;
    }
    number_out(power(number % prime, exponent), shared_p);
    return WEFT_OK;
}

static void toy_hash(void *self, const struct weft_crypto_span *spans, size_t span_count,
                     uint8_t out_p[WEFT_HASH_BYTES])
{
    (void)self;
    struct sponge s = {.a = 1, .b = 2};
    uint64_t out[4];
    spans_in(&s, spans, span_count);
    sponge_end(&s, out, 4);
    memcpy(out_p, out, sizeof(out));
}

static void toy_hmac(void *self, const void *key, size_t key_bytes,
                     const struct weft_crypto_span *spans, size_t span_count,
                     uint8_t out_p[WEFT_HASH_BYTES])
{
    (void)self;
    struct sponge s = {.a = 3, .b = 4};
    uint64_t out[4];
    bytes_in(&s, key, key_bytes);
    word_in(&s, key_bytes);
    spans_in(&s, spans, span_count);
    sponge_end(&s, out, 4);
    memcpy(out_p, out, sizeof(out));
}

static struct slot *slot_at(struct weft_toy_crypto *toy, uint32_t slot)
{
    WEFT_ASSERT(slot < toy->slot_count);
    return &toy->slots[slot];
}

static weft_status toy_aead_set(void *self, uint32_t slot, const uint8_t *key, size_t key_bytes)
{
    struct weft_toy_crypto *toy = self;
    struct sponge s = {.a = 5, .b = 6};
    struct slot *at = slot_at(toy, slot);
    WEFT_ASSERT(key_bytes == 16 || key_bytes == HANDSHAKE_KEY_BYTES);
    *at = (struct slot){.set = true, .handshake = key_bytes == HANDSHAKE_KEY_BYTES};
    bytes_in(&s, key, key_bytes);
    sponge_end(&s, at->key, 2);
    at->set = toy->fail == WEFT_OK;
    return toy->fail;
}

static void toy_aead_clear(void *self, uint32_t slot)
{
    *slot_at(self, slot) = (struct slot){0};
}

static void tag_make(const struct slot *at, uint64_t nonce, const struct weft_crypto_span *aad,
                     size_t aad_count, const void *sealed, size_t bytes,
                     uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    struct sponge s = {.a = at->key[0], .b = at->key[1]};
    uint64_t tag[2];
    word_in(&s, nonce);
    spans_in(&s, aad, aad_count);
    word_in(&s, s.bytes); /* end of the cleartext part */
    bytes_in(&s, sealed, bytes);
    sponge_end(&s, tag, 2);
    memcpy(tag_p, tag, sizeof(tag));
}

static uint8_t pad_at(const struct slot *at, uint64_t nonce, size_t i, uint64_t *word)
{
    if (i % 8 == 0) {
        *word = weft_mix64(at->key[0] ^ weft_mix64(at->key[1] + nonce + weft_mix64(i + 1)));
    }
    return (uint8_t)(*word >> (8 * (i % 8)));
}

/* A handshake message may be repeated, but not followed by a different one under the same key. */
static void handshake_watch(struct weft_toy_crypto *toy, const struct slot *at, uint64_t nonce,
                            const uint8_t *tag)
{
    uint64_t count = weft_min_u64(toy->record_count, RECORDS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        const struct record *r = &toy->records[i];
        bool same_key = memcmp(r->key, at->key, sizeof(r->key)) == 0 && r->nonce == nonce;
        WEFT_ASSERT(!same_key || memcmp(r->tag, tag, sizeof(r->tag)) == 0);
    }
    struct record *r = &toy->records[toy->record_count++ % RECORDS_MAX];
    memcpy(r->key, at->key, sizeof(r->key));
    memcpy(r->tag, tag, sizeof(r->tag));
    r->nonce = nonce;
}

static void seal(const struct slot *at, uint64_t nonce, const struct weft_crypto_span *aad,
                 size_t aad_count, const struct weft_crypto_span *text, size_t text_count,
                 uint8_t *out, uint8_t *tag_p)
{
    size_t used = 0;
    uint64_t word = 0;
    for (size_t i = 0; i < text_count; i++) {
        const uint8_t *from = text[i].base;
        for (size_t j = 0; j < text[i].bytes; j++, used++) {
            out[used] = from[j] ^ pad_at(at, nonce, used, &word);
        }
    }
    tag_make(at, nonce, aad, aad_count, out, used, tag_p);
}

static weft_status toy_aead_seal(void *self, uint32_t slot, uint64_t nonce,
                                 const struct weft_crypto_span *aad, size_t aad_count,
                                 const struct weft_crypto_span *text, size_t text_count,
                                 uint8_t *out, uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    struct weft_toy_crypto *toy = self;
    struct slot *at = slot_at(toy, slot);
    if (toy->fail != WEFT_OK) {
        return toy->fail;
    }
    WEFT_ASSERT(at->set);
    seal(at, nonce, aad, aad_count, text, text_count, out, tag_p);
    if (at->handshake) {
        handshake_watch(toy, at, nonce, tag_p);
    } else {
        WEFT_ASSERT(nonce >= at->nonce_next);
        at->nonce_next = nonce + 1;
    }
    toy->sealed++;
    return WEFT_OK;
}

static weft_status toy_aead_open(void *self, uint32_t slot, uint64_t nonce,
                                 const struct weft_crypto_span *aad, size_t aad_count,
                                 uint8_t *text, size_t text_bytes,
                                 const uint8_t tag[WEFT_AEAD_TAG_BYTES])
{
    struct weft_toy_crypto *toy = self;
    const struct slot *at = slot_at(toy, slot);
    uint8_t right[WEFT_AEAD_TAG_BYTES];
    if (toy->fail != WEFT_OK) {
        return toy->fail;
    }
    WEFT_ASSERT(at->set);
    tag_make(at, nonce, aad, aad_count, text, text_bytes, right);
    uint64_t word = 0;
    /* Garbage if the tag is wrong, as the contract requires. */
    for (size_t i = 0; i < text_bytes; i++) {
        text[i] ^= pad_at(at, nonce, i, &word);
    }
    if (memcmp(right, tag, sizeof(right)) != 0) {
        return WEFT_PROTO;
    }
    toy->opened++;
    return WEFT_OK;
}

static void toy_wipe(void *self, void *bytes, size_t count)
{
    (void)self;
    memset(bytes, 0, count);
}

/* ---- the rest -------------------------------------------------------------------------------- */

struct weft_toy_crypto *weft_toy_crypto_new(uint64_t seed, uint32_t slots)
{
    struct weft_toy_crypto *toy = calloc(1, sizeof(*toy));
    WEFT_ASSERT(toy != NULL);
    weft_prng_split(&toy->prng, seed, UINT64_C(0x746f79));
    toy->slot_count = slots;
    toy->slots = calloc(slots, sizeof(*toy->slots));
    WEFT_ASSERT(toy->slots != NULL);
    return toy;
}

void weft_toy_crypto_free(struct weft_toy_crypto *toy)
{
    if (toy != NULL) {
        free(toy->slots);
        free(toy);
    }
}

struct weft_crypto weft_toy_crypto_ops(struct weft_toy_crypto *toy)
{
    static const struct weft_crypto_ops ops = {
        .name = "toy (not secure)",
        .random = toy_random,
        .dh_keypair = toy_dh_keypair,
        .dh = toy_dh,
        .hash = toy_hash,
        .hmac = toy_hmac,
        .aead_set = toy_aead_set,
        .aead_clear = toy_aead_clear,
        .aead_seal = toy_aead_seal,
        .aead_open = toy_aead_open,
        .wipe = toy_wipe,
    };
    return (struct weft_crypto){.ops = &ops, .self = toy};
}

void weft_toy_crypto_fail(struct weft_toy_crypto *toy, weft_status status)
{
    toy->fail = status;
}

void weft_toy_crypto_forge(struct weft_toy_crypto *toy, uint32_t slot, uint64_t nonce,
                           const void *aad, size_t aad_bytes, const void *text, size_t text_bytes,
                           uint8_t *out, uint8_t tag_p[WEFT_AEAD_TAG_BYTES])
{
    struct weft_crypto_span clear = {aad, aad_bytes};
    struct weft_crypto_span in = {text, text_bytes};
    seal(slot_at(toy, slot), nonce, &clear, 1, &in, text_bytes > 0 ? 1 : 0, out, tag_p);
}

uint64_t weft_toy_crypto_sealed(const struct weft_toy_crypto *toy)
{
    return toy->sealed;
}

uint64_t weft_toy_crypto_opened(const struct weft_toy_crypto *toy)
{
    return toy->opened;
}

uint64_t weft_toy_crypto_dhs(const struct weft_toy_crypto *toy)
{
    return toy->dhs;
}
