/* Well-formed characters are kept; of all others each byte is replaced. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void lengths(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned bytes;
    } cases[] = {
        {"a", 1},
        {"\x7f", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\x80", 0},             /* no lead */
        {"\xc0\x80", 0},         /* longer than needed; also the next */
        {"\xe0\x9f\xbf", 0},
        {"\xed\xa0\x80", 0},     /* half of a pair of UTF-16 */
        {"\xf4\x90\x80\x80", 0}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"\xc3", 0},             /* cut; also the next two */
        {"\xe2\x82", 0},
        {"\xf0\x9f\x98", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(weft_utf8_bytes(cases[i].text), cases[i].bytes);
    }
}

static void repairs(void **state)
{
    (void)state;
    char good[] = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80\n";
    char bad[] = "na\xefve \xe2\x82z\xff\xc3";
    char empty[] = "";
    char copy[sizeof(good)];
    memcpy(copy, good, sizeof(good));
    weft_utf8_repair(good);
    assert_string_equal(good, copy);
    weft_utf8_repair(bad);
    assert_string_equal(bad, "na?ve ??z??");
    weft_utf8_repair(empty);
    assert_string_equal(empty, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(repairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
