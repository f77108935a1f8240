/* A table for tests: its limits, and the slabs that it requests. */
#ifndef WEFT_TEST_PS_TABLE_RIG_H
#define WEFT_TEST_PS_TABLE_RIG_H

#include "ps/table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static inline weft_status table_init(struct weft_table *table, uint32_t rows_max, uint32_t dim_max,
                                     uint64_t slab_bytes)
{
    return weft_table_init(table, &(struct weft_table_limits){.rows_max = rows_max,
                                                              .dim_max = dim_max,
                                                              .slab_bytes = slab_bytes,
                                                              .shards = 1});
}

static inline void give_slabs(struct weft_table *table)
{
    size_t bytes;
    while (weft_table_wants_slab(table, &bytes)) {
        void *memory = malloc(bytes);
        memset(memory, 0x5a, bytes);
        assert_int_equal(weft_table_add_slab(table, memory, bytes), WEFT_OK);
    }
}

/* A table that is ready for rows. */
static inline void table_make(struct weft_table *table, uint32_t rows_max,
                              const struct weft_table_spec *spec)
{
    assert_int_equal(table_init(table, rows_max, spec->dim, 4096), WEFT_OK);
    assert_int_equal(weft_table_declare(table, spec), WEFT_OK);
    give_slabs(table);
}

static inline void finish(struct weft_table *table)
{
    void *memory;
    while ((memory = weft_table_take_slab(table)) != NULL) {
        free(memory);
    }
    weft_table_fini(table);
}

/* Look up or create the rows of a chunk of single-block rows; false if the table is full. */
static inline bool obtain_chunk(struct weft_table *table, const uint64_t *ids, uint32_t count,
                                struct weft_table_row **rows_p)
{
    uint64_t hashes[2048];
    assert_true(count <= WEFT_ARRAY_COUNT(hashes));
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = weft_table_hash(table, ids[i]);
    }
    return weft_table_obtain_chunk(table, ids, hashes, 0, count, rows_p);
}

#endif
