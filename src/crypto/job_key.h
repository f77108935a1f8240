/* The job key: 32 secret bytes that all processes of a job share. Who has it may take part.
 *
 * As text it is 64 hexadecimal digits; a file holds them and a newline. The bytes lie in memory that
 * a fork does not inherit and a core dump leaves out (crypto/fork_guard.h), and no function here
 * prints them: for people there is the fingerprint, which tells two keys apart and says nothing
 * else about them.
 *
 * Where it comes from is the caller's choice, in this order in weft's own programs: a file, the
 * environment variable WEFT_JOB_KEY, or (only where all processes have one parent) a fresh one.
 *
 * Source: docs/PROTOCOL.md section 8 (what the key is good for).
 */
#ifndef WEFT_CRYPTO_JOB_KEY_H
#define WEFT_CRYPTO_JOB_KEY_H

#include "base/error.h"
#include "core/crypto.h"

struct weft_job_key;

enum {
    WEFT_JOB_KEY_TEXT_BYTES = 2 * WEFT_PSK_BYTES, /* without the end of the string */
    WEFT_JOB_KEY_FINGERPRINT_BYTES = 9,           /* 8 digits and the end of the string */
};

/* A key nobody has yet.
 *
 * Owns:    gives *key_p, to be freed with weft_job_key_free; so do the next four.
 * Errors:  WEFT_NOMEM; WEFT_IO  the operating system gives no randomness. */
weft_status weft_job_key_random(struct weft_job_key **key_p, struct weft_error *error);

/* A copy of these bytes, which stay the caller's to wipe.   Errors:  WEFT_NOMEM. */
weft_status weft_job_key_of(const uint8_t bytes[WEFT_PSK_BYTES], struct weft_job_key **key_p,
                            struct weft_error *error);

/* From a file.
 *
 * Errors:  WEFT_NOTFOUND  no such file.   WEFT_IO  it cannot be opened or read.
 *          WEFT_DATA      it is no regular file, others may read or write it, it is a symbolic link
 *                         that belongs to somebody else, or its text is no key: error->text says
 *                         which of these, and what to do.   WEFT_NOMEM. */
weft_status weft_job_key_read(const char *path, struct weft_job_key **key_p,
                              struct weft_error *error);

/* From a descriptor that delivers the text (a pipe); reads to its end, closes nothing.
 *
 * Errors:  as above; `name` stands for the file in error->text. */
weft_status weft_job_key_read_fd(int fd, const char *name, struct weft_job_key **key_p,
                                 struct weft_error *error);

/* From WEFT_JOB_KEY, which is then overwritten and unset, whether or not it was a key: children
 * and /proc/self/environ do not get it.
 *
 * Errors:  WEFT_NOTFOUND  not set, which may be fine: no text.   WEFT_DATA  not a key.   WEFT_NOMEM.
 * Thread:  before other threads use the environment. */
weft_status weft_job_key_take_environment(struct weft_job_key **key_p, struct weft_error *error);

/* Make a file of it that is only the owner's (0600), and see it safe on the disk. Never overwrites.
 *
 * Errors:  WEFT_EXISTS  something has that name already.   WEFT_STATE  forked.
 *          WEFT_IO      it cannot be written; nothing is left of it. */
weft_status weft_job_key_write(const struct weft_job_key *key, const char *path,
                               struct weft_error *error);

/* The text and a newline to a descriptor (a pipe).
 *
 * Errors:  WEFT_IO  errno says why.   WEFT_STATE  forked. */
weft_status weft_job_key_write_fd(const struct weft_job_key *key, int fd);

/* The bytes, for struct weft_ep_config: wipe that copy (weft_job_key_wipe) once the endpoint is open.
 *
 * Errors:  WEFT_STATE  this process was forked after the key was made: the key is gone. */
weft_status weft_job_key_copy(const struct weft_job_key *key, uint8_t bytes_p[WEFT_PSK_BYTES]);

/* Overwrite, in a way that no compiler removes. */
void weft_job_key_wipe(void *bytes, size_t count);

/* The first 8 hexadecimal digits of SHA-256("weft key id" || key): fine to show.
 *
 * Errors:  WEFT_STATE  forked.   WEFT_NOMEM. */
weft_status weft_job_key_fingerprint(const struct weft_job_key *key,
                                     char text_p[WEFT_JOB_KEY_FINGERPRINT_BYTES]);

/* Another secret that all who have the key have in common, and that says nothing about the key:
 * HMAC-SHA-256(key, label || 1), which is HKDF-Expand (RFC 5869) of one block.
 *
 * Errors:  WEFT_STATE  forked.   WEFT_NOMEM. */
weft_status weft_job_key_derive(const struct weft_job_key *key, const char *label,
                                uint8_t out_p[WEFT_HASH_BYTES]);

/* Overwrites it. NULL is fine. */
void weft_job_key_free(struct weft_job_key *key);

/* ---- inside this folder ---- */

/* From text of `count` bytes; `name` says where it is from.   Errors: WEFT_DATA, WEFT_NOMEM. */
weft_status weft_job_key_parse(const char *text, size_t count, const char *name,
                               struct weft_job_key **key_p, struct weft_error *error);

#endif
