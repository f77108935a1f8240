#include "lab/verify.h"

#include "base/bits.h"
#include "base/units.h"
#include "lab/build.h"
#include "lab/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 9, RTT_ROUNDS = 51, WAIT_MS = 20 };

static const uint64_t patience_ns = 20 * WEFT_NS_PER_S;

struct verify {
    const struct weft_lab_spec *spec;
    struct pollfd sockets[WEFT_LAB_HOSTS_MAX]; /* one per host */
    uint64_t *heard;                           /* bit to * hosts + from */
    uint64_t missing;                          /* pairs */
};

static struct sockaddr_in address_of(uint32_t host)
{
    char text[WEFT_LAB_ADDRESS_BYTES];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    weft_lab_host_address(host, text);
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
}

static weft_status open_sockets(struct verify *v, struct weft_error *error)
{
    for (uint32_t h = 0; h < v->spec->hosts; h++) {
        char node[WEFT_LAB_NODE_BYTES];
        weft_lab_host_name(h, node);
        weft_status status = weft_lab_go(node, error);
        if (status != WEFT_OK) {
            return status;
        }
        struct sockaddr_in address = address_of(h);
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        v->sockets[h] = (struct pollfd){.fd = fd, .events = POLLIN};
        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
            return weft_fail(error, WEFT_IO, "cannot open a socket on %s: %s", node,
                             strerror(errno));
        }
    }
    return WEFT_OK;
}

static void close_sockets(struct verify *v)
{
    for (uint32_t h = 0; h < v->spec->hosts; h++) {
        if (v->sockets[h].fd >= 0) {
            close(v->sockets[h].fd);
        }
    }
}

/* Send to one host. An error, for instance a full queue, is treated as a loss: the next round
 * sends again. */
static void say(struct verify *v, uint32_t from, uint32_t to)
{
    struct sockaddr_in address = address_of(to);
    ssize_t sent = sendto(v->sockets[from].fd, &from, sizeof(from), 0, (struct sockaddr *)&address,
                          sizeof(address));
    (void)sent;
}

static void hear(struct verify *v, uint32_t to)
{
    uint32_t from;
    while (recv(v->sockets[to].fd, &from, sizeof(from), 0) == (ssize_t)sizeof(from)) {
        size_t bit = (size_t)to * v->spec->hosts + from;
        if (from < v->spec->hosts && !weft_bits_test(v->heard, bit)) {
            weft_bits_set(v->heard, bit);
            v->missing--;
        }
    }
}

static void hear_all(struct verify *v)
{
    while (v->missing > 0 && poll(v->sockets, v->spec->hosts, WAIT_MS) > 0) {
        for (uint32_t h = 0; h < v->spec->hosts; h++) {
            hear(v, h);
        }
    }
}

/* Send for every pair without a received datagram, cycling through the receivers so that no
 * queue has to hold all datagrams. */
static void say_missing(struct verify *v)
{
    uint32_t n = v->spec->hosts;
    for (uint32_t step = 1; step < n; step++) {
        for (uint32_t from = 0; from < n; from++) {
            uint32_t to = (from + step) % n;
            if (!weft_bits_test(v->heard, (size_t)to * n + from)) {
                say(v, from, to);
            }
        }
    }
}

static weft_status reach_all(struct verify *v, struct weft_error *error)
{
    uint32_t n = v->spec->hosts;
    uint64_t until_ns = weft_lab_now_ns() + patience_ns;
    v->missing = (uint64_t)n * (n - 1);
    while (v->missing > 0 && weft_lab_now_ns() < until_ns) {
        say_missing(v);
        hear_all(v);
    }
    for (uint32_t i = 0; v->missing > 0 && i < n * n; i++) {
        if (i / n != i % n && !weft_bits_test(v->heard, i)) {
            return weft_fail(error, WEFT_TIMEOUT,
                             "h%u receives nothing from h%u (%llu of %u pairs fail)", i / n, i % n,
                             (unsigned long long)v->missing, n * (n - 1));
        }
    }
    return WEFT_OK;
}

/* From h0 to the last host and back, both driven by this process: no process is to be woken on
 * the other side, so it is the network's time and four system calls. The minimum of many. */
static uint64_t base_rtt(struct verify *v)
{
    uint32_t last = v->spec->hosts - 1;
    uint64_t best_ns = WEFT_NEVER;
    uint32_t word;
    for (int i = 0; i < RTT_ROUNDS && last > 0; i++) {
        struct pollfd there = v->sockets[last];
        struct pollfd back = v->sockets[0];
        while (recv(there.fd, &word, sizeof(word), 0) > 0 ||
               recv(back.fd, &word, sizeof(word), 0) > 0) {
        }
        uint64_t start_ns = weft_lab_now_ns();
        say(v, 0, last);
        if (poll(&there, 1, WAIT_MS) > 0) {
            say(v, last, 0);
            best_ns = poll(&back, 1, WAIT_MS) > 0
                          ? weft_min_u64(best_ns, weft_lab_now_ns() - start_ns)
                          : best_ns;
        }
    }
    return best_ns == WEFT_NEVER ? 0 : best_ns;
}

weft_status weft_lab_verify(const struct weft_lab_spec *spec, uint64_t *base_rtt_ns_p,
                            struct weft_error *error)
{
    static struct verify v;
    v = (struct verify){.spec = spec};
    for (uint32_t h = 0; h < spec->hosts; h++) {
        v.sockets[h].fd = -1;
    }
    v.heard = calloc(WEFT_BITS_WORDS((size_t)spec->hosts * spec->hosts), sizeof(uint64_t));
    if (v.heard == NULL) {
        return weft_fail(error, WEFT_NOMEM, "out of memory");
    }
    weft_status status = open_sockets(&v, error);
    if (status == WEFT_OK) {
        status = reach_all(&v, error);
    }
    if (status == WEFT_OK) {
        *base_rtt_ns_p = base_rtt(&v);
    }
    close_sockets(&v);
    free(v.heard);
    return status;
}
