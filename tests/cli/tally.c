/* A worker whose pushes can be counted afterwards, for tests in which processes are killed.
 *
 *     tally work FOLDER CLOCKS     in the environment that `weft run` makes
 *     tally check FOLDER WORKERS CLOCKS
 *
 * In each clock a worker pushes 1 to each of PARTS rows that are its own and this clock's alone, so
 * that each row says how often that push counted. What it does is written to FOLDER/log.RANK, a line
 * in one write(), so that nothing of it is lost by kill -9:
 *
 *     start C      a process begins behind clock C        issue C    the push of clock C begins
 *     ack C        it was answered                        lost N     pushes that restored shards lack
 *
 * When its clocks are over, rank 0 pulls all rows into FOLDER/values, and the others wait for that
 * file. TALLY_DIE="RANK CLOCK" kills the first process of that rank behind its push of that clock,
 * TALLY_LATE=RANK lets a rank wait for FOLDER/late; with TALLY_TOGETHER nobody begins before all have
 * opened the table. TALLY_PAUSE_MS: between two clocks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <weft/ps.h>

enum { PARTS = 6, ROWS_MAX = 1 << 20, PATH_BYTES = 512 };

static struct weft_ps *ps;
static struct weft_ps_table *table;
static const char *folder;
static int log_fd = -1;

static uint64_t row_of(uint32_t rank, uint32_t clock, uint32_t part)
{
    return ((uint64_t)rank << 40 | (uint64_t)clock << 8 | part) + 1;
}

static void path_of(char *path, const char *name, uint32_t number)
{
    if (number == UINT32_MAX) {
        snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    } else {
        snprintf(path, PATH_BYTES, "%s/%s.%u", folder, name, number);
    }
}

static bool exists(const char *name)
{
    char path[PATH_BYTES];
    struct stat about;
    path_of(path, name, UINT32_MAX);
    return stat(path, &about) == 0;
}

static void note(const char *what, uint64_t number)
{
    char line[64];
    int bytes = snprintf(line, sizeof(line), "%s %" PRIu64 "\n", what, number);
    if (write(log_fd, line, (size_t)bytes) != bytes) {
        perror("tally: log");
        exit(1);
    }
}

static void must(weft_status status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "tally: %s\n", weft_ps_error(ps));
        exit(1);
    }
}

static uint32_t number_of(const char *variable, uint32_t fallback)
{
    const char *text = getenv(variable);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void open_all(void)
{
    struct weft_ps_config config;
    struct weft_table_options options;
    const char *mode = getenv("TALLY_MODE");
    weft_ps_config_init(&config, sizeof(config));
    config.connect_timeout_ns = UINT64_C(120) * 1000000000;
    config.peer_timeout_ns = UINT64_C(1000000) * number_of("TALLY_PEER_MS", 60000);
    config.transport = getenv("TALLY_TRANSPORT");
    must(weft_ps_connect(&config, &ps));
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.learning_rate = 1;
    options.consistency = mode != NULL ? mode : "bsp";
    must(weft_table_open(ps, &options, &table));
}

static void push(uint32_t rank, uint32_t clock)
{
    uint64_t ids[PARTS];
    float rows[PARTS];
    for (uint32_t p = 0; p < PARTS; p++) {
        ids[p] = row_of(rank, clock, p);
        rows[p] = -(float)weft_ps_workers(ps); /* a mean of which is 1 */
    }
    note("issue", clock);
    must(weft_push_wait(table, ids, rows, PARTS, 0, NULL));
    note("ack", clock);
}

static void die_if_asked(uint32_t rank, uint32_t clock)
{
    uint32_t who, when;
    const char *text = getenv("TALLY_DIE");
    if (text != NULL && number_of("WEFT_RESTART", 0) == 0 &&
        sscanf(text, "%u %u", &who, &when) == 2 && who == rank && when == clock) {
        raise(SIGKILL);
    }
}

/* All rows of all, into FOLDER/values: "rank clock part value", by rename. */
static void write_values(uint32_t clocks)
{
    static uint64_t ids[ROWS_MAX];
    static float values[ROWS_MAX];
    uint32_t workers = weft_ps_workers(ps), n = 0;
    char path[PATH_BYTES], made[PATH_BYTES];
    for (uint32_t r = 0; r < workers; r++) {
        for (uint32_t i = 0; i < clocks * PARTS && n < ROWS_MAX; i++) {
            ids[n++] = row_of(r, i / PARTS + 1, i % PARTS);
        }
    }
    must(weft_pull_wait(table, ids, values, n, 0, NULL));
    path_of(path, "values.new", UINT32_MAX);
    path_of(made, "values", UINT32_MAX);
    FILE *file = fopen(path, "w");
    for (uint32_t i = 0; file != NULL && i < n; i++) {
        fprintf(file, "%u %u %u %.9g\n", i / (clocks * PARTS), i % (clocks * PARTS) / PARTS + 1,
                i % PARTS, (double)values[i]);
    }
    if (file == NULL || fclose(file) != 0 || rename(path, made) != 0) {
        perror("tally: values");
        exit(1);
    }
}

