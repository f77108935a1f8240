#include "io/unreached.h"

#include "io/sock_addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void weft_unreached_text(const struct weft_unreached *unreached, char *text_p, size_t bytes)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    char host[INET6_ADDRSTRLEN] = "?";
    char number[80];
    *text_p = '\0';
    if (unreached->number == 0) {
        return;
    }
    memcpy(&v4, unreached->addr.bytes, sizeof(v4));
    memcpy(&v6, unreached->addr.bytes, sizeof(v6));
    bool six = v4.sin_family == AF_INET6;
    (void)inet_ntop(v4.sin_family, six ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr, host,
                    sizeof(host));
    const char *left = six ? "[" : "";
    const char *right = six ? "]" : "";
    unsigned port = weft_sock_addr_port(&unreached->addr);
    if (unreached->number == ECONNREFUSED) {
        snprintf(text_p, bytes,
                 "nothing listens at %s%s%s:%u: start the program there first, or check address "
                 "and port",
                 left, host, right, port);
        return;
    }
    /* The GNU variant of strerror_r: it may return a static string instead of the buffer. */
    snprintf(text_p, bytes, "%s%s%s:%u cannot be reached; the network says: %s", left, host, right,
             port, strerror_r(unreached->number, number, sizeof(number)));
}
