/* Sends vectors of floats of which a tenth may be lost; lost elements are added to the next vector.
 *
 *     send ADDRESS PORT KEY-FILE VECTORS
 *
 * The receiver is recv.c, which runs at that address with the same key.
 *
 *     cc send.c $(pkg-config --cflags --libs weft) -o send
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/transport.h>

enum { ELEMENTS = 100000, TAG = 1 };

static const uint64_t second_ns = 1000000000;

static float vector[ELEMENTS];
static float residual[ELEMENTS];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "send: %s: %s\n", what, why);
    exit(1);
}

/* Wait for the SENT event of a vector. If the receiver goes down, the program ends with the reason.
 * DOWN follows the SENT (UNKNOWN) events of unconfirmed vectors. */
static struct weft_transport_event wait_event(struct weft_transport *t)
{
    struct weft_transport_event event = {.size = sizeof(event)};
    do {
        if (weft_transport_wait(t, 30 * second_ns, &event) != WEFT_OK) {
            die("wait", weft_transport_error(t));
        }
        if (event.type == WEFT_TRANSPORT_DOWN) {
            die("the receiver", weft_transport_error(t));
        }
    } while (event.type == WEFT_TRANSPORT_UP || event.outcome == WEFT_TRANSPORT_UNKNOWN);
    return event;
}

static void send_vector(struct weft_transport *t, uint32_t peer)
{
    const struct weft_range head = {.first = 0, .count = 32};
    struct weft_transport_send send;
    weft_transport_send_init(&send, sizeof(send));
    send.peer = peer;
    send.data = vector;
    send.elements = ELEMENTS;
    send.bound_ppm = 100000; /* a tenth may be lost, */
    send.critical = &head;   /* but not these elements */
    send.critical_count = 1;
    send.tag = TAG;
    if (weft_transport_send(t, &send) != WEFT_OK) {
        die("send", weft_transport_error(t));
    }
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        die("usage", "send ADDRESS PORT KEY-FILE VECTORS");
    }
    struct weft_transport_config config;
    weft_transport_config_init(&config, sizeof(config));
    config.host = "0.0.0.0"; /* the kernel selects the source address */
    config.key_file = argv[3];
    struct weft_transport *t;
    uint32_t peer;
    if (weft_transport_open(&config, &t) != WEFT_OK) {
        die("open", weft_transport_error(NULL));
    }
    if (weft_transport_connect(t, argv[1], (uint16_t)atoi(argv[2]), &peer) != WEFT_OK) {
        die("connect", weft_transport_error(t));
    }
    for (int round = atoi(argv[4]); round > 0; round--) {
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            vector[i] = 1.0F; /* the gradient of this step, in a real program */
        }
        weft_residual_add(residual, vector, ELEMENTS);
        send_vector(t, peer);
        struct weft_transport_event event = wait_event(t);
        if (weft_residual_keep(residual, vector, &event.mask) != WEFT_OK) {
            die("residual", "the elements are not floats");
        }
        printf("%u elements go with the next vector\n", weft_mask_missing(&event.mask));
    }
    weft_transport_close(t);
    return 0;
}
