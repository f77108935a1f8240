/* A rank of a job that sums vectors through an aggregation box, for lab_box_job:
 *
 *     box_job RANK RANKS FOLDER BYTES,BYTES... NAME=VALUE...
 *
 * In each step it begins an all_reduce of each size, and then waits for all of them and checks each
 * element. It prints "step N box" or "step N fallback" when that changes, and its counters at the
 * end: when rank 0 finds FOLDER/stop, which the last element of each vector tells the others, or
 * after `steps`. FOLDER has job.key, and gets the ranks' addresses. NAME: host, steps, or a field
 * of struct weft_comm_config without "box_". */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/coll.h>

enum { RANKS_MAX = 64, SIZES_MAX = 8, ADDRESS_BYTES = 80, PATH_BYTES = 512 };

#define TIMEOUT_NS UINT64_C(60000000000)

static struct weft_comm_config config;
static const char *folder;
static uint64_t steps = UINT64_MAX;

struct vector {
    uint64_t count;
    float *in, *out;
    uint64_t id;
};

static void check(weft_status status, const struct weft_comm *comm)
{
    if (status != WEFT_OK) {
        printf("failed: %s\n", weft_comm_error(comm));
        exit(1);
    }
}

static void read_option(char *text)
{
    char *value = strchr(text, '=');
    if (value == NULL) {
        printf("%s is not NAME=VALUE\n", text);
        exit(2);
    }
    *value++ = '\0';
    uint64_t number = strtoull(value, NULL, 10);
    if (strcmp(text, "host") == 0) {
        config.host = value;
    } else if (strcmp(text, "box") == 0) {
        config.box = value;
        config.box_insecure = 1;
    } else if (strcmp(text, "steps") == 0) {
        steps = number;
    } else if (strcmp(text, "float32") == 0) {
        config.box_float32 = (uint32_t)number;
    } else if (strcmp(text, "block_float") == 0) {
        config.box_block_float = (uint32_t)number;
    } else if (strcmp(text, "exponent") == 0) {
        config.box_exponent = (int32_t)strtol(value, NULL, 10);
    } else if (strcmp(text, "bytes_min") == 0) {
        config.box_bytes_min = number;
    } else if (strcmp(text, "silence_ms") == 0) {
        config.box_timeout_ns = number * 1000000;
    } else if (strcmp(text, "retry_ms") == 0) {
        config.box_retry_ns = number * 1000000;
    } else {
        printf("no option is named %s\n", text);
        exit(2);
    }
}

/* ---- the other ranks ------------------------------------------------------------------------- */

static void write_address(const char *address)
{
    char path[PATH_BYTES], whole[PATH_BYTES + 8];
    snprintf(path, sizeof(path), "%s/%u", folder, config.rank);
    snprintf(whole, sizeof(whole), "%s.part", path);
    FILE *file = fopen(whole, "w");
    if (file == NULL || fputs(address, file) == EOF || fclose(file) != 0 ||
        rename(whole, path) != 0) {
        perror(path);
        exit(1);
    }
}

