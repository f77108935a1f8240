/* Lists of ids in a ring, compared with a simple record: a lookup returns the last list kept under
 * that name, the newest lists exist, and a list in use does not change. */
#include "base/prng.h"
#include "ps/list_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { IDS_MAX = 1000, TABLES = 3, NUMBERS = 40, COUNT_MAX = 300, USERS = 3 };

struct record {
    uint64_t when; /* 0 = never kept */
    uint32_t count;
    uint64_t first; /* ids are first, first + 1, ... */
};

struct user {
    uint32_t place; /* WEFT_ID_LIST_NONE: none */
    struct record what;
};

static void same(const struct weft_id_lists *lists, uint32_t place, const struct record *what)
{
    const struct weft_id_list *list = &lists->list[place];
    assert_int_equal(list->count, what->count);
    assert_true(list->at + list->count <= IDS_MAX);
    for (uint32_t i = 0; i < list->count; i++) {
        assert_true(lists->ids[list->at + i] == what->first + i);
    }
}

static void against_a_record(void **state)
{
    (void)state;
    struct weft_id_lists *lists = malloc(sizeof(*lists));
    uint64_t refused = 0, wrapped = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t *memory = malloc(IDS_MAX * sizeof(*memory)), ids[COUNT_MAX];
        struct record records[TABLES][NUMBERS] = {{{0}}};
        struct user users[USERS];
        struct weft_prng prng;
        weft_prng_init(&prng, seed);
        weft_id_lists_init(lists, memory, IDS_MAX);
        for (int u = 0; u < USERS; u++) {
            users[u].place = WEFT_ID_LIST_NONE;
        }
        for (uint64_t step = 1; step <= 3000; step++) {
            uint16_t table = (uint16_t)weft_prng_below(&prng, TABLES);
            uint32_t number = 1 + (uint32_t)weft_prng_below(&prng, NUMBERS - 1);
            struct user *user = &users[weft_prng_below(&prng, USERS)];
            if (user->place != WEFT_ID_LIST_NONE && weft_prng_below(&prng, 3) == 0) {
                same(lists, user->place, &user->what);
                weft_id_lists_leave(lists, user->place);
                user->place = WEFT_ID_LIST_NONE;
            }
            uint32_t place = weft_id_lists_find(lists, table, number);
            if (place != WEFT_ID_LIST_NONE) {
                assert_true(records[table][number].when > 0);
                same(lists, place, &records[table][number]);
                if (user->place == WEFT_ID_LIST_NONE && weft_prng_below(&prng, 4) == 0) {
                    weft_id_lists_use(lists, place);
                    *user = (struct user){place, records[table][number]};
                }
            }
            uint32_t count = (uint32_t)weft_prng_below(&prng, COUNT_MAX) + (step % 500 == 0) * 900;
            struct record kept = {step, count, step * 1000};
            for (uint32_t i = 0; i < count && i < COUNT_MAX; i++) {
                ids[i] = kept.first + i;
            }
            if (count > COUNT_MAX) {
                assert_false(weft_id_lists_keep(lists, table, number, ids, IDS_MAX + 1));
                assert_int_equal(weft_id_lists_find(lists, table, number), WEFT_ID_LIST_NONE);
                continue;
            }
            bool is_used = false;
            for (int u = 0; u < USERS; u++) {
                is_used |= users[u].place != WEFT_ID_LIST_NONE;
            }
            bool is_kept = weft_id_lists_keep(lists, table, number, ids, count);
            assert_true(is_kept || is_used || count == 0);
            refused += !is_kept && count > 0;
            records[table][number] = kept;
            place = weft_id_lists_find(lists, table, number);
            assert_int_equal(place != WEFT_ID_LIST_NONE, is_kept);
            wrapped += is_kept && lists->list[place].at == 0;
        }
        free(memory);
    }
    assert_true(refused > 100 && wrapped > 1000);
    free(lists);
}

/* The newest lists stay, as many as fit. */
static void the_oldest_goes(void **state)
{
    (void)state;
    struct weft_id_lists *lists = malloc(sizeof(*lists));
    uint64_t memory[100], ids[25] = {0};
    weft_id_lists_init(lists, memory, 100);
    for (uint32_t n = 1; n <= 50; n++) {
        assert_true(weft_id_lists_keep(lists, 0, n, ids, 25));
        for (uint32_t k = 1; k <= n; k++) {
            assert_int_equal(weft_id_lists_find(lists, 0, k) != WEFT_ID_LIST_NONE, k + 4 > n);
        }
        assert_int_equal(weft_id_lists_find(lists, 1, n), WEFT_ID_LIST_NONE);
    }
    weft_id_lists_clear(lists);
    assert_int_equal(weft_id_lists_find(lists, 0, 50), WEFT_ID_LIST_NONE);
    weft_id_lists_init(lists, memory, 100);
    for (uint32_t n = 1; n <= 2 * WEFT_ID_LISTS_MAX; n++) { /* small lists: the number is limited */
        assert_true(weft_id_lists_keep(lists, 0, n, ids, n % 100 == 0 ? 2 : 1) || n < 100);
    }
    weft_id_lists_init(lists, NULL, 0);
    assert_false(weft_id_lists_keep(lists, 0, 1, ids, 1));
    assert_int_equal(weft_id_lists_find(lists, 0, 0), WEFT_ID_LIST_NONE);
    free(lists);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_a_record),
        cmocka_unit_test(the_oldest_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
