/* By which names a server of metrics may be asked: the Host header of a request.
 *
 * A page in a browser cannot read another site's answers, unless the name of its own site is made to
 * point here after it was loaded (DNS rebinding). Then the header still has the page's name. So names
 * are answered that somebody chose: localhost, the host of --metrics, and those of --metrics-host or
 * WEFT_METRICS_HOST; and two kinds of address: loopback, and the one of this end of the connection. A
 * request without the header (HTTP/1.0) is answered, for no browser sends one.
 *
 * It is not authentication: whoever can connect can write any header.
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
    const char *bound; /* the HOST of --metrics, as it was given */
    const char *list;  /* with commas between them; "" = no others */
};

/* Is this such a list? An empty text is. */
bool weft_metrics_hosts_valid(const char *list);

/* header: of the request, NULL = it has none. local: the address of this end of its connection as
 * text, "" = not known. */
bool weft_metrics_hosts_allow(const struct weft_metrics_hosts *hosts, const char *header,
                              const char *local);

#endif
