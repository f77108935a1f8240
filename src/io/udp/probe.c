#include "io/udp/probe.h"

#include "io/sock_addr.h"
#include "io/udp/rx.h"
#include "io/udp/tx.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOCKET_BUFFER_BYTES = 4 << 20, ARRIVAL_WAIT_MS = 100 };

static weft_status open_pair(const char *host, int fds[2], struct weft_sock_facts *facts_p,
                             struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = weft_sock_addr_parse(host, 0, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_sock_request request = {.buffer_bytes = SOCKET_BUFFER_BYTES, .gro = true};
    struct weft_sock_facts sender_facts;
    status = weft_sock_open(&addr, &request, &fds[0], &sender_facts, error);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_sock_open(&addr, &request, &fds[1], facts_p, error);
    if (status != WEFT_OK) {
        (void)close(fds[0]);
    }
    return status;
}

static bool send_burst(int fd, const struct weft_addr *to)
{
    static const uint8_t zeros[WEFT_PROBE_PACKETS * WEFT_PROBE_PACKET_BYTES];
    struct weft_tx *burst = calloc(1, sizeof(*burst));
    if (burst == NULL) {
        return false;
    }
    burst->addr = *to;
    burst->ecn = WEFT_ECN_ECT0;
    burst->packets = WEFT_PROBE_PACKETS;
    burst->seg_bytes = WEFT_PROBE_PACKET_BYTES;
    burst->bytes = sizeof(zeros);
    burst->iov_count = 1;
    burst->iov[0] = (struct weft_ep_iov){.base = zeros, .bytes = sizeof(zeros)};
    struct weft_sender sender;
    weft_sender_init(&sender, fd, weft_sock_addr_family(&burst->addr), true);
    struct weft_socket_counters counters = {0};
    weft_sender_send(&sender, burst, 1, &counters);
    free(burst);
    return sender.gso;
}

static void take(struct weft_rx *rx, struct weft_probe *probe)
{
    struct weft_socket_counters counters = {0};
    const struct weft_rx_buffer *buffers;
    uint32_t count;
    uint64_t now_ns;
    (void)weft_rx_batch(rx, false, &counters, &now_ns, &buffers, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].count == 0) {
            continue;
        }
        uint64_t datagrams = weft_div_ceil_u64(buffers[i].count, buffers[i].segment_bytes);
        probe->datagrams += (uint32_t)datagrams;
        probe->gro = probe->gro || datagrams > 1;
        probe->ecn = probe->ecn || buffers[i].ecn == WEFT_ECN_ECT0;
        probe->timestamps = probe->timestamps || buffers[i].at_ns < now_ns;
    }
}

static weft_status receive_burst(int fd, struct weft_probe *probe, struct weft_error *error)
{
    struct weft_rx *rx;
    weft_status status = weft_rx_new(fd, &rx);
    if (status != WEFT_OK) {
        return weft_fail(error, status, "no memory for receive buffers");
    }
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (probe->datagrams < WEFT_PROBE_PACKETS && poll(&wait, 1, ARRIVAL_WAIT_MS) == 1) {
        take(rx, probe);
    }
    weft_rx_free(rx);
    return WEFT_OK;
}

weft_status weft_probe_run(const char *host, struct weft_probe *probe_p, struct weft_error *error)
{
    int fds[2];
    struct weft_probe probe = {0};
    weft_status status = open_pair(host, fds, &probe.socket, error);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_addr to;
    status = weft_sock_addr_parse(host, probe.socket.port, &to, error);
    if (status == WEFT_OK) {
        probe.gso = send_burst(fds[0], &to);
        status = receive_burst(fds[1], &probe, error);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
    if (status == WEFT_OK) {
        *probe_p = probe;
    }
    return status;
}
