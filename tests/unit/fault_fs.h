/* Injection of file system errors and allocation failures: calls of the code under test, including
 * malloc, calloc and realloc, are wrapped (the linker's --wrap) and counted, and one of them fails
 * in a chosen way. Also emulates behaviour of network file systems that a local one does not have.
 *
 * Link with fault_fs_args of tests/unit/meson.build.
 */
#ifndef WEFT_TESTS_FAULT_FS_H
#define WEFT_TESTS_FAULT_FS_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_ERRNO,   /* the call fails with `why`; a failed write or fsync changes nothing */
    FAULT_SHORT,   /* a read or write transfers one byte; other calls are unaffected */
    FAULT_UNCLEAR, /* link, rename and mkdir succeed, but report EEXIST (link, mkdir) or EIO */
};

/* Make call number `at` (1, 2, ...; 0 = none) fail. Resets the count. */
void fault_fs_arm(uint32_t at, enum fault_kind kind, int why);

/* No more faults, no network file system. */
void fault_fs_disarm(void);

/* Number of calls since fault_fs_arm; true if the fault occurred. */
uint32_t fault_fs_calls(void);
bool fault_fs_met(void);

/* The name of the failed call, such as "pread". */
const char *fault_fs_name(void);

/* Emulate a network file system: a failed lookup of a name is cached and returned up to `stale`
 * times; each successful link(2) reports EEXIST, as if the reply was lost and the request was
 * resent. */
void fault_fs_network(uint32_t stale);

/* Called before each link(2), to emulate a process that is faster; NULL = none. */
void fault_fs_before_link(void (*hook)(void *arg), void *arg);

#endif
