/* The file at the end of links, which need not exist. */
#include "file/target.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char start[PATH_MAX];

/* Work in a new directory, which has a directory d. */
static int setup(void **state)
{
    char folder[] = "/tmp/weft-test-target-XXXXXX";
    (void)state;
    assert_non_null(getcwd(start, sizeof(start)));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("d", 0700), 0);
    return 0;
}

static int teardown(void **state)
{
    char folder[PATH_MAX];
    (void)state;
    assert_non_null(getcwd(folder, sizeof(folder)));
    assert_int_equal(rmdir("d"), 0);
    assert_int_equal(chdir(start), 0);
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

static void assert_target(const char *path, const char *expected)
{
    char folder[PATH_MAX / 2], whole[PATH_MAX];
    char *target = NULL;
    assert_non_null(getcwd(folder, sizeof(folder)));
    snprintf(whole, sizeof(whole), "%s/%s", folder, expected);
    assert_int_equal(weft_file_target(path, &target), WEFT_OK);
    assert_string_equal(target, whole);
    free(target);
}

static void assert_none(const char *path, int why)
{
    char *target = NULL;
    errno = 0;
    assert_int_equal(weft_file_target(path, &target), WEFT_IO);
    assert_int_equal(errno, why);
    assert_null(target);
}

static void a_new_file_is_its_own_target(void **state)
{
    (void)state;
    assert_target("x", "x");
    assert_target("./d/../x", "x");
    assert_target("d/x", "d/x");
    assert_none("no/x", ENOENT);
    assert_none("", ENOENT);
    assert_none("x/", ENOENT);
}

/* Links are relative to their own directory; the last one names no file. */
static void links_are_followed_and_nothing_is_created(void **state)
{
    (void)state;
    char whole[PATH_MAX];
    assert_int_equal(symlink("d/second", "first"), 0);
    assert_int_equal(symlink("../third", "d/second"), 0);
    assert_non_null(getcwd(whole, sizeof(whole) - 8));
    strcat(whole, "/d/end");
    assert_int_equal(symlink(whole, "third"), 0);
    assert_target("first", "d/end");
    assert_int_equal(access("d/end", F_OK), -1);
    FILE *file = fopen("d/end", "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_target("first", "d/end");
    assert_int_equal(unlink("d/end"), 0);
    assert_int_equal(unlink("third"), 0);
    assert_int_equal(unlink("d/second"), 0);
    assert_int_equal(unlink("first"), 0);
}

static void links_without_an_end_are_errors(void **state)
{
    (void)state;
    assert_int_equal(symlink("b", "a"), 0);
    assert_int_equal(symlink("a", "b"), 0);
    assert_none("a", ELOOP);
    assert_int_equal(unlink("a"), 0);
    assert_int_equal(unlink("b"), 0);
    assert_int_equal(symlink("no/such", "a"), 0);
    assert_none("a", ENOENT);
    assert_int_equal(unlink("a"), 0);
}

static void long_names_are_refused(void **state)
{
    (void)state;
    static char name[PATH_MAX + 2];
    memset(name, 'x', PATH_MAX);
    assert_none(name, ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_file_is_its_own_target, setup, teardown),
        cmocka_unit_test_setup_teardown(links_are_followed_and_nothing_is_created, setup, teardown),
        cmocka_unit_test_setup_teardown(links_without_an_end_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(long_names_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
