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
    FAULT_ERRNO,   /* the call fails with `why`; a write or fsync that fails changes nothing */
    FAULT_SHORT,   /* reading or writing transfers one byte; of other calls nothing changes */
    FAULT_UNCLEAR, /* link, rename, mkdir are done, and report EEXIST (link, mkdir) or EIO */
};

/* From now on: call number `at` (1, 2, ...; 0 = none) fails. Counting starts again. */
void fault_fs_arm(uint32_t at, enum fault_kind kind, int why);

/* No more faults, no network file system. */
void fault_fs_disarm(void);

/* Calls since fault_fs_arm; and whether the fault was met. */
uint32_t fault_fs_calls(void);
bool fault_fs_met(void);

/* The name of the failed call, such as "pread". */
const char *fault_fs_name(void);

/* A network file system: the look-up of a name that was not there is remembered, and answered from
 * memory up to `stale` times; each link(2) that is made reports
 * EEXIST (the reply was lost, and the request sent again). */
void fault_fs_network(uint32_t stale);

/* Called before each link(2), to emulate a process that is faster; NULL = none. */
void fault_fs_before_link(void (*hook)(void *arg), void *arg);

#endif