static void read_address(unsigned rank, char *address_p)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%u", folder, rank);
    for (int tries = 0; tries < 600; tries++) {
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            char *line = fgets(address_p, ADDRESS_BYTES, file);
            fclose(file);
            if (line != NULL) {
                return;
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    printf("failed: rank %u is not there\n", rank);
    exit(1);
}

static struct weft_comm *join(void)
{
    static char text[RANKS_MAX][ADDRESS_BYTES];
    const char *addresses[RANKS_MAX];
    struct weft_comm *comm;
    check(weft_comm_open(&config, &comm), NULL);
    write_address(weft_comm_address(comm));
    for (unsigned i = 0; i < config.ranks; i++) {
        read_address(i, text[i]);
        addresses[i] = text[i];
    }
    check(weft_comm_join(comm, addresses, TIMEOUT_NS), comm);
    return comm;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Multiples of 1/4, so that sums are exact. */
static float value(unsigned rank, uint64_t i, uint64_t step)
{
    return (float)(rank + 1) * (float)((i + step) % 251) / 4;
}

static bool is_stop(void)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/stop", folder);
    return config.rank == 0 && access(path, F_OK) == 0;
}

static void begin(struct weft_comm *comm, struct vector *v, uint64_t step, bool stop)
{
    struct weft_comm_op op;
    for (uint64_t i = 0; i + 1 < v->count; i++) {
        v->in[i] = value(config.rank, i, step);
    }
    v->in[v->count - 1] = stop;
    weft_comm_op_init(&op, sizeof(op));
    op.kind = WEFT_COMM_ALL_REDUCE;
    op.reduction = WEFT_COMM_SUM;
    op.in = v->in;
    op.out = v->out;
    op.count = v->count;
    check(weft_comm_begin(comm, &op, &v->id), comm);
}

static void check_sums(const struct vector *v, uint64_t step)
{
    float ranks = (float)(config.ranks * (config.ranks + 1) / 2);
    for (uint64_t i = 0; i + 1 < v->count; i++) {
        float wanted = ranks * value(0, i, step);
        if (v->out[i] != wanted) {
            printf("failed: step %" PRIu64 ", element %" PRIu64 " of %" PRIu64 " is %g, not %g\n",
                   step, i, v->count, (double)v->out[i], (double)wanted);
            exit(1);
        }
    }
}

/* Returns whether to go on. */
static bool run_step(struct weft_comm *comm, struct vector *v, unsigned vectors, uint64_t step,
                     uint32_t *boxed_p)
{
    bool stop = is_stop(), stopped = false;
    uint32_t boxed = WEFT_COMM_WITHOUT_BOX;
    for (unsigned k = 0; k < vectors; k++) {
        begin(comm, &v[k], step, stop);
    }
    for (unsigned k = 0; k < vectors; k++) {
        struct weft_comm_done done = {.size = sizeof(done)};
        check(weft_comm_wait(comm, v[k].id, WEFT_NEVER, &done), comm);
        check_sums(&v[k], step);
        boxed = done.boxed != WEFT_COMM_WITHOUT_BOX ? done.boxed : boxed;
        stopped = stopped || v[k].out[v[k].count - 1] != 0;
    }
    if (boxed != *boxed_p) {
        *boxed_p = boxed;
        printf("step %" PRIu64 " %s\n", step, boxed == WEFT_COMM_BOXED ? "box" : "fallback");
    }
    return !stopped && step + 1 < steps;
}

static void report(struct weft_comm *comm)
{
    struct weft_comm_counters c = {.size = sizeof(c)};
    weft_comm_counters_get(comm, &c);
    printf("end operations %" PRIu64 " box %" PRIu64 " fallbacks %" PRIu64 " direct %" PRIu64
           " resent %" PRIu64 " retries %" PRIu64 " recoveries %" PRIu64 "\n",
           c.operations, c.box_operations, c.box_fallbacks, c.box_direct_elements,
           c.box_packets_resent, c.box_retries, c.box_recoveries);
}

int main(int argc, char **argv)
{
    static struct vector v[SIZES_MAX];
    static char key[PATH_BYTES];
    unsigned vectors = 0;
    if (argc < 5) {
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    weft_comm_config_init(&config, sizeof(config));
    config.rank = (uint32_t)atoi(argv[1]);
    config.ranks = (uint32_t)atoi(argv[2]);
    folder = argv[3];
    snprintf(key, sizeof(key), "%s/job.key", folder);
    config.key_file = key;
    for (char *bytes = strtok(argv[4], ","); bytes != NULL && vectors < SIZES_MAX;
         bytes = strtok(NULL, ",")) {
        v[vectors].count = strtoull(bytes, NULL, 10) / sizeof(float);
        v[vectors].in = malloc(v[vectors].count * sizeof(float));
        v[vectors].out = malloc(v[vectors].count * sizeof(float));
        if (v[vectors].in == NULL || v[vectors].out == NULL) {
            return 1;
        }
        vectors++;
    }
    for (int i = 5; i < argc; i++) {
        read_option(argv[i]);
    }
    struct weft_comm *comm = join();
    uint32_t boxed = UINT32_MAX;
    for (uint64_t step = 0; run_step(comm, v, vectors, step, &boxed); step++) {
    }
    const char *why = weft_comm_box_failure(comm);
    if (why != NULL) {
        printf("why: %s\n", why);
    }
    report(comm);
    weft_comm_close(comm);
    return 0;
}
