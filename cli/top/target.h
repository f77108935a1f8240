/* A process watched by `weft top`: its address, its last two scrapes, its most updated rows. */
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
    const char *file; /* read instead of scraped; NULL = scrape */

    char role[16]; /* "" = no successful scrape yet */
    struct weft_samples now;
    struct weft_samples before; /* empty: rates are means since the process started */
    uint64_t now_ns;
    uint64_t before_ns;
    bool is_gone; /* the last scrape failed; `now` is older */
    char why[96]; /* the error of that scrape */
    struct weft_top_hot hot[WEFT_TOP_HOT_MAX];
    uint32_t hot_count;
    double hot_updates; /* of all rows */
};

/* Parse "[HOST:]PORT", or the path of a saved exposition (which contains a slash, or no colon and
 * is not a number). Errors: WEFT_INVALID. */
weft_status weft_top_target_init(struct weft_top_target *target, const char *text);
void weft_top_target_fini(struct weft_top_target *target);

/* Do both name the same process, or the same file? "localhost" and "127.0.0.1" do. */
bool weft_top_target_same(const struct weft_top_target *a, const struct weft_top_target *b);

/* Scrape again; the last scrape becomes `before`. stop: as in io/http_get.h; when it returns true,
 * the target may stay as it was. */
void weft_top_target_poll(struct weft_top_target *target, uint64_t timeout_ns, bool (*stop)(void));

/* Rate per second between the last two scrapes; since the start of the process if there is only
 * one. */
double weft_top_rate(const struct weft_top_target *target, const char *name, const char *with);

#endif
