/* The share of all updates that goes to the most updated parameters, from `hot` and `hot_total`. */
#ifndef WEFT_OBS_RECDB_HOTNESS_H
#define WEFT_OBS_RECDB_HOTNESS_H

#include "obs/recdb.h"

struct weft_recdb_hot {
    uint64_t id;
    uint64_t updates; /* of its present row, so at most its true number */
    uint32_t table;
};

struct weft_recdb_hotness {
    struct weft_recdb_hot *list; /* most updated first */
    size_t count;
    uint64_t updates; /* of all parameters */
    uint64_t removed; /* of these, updates that are in no count, because their row was removed */
    bool has_removed; /* else unknown: some records are of a release that did not count them */
    bool exact;       /* at every server each update is in the count of a row that still exists */
    size_t sure;      /* the lists of all servers contain the top k for k up to here; SIZE_MAX =
                       * they contain every parameter */
};

/* Share of the top k in all updates: at least `low`, that of the recorded counts, which are never
 * too high. At most `high`, as if all removed updates had been of the top k; 1 if unknown, because
 * k > sure or has_removed is false. */
struct weft_recdb_hot_share {
    uint64_t k;
    double low;
    double high;
    bool has_high; /* else unknown */
};

enum { WEFT_RECDB_HOT_LEVELS = 16 };

/* table = UINT32_MAX: all tables.
 * Owns:    *hotness_p is freed with fini, also after a failure.
 * Errors:  those of reading, WEFT_NOMEM; also in db. */
weft_status weft_recdb_hotness_make(struct weft_recdb *db, uint32_t table,
                                    struct weft_recdb_hotness *hotness_p);
void weft_recdb_hotness_fini(struct weft_recdb_hotness *hotness);

/* For k = 1, 10, 100, ..., and 20,000 (the paper's), as far as parameters were stored; the last
 * entry is for all stored parameters. Returns the number of entries. */
unsigned weft_recdb_hot_shares(const struct weft_recdb_hotness *hotness,
                               struct weft_recdb_hot_share shares_p[WEFT_RECDB_HOT_LEVELS]);

#endif
