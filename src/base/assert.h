/* Assertions for programmer errors: on in every build.
 *
 * Never for bytes from a peer (drop and count those) and never for a failed system call (return a
 * status). The handler can be replaced: a driver prints a trace before the process ends, and a test
 * checks that an assertion fires. The layers themselves print nothing.
 */
#ifndef WEFT_BASE_ASSERT_H
#define WEFT_BASE_ASSERT_H

/* Must not return. The default traps the process. */
typedef void weft_assert_fn(const char *file, int line, const char *expression);

/* Thread: call once before any other thread starts. NULL restores the default. */
void weft_assert_set_handler(weft_assert_fn *handler);

[[gnu::noreturn]] void weft_assert_fail(const char *file, int line, const char *expression);

#define WEFT_ASSERT(expression)                                                                    \
    do {                                                                                           \
        if (__builtin_expect(!(expression), 0)) {                                                  \
            weft_assert_fail(__FILE__, __LINE__, #expression);                                     \
        }                                                                                          \
    } while (0)

#endif
