#include "io/resolve.h"

#include "io/sock_addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96 */

static void host_text(const void *sockaddr, char text_p[WEFT_RESOLVE_TEXT_BYTES])
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, sockaddr, sizeof(v4));
    if (v4.sin_family == AF_INET) {
        (void)inet_ntop(AF_INET, &v4.sin_addr, text_p, WEFT_RESOLVE_TEXT_BYTES);
        return;
    }
    memcpy(&v6, sockaddr, sizeof(v6));
    (void)inet_ntop(AF_INET6, &v6.sin6_addr, text_p, WEFT_RESOLVE_TEXT_BYTES);
}

weft_status weft_resolve(const char *host, char text_p[WEFT_RESOLVE_TEXT_BYTES],
                         struct weft_error *error)
{
    struct weft_addr addr;
    if (weft_sock_addr_parse(host, 1, &addr, NULL) == WEFT_OK) {
        host_text(addr.bytes, text_p);
        return WEFT_OK;
    }
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
    int why = getaddrinfo(host, NULL, &hints, &found);
    if (why != 0) {
        return weft_fail(error, WEFT_NOTFOUND, "the name %.120s has no address: %s", host,
                         why == EAI_SYSTEM ? strerror(errno) : gai_strerror(why));
    }
    /* Prefer IPv4: the usual wildcard, 0.0.0.0, accepts only that. */
    const struct addrinfo *chosen = found;
    for (const struct addrinfo *next = found; next != NULL; next = next->ai_next) {
        if (next->ai_family == AF_INET) {
            chosen = next;
            break;
        }
    }
    struct sockaddr_storage address = {0};
    memcpy(&address, chosen->ai_addr, chosen->ai_addrlen);
    freeaddrinfo(found);
    host_text(&address, text_p);
    return WEFT_OK;
}

weft_status weft_resolve_local(const char *host, char text_p[WEFT_RESOLVE_TEXT_BYTES],
                               struct weft_error *error)
{
    struct weft_addr addr;
    struct sockaddr_storage local = {0};
    socklen_t bytes = sizeof(local);
    weft_status status = weft_sock_addr_parse(host, 9, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    /* connect on a UDP socket looks up the route and sends nothing. */
    int fd = socket(weft_sock_addr_family(&addr), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = fd >= 0 &&
                 connect(fd, (const struct sockaddr *)addr.bytes, addr.bytes_used) == 0 &&
                 getsockname(fd, (struct sockaddr *)&local, &bytes) == 0;
    int why = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (!known) {
        return weft_fail(error, WEFT_IO, "no route to %s: %s", host, strerror(why));
    }
    host_text(&local, text_p);
    return WEFT_OK;
}

bool weft_resolve_is_wildcard(const char *host)
{
    struct weft_member_address address;
    static const uint8_t zeros[16];
    return weft_resolve_member_address(host, 1, &address, NULL) == WEFT_OK &&
           (memcmp(address.ip, zeros, 16) == 0 ||
            (memcmp(address.ip, mapped, 12) == 0 && memcmp(address.ip + 12, zeros, 4) == 0));
}

weft_status weft_resolve_member_address(const char *host, uint16_t port,
                                        struct weft_member_address *address_p,
                                        struct weft_error *error)
{
    struct weft_addr addr;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    weft_status status = weft_sock_addr_parse(host, port, &addr, error);
    if (status != WEFT_OK) {
        return status;
    }
    *address_p = (struct weft_member_address){.port = port};
    memcpy(&v4, addr.bytes, sizeof(v4));
    memcpy(&v6, addr.bytes, sizeof(v6));
    if (v4.sin_family == AF_INET) {
        memcpy(address_p->ip, mapped, sizeof(mapped));
        memcpy(address_p->ip + 12, &v4.sin_addr, 4);
    } else {
        memcpy(address_p->ip, &v6.sin6_addr, 16);
    }
    return WEFT_OK;
}

void weft_resolve_member_host(const struct weft_member_address *address,
                              char text_p[WEFT_RESOLVE_TEXT_BYTES])
{
    if (memcmp(address->ip, mapped, sizeof(mapped)) == 0) {
        (void)inet_ntop(AF_INET, address->ip + 12, text_p, WEFT_RESOLVE_TEXT_BYTES);
    } else {
        (void)inet_ntop(AF_INET6, address->ip, text_p, WEFT_RESOLVE_TEXT_BYTES);
    }
}
