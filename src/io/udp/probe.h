/* A test of this host's UDP on loopback with weft's own socket code: one burst of marked datagrams
 * is sent from one socket to another, and what arrives is measured. Internal to src/io.
 */
#ifndef WEFT_IO_UDP_PROBE_H
#define WEFT_IO_UDP_PROBE_H

#include "base/error.h"
#include "io/udp/socket.h"

struct weft_probe {
    struct weft_sock_facts socket; /* what the kernel granted to a socket that asks for 4 MB */
    uint32_t datagrams;            /* arrived, of WEFT_PROBE_PACKETS */
    bool gso;                      /* the kernel accepted the burst as one message */
    bool gro;                      /* it arrived as one buffer */
    bool ecn;                      /* the mark ECT(0) arrived */
    bool timestamps;               /* it arrived with a timestamp before the time of reading */
};

enum { WEFT_PROBE_PACKETS = 8, WEFT_PROBE_PACKET_BYTES = 1472 };

/* host: "127.0.0.1" or "::1".
 * Errors:  as weft_sock_open: this host has no such loopback address. */
weft_status weft_probe_run(const char *host, struct weft_probe *probe_p, struct weft_error *error);

#endif
