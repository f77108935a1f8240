/* Memory for secrets that a fork does not inherit, and detection of forks.
 *
 * Two processes with the same AES-GCM key and the same packet numbers would repeat nonces, which
 * reveals the key. So after fork() the child must not have the key bytes, nor be able to use them.
 * A guard is a separate mapping with MADV_WIPEONFORK: the kernel gives the child zeros, however it
 * was forked, and a word in the mapping detects that. If the kernel cannot wipe (before Linux 4.14,
 * some sandboxes), a counter of pthread_atfork detects forks made with fork().
 *
 * The parent is not affected. Memory shared by clone(CLONE_VM) or vfork() is not a copy and is not
 * wiped. Internal to this folder.
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
    uint8_t secret[WEFT_FORK_GUARD_SECRET_BYTES]; /* the owner's; may be unused */
};

/* Allocate zeroed memory for a secret, left out of core dumps.
 *
 * Owns:    gives *guard_p, to be freed with weft_fork_guard_free.
 * Errors:  WEFT_NOMEM. */
weft_status weft_fork_guard_new(struct weft_fork_guard **guard_p);

/* False in a process forked after the guard was made.   Cost: two loads. */
bool weft_fork_guard_holds(const struct weft_fork_guard *guard);

/* Overwrite and unmap. NULL is allowed. */
void weft_fork_guard_free(struct weft_fork_guard *guard);

#endif
