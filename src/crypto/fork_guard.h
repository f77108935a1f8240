/* Secrets that a fork does not inherit, and knowing that one happened.
 *
 * Two processes with the same AES-GCM key and the same packet numbers would repeat nonces, which
 * gives the key away; so after fork() neither the key bytes nor the right to use them may be in the
 * child. Memory of a guard is a mapping of its own with MADV_WIPEONFORK: the kernel hands the child
 * zeros, whichever way it was forked. A word in it tells; where the kernel cannot wipe (before
 * Linux 4.14, some sandboxes), a count kept by pthread_atfork tells of forks made with fork().
 *
 * It is not for the parent: that goes on as if nothing had happened. Memory shared by clone(CLONE_VM)
 * or vfork() is no copy and is not wiped. Internal to this folder.
 *
 * Source: madvise(2), MADV_WIPEONFORK, MADV_DONTDUMP.
 */
#ifndef WEFT_CRYPTO_FORK_GUARD_H
#define WEFT_CRYPTO_FORK_GUARD_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_FORK_GUARD_SECRET_BYTES = 32 };

/* The whole mapping. */
struct weft_fork_guard {
    uint64_t canary;     /* 0 in a forked child */
    uint64_t fork_count; /* of this process and its ancestors when the guard was made */
    uint8_t secret[WEFT_FORK_GUARD_SECRET_BYTES]; /* the owner's; may stay unused */
};

/* Zeroed memory for a secret, left out of core dumps.
 *
 * Owns:    gives *guard_p, to be freed with weft_fork_guard_free.
 * Errors:  WEFT_NOMEM. */
weft_status weft_fork_guard_new(struct weft_fork_guard **guard_p);

/* False in a process forked after the guard was made.   Cost: two loads. */
bool weft_fork_guard_holds(const struct weft_fork_guard *guard);

/* Overwrite and unmap. NULL is fine. */
void weft_fork_guard_free(struct weft_fork_guard *guard);

#endif
