/* Trains a logistic regression on a parameter server, with any number of workers.
 *
 *     weft keygen job.key; export WEFT_JOB_KEY="$(cat job.key)" WEFT_SERVERS=127.0.0.1:7700
 *     weft server --workers 2 & cc ps_train.c $(pkg-config --cflags --libs weft) -lm -o ps_train
 *     export WEFT_WORKERS=2; WEFT_RANK=0 ./ps_train & WEFT_RANK=1 ./ps_train */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/ps.h>

enum { FEATURES = 1000, ACTIVE = 9, BATCH = 100, STEPS = 200, TEST = 2000 };
static struct weft_ps *ps;
static struct weft_ps_table *table;
static uint64_t ids[TEST * ACTIVE]; /* the features of a batch of rows, ACTIVE each */
static float weights[TEST * ACTIVE], gradients[TEST * ACTIVE];

static void must(weft_status status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "ps_train: %s\n", weft_ps_error(ps));
        exit(1);
    }
}

/* Generates n rows, pulls their weights, computes gradients; returns the number of correct
 * predictions. Odd features make a row likely positive; no model can exceed 85 %. */
static int predict(int n)
{
    int right = 0;
    for (int i = 0; i < n * ACTIVE; i++) { ids[i] = (uint64_t)rand() % FEATURES; }
    must(weft_pull_wait(table, ids, weights, (size_t)n * ACTIVE, 0, NULL));
    for (int at = 0; at < n * ACTIVE; at += ACTIVE) {
        double truth = -ACTIVE / 2.0, sum = 0;
        for (int i = at; i < at + ACTIVE; i++) { truth += (double)(ids[i] % 2), sum += weights[i]; }
        int label = rand() / (double)RAND_MAX < 1 / (1 + exp(-2 * truth));
        float error = (float)(1 / (1 + exp(-sum)) - label);
        for (int i = at; i < at + ACTIVE; i++) { gradients[i] = error; }
        right += fabsf(error) < 0.5F;
    }
    return right;
}

int main(void)
{
    struct weft_ps_config config;
    struct weft_table_options options;
    weft_ps_config_init(&config, sizeof(config)); /* the rest is in the environment */
    must(weft_ps_connect(&config, &ps));
    weft_table_options_init(&options, sizeof(options), "adagrad");
    must(weft_table_open(ps, &options, &table));
    srand(weft_ps_worker(ps) + 1); /* every worker has rows of its own */
    for (int step = 0; step < STEPS; step++) {
        predict(BATCH);
        must(weft_push_wait(table, ids, gradients, BATCH * ACTIVE, 0, NULL));
        must(weft_clock(table));
    }
    printf("accuracy %.3f on rows it has not seen\n", predict(TEST) / (double)TEST);
    weft_ps_close(ps);
}
