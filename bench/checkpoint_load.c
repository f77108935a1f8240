/* Load for servers that write checkpoints: one worker pushes -1 to every row of a large BSP table
 * in every clock, and prints the rate of every 250 ms. At the end of clock c every weight is c, so
 * a checkpoint in which two rows differ is torn.
 *
 *     weft server --security none --port 7800 --shards-per-server 2 --workers 1 --checkpoint DIR \
 *         --checkpoint-every 2 --rows-max 10000000 &
 *     checkpoint_load --ports 7800,7801 --rows 10000000 --clocks 3       the load
 *     checkpoint_load --ports ... --rows 10000000 --expect 2             after --restore: check all
 *
 * Not a network benchmark: security none, loopback. Results: bench/NOTEBOOK.md.
 */
#include "io/clock.h"
#include "io/driver.h"
#include "ps/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 16, OP_ROWS = 65536, OPS = 3, SHARDS_MAX = 32 };

struct load {
    struct weft_driver *driver;
    struct weft_msgr msgr;
    struct weft_ps_client *client;
    uint32_t shards;
    uint16_t ports[SHARDS_MAX];
    uint32_t rows;
    uint64_t *ids;
    float *values; /* (OP_ROWS, DIM) */
    uint64_t window_ns;
    uint64_t window_begun_ns;
    uint64_t window_rows;
    uint64_t begun_ns;
};

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return weft_clock_now_ns();
}

static void die(const char *what)
{
    fprintf(stderr, "checkpoint_load: %s\n", what);
    exit(1);
}

static void handle(void *arg, uint64_t now_ns)
{
    struct load *load = arg;
    struct weft_msg_event event;
    while (load->msgr.ops->poll(load->msgr.self, &event)) {
        if (event.type == WEFT_EVENT_PEER_DOWN) {
            die("a server is gone");
        }
        weft_ps_client_event(load->client, &event, now_ns);
    }
    weft_ps_client_progress(load->client, now_ns);
}

static void step(struct load *load)
{
    (void)weft_driver_step(load->driver, 100 * WEFT_NS_PER_MS, handle, load);
}

static void count(struct load *load, uint32_t rows)
{
    uint64_t now_ns = weft_clock_now_ns();
    load->window_rows += rows;
    while (load->window_ns > 0 && now_ns - load->window_begun_ns >= load->window_ns) {
        printf("%8.2f s  %10.0f rows/s  clock %u\n",
               (double)(load->window_begun_ns - load->begun_ns) / (double)WEFT_NS_PER_S,
               (double)load->window_rows * (double)WEFT_NS_PER_S / (double)load->window_ns,
               weft_ps_clock_now(load->client, 0));
        load->window_begun_ns += load->window_ns;
        load->window_rows = 0;
    }
}

static void wait_for(struct load *load, weft_ps_op op, uint32_t rows)
{
    struct weft_ps_result result;
    while (!weft_ps_op_done(load->client, op, &result)) {
        step(load);
        count(load, 0);
    }
    weft_ps_op_release(load->client, op);
    if (result.status != WEFT_OK) {
        fprintf(stderr, "checkpoint_load: %s, %s\n", weft_status_text(result.status),
                weft_rpc_status_text(result.rpc_status));
        exit(1);
    }
    count(load, rows);
}

/* Push or pull all rows; pulls are compared. */
static void pass(struct load *load, bool pushes, float expect)
{
    weft_ps_op ops[OPS];
    uint32_t sizes[OPS], first = 0, done = 0;
    uint32_t parts = (load->rows + OP_ROWS - 1) / OP_ROWS;
    uint64_t wrong = 0;
    for (uint32_t i = 0; done < parts; i++) {
        if (i < parts) {
            uint32_t n = load->rows - first < OP_ROWS ? load->rows - first : OP_ROWS;
            weft_status status =
                pushes ? weft_ps_push(load->client, 0, load->ids + first, load->values, n, 0,
                                      weft_clock_now_ns(), &ops[i % OPS])
                       : weft_ps_pull(load->client, 0, load->ids + first, load->values, n, 0,
                                      weft_clock_now_ns(), &ops[i % OPS]);
            if (status != WEFT_OK) {
                die(weft_status_text(status));
            }
            sizes[i % OPS] = n;
            first += n;
        }
        /* Check the rows of a pull before the next pull overwrites them. */
        if (!pushes || i + 1 >= OPS || i + 1 >= parts) {
            wait_for(load, ops[done % OPS], sizes[done % OPS]);
            for (uint32_t k = 0; !pushes && k < sizes[done % OPS] * DIM; k++) {
                wrong += load->values[k] != expect;
            }
            done++;
        }
    }
    if (wrong > 0) {
        fprintf(stderr, "checkpoint_load: %" PRIu64 " weights are not %g\n", wrong, (double)expect);
        exit(1);
    }
}

