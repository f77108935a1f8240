/* The mean of a vector over all processes of a job, twenty times.
 *
 *     mkdir job; weft keygen job.key
 *     for rank in 0 1 2 3; do all_reduce $rank 4 job job.key & done; wait
 *
 * Each process writes its address to a file in the directory and waits for those of the others; a
 * real job exchanges addresses through a key-value store or MPI.
 *
 * Build: cc all_reduce.c $(pkg-config --cflags --libs weft) */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/coll.h>

enum { ELEMENTS = 1000000, RANKS_MAX = 64, ADDRESS_BYTES = 80 };

#define TIMEOUT_NS UINT64_C(60000000000)

static void check(weft_status status, const struct weft_comm *comm)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "all_reduce: %s\n", weft_comm_error(comm));
        exit(1);
    }
}

static void write_address(const char *folder, unsigned rank, const char *address)
{
    char path[512], whole[520];
    snprintf(path, sizeof(path), "%s/%u", folder, rank);
    snprintf(whole, sizeof(whole), "%s.part", path);
    FILE *file = fopen(whole, "w");
    if (file == NULL || fputs(address, file) == EOF || fclose(file) != 0 ||
        rename(whole, path) != 0) {
        perror(path);
        exit(1);
    }
}

static void read_address(const char *folder, unsigned rank, char *address_p)
{
    char path[512];
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
    fprintf(stderr, "all_reduce: rank %u has not written its address to %s\n", rank, path);
    exit(1);
}

static void join(struct weft_comm *comm, const char *folder, unsigned rank, unsigned ranks)
{
    static char text[RANKS_MAX][ADDRESS_BYTES];
    const char *addresses[RANKS_MAX];
    write_address(folder, rank, weft_comm_address(comm));
    for (unsigned i = 0; i < ranks; i++) {
        read_address(folder, i, text[i]);
        addresses[i] = text[i];
    }
    check(weft_comm_join(comm, addresses, TIMEOUT_NS), comm);
}

int main(int argc, char **argv)
{
    if (argc != 5 || atoi(argv[2]) < 1 || atoi(argv[2]) > RANKS_MAX) {
        fprintf(stderr, "usage: all_reduce RANK RANKS FOLDER KEY_FILE (up to %d ranks)\n", RANKS_MAX);
        return 2;
    }
    struct weft_comm_config config;
    weft_comm_config_init(&config, sizeof(config));
    config.rank = (unsigned)atoi(argv[1]);
    config.ranks = (unsigned)atoi(argv[2]);
    config.key_file = argv[4];
    struct weft_comm *comm;
    check(weft_comm_open(&config, &comm), NULL);
    join(comm, argv[3], config.rank, config.ranks);

    static float gradient[ELEMENTS];
    struct weft_comm_done done = {.size = sizeof(done)};
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < ELEMENTS; i++) {
            gradient[i] = (float)config.rank;
        }
        struct weft_comm_op op;
        weft_comm_op_init(&op, sizeof(op));
        op.kind = WEFT_COMM_ALL_REDUCE;
        op.reduction = WEFT_COMM_MEAN;
        op.in = op.out = gradient;
        op.count = ELEMENTS;
        op.bound_ppm = 50000; /* up to 5 % of each contribution may be missing */
        check(weft_comm_run(comm, &op, &done), comm);
    }
    printf("rank %u: mean %g, %.1f ms\n", config.rank, gradient[0], (double)done.total_ns / 1e6);
    weft_comm_close(comm);
    return 0;
}
