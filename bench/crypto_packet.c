/* The cost of the crypto provider per packet, compared with direct calls of libcrypto.
 *
 *   crypto_packet [--smoke] [--bytes N] [--repetitions N]
 *
 * Four operations on a packet of N bytes (default 1,440, including a header of 48), each in three
 * variants:
 *
 *   weft   through struct weft_crypto_ops, as the endpoint calls it: IV from the packet number, two
 *          stretches, tag copied out
 *   raw    the fewest EVP calls for the same packet in one stretch: IV, update, final, tag
 *   bulk   only EVP_CipherUpdate on one endless text, like `openssl speed -evp aes-128-gcm`: no
 *          packets, so a lower limit for both
 *
 * Raw and bulk use libcrypto. So does weft with WEFT_IPSEC_MB=no, or without ipsec-mb; the first
 * line of output names the library.
 *
 * Then the operations of a handshake and of a cookie. One repetition measures everything once, so
 * that other load affects all variants equally; ratios are computed per repetition. Formulas:
 * METRICS.md.
 */
#include "crypto/provider.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPETITIONS_MAX = 101, BYTES_MAX = 65000, HEADER_BYTES = 48, TAG_BYTES = 16, WAYS = 3 };

enum operation { AUTH, AUTH_CHECK, SEAL, OPEN, OPERATIONS };

static const char *const operation_names[] = {"auth", "auth check", "seal", "open"};
static const char *const way_names[WAYS] = {"weft", "raw", "bulk"};

struct bench {
    struct weft_crypto crypto;
    EVP_CIPHER_CTX *context; /* of raw and bulk */
    OSSL_PARAM tag_param[2];
    uint32_t bytes;
    uint32_t packets; /* per measurement */
    uint64_t nonce;
    uint8_t packet[BYTES_MAX];
    uint8_t sealed[BYTES_MAX];
    uint8_t work[BYTES_MAX];
    uint8_t tag[TAG_BYTES];
    uint8_t good_tag[TAG_BYTES]; /* of nonce 1, for the operations that open */
};

[[gnu::format(printf, 1, 2), gnu::noreturn]] static void die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    exit(1);
}

