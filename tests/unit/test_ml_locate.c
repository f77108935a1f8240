/* Finding data files. Uses a separate directory below the working directory. */
#include "ml/locate.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "test_ml_locate.XXXXXX";
static const char *const folders[] = {"a", "b", "b/set"};
static const char *const files[] = {"a/plain",     "a/both",        "a/both.zst",
                                    "b/packed.gz", "b/set/set.zst", "b/set/set.test.zst"};

static void path_of(const char *name, char path[128])
{
    (void)snprintf(path, 128, "%s/%s", root, name);
}

static int set_up(void **state)
{
    (void)state;
    char path[128];
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(folders); i++) {
        path_of(folders[i], path);
        if (mkdir(path, 0700) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(files); i++) {
        path_of(files[i], path);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        if (fd < 0 || close(fd) != 0) {
            return -1;
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char path[128];
    int failures = 0;
    for (size_t i = WEFT_ARRAY_COUNT(files); i-- > 0;) {
        path_of(files[i], path);
        failures += unlink(path) != 0;
    }
    for (size_t i = WEFT_ARRAY_COUNT(folders); i-- > 0;) {
        path_of(folders[i], path);
        failures += rmdir(path) != 0;
    }
    failures += rmdir(root) != 0;
    return failures;
}

/* Search in the places b (as NULL, "", b), then a; expected below the root, or NULL. */
static void check(const char *name, const char *expected)
{
    char b[128];
    char a[128];
    path_of("b", b);
    path_of("a", a);
    const char *const places[] = {NULL, "", b, a};
    char found[WEFT_ML_PATH_BYTES] = "";
    weft_status status = weft_ml_locate(name, places, WEFT_ARRAY_COUNT(places), NULL, found);
    if (expected == NULL) {
        assert_int_equal(status, WEFT_NOTFOUND);
        return;
    }
    char path[128];
    path_of(expected, path);
    assert_int_equal(status, WEFT_OK);
    assert_string_equal(found, path);
}

static void places_and_endings(void **state)
{
    (void)state;
    check("plain", "a/plain");
    check("both", "a/both"); /* the plain one first */
    check("both.zst", "a/both.zst");
    check("packed", "b/packed.gz");
    check("set", "b/set/set.zst"); /* not the directory b/set */
    check("set.test", "b/set/set.test.zst");
    check("set/set", "b/set/set.zst");
    check("a", NULL);
    check("nothing", NULL);
    check("./plain", NULL);
}

static void names_as_they_stand(void **state)
{
    (void)state;
    char path[128];
    path_of("a/plain", path);
    check(path, "a/plain");
    path_of("b/packed", path);
    check(path, "b/packed.gz");
}

static void what_is_said_when_nothing_is_found(void **state)
{
    (void)state;
    struct weft_error error = {0};
    char found[WEFT_ML_PATH_BYTES];
    const char *const places[] = {"/no/1", NULL, "/no/2"};
    assert_int_equal(weft_ml_locate("x", places, 3, &error, found), WEFT_NOTFOUND);
    assert_string_equal(
        error.text, "no data file \"x\", also not with .zst or .gz; looked in: ., /no/1, /no/2");
    /* An absolute name is not looked for in the directories. */
    assert_int_equal(weft_ml_locate("/no/x", places, 3, &error, found), WEFT_NOTFOUND);
    assert_string_equal(error.text, "no data file \"/no/x\", also not with .zst or .gz");
    assert_int_equal(weft_ml_locate("", places, 3, &error, found), WEFT_INVALID);
    char name[2 * WEFT_ML_PATH_BYTES];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(weft_ml_locate(name, places, 3, &error, found), WEFT_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_endings),
        cmocka_unit_test(names_as_they_stand),
        cmocka_unit_test(what_is_said_when_nothing_is_found),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
