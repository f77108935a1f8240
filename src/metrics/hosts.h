/* The names under which a metrics server may be requested: the Host header of a request.
 *
 * A page in a browser cannot read responses of another site, unless the name of its own site is
 * made to resolve to this machine after it was loaded (DNS rebinding). Then the header still has
 * the page's name. So only configured names are accepted: localhost, the host of --metrics, and
 * those of --metrics-host or WEFT_METRICS_HOST. Two kinds of address are accepted, too: loopback,
 * and the local address of the connection. A request without the header (HTTP/1.0) is accepted,
 * since no browser sends one.
 *
 * This is not authentication: any client that can connect can send any header.
 *
 * Source: docs/METRICS.md, "Allowed hosts".
 */
#ifndef WEFT_METRICS_HOSTS_H
#define WEFT_METRICS_HOSTS_H

#include <stdbool.h>

enum { WEFT_METRICS_HOSTS_BYTES = 1024 };

#define WEFT_METRICS_HOSTS_WORDS                                                                   \
    "names or addresses with commas between them, such as node7,10.0.0.1; at most 1023 characters"

struct weft_metrics_hosts {
    const char *bound; /* the HOST of --metrics, as given */
    const char *list;  /* separated by commas; "" = no others */
};

/* True for a valid list, which may be empty. */
bool weft_metrics_hosts_valid(const char *list);

/* header: of the request, NULL = missing. local: the local address of the connection as text, ""
 * = unknown. */
bool weft_metrics_hosts_allow(const struct weft_metrics_hosts *hosts, const char *header,
                              const char *local);

#endif
