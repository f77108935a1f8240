#include "io/sock_addr.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static_assert(sizeof(struct sockaddr_in6) <= sizeof(((struct weft_addr *)0)->bytes),
              "an IPv6 socket address fits");

static void addr_store(const void *sockaddr, size_t bytes, struct weft_addr *addr_p)
{
    memset(addr_p, 0, sizeof(*addr_p));
    memcpy(addr_p->bytes, sockaddr, bytes);
    addr_p->bytes_used = (uint32_t)bytes;
}

weft_status weft_sock_addr_parse(const char *host, uint16_t port, struct weft_addr *addr_p,
                                 struct weft_error *error)
{
    const char *numeric = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, numeric, &v4.sin_addr) == 1) {
        addr_store(&v4, sizeof(v4), addr_p);
        return WEFT_OK;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET6, numeric, &v6.sin6_addr) == 1) {
        addr_store(&v6, sizeof(v6), addr_p);
        return WEFT_OK;
    }
    return weft_fail(error, WEFT_INVALID,
                     "\"%.80s\" is not a numeric IPv4 or IPv6 address nor \"localhost\" "
                     "(names are not looked up)",
                     host);
}

bool weft_sock_addr_is_loopback(const struct weft_addr *addr)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, addr->bytes, sizeof(v4));
    memcpy(&v6, addr->bytes, sizeof(v6));
    return v4.sin_family == AF_INET ? (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET
                                    : IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

weft_status weft_sock_addr_usable(const char *host, uint16_t port, bool loopback_only,
                                  struct weft_addr *addr_p, struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = weft_sock_addr_parse(host, port, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (loopback_only && !weft_sock_addr_is_loopback(&addr)) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "%s is beyond loopback, and without security everyone on that network "
                         "can read and change what is sent: set security to auth or seal and "
                         "name a key file (`weft keygen`); the commands also have "
                         "--insecure-network, for a network that you trust",
                         host);
    }
    *addr_p = addr;
    return WEFT_OK;
}

weft_status weft_sock_addr_target(const char *host, uint16_t port, bool loopback_only, int family,
                                  struct weft_addr *addr_p, struct weft_error *error)
{
    struct weft_addr addr;
    weft_status status = weft_sock_addr_usable(host, port, loopback_only, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    if (port == 0) {
        return weft_fail(error, WEFT_INVALID,
                         "port 0 cannot be connected to; give the port of the server");
    }
    if (weft_sock_addr_family(&addr) != family) {
        return weft_fail(
            error, WEFT_INVALID,
            "%s: an IPv4 socket cannot reach IPv6 addresses, nor the reverse; bind to an "
            "address of the same family",
            host);
    }
    *addr_p = addr;
    return WEFT_OK;
}

void weft_sock_addr_canonical(const void *sockaddr, struct weft_addr *addr_p)
{
    struct sockaddr_in6 v6;
    memcpy(&v6, sockaddr, sizeof(v6)); /* the caller's buffer is a sockaddr_in6 at least */
    if (v6.sin6_family == AF_INET6) {
        v6.sin6_flowinfo = 0;
        v6.sin6_scope_id = 0;
        addr_store(&v6, sizeof(v6), addr_p);
        return;
    }
    struct sockaddr_in v4;
    memcpy(&v4, sockaddr, sizeof(v4));
    memset(v4.sin_zero, 0, sizeof(v4.sin_zero));
    addr_store(&v4, sizeof(v4), addr_p);
}

int weft_sock_addr_family(const struct weft_addr *addr)
{
    struct sockaddr_in v4; /* family and port have the same offset in both structs */
    memcpy(&v4, addr->bytes, sizeof(v4));
    return v4.sin_family;
}

uint16_t weft_sock_addr_port(const struct weft_addr *addr)
{
    struct sockaddr_in v4;
    memcpy(&v4, addr->bytes, sizeof(v4));
    return ntohs(v4.sin_port);
}
