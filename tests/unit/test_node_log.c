/* Log lines of node are passed to the program complete, with their level. */
#include "node/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct heard {
    char text[8192];
};

static void hear(void *arg, enum weft_node_level level, const char *text)
{
    struct heard *heard = arg;
    size_t used = strlen(heard->text);
    (void)snprintf(heard->text + used, sizeof(heard->text) - used, "%s: %s\n",
                   level == WEFT_NODE_WARNING ? "warning" : "info", text);
}

static void lines_are_handed_on(void **state)
{
    (void)state;
    struct heard heard = {.text = ""};
    const struct weft_node_log log = {.say = hear, .arg = &heard};
    weft_node_info(&log, "%u members from %s", 3U, "/a/journal");
    weft_node_warn(&log, "no trace");
    assert_string_equal(heard.text, "info: 3 members from /a/journal\nwarning: no trace\n");
}

static void nobody_listens(void **state)
{
    (void)state;
    const struct weft_node_log log = {.say = NULL};
    weft_node_info(&log, "%s", "unheard");
    weft_node_warn(&log, "%s", "unheard");
}

static void a_longest_path_fits(void **state)
{
    (void)state;
    static char path[4096];
    static struct heard heard;
    const struct weft_node_log log = {.say = hear, .arg = &heard};
    memset(path, 'p', sizeof(path) - 1);
    weft_node_warn(&log, "no trace: %s: and why", path);
    assert_non_null(strstr(heard.text, "p: and why\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_handed_on),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_longest_path_fits),
    };
    return cmocka_run_group_tests_name("node/log", tests, NULL, NULL);
}
