/* The tag of each record, and the keys behind it.
 *
 * The nonce is the record's number in the stream, so a record that was modified, removed, repeated
 * or reordered does not verify, and the connection ends: TCP has delivered bytes that the other end
 * did not send. The head of a record is always additional data. The rest is additional data in mode
 * auth, and is encrypted in mode seal.
 *
 * The keys of a direction are replaced after rekey_records, announced by KEY_PHASE. TCP does not
 * reorder, so the old keys are not kept. The key schedule is that of the UDP transport.
 *
 * Source: docs/PROTOCOL.md sections 8.4 and 10.3.
 */
#include "io/tcp/internal.h"

static const char label[] = "weft over tcp";

enum { PROLOGUE_BYTES = WEFT_HELLO_BYTES - WEFT_KEY_BYTES - WEFT_TAG_BYTES - WEFT_MAC_BYTES };

void weft_tcp_crypto_failed(struct weft_tcp *t)
{
    t->counters.crypto_failures++;
    t->hint = WEFT_HINT_CRYPTO;
}

/* The label separates the handshakes of the two transports: neither accepts the other's. The cookie
 * is hashed as zeros, because HELLO is made before the cookie is known. */
void weft_tcp_noise_begin(struct weft_tcp *t, const uint8_t *hello, struct weft_noise *noise)
{
    static const uint8_t no_cookie[WEFT_COOKIE_VALUE_BYTES];
    struct weft_crypto_span prologue[3] = {{label, sizeof(label) - 1},
                                           {hello, PROLOGUE_BYTES - WEFT_COOKIE_VALUE_BYTES},
                                           {no_cookie, sizeof(no_cookie)}};
    uint32_t slot = weft_ep_crypto_slots(t->config.ep.peers_max) - 1;
    weft_noise_init(noise, &t->config.ep.crypto, slot, t->config.ep.psk, prologue, 3);
}

static weft_status keys_set(struct weft_tcp *t, struct tcp_keys *keys)
{
    const struct weft_crypto *c = &t->config.ep.crypto;
    return c->ops->aead_set(c->self, keys->slot, keys->secret, TCP_KEY_BYTES);
}

weft_status weft_tcp_keys_begin(struct weft_tcp *t, struct tcp_conn *c,
                                const struct weft_noise *noise, bool initiator)
{
    c->send = (struct tcp_keys){.slot = 2 * tcp_conn_idx(t, c), .number = 1, .first = 1};
    c->recv = (struct tcp_keys){.slot = 2 * tcp_conn_idx(t, c) + 1, .number = 1, .first = 1};
    if (initiator) {
        weft_noise_split(noise, c->send.secret, c->recv.secret);
    } else {
        weft_noise_split(noise, c->recv.secret, c->send.secret);
    }
    c->keyed = true;
    weft_status status = keys_set(t, &c->send);
    return status == WEFT_OK ? keys_set(t, &c->recv) : status;
}

void weft_tcp_keys_clear(struct weft_tcp *t, struct tcp_conn *c)
{
    const struct weft_crypto *crypto = &t->config.ep.crypto;
    if (crypto->ops == NULL) {
        return;
    }
    if (c->keyed) {
        crypto->ops->aead_clear(crypto->self, c->send.slot);
        crypto->ops->aead_clear(crypto->self, c->recv.slot);
        c->keyed = false;
    }
    crypto->ops->wipe(crypto->self, &c->send, sizeof(c->send));
    crypto->ops->wipe(crypto->self, &c->recv, sizeof(c->recv));
    crypto->ops->wipe(crypto->self, &c->noise, sizeof(c->noise));
}

/* The next secret of a direction: HKDF-Expand of one block, as for UDP. */
static weft_status phase_next(struct weft_tcp *t, struct tcp_keys *keys)
{
    static const char info[] = "weft key phase\x01";
    const struct weft_crypto *c = &t->config.ep.crypto;
    struct weft_crypto_span span = {info, sizeof(info) - 1};
    uint8_t next[WEFT_HASH_BYTES];
    c->ops->hmac(c->self, keys->secret, WEFT_HASH_BYTES, &span, 1, next);
    memcpy(keys->secret, next, sizeof(next));
    c->ops->wipe(c->self, next, sizeof(next));
    keys->phase ^= 1;
    keys->first = keys->number;
    return keys_set(t, keys);
}

bool weft_tcp_keys_update(struct weft_tcp *t, struct tcp_conn *c, uint8_t *flags)
{
    if (c->mode == WEFT_MODE_NONE) {
        return true;
    }
    if (c->send.number - c->send.first >= t->rekey_records) {
        if (phase_next(t, &c->send) != WEFT_OK) {
            weft_tcp_crypto_failed(t);
            return false;
        }
        t->counters.rekeys++;
    }
    *flags |= c->send.phase != 0 ? WEFT_FLAG_KEY_PHASE : 0;
    return true;
}

weft_status weft_tcp_seal(struct weft_tcp *t, struct tcp_conn *c,
                          const struct weft_crypto_span *head, const struct weft_crypto_span *text,
                          size_t text_count, uint8_t *out, uint8_t tag_p[WEFT_TAG_BYTES])
{
    const struct weft_crypto *crypto = &t->config.ep.crypto;
    uint64_t nonce = c->send.number++;
    if (c->mode == WEFT_MODE_SEAL) {
        return crypto->ops->aead_seal(crypto->self, c->send.slot, nonce, head, 1, text, text_count,
                                      out, tag_p);
    }
    struct weft_crypto_span aad[3] = {*head};
    WEFT_ASSERT(text_count < WEFT_ARRAY_COUNT(aad));
    memcpy(aad + 1, text, text_count * sizeof(*text));
    return crypto->ops->aead_seal(crypto->self, c->send.slot, nonce, aad, 1 + text_count, NULL, 0,
                                  NULL, tag_p);
}

weft_status weft_tcp_open_record(struct weft_tcp *t, struct tcp_conn *c, uint8_t *bytes,
                                 size_t count)
{
    const struct weft_crypto *crypto = &t->config.ep.crypto;
    if (c->mode == WEFT_MODE_NONE) {
        return WEFT_OK;
    }
    bool phase = (bytes[1] & WEFT_FLAG_KEY_PHASE) != 0;
    weft_status status = WEFT_OK;
    if (phase != (c->recv.phase != 0)) {
        status = phase_next(t, &c->recv);
    }
    if (status != WEFT_OK) {
        return status;
    }
    size_t body = count - WEFT_TAG_BYTES;
    size_t clear = c->mode == WEFT_MODE_AUTH ? body : WEFT_WIRE_RECORD_HEAD_BYTES;
    struct weft_crypto_span aad = {bytes, clear};
    return crypto->ops->aead_open(crypto->self, c->recv.slot, c->recv.number++, &aad, 1,
                                  body > clear ? bytes + clear : NULL, body - clear, bytes + body);
}
