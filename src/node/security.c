#define _GNU_SOURCE // pipe2
#include "node/security.h"

#include "base/error.h"
#include "io/random.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static const char *const names[] = {
    [WEFT_MODE_NONE] = "none", [WEFT_MODE_AUTH] = "auth", [WEFT_MODE_SEAL] = "seal"};

const char *weft_security_mode_name(uint8_t mode)
{
    return names[mode];
}

/* ---- finding the key ------------------------------------------------------------------------- */

static pthread_mutex_t environment_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_job_key *environment_key; /* read once, kept for the life of the process */

static weft_status take_environment(struct weft_error *error)
{
    return environment_key != NULL ? WEFT_OK
                                   : weft_job_key_take_environment(&environment_key, error);
}

static weft_status from_environment(struct weft_job_key **key_p, struct weft_error *error)
{
    uint8_t bytes[WEFT_PSK_BYTES];
    pthread_mutex_lock(&environment_lock);
    weft_status status = take_environment(error);
    if (status == WEFT_OK) {
        status = weft_job_key_copy(environment_key, bytes);
    }
    pthread_mutex_unlock(&environment_lock);
    if (status == WEFT_STATE) {
        return weft_fail(error, status,
                         "the job key of WEFT_JOB_KEY does not outlive a fork; connect in "
                         "the process that read it, or use a key file");
    }
    if (status == WEFT_OK) {
        status = weft_job_key_of(bytes, key_p, error);
    }
    weft_job_key_wipe(bytes, sizeof(bytes));
    return status;
}

/* Another key is used, but children must not inherit this one either. */
static void forget_variable(void)
{
    struct weft_error ignored;
    pthread_mutex_lock(&environment_lock);
    (void)take_environment(&ignored);
    pthread_mutex_unlock(&environment_lock);
}

static weft_status from_parent(int fd, struct weft_job_key **key_p, struct weft_error *error)
{
    weft_status status = weft_job_key_read_fd(fd, "the key from the parent", key_p, error);
    (void)close(fd);
    return status;
}

static weft_status find(struct weft_security *security, bool fresh, struct weft_error *error)
{
    if (security->mode == WEFT_MODE_NONE) {
        return WEFT_OK;
    }
    if (security->key_bytes != NULL) {
        return weft_job_key_of(security->key_bytes, &security->key, error);
    }
    if (security->key_fd != 0) {
        return from_parent((int)security->key_fd, &security->key, error);
    }
    if (security->key_file != NULL) {
        return weft_job_key_read(security->key_file, &security->key, error);
    }
    weft_status status = from_environment(&security->key, error);
    if (status != WEFT_NOTFOUND) {
        return status;
    }
    if (fresh) {
        return weft_job_key_random(&security->key, error);
    }
    return weft_fail(error, WEFT_NOTFOUND,
                     "there is no job key: make one with `weft keygen job.key`, copy it to "
                     "every host, and give it to every process: --key-file job.key, "
                     "key_file of a configuration, or its text in WEFT_JOB_KEY");
}

weft_status weft_security_load(struct weft_security *security, bool fresh, struct weft_error *error)
{
    weft_status status = find(security, fresh, error);
    if (!security->keep_variable) {
        forget_variable();
    }
    return status;
}

void weft_security_fini(struct weft_security *security)
{
    weft_job_key_free(security->key);
    security->key = NULL;
}

weft_status weft_security_key_pipe(const struct weft_security *security, int *fd_p)
{
    int ends[2];
    *fd_p = 0;
    if (security->key == NULL) {
        return WEFT_OK;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return WEFT_IO;
    }
    weft_status status = weft_job_key_write_fd(security->key, ends[1]);
    int why = errno;
    (void)close(ends[1]);
    if (status != WEFT_OK) {
        (void)close(ends[0]);
        errno = why;
        return status;
    }
    *fd_p = ends[0];
    return WEFT_OK;
}

weft_status weft_security_arm(const struct weft_security *security, struct weft_udp_config *config,
                              struct weft_provider **provider_p, struct weft_error *error)
{
    *provider_p = NULL;
    config->ep.mode = security->mode;
    config->insecure_network = security->insecure_network;
    if (security->mode == WEFT_MODE_NONE) {
        return WEFT_OK;
    }
    struct weft_provider *provider = NULL;
    weft_status status = weft_provider_new(weft_ep_crypto_slots(config->ep.peers_max), &provider);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "libcrypto cannot be used: %s", weft_status_text(status));
    }
    status = weft_job_key_copy(security->key, config->ep.psk);
    if (status != WEFT_OK) {
        weft_provider_free(provider);
        return weft_fail(error, status, "the job key did not survive a fork");
    }
    config->ep.crypto = weft_provider_crypto(provider);
    *provider_p = provider;
    return WEFT_OK;
}

void weft_security_disarm(struct weft_udp_config *config)
{
    weft_job_key_wipe(config->ep.psk, sizeof(config->ep.psk));
}

weft_status weft_security_table_keys(const struct weft_security *security,
                                     struct weft_table_keys *keys_p, struct weft_error *error)
{
    *keys_p = (struct weft_table_keys){0};
    weft_os_random(keys_p->index, sizeof(keys_p->index));
    weft_os_random(keys_p->counter, sizeof(keys_p->counter));
    if (security->key == NULL) {
        return WEFT_OK;
    }
    static_assert((int)WEFT_HASH_KEY_BYTES == (int)WEFT_HASH_BYTES);
    weft_status status =
        weft_job_key_derive(security->key, "weft admission filter", keys_p->filter);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "cannot derive a key from the job key: %s",
                         weft_status_text(status));
    }
    return WEFT_OK;
}

void weft_security_hint(const struct weft_security *security, enum weft_ep_hint hint, char *text_p,
                        size_t bytes)
{
    char fingerprint[WEFT_JOB_KEY_FINGERPRINT_BYTES];
    const char *sentence = weft_ep_hint_text(hint);
    bool about_keys = hint == WEFT_HINT_KEY || hint == WEFT_HINT_TOLD_KEY;
    if (about_keys && security->key != NULL &&
        weft_job_key_fingerprint(security->key, fingerprint) == WEFT_OK) {
        snprintf(text_p, bytes, "%s (this end's is %s; `weft keygen --check FILE` shows it)",
                 sentence, fingerprint);
    } else {
        snprintf(text_p, bytes, "%s", sentence);
    }
}
