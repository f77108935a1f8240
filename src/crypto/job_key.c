#include "crypto/job_key.h"

#include "crypto/fork_guard.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "WEFT_JOB_KEY"

static_assert((int)WEFT_PSK_BYTES == (int)WEFT_FORK_GUARD_SECRET_BYTES);

/* The guard's secret is the key; there is no other state. */
struct weft_job_key {
    struct weft_fork_guard guard;
};

static weft_status key_new(struct weft_job_key **key_p, struct weft_error *error)
{
    struct weft_fork_guard *guard;
    weft_status status = weft_fork_guard_new(&guard);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "no memory for a key");
    }
    *key_p = (struct weft_job_key *)guard;
    return WEFT_OK;
}

void weft_job_key_free(struct weft_job_key *key)
{
    weft_fork_guard_free(key != NULL ? &key->guard : NULL);
}

void weft_job_key_wipe(void *bytes, size_t count)
{
    OPENSSL_cleanse(bytes, count);
}

weft_status weft_job_key_random(struct weft_job_key **key_p, struct weft_error *error)
{
    struct weft_job_key *key = NULL;
    weft_status status = key_new(&key, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (RAND_priv_bytes(key->guard.secret, WEFT_PSK_BYTES) != 1) {
        weft_job_key_free(key);
        return weft_fail(error, WEFT_IO, "libcrypto gives no random bytes for a key");
    }
    *key_p = key;
    return WEFT_OK;
}

weft_status weft_job_key_of(const uint8_t bytes[WEFT_PSK_BYTES], struct weft_job_key **key_p,
                            struct weft_error *error)
{
    struct weft_job_key *key = NULL;
    weft_status status = key_new(&key, error);
    if (status == WEFT_OK) {
        memcpy(key->guard.secret, bytes, WEFT_PSK_BYTES);
        *key_p = key;
    }
    return status;
}

weft_status weft_job_key_copy(const struct weft_job_key *key, uint8_t bytes_p[WEFT_PSK_BYTES])
{
    if (!weft_fork_guard_holds(&key->guard)) {
        return WEFT_STATE;
    }
    memcpy(bytes_p, key->guard.secret, WEFT_PSK_BYTES);
    return WEFT_OK;
}

weft_status weft_job_key_fingerprint(const struct weft_job_key *key,
                                     char text_p[WEFT_JOB_KEY_FINGERPRINT_BYTES])
{
    static const char label[] = "weft key id";
    uint8_t input[sizeof(label) - 1 + WEFT_PSK_BYTES];
    uint8_t hash[WEFT_HASH_BYTES];
    memcpy(input, label, sizeof(label) - 1);
    weft_status status = weft_job_key_copy(key, input + sizeof(label) - 1);
    if (status != WEFT_OK) {
        return status;
    }
    bool good = EVP_Q_digest(NULL, "SHA256", NULL, input, sizeof(input), hash, NULL) == 1;
    OPENSSL_cleanse(input, sizeof(input));
    if (!good) {
        return WEFT_NOMEM;
    }
    snprintf(text_p, WEFT_JOB_KEY_FINGERPRINT_BYTES, "%02x%02x%02x%02x", hash[0], hash[1], hash[2],
             hash[3]);
    return WEFT_OK;
}

weft_status weft_job_key_derive(const struct weft_job_key *key, const char *label,
                                uint8_t out_p[WEFT_HASH_BYTES])
{
    enum { LABEL_MAX = 64 };
    uint8_t secret[WEFT_PSK_BYTES], info[LABEL_MAX + 1];
    size_t bytes = strlen(label), made = 0;
    assert(bytes <= LABEL_MAX);
    memcpy(info, label, bytes);
    info[bytes] = 1;
    weft_status status = weft_job_key_copy(key, secret);
    if (status != WEFT_OK) {
        return status;
    }
    bool good = EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, secret, sizeof(secret), info,
                          bytes + 1, out_p, WEFT_HASH_BYTES, &made) != NULL;
    OPENSSL_cleanse(secret, sizeof(secret));
    return good && made == WEFT_HASH_BYTES ? WEFT_OK : WEFT_NOMEM;
}

/* ---- text ------------------------------------------------------------------------------------ */

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The error text describes the problem without quoting any character: most of the text may be a
 * key. */
static weft_status check_text(const char *text, size_t count, const char *name,
                              struct weft_error *error)
{
    size_t digits = 0;
    while (digits < count && digit_value(text[digits]) >= 0) {
        digits++;
    }
    if (count == 0) {
        return weft_fail(error, WEFT_DATA,
                         "%s is empty; a key is %d hexadecimal digits: `weft keygen FILE` "
                         "makes one",
                         name, WEFT_JOB_KEY_TEXT_BYTES);
    }
    if (digits < count) {
        return weft_fail(error, WEFT_DATA,
                         "%s is not a key: character %zu is not a hexadecimal digit", name,
                         digits + 1);
    }
    if (count < WEFT_JOB_KEY_TEXT_BYTES) {
        return weft_fail(error, WEFT_DATA, "%s is cut short: %zu hexadecimal digits instead of %d",
                         name, count, WEFT_JOB_KEY_TEXT_BYTES);
    }
    if (count > WEFT_JOB_KEY_TEXT_BYTES) {
        return weft_fail(error, WEFT_DATA, "%s is too long: more than %d hexadecimal digits", name,
                         WEFT_JOB_KEY_TEXT_BYTES);
    }
    return WEFT_OK;
}

weft_status weft_job_key_parse(const char *text, size_t count, const char *name,
                               struct weft_job_key **key_p, struct weft_error *error)
{
    if (count > 0 && text[count - 1] == '\n') {
        count--;
    }
    struct weft_job_key *key = NULL;
    weft_status status = check_text(text, count, name, error);
    if (status == WEFT_OK) {
        status = key_new(&key, error);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < WEFT_PSK_BYTES; i++) {
        key->guard.secret[i] =
            (uint8_t)(digit_value(text[2 * i]) << 4 | digit_value(text[2 * i + 1]));
    }
    *key_p = key;
    return WEFT_OK;
}

weft_status weft_job_key_write_fd(const struct weft_job_key *key, int fd)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[WEFT_PSK_BYTES];
    char text[WEFT_JOB_KEY_TEXT_BYTES + 1];
    weft_status status = weft_job_key_copy(key, bytes);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[WEFT_JOB_KEY_TEXT_BYTES] = '\n';
    for (size_t at = 0; status == WEFT_OK && at < sizeof(text);) {
        ssize_t put = write(fd, text + at, sizeof(text) - at);
        at += put > 0 ? (size_t)put : 0;
        status = put > 0 || (put < 0 && errno == EINTR) ? WEFT_OK : WEFT_IO;
    }
    OPENSSL_cleanse(bytes, sizeof(bytes));
    OPENSSL_cleanse(text, sizeof(text));
    return status;
}

/* ---- the environment ------------------------------------------------------------------------- */

weft_status weft_job_key_take_environment(struct weft_job_key **key_p, struct weft_error *error)
{
    char *text = getenv(VARIABLE);
    if (text == NULL) {
        return WEFT_NOTFOUND;
    }
    size_t count = strlen(text);
    weft_status status =
        weft_job_key_parse(text, count, "the environment variable " VARIABLE, key_p, error);
    OPENSSL_cleanse(text, count); /* the bytes that /proc/self/environ shows */
    (void)unsetenv(VARIABLE);
    return status;
}