static void must(bool good, const char *what)
{
    if (!good) {
        die("crypto_packet: %s failed\n", what);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_opening(enum operation operation)
{
    return operation == AUTH_CHECK || operation == OPEN;
}

/* ---- the three variants ---------------------------------------------------------------------- */

/* Opening is in place, so each measurement begins with a fresh copy of the text sealed under nonce
 * 1. All three variants make that copy, and it is included in the time. */
static void weft_packet(struct bench *b, enum operation operation)
{
    const struct weft_crypto_ops *ops = b->crypto.ops;
    void *self = b->crypto.self;
    const struct weft_crypto_span aad[] = {{b->packet, HEADER_BYTES},
                                           {b->packet + HEADER_BYTES, b->bytes - HEADER_BYTES}};
    weft_status status = WEFT_INVALID;
    switch (operation) {
    case AUTH:
        status = ops->aead_seal(self, 0, ++b->nonce, aad, 2, NULL, 0, NULL, b->tag);
        break;
    case AUTH_CHECK:
        status = ops->aead_open(self, 0, 1, aad, 2, NULL, 0, b->good_tag);
        break;
    case SEAL:
        status = ops->aead_seal(self, 0, ++b->nonce, aad, 1, aad + 1, 1, b->work, b->tag);
        break;
    case OPEN:
        memcpy(b->work, b->sealed, b->bytes - HEADER_BYTES);
        status = ops->aead_open(self, 0, 1, aad, 1, b->work, b->bytes - HEADER_BYTES, b->good_tag);
        break;
    case OPERATIONS:
        break;
    }
    must(status == WEFT_OK, operation_names[operation]);
}

static void raw_packet(struct bench *b, enum operation operation)
{
    uint8_t iv[12] = {0};
    int done;
    bool sealing = !is_opening(operation);
    uint64_t nonce = sealing ? ++b->nonce : 1;
    for (int i = 11; i >= 4; i--, nonce >>= 8) {
        iv[i] = (uint8_t)nonce;
    }
    bool good = EVP_CipherInit_ex(b->context, NULL, NULL, NULL, iv, sealing) == 1;
    if (!sealing) {
        memcpy(b->tag, b->good_tag, TAG_BYTES);
        good = good && EVP_CIPHER_CTX_set_params(b->context, b->tag_param) == 1;
    }
    const uint8_t *in = b->packet;
    uint8_t *out = operation == AUTH || operation == AUTH_CHECK ? NULL : b->work;
    if (operation == OPEN) {
        memcpy(b->work, b->sealed, b->bytes);
        in = b->work;
    }
    good = good && EVP_CipherUpdate(b->context, out, &done, in, (int)b->bytes) == 1 &&
           EVP_CipherFinal_ex(b->context, b->tag, &done) == 1 &&
           (!sealing || EVP_CIPHER_CTX_get_params(b->context, b->tag_param) == 1);
    must(good, operation_names[operation]);
}

static void bulk_piece(struct bench *b, enum operation operation)
{
    int done;
    uint8_t *out = operation == AUTH || operation == AUTH_CHECK ? NULL : b->work;
    if (operation == OPEN) {
        memcpy(b->work, b->packet, b->bytes);
    }
    const uint8_t *in = operation == OPEN ? b->work : b->packet;
    must(EVP_CipherUpdate(b->context, out, &done, in, (int)b->bytes) == 1, "update");
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Prepare the input, with the opposite operation, before the clock starts. */
static void prepare(struct bench *b, enum operation operation, int way)
{
    const uint8_t iv[12] = {[11] = 1};
    must(EVP_CipherInit_ex(b->context, NULL, NULL, NULL, iv, !is_opening(operation)) == 1, "iv");
    if (!is_opening(operation) || way == 2) {
        return;
    }
    enum operation maker = operation == OPEN ? SEAL : AUTH;
    b->nonce = 0;
    if (way == 0) {
        weft_packet(b, maker);
    } else {
        raw_packet(b, maker);
    }
    memcpy(b->good_tag, b->tag, TAG_BYTES);
    if (operation == OPEN) {
        memcpy(b->sealed, b->work, b->bytes);
    }
}

static double measure(struct bench *b, enum operation operation, int way)
{
    prepare(b, operation, way);
    uint64_t start_ns = now_ns();
    for (uint32_t i = 0; i < b->packets; i++) {
        if (way == 0) {
            weft_packet(b, operation);
        } else if (way == 1) {
            raw_packet(b, operation);
        } else {
            bulk_piece(b, operation);
        }
    }
    return (double)(now_ns() - start_ns) / b->packets;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double median;
    double min;
    double max;
};

static struct spread spread_of(const double *values, uint32_t count)
{
    double sorted[REPETITIONS_MAX];
    memcpy(sorted, values, count * sizeof(values[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare);
    return (struct spread){(sorted[(count - 1) / 2] + sorted[count / 2]) / 2, sorted[0],
                           sorted[count - 1]};
}

static void packets(struct bench *b, uint32_t repetitions)
{
    static double ns[OPERATIONS][WAYS][REPETITIONS_MAX];
    for (uint32_t r = 0; r < repetitions; r++) {
        for (int operation = 0; operation < OPERATIONS; operation++) {
            for (int way = 0; way < WAYS; way++) {
                ns[operation][way][r] = measure(b, (enum operation)operation, way);
            }
        }
    }
    printf("%u bytes a packet, n = %u, %u packets each\n", b->bytes, repetitions, b->packets);
    printf("%-12s %-5s %10s %18s %10s   %s\n", "operation", "way", "ns", "(min-max)", "Gbit/s",
           "weft/this, by repetition");
    for (int operation = 0; operation < OPERATIONS; operation++) {
        for (int way = 0; way < WAYS; way++) {
            double ratio[REPETITIONS_MAX];
            for (uint32_t r = 0; r < repetitions; r++) {
                ratio[r] = ns[operation][0][r] / ns[operation][way][r];
            }
            struct spread s = spread_of(ns[operation][way], repetitions);
            struct spread q = spread_of(ratio, repetitions);
            printf("%-12s %-5s %10.1f    (%6.1f-%6.1f) %10.1f   %.2f (%.2f-%.2f)\n",
                   operation_names[operation], way_names[way], s.median, s.min, s.max,
                   8.0 * b->bytes / s.median, q.median, q.min, q.max);
        }
    }
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static const char *const small_names[] = {"dh_keypair",    "dh",          "hash 64 bytes",
                                          "hmac 64 bytes", "aead_set 16", "aead_clear + set 32"};

enum { SMALLS = sizeof(small_names) / sizeof(small_names[0]) };

static void small(struct bench *b, int which)
{
    const struct weft_crypto_ops *ops = b->crypto.ops;
    void *self = b->crypto.self;
    static uint8_t secret[32] = {1};
    static uint8_t public[32] = {9};
    uint8_t out[32];
    const struct weft_crypto_span span = {b->packet, 64};
    weft_status status = WEFT_OK;
    switch (which) {
    case 0:
        status = ops->dh_keypair(self, secret, public);
        break;
    case 1:
        status = ops->dh(self, secret, public, out);
        break;
    case 2:
        ops->hash(self, &span, 1, out);
        break;
    case 3:
        ops->hmac(self, secret, sizeof(secret), &span, 1, out);
        break;
    case 4:
        status = ops->aead_set(self, 1, secret, 16);
        break;
    default:
        ops->aead_clear(self, 1);
        status = ops->aead_set(self, 1, secret, 32);
        break;
    }
    must(status == WEFT_OK, small_names[which]);
}

static void handshakes(struct bench *b, uint32_t repetitions)
{
    static double ns[SMALLS][REPETITIONS_MAX];
    uint32_t count = b->packets / 100 + 1;
    for (uint32_t r = 0; r < repetitions; r++) {
        for (int which = 0; which < SMALLS; which++) {
            uint64_t start_ns = now_ns();
            for (uint32_t i = 0; i < count; i++) {
                small(b, which);
            }
            ns[which][r] = (double)(now_ns() - start_ns) / count;
        }
    }
    for (int which = 0; which < SMALLS; which++) {
        struct spread s = spread_of(ns[which], repetitions);
        printf("%-20s %10.0f ns   (%.0f-%.0f)\n", small_names[which], s.median, s.min, s.max);
    }
}

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    unsigned long value = text != NULL ? strtoul(text, NULL, 10) : 0;
    if (value < least || value > most) {
        die("crypto_packet: the number must be from %u to %u\n", least, most);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    static struct bench b = {.bytes = 1440, .packets = 20000};
    static const uint8_t key[16] = {7};
    uint32_t repetitions = 15;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            b.packets = 100;
            repetitions = 1;
        } else if (strcmp(argv[i], "--bytes") == 0) {
            b.bytes = number(argv[++i], HEADER_BYTES + 1, BYTES_MAX);
        } else if (strcmp(argv[i], "--repetitions") == 0) {
            repetitions = number(argv[++i], 1, REPETITIONS_MAX);
        } else {
            die("usage: crypto_packet [--smoke] [--bytes N] [--repetitions N]\n");
        }
    }
    struct weft_provider *provider = NULL;
    must(weft_provider_new(2, &provider) == WEFT_OK, "provider");
    b.crypto = weft_provider_crypto(provider);
    printf("AES-GCM of weft: %s\n", weft_provider_aead(provider).text);
    must(b.crypto.ops->aead_set(b.crypto.self, 0, key, sizeof(key)) == WEFT_OK, "key");
    EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-128-GCM", NULL);
    b.context = EVP_CIPHER_CTX_new();
    must(EVP_CipherInit_ex(b.context, cipher, NULL, key, NULL, 1) == 1, "context");
    b.tag_param[0] =
        OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, b.tag, TAG_BYTES);
    b.tag_param[1] = OSSL_PARAM_construct_end();
    packets(&b, repetitions);
    handshakes(&b, repetitions);
    EVP_CIPHER_CTX_free(b.context);
    EVP_CIPHER_free(cipher);
    weft_provider_free(provider);
    return 0;
}
