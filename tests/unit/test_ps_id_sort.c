/* Sorted ids: the same as a stable comparison sort, for ids of every kind. */
#include "base/prng.h"
#include "ps/id_sort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 20000 };

static uint64_t ids[IDS_MAX];
static struct weft_id_sort scratch[2 * IDS_MAX], expected[IDS_MAX];

static int compare(const void *a, const void *b)
{
    const struct weft_id_sort *one = a, *other = b;
    return one->id != other->id ? (one->id > other->id ? 1 : -1)
                                : (one->row > other->row) - (one->row < other->row);
}

static void check(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        expected[i] = (struct weft_id_sort){ids[i], i};
    }
    qsort(expected, count, sizeof(*expected), compare);
    const struct weft_id_sort *sorted = weft_ids_sort(ids, count, scratch);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(sorted[i].id == expected[i].id && sorted[i].row == expected[i].row);
    }
}

static void none_and_one(void **state)
{
    (void)state;
    check(0);
    ids[0] = UINT64_MAX;
    check(1);
    ids[1] = UINT64_MAX;
    check(2);
    ids[1] = 0;
    check(2);
}

static void of_any_width(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 1);
    for (uint32_t bits = 1; bits <= 64; bits++) {
        for (uint32_t count = 3; count <= IDS_MAX; count = count * 3 + bits) {
            for (uint32_t i = 0; i < count; i++) {
                ids[i] = weft_prng_u64(&prng) >> (64 - bits);
            }
            check(count);
        }
    }
}

/* Clusters: the highest bits that differ do not tell most ids apart. */
static void of_clusters(void **state)
{
    (void)state;
    struct weft_prng prng;
    weft_prng_init(&prng, 2);
    for (uint32_t clusters = 1; clusters <= 64; clusters *= 2) {
        for (uint32_t count = 100; count <= IDS_MAX; count *= 3) {
            for (uint32_t i = 0; i < count; i++) {
                const uint64_t cluster = weft_prng_below(&prng, clusters);
                ids[i] = cluster << 58 | weft_prng_u64(&prng) >> 40;
            }
            ids[0] = 0;
            ids[1] = UINT64_MAX;
            check(count);
        }
    }
}

static void descending(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < IDS_MAX; i++) {
        ids[i] = UINT64_MAX / 3 - i;
    }
    ids[IDS_MAX - 1] = UINT64_MAX;
    check(IDS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_and_one),
        cmocka_unit_test(of_any_width),
        cmocka_unit_test(of_clusters),
        cmocka_unit_test(descending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
