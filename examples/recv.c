/* Receives vectors of floats, sums them, and prints the number of missing elements of each.
 *
 *     recv ADDRESS PORT KEY-FILE VECTORS [LOSS]
 *
 * ADDRESS is an address of this host; PORT 0 selects any free port. `weft keygen` makes the key
 * file. LOSS, such as 0.05, deliberately drops that fraction of the received packets, to show gaps
 * on a network without loss. The sender is send.c.
 *
 *     cc recv.c $(pkg-config --cflags --libs weft) -o recv
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/transport.h>

enum { ELEMENTS = 100000, TAG = 1 };

static const uint64_t second_ns = 1000000000;

static float sum[ELEMENTS];
static uint16_t counts[(ELEMENTS + WEFT_GRAIN - 1) / WEFT_GRAIN];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "recv: %s: %s\n", what, why);
    exit(1);
}

static void post_memory(struct weft_transport *t)
{
    struct weft_transport_receive receive;
    weft_transport_receive_init(&receive, sizeof(receive));
    receive.memory = sum;
    receive.memory_bytes = sizeof(sum);
    receive.sink = WEFT_TRANSPORT_ADD;
    receive.tag = TAG;
    uint64_t id;
    if (weft_transport_receive(t, &receive, &id) != WEFT_OK) {
        die("receive", weft_transport_error(t));
    }
}

static void print_gaps(const struct weft_mask *mask)
{
    printf("%u of %u elements", mask->elements - weft_mask_missing(mask), mask->elements);
    const char *before = "; missing:";
    uint32_t first;
    uint32_t count;
    for (uint32_t at = 0; weft_mask_gap(mask, at, &first, &count); at = first + count) {
        printf("%s %u..%u", before, first, first + count - 1);
        before = "";
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        die("usage", "recv ADDRESS PORT KEY-FILE VECTORS [LOSS]");
    }
    struct weft_transport_config config;
    weft_transport_config_init(&config, sizeof(config));
    config.host = argv[1];
    config.port = (uint16_t)atoi(argv[2]);
    config.key_file = argv[3];
    config.accept = 1;
    config.inject_loss_ppm = argc > 5 ? (uint32_t)(atof(argv[5]) * 1e6) : 0;
    struct weft_transport *t;
    if (weft_transport_open(&config, &t) != WEFT_OK) {
        die("open", weft_transport_error(NULL));
    }
    printf("port %u\n", (unsigned)weft_transport_port(t));
    fflush(stdout);
    int left = atoi(argv[4]);
    post_memory(t);
    while (left > 0) {
        struct weft_transport_event event = {.size = sizeof(event)};
        if (weft_transport_wait(t, 30 * second_ns, &event) != WEFT_OK) {
            die("wait", weft_transport_error(t));
        } else if (event.type == WEFT_TRANSPORT_DOWN) {
            die("the sender", weft_transport_error(t));
        } else if (event.type == WEFT_TRANSPORT_RECEIVED) {
            print_gaps(&event.mask);
            if (weft_counts_add(counts, &event.mask) != WEFT_OK) {
                die("counts", "the sender's packets do not hold a multiple of 32 elements");
            }
            if (--left > 0) {
                post_memory(t);
            }
        }
    }
    /* Wait until the sender knows the outcome of the last vector. This times out if the sender has
     * exited and its last packets were lost. */
    (void)weft_transport_flush(t, second_ns);
    weft_counts_divide(counts, sum, ELEMENTS);
    printf("mean of element 0: %g\n", (double)sum[0]);
    weft_transport_close(t);
    return 0;
}
