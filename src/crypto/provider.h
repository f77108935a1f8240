/* The production provider of cryptography behind core/crypto.h: OpenSSL's libcrypto, and for
 * AES-GCM Intel's ipsec-mb if it can be loaded and the CPU supports it (crypto/aead.h). ipsec-mb is
 * loaded with the first provider of a process, by any thread, and stays loaded.
 *
 * One provider serves one endpoint and, like it, one thread. Algorithms are fetched once, at
 * creation; a key slot holds the expanded key, so that a packet costs an IV, the cipher and a tag,
 * without a look-up.
 *
 * After fork() every operation of the child's copy is WEFT_STATE (crypto/fork_guard.h). With
 * ipsec-mb the child has no key either; libcrypto keeps expanded keys in its own heap, which cannot
 * be marked: the child's copy of them is not accessible through this interface, but not erased. A
 * child that continues without exec should create its own provider and perform a new handshake.
 *
 * With WEFT_IPSEC_MB=no in the environment libcrypto does AES-GCM, too, and ipsec-mb is not loaded.
 *
 * Use:
 *     struct weft_job_key *key;            crypto/job_key.h
 *     struct weft_provider *provider;
 *     status = weft_provider_new(weft_ep_crypto_slots(ep.peers_max), &provider);
 *     ep.crypto = weft_provider_crypto(provider);
 *     status = weft_job_key_copy(key, ep.psk);
 *     ... open the endpoint with ep, then wipe ep.psk; close the endpoint ...
 *     weft_provider_free(provider);
 *
 * Source: core/crypto.h; RFC 7748 (X25519), FIPS 180-4, RFC 2104, NIST SP 800-38D; evp(7).
 */
#ifndef WEFT_CRYPTO_PROVIDER_H
#define WEFT_CRYPTO_PROVIDER_H

#include "core/crypto.h"

struct weft_provider;

/* Owns:    gives *provider_p, to be freed with weft_provider_free after its endpoint is.
 * Errors:  WEFT_NOMEM.  WEFT_UNSUPPORTED  this host's libcrypto (for instance its configuration)
 *          does not offer X25519, SHA-256, HMAC or AES-GCM.
 * Cost:    1 to 1.5 KB for each slot in use. */
weft_status weft_provider_new(uint32_t slots, struct weft_provider **provider_p);

/* The same with libcrypto's AES-GCM, even if ipsec-mb is available; for comparison. */
weft_status weft_provider_new_libcrypto(uint32_t slots, struct weft_provider **provider_p);

/* The AES-GCM implementation in use, as text. */
struct weft_provider_aead {
    char text[96]; /* "ipsec-mb 1.3.0 for AVX-512 and VAES"; or "libcrypto; " and the reason why
                    * not ipsec-mb */
    const char *advice; /* how to make it faster; "" = nothing */
};
struct weft_provider_aead weft_provider_aead(const struct weft_provider *provider);

/* Erases all keys. NULL is allowed; so is a forked child's copy. */
void weft_provider_free(struct weft_provider *provider);

/* The configuration of an endpoint; borrows the provider. Ciphertext that fails authentication is
 * overwritten with zeros.
 *
 * hash and hmac cannot return a status. If libcrypto fails in one of them (memory), the result
 * is random bytes, which no peer will match, and all other operations fail with WEFT_IO from
 * then on. */
struct weft_crypto weft_provider_crypto(struct weft_provider *provider);

#endif