/* With shrink a clock does not wait for who has not come yet. */
static void begin_together(uint32_t rank)
{
    char path[PATH_BYTES];
    struct stat about;
    path_of(path, "here", rank);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    (void)close(fd);
    for (uint32_t r = 0; getenv("TALLY_TOGETHER") != NULL && r < weft_ps_workers(ps); r++) {
        path_of(path, "here", r);
        while (stat(path, &about) != 0) {
            weft_ps_progress(ps, 10000000);
        }
    }
}

static int work(uint32_t clocks)
{
    char path[PATH_BYTES];
    uint32_t rank = number_of("WEFT_RANK", 0);
    struct timespec pause = {.tv_nsec = 1000000L * number_of("TALLY_PAUSE_MS", 0)};
    path_of(path, "log", rank);
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    while (number_of("TALLY_LATE", UINT32_MAX) == rank && !exists("late")) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    open_all();
    begin_together(rank);
    note("start", weft_clock_ended(table));
    while (weft_clock_ended(table) < clocks) {
        uint32_t clock = weft_clock_ended(table) + 1;
        push(rank, clock);
        die_if_asked(rank, clock);
        must(weft_clock(table));
        nanosleep(&pause, NULL);
    }
    must(weft_ps_flush(ps, WEFT_NEVER));
    if (rank == 0 && !exists("values")) {
        write_values(clocks);
    }
    /* A server that is killed now may need what this worker has. */
    while (!exists("values")) {
        weft_ps_progress(ps, 10000000);
    }
    weft_ps_close(ps);
    return 0;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* What is known of a push. */
struct fate {
    bool issued;
    bool acked;
    bool open; /* a process ended between issue and ack: some of it may count */
};

static void read_log(uint32_t rank, uint32_t clocks, struct fate *fates)
{
    char path[PATH_BYTES], what[16];
    uint64_t number;
    uint32_t under_way = 0;
    path_of(path, "log", rank);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%15s %" SCNu64, what, &number) == 2) {
        if (strcmp(what, "start") == 0 && under_way != 0) {
            fates[under_way].open = true;
            under_way = 0;
        } else if (strcmp(what, "issue") == 0 && number <= clocks) {
            fates[number].issued = true;
            under_way = (uint32_t)number;
        } else if (strcmp(what, "ack") == 0 && number <= clocks) {
            fates[number].acked = true;
            under_way = 0;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* Every row 1; 0 also where its push was cut off by a death. Never anything else. */
static int check(uint32_t workers, uint32_t clocks)
{
    char path[PATH_BYTES];
    uint32_t rank, clock, part, seen = 0, cut = 0, wrong = 0;
    double value;
    struct fate *fates = calloc((size_t)workers * (clocks + 1), sizeof(*fates));
    for (uint32_t r = 0; r < workers; r++) {
        read_log(r, clocks, fates + (size_t)r * (clocks + 1));
    }
    path_of(path, "values", UINT32_MAX);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%u %u %u %lf", &rank, &clock, &part, &value) == 4) {
        const struct fate *fate = &fates[(size_t)rank * (clocks + 1) + clock];
        bool may_lack = fate->open || !fate->issued;
        seen++;
        cut += value == 0;
        if (value != 1 && !(value == 0 && may_lack)) {
            wrong++;
            printf("worker %u clock %u part %u counts %g times (issued %d, acked %d, cut %d)\n",
                   rank, clock, part, value, fate->issued, fate->acked, fate->open);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(fates);
    printf("%u rows, %u cut off, %u wrong\n", seen, cut, wrong);
    return seen == workers * clocks * PARTS && wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4 && strcmp(argv[1], "work") == 0) {
        folder = argv[2];
        return work((uint32_t)strtoul(argv[3], NULL, 10));
    }
    if (argc == 5 && strcmp(argv[1], "check") == 0) {
        folder = argv[2];
        return check((uint32_t)strtoul(argv[3], NULL, 10), (uint32_t)strtoul(argv[4], NULL, 10));
    }
    fprintf(stderr, "usage: tally work FOLDER CLOCKS | tally check FOLDER WORKERS CLOCKS\n");
    return 2;
}