static void open_all(struct load *load)
{
    struct weft_ps_client_config config;
    struct weft_driver_config driver;
    struct weft_error error = {.text = ""};
    weft_peer peers[SHARDS_MAX];
    weft_ps_client_config_default(&config);
    config.shards = load->shards;
    config.tables_max = 1;
    config.ops_max = OPS;
    config.rows_per_op_max = OP_ROWS;
    config.clock_ns = clock_now;
    weft_driver_config_default(&driver);
    driver.udp.host = "127.0.0.1";
    driver.udp.loopback_packet_bytes = WEFT_UDP_LOOPBACK_BYTES;
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_WORKER, 0);
    driver.udp.ep.peers_max = load->shards;
    driver.udp.ep.expects_max = weft_ps_client_expects_max(&config);
    if (weft_driver_open(&driver, &load->driver, &error) != WEFT_OK) {
        die(error.text);
    }
    for (uint32_t s = 0; s < load->shards; s++) {
        if (weft_driver_connect(load->driver, "127.0.0.1", load->ports[s], &peers[s], &error) !=
            WEFT_OK) {
            die(error.text);
        }
    }
    load->msgr = weft_driver_msgr(load->driver);
    if (weft_ps_client_new(&config, load->msgr, peers, &load->client) != WEFT_OK) {
        die("no memory");
    }
    struct weft_table_spec spec = {
        .dim = DIM, .mode = WEFT_TABLE_BSP, .workers = 1, .learning_rate = 1};
    weft_ps_op op;
    if (weft_ps_table_open(load->client, &spec, weft_clock_now_ns(), &op) != WEFT_OK) {
        die("the table is refused");
    }
    wait_for(load, op, 0);
}

static void run(struct load *load, uint32_t clocks, uint32_t expect, bool checks)
{
    printf("%u rows of %d floats, %u shards, clock %u\n", load->rows, (int)DIM, load->shards,
           weft_ps_clock_now(load->client, 0));
    load->begun_ns = load->window_begun_ns = weft_clock_now_ns();
    if (checks) {
        pass(load, false, (float)expect);
        printf("every weight is %u\n", expect);
    }
    for (uint32_t i = 0; i < OP_ROWS * DIM; i++) {
        load->values[i] = -1;
    }
    for (uint32_t c = 0; c < clocks; c++) {
        pass(load, true, 0);
        while (weft_ps_clock(load->client, 0, weft_clock_now_ns()) == WEFT_AGAIN) {
            step(load);
        }
        while (!weft_ps_clock_accepted(load->client, 0)) {
            step(load);
        }
    }
}

int main(int argc, char **argv)
{
    struct load load = {.rows = 100000, .window_ns = 250 * WEFT_NS_PER_MS};
    uint32_t clocks = 0, expect = 0;
    bool checks = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        char *text = argv[i + 1];
        if (strcmp(argv[i], "--ports") == 0) {
            for (char *end = text; *end != '\0' && load.shards < SHARDS_MAX;) {
                load.ports[load.shards++] = (uint16_t)strtoul(end, &end, 10);
                end += *end == ',';
            }
        } else if (strcmp(argv[i], "--rows") == 0) {
            load.rows = (uint32_t)strtoul(text, NULL, 10);
        } else if (strcmp(argv[i], "--clocks") == 0) {
            clocks = (uint32_t)strtoul(text, NULL, 10);
        } else if (strcmp(argv[i], "--expect") == 0) {
            expect = (uint32_t)strtoul(text, NULL, 10);
            checks = true;
        } else {
            die("unknown option; see the head of the source");
        }
    }
    load.ids = calloc(load.rows, sizeof(*load.ids));
    load.values = calloc((size_t)OP_ROWS * DIM, sizeof(*load.values));
    if (load.shards == 0 || load.rows == 0 || load.ids == NULL || load.values == NULL) {
        die("--ports and --rows are required");
    }
    for (uint32_t i = 0; i < load.rows; i++) {
        load.ids[i] = weft_mix64(i + 1);
    }
    open_all(&load);
    run(&load, clocks, expect, checks);
    weft_driver_close(load.driver);
    weft_ps_client_free(load.client);
    free(load.ids);
    free(load.values);
    return 0;
}
