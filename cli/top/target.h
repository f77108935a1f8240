/* One process that `weft top` watches: where it answers, its last two scrapes, its hottest rows.
 */
#ifndef WEFT_CLI_TOP_TARGET_H
#define WEFT_CLI_TOP_TARGET_H

#include "cli/metrics.h"
#include "obs/samples.h"

enum { WEFT_TOP_TARGETS_MAX = 128, WEFT_TOP_HOT_MAX = 10, WEFT_TOP_NAME_BYTES = 80 };

struct weft_top_hot {
    char id[24];
    double updates;
};

struct weft_top_target {
    char name[WEFT_TOP_NAME_BYTES]; /* "127.0.0.1:9101", or the file */
    char host[WEFT_METRICS_HOST_BYTES];
    uint16_t port;
    const char *file; /* read instead of asked; NULL = ask */

    char role[16]; /* "" = never seen */
    struct weft_samples now;
    struct weft_samples before; /* empty: the rates are means since the process began */
    uint64_t now_ns;
    uint64_t before_ns;
    bool is_gone; /* it did not answer the last time; `now` is of before */
    char why[96]; /* then */
    struct weft_top_hot hot[WEFT_TOP_HOT_MAX];
    uint32_t hot_count;
    double hot_updates; /* of all rows */
};

/* "[HOST:]PORT", or the path of a file with a saved exposition (it has a slash or no colon, and is
 * no number).   Errors: WEFT_INVALID. */
weft_status weft_top_target_init(struct weft_top_target *target, const char *text);
void weft_top_target_fini(struct weft_top_target *target);

/* Take another scrape; the last one becomes the one before. */
void weft_top_target_poll(struct weft_top_target *target, uint64_t timeout_ns);

/* Per second, between the last two scrapes; without one before since the process began. */
double weft_top_rate(const struct weft_top_target *target, const char *name, const char *with);

#endif
