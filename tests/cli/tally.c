/* A worker whose pushes can be counted afterwards, for tests in which processes are killed.
 *
 *     tally work FOLDER CLOCKS     in the environment that `weft run` makes
 *     tally check FOLDER WORKERS CLOCKS SHARDS
 *
 * In each clock a worker pushes 1 to each of TALLY_PARTS rows (6) of TALLY_DIM floats (1). These
 * rows belong to this worker and clock only, so each row shows how often that push was applied. The
 * worker logs its actions in FOLDER/log.RANK, one write() per line, so that kill -9 loses no line:
 *
 *     start C      a process begins after clock C         issue C    the push of clock C begins
 *     ack C        the push was acknowledged              lost N     pushes that restored shards
 * lack
 *
 * check requires every row to be 1. A row may be 0 if a process was killed between issue and ack
 * and its successor began after that clock, and, without TALLY_REPLAY, if a shard was restored from
 * a checkpoint of an earlier clock: FOLDER/restored has a line "SHARD CLOCK" for each restore. If
 * no worker was killed, the number of lost pushes equals the number reported to the workers.
 *
 * When all workers have ended their clocks, rank 0 pulls all rows into FOLDER/values; the other
 * ranks wait for that.
 *
 * TALLY_DIE="RANK CLOCK" kills the first process of that rank after its push of that clock.
 * TALLY_HOLD=CLOCK makes all workers wait for FOLDER/go after their push of that clock.
 * TALLY_LATE=RANK makes a rank wait for FOLDER/late. With TALLY_TOGETHER no worker begins before
 * all have opened the table. With TALLY_ALONE rank 0 does not wait for the other ranks to end.
 * TALLY_PAUSE_MS is the time between two clocks, TALLY_MODE the consistency; TALLY_TRANSPORT and
 * TALLY_PEER_MS are the configuration's. */
#define _GNU_SOURCE
#include "base/prng.h"

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

enum { PARTS = 6, PARTS_MAX = 256, DIM_MAX = 1024, PATH_BYTES = 512 };

static struct weft_ps *ps;
static struct weft_ps_table *table;
static const char *folder;
static int log_fd = -1;
static uint32_t parts, dim;
static float row_values[PARTS_MAX * DIM_MAX]; /* (parts, dim) */

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
    config.consistency = mode != NULL ? mode : config.consistency;
    config.dim_max = dim > config.dim_max ? dim : config.dim_max;
    config.rows_max = dim > 1 ? PARTS_MAX : config.rows_max;
    must(weft_ps_connect(&config, &ps));
    weft_table_options_init(&options, sizeof(options), "sgd");
    options.learning_rate = 1;
    options.dim = dim;
    options.consistency = mode != NULL ? mode : "bsp";
    must(weft_table_open(ps, &options, &table));
}

static void note_lost(void)
{
    static uint64_t noted;
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    weft_ps_counters_get(ps, &counters);
    if (counters.pushes_lost > noted) {
        note("lost", counters.pushes_lost - noted);
        noted = counters.pushes_lost;
    }
}

/* Only with a scheduler. */
static void tell_updates(void)
{
    struct weft_ps_counters counters = {.size = sizeof(counters)};
    weft_ps_counters_get(ps, &counters);
    if (counters.updates_asked > 0) {
        fprintf(stderr,
                "tally: updates: %" PRIu64 " complete, %" PRIu64 " asked for, %" PRIu64
                " sent without a grant\n",
                counters.updates, counters.updates_asked, counters.updates_direct);
    }
}

static void push(uint32_t rank, uint32_t clock)
{
    uint64_t ids[PARTS_MAX];
    for (uint32_t p = 0; p < parts; p++) {
        ids[p] = row_of(rank, clock, p);
    }
    for (uint32_t i = 0; i < parts * dim; i++) {
        row_values[i] = -(float)weft_ps_workers(ps); /* the mean over all workers is 1 */
    }
    note("issue", clock);
    must(weft_push_wait(table, ids, row_values, parts, 0, NULL));
    note("ack", clock);
}

