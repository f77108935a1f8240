/* The job key: 32 secret bytes that all processes of a job share. Every holder of the key may take
 * part in the job.
 *
 * As text it is 64 hexadecimal digits; a file holds them and a newline. The bytes are in memory
 * that a fork does not inherit and a core dump leaves out (crypto/fork_guard.h), and no function
 * here prints them. In a process that was forked after the key was made, functions that need the
 * bytes return WEFT_STATE ("forked", below). The fingerprint can be printed: it distinguishes two
 * keys and reveals nothing else about them.
 *
 * The caller chooses the source. Weft's own programs use, in this order, a file, the environment
 * variable WEFT_JOB_KEY, or (only if all processes have one parent) a new random key.
 *
 * Source: docs/PROTOCOL.md section 8 (use of the key).
 */
#ifndef WEFT_CRYPTO_JOB_KEY_H
#define WEFT_CRYPTO_JOB_KEY_H

#include "base/error.h"
#include "core/crypto.h"

struct weft_job_key;

enum {
    WEFT_JOB_KEY_TEXT_BYTES = 2 * WEFT_PSK_BYTES, /* without the final zero */
    WEFT_JOB_KEY_FINGERPRINT_BYTES = 9,           /* 8 digits and the final zero */
};

/* Create a random key.
 *
 * Owns:    gives *key_p, to be freed with weft_job_key_free; so do the next four.
 * Errors:  WEFT_NOMEM; WEFT_IO  the operating system provides no randomness. */
weft_status weft_job_key_random(struct weft_job_key **key_p, struct weft_error *error);

/* Create a key from a copy of these bytes; the caller wipes its own.   Errors:  WEFT_NOMEM. */
weft_status weft_job_key_of(const uint8_t bytes[WEFT_PSK_BYTES], struct weft_job_key **key_p,
                            struct weft_error *error);

/* Read a key from a file.
 *
 * Errors:  WEFT_NOTFOUND  no such file.   WEFT_IO  it cannot be opened or read.
 *          WEFT_DATA      it is not a regular file, it is readable or writable by others, it is a
 *                         symbolic link owned by another user, or its text is not a key:
 *                         error->text has the reason and the remedy.   WEFT_NOMEM. */
weft_status weft_job_key_read(const char *path, struct weft_job_key **key_p,
                              struct weft_error *error);

/* Read a key as text from a descriptor (a pipe) to its end; does not close it.
 *
 * Errors:  as above; `name` is used in place of the file in error->text. */
weft_status weft_job_key_read_fd(int fd, const char *name, struct weft_job_key **key_p,
                                 struct weft_error *error);

/* Read a key from WEFT_JOB_KEY, and overwrite and unset the variable, also if it is not a key:
 * neither child processes nor /proc/self/environ have it then.
 *
 * Errors:  WEFT_NOTFOUND  not set, which may be valid: error->text is not written.
 *          WEFT_DATA      not a key.   WEFT_NOMEM.
 * Thread:  before other threads use the environment. */
weft_status weft_job_key_take_environment(struct weft_job_key **key_p, struct weft_error *error);

/* Write the key to a new file with access only for the owner (0600), and sync it. Never overwrites.
 *
 * Errors:  WEFT_EXISTS  the name already exists.   WEFT_STATE  forked.
 *          WEFT_IO      it cannot be written; the file was removed. */
weft_status weft_job_key_write(const struct weft_job_key *key, const char *path,
                               struct weft_error *error);

/* Write the text and a newline to a descriptor (a pipe).
 *
 * Errors:  WEFT_IO  errno has the reason.   WEFT_STATE  forked. */
weft_status weft_job_key_write_fd(const struct weft_job_key *key, int fd);

/* Copy the bytes to struct weft_ep_config; wipe that copy (weft_job_key_wipe) once the endpoint is
 * open.
 *
 * Errors:  WEFT_STATE  forked. */
weft_status weft_job_key_copy(const struct weft_job_key *key, uint8_t bytes_p[WEFT_PSK_BYTES]);

/* Overwrite, in a way that no compiler optimizes away. */
void weft_job_key_wipe(void *bytes, size_t count);

/* The first 8 hexadecimal digits of SHA-256("weft key id" || key): safe to print.
 *
 * Errors:  WEFT_STATE  forked.   WEFT_NOMEM. */
weft_status weft_job_key_fingerprint(const struct weft_job_key *key,
                                     char text_p[WEFT_JOB_KEY_FINGERPRINT_BYTES]);

/* Derive another secret shared by all holders of the key, which reveals nothing about the key:
 * HMAC-SHA-256(key, label || 1), which is HKDF-Expand (RFC 5869) of one block.
 *
 * Errors:  WEFT_STATE  forked.   WEFT_NOMEM. */
weft_status weft_job_key_derive(const struct weft_job_key *key, const char *label,
                                uint8_t out_p[WEFT_HASH_BYTES]);

/* Overwrites it. NULL is allowed. */
void weft_job_key_free(struct weft_job_key *key);

/* ---- internal to this folder ---- */

/* Parse text of `count` bytes; `name` is its source.   Errors: WEFT_DATA, WEFT_NOMEM. */
weft_status weft_job_key_parse(const char *text, size_t count, const char *name,
                               struct weft_job_key **key_p, struct weft_error *error);

#endif
