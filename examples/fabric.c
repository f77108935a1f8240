/* A server with its own optimizer, and workers that push updates under the transfer scheduler.
 *
 *     weft keygen job.key; export WEFT_JOB_KEY="$(cat job.key)"; weft scheduler --port 7690 &
 *     cc fabric.c $(pkg-config --cflags --libs weft) -lm -o fabric
 *     ./fabric server 127.0.0.1:7690          prints its address, ends when standard input closes
 *     ./fabric worker 127.0.0.1:7690 ADDRESS 0 & ./fabric worker 127.0.0.1:7690 ADDRESS 1 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/fabric.h>

enum { FLOATS = 20000, DIM = 64, ROWS = (FLOATS + DIM - 1) / DIM, WORKERS = 2, STEPS = 40, TAU_MAX = 1 };

static void must(weft_status status, const char *why)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "fabric: %s\n", why);
        exit(1);
    }
}

/* ---- the server: it has one shard, so one thread calls its functions, and no lock is needed -- */

static unsigned long long updates, delay_max;

/* SGD whose steps are at most 0.05. */
static bool apply(void *user, const struct weft_fabric_update *update)
{
    (void)user;
    for (uint32_t i = 0; i < update->count; i++) {
        update->weights[i] -= fmaxf(-0.05F, fminf(0.05F, 0.2F * update->gradient[i]));
    }
    return true;
}

static void committed(void *user, const struct weft_fabric_committed *update)
{
    unsigned long long delay = update->late ? 0 : update->number - 1 - update->base;
    (void)user;
    updates += !update->late;
    delay_max = delay > delay_max ? delay : delay_max;
}

static int serve(const char *scheduler)
{
    struct weft_fabric_server_config config;
    struct weft_fabric_server *server = NULL;
    weft_fabric_server_config_init(&config, sizeof(config));
    config.scheduler = scheduler, config.workers = WORKERS, config.tau_max = TAU_MAX;
    config.update = apply, config.committed = committed;
    must(weft_fabric_server_open(&config, &server), weft_fabric_server_error());
    printf("server: %s\n", weft_fabric_server_address(server));
    fflush(stdout);
    while (getchar() != EOF) { }
    weft_fabric_server_close(server);
    printf("committed %llu updates, delay at most %llu\n", updates, delay_max);
    return 0;
}

/* ---- a worker ---- */

static int work(const char *scheduler, const char *servers, unsigned rank)
{
    static float model[FLOATS], gradient[FLOATS];
    struct weft_ps_config config;
    struct weft_table_options options;
    struct weft_ps *ps = NULL;
    struct weft_ps_table *table;
    int dropped = 0;
    weft_ps_config_init(&config, sizeof(config));
    config.servers = servers, config.worker = rank, config.workers = WORKERS;
    config.scheduler = scheduler, config.consistency = "asp", config.tau_max = TAU_MAX;
    must(weft_ps_connect(&config, &ps), weft_ps_error(NULL));
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.consistency = "asp", options.average = "none", options.dim = DIM, options.length = FLOATS;
    must(weft_table_open(ps, &options, &table), weft_ps_error(ps));
    double off = 0;
    for (int step = 0; step <= STEPS; step++) {
        const struct weft_pull_list get = {.table = table, .rows_p = model, .n = ROWS};
        const struct weft_push_list push = {.table = table, .rows = gradient, .n = ROWS};
        must(weft_fabric_get(ps, &get, 1, NULL), weft_ps_error(ps));
        off = 0; /* the model to learn is a sine */
        for (int i = 0; i < FLOATS; i++) { gradient[i] = model[i] - sinf((float)i), off += gradient[i] * gradient[i]; }
        weft_status status = weft_fabric_push(ps, &push, 1, sqrt(off), NULL);
        if (status == WEFT_DROPPED) { dropped++; } else { must(status, weft_ps_error(ps)); }
    }
    printf("worker %u: %d pushed, %d dropped, off by %.4f\n", rank, STEPS + 1 - dropped, dropped, sqrt(off / FLOATS));
    must(weft_ps_flush(ps, WEFT_NEVER), weft_ps_error(ps));
    weft_ps_close(ps);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "server") == 0) { return serve(argv[2]); }
    if (argc == 5 && strcmp(argv[1], "worker") == 0) { return work(argv[2], argv[3], (unsigned)atoi(argv[4])); }
    fprintf(stderr, "usage: fabric server SCHEDULER, or fabric worker SCHEDULER SERVERS RANK\n");
    return 2;
}
