/* A true assertion has no effect. A false one calls the handler with its location; without a
 * handler, or if the handler returns, the process is terminated by a trap. */
#include "base/assert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static jmp_buf after_handler;
static const char *seen_file;
static int seen_line;
static const char *seen_expression;

static void catch (const char *file, int line, const char *expression)
{
    seen_file = file;
    seen_line = line;
    seen_expression = expression;
    longjmp(after_handler, 1);
}

static void return_from_handler(const char *file, int line, const char *expression)
{
    (void)file;
    (void)line;
    (void)expression;
}

static int no_handler(void **state)
{
    (void)state;
    weft_assert_set_handler(NULL);
    return 0;
}

static void true_is_silent_and_evaluated_once(void **state)
{
    (void)state;
    weft_assert_set_handler(catch);
    volatile int evaluated = 0;
    if (setjmp(after_handler) == 0) {
        WEFT_ASSERT(++evaluated == 1);
        assert_int_equal(evaluated, 1);
        return;
    }
    fail_msg("the handler was called");
}

static void false_calls_the_handler_with_its_place(void **state)
{
    (void)state;
    weft_assert_set_handler(catch);
    volatile int line = 0;
    if (setjmp(after_handler) == 0) {
        line = __LINE__ + 1;
        WEFT_ASSERT(1 + 1 == 3);
        fail_msg("execution continued");
    }
    assert_non_null(strstr(seen_file, "test_base_assert.c"));
    assert_int_equal(seen_line, line);
    assert_string_equal(seen_expression, "1 + 1 == 3");
}

/* The signal that ended a child in which an assertion failed; 0: the child continued. */
static int death_with(weft_assert_fn *handler)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        /* Restore the default handlers: sanitizers and cmocka catch some signals, but here the
         * signal is the result. */
        (void)signal(SIGILL, SIG_DFL);
        (void)signal(SIGTRAP, SIG_DFL);
        (void)signal(SIGABRT, SIG_DFL);
        weft_assert_set_handler(handler);
        WEFT_ASSERT(handler == catch);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void without_a_handler_the_process_dies(void **state)
{
    (void)state;
    assert_int_not_equal(death_with(NULL), 0);
}

static void a_handler_that_returns_does_not_save_it(void **state)
{
    (void)state;
    assert_int_not_equal(death_with(return_from_handler), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(true_is_silent_and_evaluated_once, no_handler),
        cmocka_unit_test_teardown(false_calls_the_handler_with_its_place, no_handler),
        cmocka_unit_test(without_a_handler_the_process_dies),
        cmocka_unit_test(a_handler_that_returns_does_not_save_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