/* The file that this process waits for may have been removed meanwhile. */
static void hold_if_asked(uint32_t clock)
{
    while (number_of("TALLY_HOLD", 0) == clock && !exists("go")) {
        weft_ps_progress(ps, 10000000);
    }
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

/* True: the value is not a whole number, because only a part of the push is in the row. */
static double value_of(const float *row)
{
    for (uint32_t d = 1; d < dim; d++) {
        if (row[d] != row[0]) {
            return (double)row[0] + 0.5;
        }
    }
    return row[0];
}

static void write_clock(FILE *file, uint32_t rank, uint32_t clock)
{
    uint64_t ids[PARTS_MAX];
    for (uint32_t p = 0; p < parts; p++) {
        ids[p] = row_of(rank, clock, p);
    }
    must(weft_pull_wait(table, ids, row_values, parts, 0, NULL));
    for (uint32_t p = 0; p < parts; p++) {
        fprintf(file, "%u %u %u %.9g\n", rank, clock, p, value_of(row_values + (size_t)p * dim));
    }
}

/* Write the rows of all workers to FOLDER/values, as lines "rank clock part value", with an atomic
 * rename. */
static void write_values(uint32_t clocks)
{
    const uint32_t workers = weft_ps_workers(ps);
    char path[PATH_BYTES], made[PATH_BYTES];
    path_of(path, "values.new", UINT32_MAX);
    path_of(made, "values", UINT32_MAX);
    FILE *file = fopen(path, "w");
    for (uint32_t i = 0; file != NULL && i < workers * clocks; i++) {
        write_clock(file, i / clocks, i % clocks + 1);
    }
    if (file == NULL || fclose(file) != 0 || rename(path, made) != 0) {
        perror("tally: values");
        exit(1);
    }
}

/* Create this worker's mark file, and make progress until the mark files of all workers exist. */
static void meet(const char *mark, uint32_t rank)
{
    char path[PATH_BYTES];
    struct stat about;
    path_of(path, mark, rank);
    (void)close(open(path, O_WRONLY | O_CREAT, 0600));
    for (uint32_t r = 0; r < weft_ps_workers(ps); r++) {
        path_of(path, mark, r);
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
    if (getenv("TALLY_TOGETHER") != NULL) {
        meet("here", rank);
    }
    note("start", weft_clock_ended(table));
    while (weft_clock_ended(table) < clocks) {
        uint32_t clock = weft_clock_ended(table) + 1;
        push(rank, clock);
        die_if_asked(rank, clock);
        hold_if_asked(clock);
        must(weft_clock(table));
        note_lost();
        nanosleep(&pause, NULL);
    }
    must(weft_ps_flush(ps, WEFT_NEVER));
    if (getenv("TALLY_ALONE") == NULL) {
        meet("done", rank);
    }
    if (rank == 0 && !exists("values")) {
        write_values(clocks);
    }
    /* Stay connected: a server that is killed now may need the pushes that this worker keeps. */
    while (!exists("values")) {
        weft_ps_progress(ps, 10000000);
    }
    note_lost();
    tell_updates();
    weft_ps_close(ps);
    return 0;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* The known state of a push. */
struct fate {
    bool issued;
    bool acked;
    bool cut; /* a process ended between issue and ack, and its successor began after that clock:
               * parts of the push may be applied */
};

enum { RESTORES_MAX = 1000, SHARDS_MAX = 64 };

struct evidence {
    uint32_t workers, clocks, shards;
    struct fate *fates; /* (workers, clocks + 1) */
    struct {
        uint32_t shard;
        uint32_t clock;
    } restores[RESTORES_MAX];
    uint32_t restore_count;
    uint64_t told_lost;
    uint32_t starts;
};

static struct fate *fate_of(const struct evidence *e, uint32_t rank, uint32_t clock)
{
    return &e->fates[(size_t)rank * (e->clocks + 1) + clock];
}

static FILE *open_of(const char *name, uint32_t number)
{
    char path[PATH_BYTES];
    path_of(path, name, number);
    return fopen(path, "r");
}

static void read_line(struct evidence *e, uint32_t rank, const char *what, uint64_t number,
                      uint32_t *under_way)
{
    if (strcmp(what, "start") == 0) {
        e->starts++;
        if (*under_way != 0 && number >= *under_way) {
            fate_of(e, rank, *under_way)->cut = true;
        }
        *under_way = 0;
    } else if (strcmp(what, "lost") == 0) {
        e->told_lost += number;
    } else if (number <= e->clocks) {
        bool issued = strcmp(what, "issue") == 0;
        fate_of(e, rank, (uint32_t)number)->issued |= issued;
        fate_of(e, rank, (uint32_t)number)->acked |= !issued;
        *under_way = issued ? (uint32_t)number : 0;
    }
}

static void read_all(struct evidence *e)
{
    char what[16];
    uint64_t number;
    for (uint32_t r = 0; r < e->workers; r++) {
        uint32_t under_way = 0;
        FILE *file = open_of("log", r);
        while (file != NULL && fscanf(file, "%15s %" SCNu64, what, &number) == 2) {
            read_line(e, r, what, number, &under_way);
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    FILE *file = open_of("restored", UINT32_MAX);
    while (file != NULL && e->restore_count < RESTORES_MAX &&
           fscanf(file, "%u %u", &e->restores[e->restore_count].shard,
                  &e->restores[e->restore_count].clock) == 2) {
        e->restore_count++;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static uint32_t shard_of(const struct evidence *e, uint64_t id)
{
    return (uint32_t)(((weft_mix64(id) >> 32) * e->shards) >> 32);
}

static bool was_restored_before(const struct evidence *e, uint32_t shard, uint32_t clock)
{
    for (uint32_t i = 0; i < e->restore_count; i++) {
        if (e->restores[i].shard == shard && e->restores[i].clock < clock) {
            return true;
        }
    }
    return false;
}

static bool is_wrong(const struct evidence *e, uint32_t rank, uint32_t clock, uint32_t shard,
                     double value)
{
    const struct fate *fate = fate_of(e, rank, clock);
    /* With replay an acknowledged push is never lost. */
    bool may_lack = !fate->issued || fate->cut;
    may_lack |= getenv("TALLY_REPLAY") == NULL && was_restored_before(e, shard, clock);
    if (value == 1 || (value == 0 && may_lack)) {
        return false;
    }
    printf("worker %u clock %u shard %u counts %g times (issued %d, acked %d, cut %d)\n", rank,
           clock, shard, value, fate->issued, fate->acked, fate->cut);
    return true;
}

static int judge(const struct evidence *e, FILE *values)
{
    uint32_t rank, clock, part, seen = 0, absent = 0, unanswered = 0, wrong = 0;
    uint64_t lost = 0, last = UINT64_MAX;
    double value;
    static bool counted[SHARDS_MAX];
    while (fscanf(values, "%u %u %u %lf", &rank, &clock, &part, &value) == 4) {
        uint32_t shard = shard_of(e, row_of(rank, clock, part));
        if (row_of(rank, clock, 0) != last) {
            memset(counted, 0, sizeof(counted));
            last = row_of(rank, clock, 0);
        }
        seen++;
        absent += value == 0;
        unanswered += value == 0 && !fate_of(e, rank, clock)->acked;
        wrong += is_wrong(e, rank, clock, shard, value);
        /* A push is one message for each shard. */
        lost += value == 0 && fate_of(e, rank, clock)->acked && !counted[shard];
        counted[shard] |= value == 0;
    }
    bool told = e->starts != e->workers || lost > 100 || lost == e->told_lost;
    printf("%u rows, %u absent, %u of these never answered, %u wrong; %" PRIu64
           " messages lost, %" PRIu64 " told%s\n",
           seen, absent, unanswered, wrong, lost, e->told_lost, told ? "" : ": NOT THE SAME");
    return seen == e->workers * e->clocks * parts && wrong == 0 && told ? 0 : 1;
}

static int check(uint32_t workers, uint32_t clocks, uint32_t shards)
{
    static struct evidence e;
    FILE *values = open_of("values", UINT32_MAX);
    if (values == NULL || shards == 0 || shards > SHARDS_MAX) {
        fprintf(stderr, "tally: %s/values: not there\n", folder);
        return 1;
    }
    e = (struct evidence){.workers = workers, .clocks = clocks, .shards = shards};
    e.fates = calloc((size_t)workers * (clocks + 1), sizeof(*e.fates));
    read_all(&e);
    int result = judge(&e, values);
    (void)fclose(values);
    free(e.fates);
    return result;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    parts = number_of("TALLY_PARTS", PARTS);
    dim = number_of("TALLY_DIM", 1);
    if (parts < 1 || parts > PARTS_MAX || dim < 1 || dim > DIM_MAX) {
        fprintf(stderr, "tally: TALLY_PARTS or TALLY_DIM is out of range\n");
        return 2;
    }
    if (argc == 4 && strcmp(argv[1], "work") == 0) {
        folder = argv[2];
        return work((uint32_t)strtoul(argv[3], NULL, 10));
    }
    if (argc == 6 && strcmp(argv[1], "check") == 0) {
        folder = argv[2];
        return check((uint32_t)strtoul(argv[3], NULL, 10), (uint32_t)strtoul(argv[4], NULL, 10),
                     (uint32_t)strtoul(argv[5], NULL, 10));
    }
    fprintf(stderr, "usage: tally work FOLDER CLOCKS | tally check FOLDER WORKERS CLOCKS SHARDS\n");
    return 2;
}
