/* `weft perf compare --train`: what a comparison of training jobs has that one of rounds has not
 * (compare_train.c has the essay). The networks, the turns and the files are those of compare.h.
 */
#ifndef WEFT_CLI_PERF_COMPARE_TRAIN_H
#define WEFT_CLI_PERF_COMPARE_TRAIN_H

#include "cli/perf/compare.h"

enum { WEFT_COMPARE_WORDS_MAX = 24, WEFT_COMPARE_WORDS_BYTES = 1024 };

struct weft_compare_train {
    const char *words[WEFT_COMPARE_WORDS_MAX]; /* options of `weft train` */
    uint32_t word_count;
    char joined[WEFT_COMPARE_WORDS_BYTES]; /* the same with blanks, and the counts below */
    uint32_t workers;
    uint32_t servers;
    uint32_t epochs;         /* of the reference run; a measured one may take twice as many */
    uint32_t check_steps;
    uint32_t give_up_s;
    float until_loss;        /* the target; 0 = not known yet */
    uint32_t tolerance_ppm;  /* of the reference run's loss */
    double reference_loss;   /* 0 = no reference run: the target was given */
};

/* Several jobs over one transport on one network. */
struct weft_compare_jobs {
    uint32_t runs;
    uint32_t dnf;     /* of these, without reaching the target */
    bool answered;    /* most did */
    double median_s;  /* training time to the target, of those that reached it; so what follows */
    double p90_s;     /* the nearest rank: of fewer than ten the longest */
    double least_s;
    double most_s;
    double steps;     /* medians */
    double epochs;
    double loss;
    double delivered;
    double resent;
    double step_p50_ms;
    double step_p99_ms;
    uint32_t typical; /* the repetition with the (lower) median time */
};

/* Its option words, after `weft train`: what is measured, not where. */
void weft_compare_train_add(const struct weft_compare *compare, uint32_t transport,
                            struct weft_args *args);

/* What this program needs to measure on a network that it is in; nothing may follow. */
void weft_compare_train_add_inside(const struct weft_compare *compare,
                                   struct weft_args *args);

/* True when a report of `weft train` is of this comparison. */
bool weft_compare_train_is_ours(const struct weft_compare *compare, const cJSON *result);

/* Find the target in the folder of results, or by the reference run, and write it down there. False
 * with a sentence on standard error. */
bool weft_compare_train_prepare(const struct weft_compare *compare);

struct weft_compare_jobs weft_compare_train_jobs(const struct weft_compare *compare,
                                                 uint32_t network, uint32_t transport);

/* The kernel TCP with the shortest median; UINT32_MAX: none reached the target. */
uint32_t weft_compare_train_best_tcp(const struct weft_compare *compare, uint32_t network);

void weft_compare_train_text(const struct weft_compare *compare);
char *weft_compare_train_json(const struct weft_compare *compare);

/* For each network NAME-time.png and NAME-loss.png, as weft_compare_plot. */
bool weft_compare_train_plot(const struct weft_compare *compare, const char *folder);

int weft_perf_compare_train(int argc, char **argv);

#endif
