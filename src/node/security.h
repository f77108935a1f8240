/* Security of a process: where its job key comes from, and equipping the configuration of an
 * endpoint with provider and key.
 *
 * The key comes, in this order: from bytes given by the program; from the parent, which passes it
 * to its children through a pipe; from a key file; from the environment variable WEFT_JOB_KEY; and,
 * if the caller starts all processes itself, a fresh key. It is never an argument of a command,
 * because all users of a host can read those.
 *
 * The variable is removed when it is read, so that children do not inherit it; the process keeps
 * the key, in memory that a fork does not inherit, for endpoints that it opens later.
 *
 * Source: docs/PROTOCOL.md section 8.
 */
#ifndef WEFT_NODE_SECURITY_H
#define WEFT_NODE_SECURITY_H

#include "crypto/job_key.h"
#include "crypto/provider.h"
#include "io/udp/udp.h"
#include "ps/table.h"
#include "wire/packet.h"

struct weft_security {
    uint8_t mode;             /* enum weft_wire_mode */
    bool insecure_network;    /* allow mode none beyond loopback */
    const uint8_t *key_bytes; /* (WEFT_PSK_BYTES,); NULL = not given */
    const char *key_file;     /* NULL = not given */
    uint32_t key_fd;          /* 0 = none; weft_security_load closes it */
    bool keep_variable;       /* WEFT_JOB_KEY stays in the environment unless its key is used: a
                               * library does not change its program's environment needlessly */

    struct weft_job_key *key; /* after weft_security_load; NULL in mode none */
};

#define WEFT_SECURITY_DEFAULTS {.mode = WEFT_MODE_AUTH}

const char *weft_security_mode_name(uint8_t mode);

/* Find the key.
 *
 * fresh:   create a key when none is given.
 * Owns:    copies key_bytes; call weft_security_fini, also after an error.
 * Errors:  WEFT_NOTFOUND  there is none.   WEFT_STATE  the key of the environment was read before a
 *          fork. Others as in crypto/job_key.h.   error->text says what to do.
 * Thread:  any, but no other thread may use the environment meanwhile. */
weft_status weft_security_load(struct weft_security *security, bool fresh,
                               struct weft_error *error);
void weft_security_fini(struct weft_security *security);

/* A pipe that contains the key's text and a newline, to be passed to a child as its key_fd; 0 in
 * mode none.
 * Owns:    gives *fd_p.
 * Errors:  WEFT_IO  errno says why. */
weft_status weft_security_key_pipe(const struct weft_security *security, int *fd_p);

/* Set mode, provider and key in a configuration whose peers_max is final. The provider belongs to
 * the thread of that endpoint; free it after the endpoint. weft_endpoint_open does all this.
 *
 * Owns:    gives *provider_p (NULL in mode none); config->ep.psk holds the key afterwards: wipe it
 *          with weft_security_disarm as soon as the endpoint is open.
 * Errors:  as weft_provider_new; WEFT_STATE. */
weft_status weft_security_arm(const struct weft_security *security, struct weft_udp_config *config,
                              struct weft_provider **provider_p, struct weft_error *error);
void weft_security_disarm(struct weft_udp_config *config);

/* The keys that a shard's tables hash ids with: random, except the key common to all shards of the
 * job, which is derived from the job key, or zero without one (ps/table.h).
 *
 * Errors:  as weft_job_key_derive. */
weft_status weft_security_table_keys(const struct weft_security *security,
                                     struct weft_table_keys *keys_p, struct weft_error *error);

/* An endpoint's hint as a sentence, with this end's fingerprint where keys differ; "" for none. */
void weft_security_hint(const struct weft_security *security, enum weft_ep_hint hint, char *text_p,
                        size_t bytes);

enum { WEFT_SECURITY_HINT_BYTES = 320 };

#endif
