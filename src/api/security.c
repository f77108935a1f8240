/* The job key, and the provider of cryptography of one transport.
 *
 * The key comes from the caller's bytes, or a file, or the environment variable WEFT_JOB_KEY.
 * Taking it from the environment removes it there, so that children do not get it; a process that
 * opens several transports therefore keeps it, in memory that a fork does not inherit.
 *
 * Source: docs/PROTOCOL.md section 8.
 */
#include "api/internal.h"

#include "core/crypto.h"
#include "crypto/job_key.h"
#include "wire/packet.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t environment_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_job_key *environment_key; /* taken once, kept for the life of the process */

/* A key that is nowhere is the first thing that a new user meets. */
static weft_status no_key(struct weft_io_error *error)
{
    return weft_io_fail(error, WEFT_NOTFOUND,
                        "there is no job key: make one with `weft keygen FILE`, copy it to every "
                        "host, and name it in config.key_file or put its text into "
                        "WEFT_JOB_KEY; or set config.security to WEFT_TRANSPORT_NONE, on loopback");
}

static weft_status key_of_environment(uint8_t psk[WEFT_PSK_BYTES], struct weft_io_error *error)
{
    struct weft_crypto_error crypto_error = {{0}};
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&environment_lock);
    if (environment_key == NULL) {
        status = weft_job_key_take_environment(&environment_key, &crypto_error);
    }
    if (status == WEFT_OK) {
        status = weft_job_key_copy(environment_key, psk);
    }
    pthread_mutex_unlock(&environment_lock);
    if (status == WEFT_NOTFOUND) {
        return no_key(error);
    }
    if (status == WEFT_STATE) {
        return weft_io_fail(error, status,
                            "the job key of WEFT_JOB_KEY does not outlive a fork; open transports "
                            "in the process that read it, or use config.key_file");
    }
    return status == WEFT_OK ? status : weft_io_fail(error, status, "%s", crypto_error.text);
}

static weft_status key_of_file(const char *path, uint8_t psk[WEFT_PSK_BYTES],
                               struct weft_io_error *error)
{
    struct weft_crypto_error crypto_error = {{0}};
    struct weft_job_key *key = NULL;
    weft_status status = weft_job_key_read(path, &key, &crypto_error);
    if (status != WEFT_OK) {
        return weft_io_fail(error, status, "%s", crypto_error.text);
    }
    status = weft_job_key_copy(key, psk);
    weft_job_key_free(key);
    return status == WEFT_OK ? status
                             : weft_io_fail(error, status, "%s", weft_status_text(status));
}

static weft_status key_find(const struct weft_api_security *config,
                            uint8_t psk[WEFT_PSK_BYTES], struct weft_io_error *error)
{
    if (config->key != NULL) {
        memcpy(psk, config->key, WEFT_PSK_BYTES);
        return WEFT_OK;
    }
    if (config->key_file != NULL) {
        return key_of_file(config->key_file, psk, error);
    }
    return key_of_environment(psk, error);
}

weft_status weft_api_security_open(const struct weft_api_security *config,
                                   struct weft_ep_config *ep, struct weft_provider **provider_p,
                                   struct weft_io_error *error)
{
    if (config->security == WEFT_TRANSPORT_NONE) {
        ep->mode = WEFT_MODE_NONE;
        return WEFT_OK;
    }
    ep->mode = config->security == WEFT_TRANSPORT_SEAL ? WEFT_MODE_SEAL : WEFT_MODE_AUTH;
    weft_status status = key_find(config, ep->psk, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_provider_new(weft_ep_crypto_slots(ep->peers_max), provider_p);
    if (status != WEFT_OK) {
        return weft_io_fail(error, status, "libcrypto: %s", weft_status_text(status));
    }
    ep->crypto = weft_provider_crypto(*provider_p);
    return WEFT_OK;
}

void weft_api_security_forget(struct weft_ep_config *ep)
{
    weft_job_key_wipe(ep->psk, sizeof(ep->psk));
}
